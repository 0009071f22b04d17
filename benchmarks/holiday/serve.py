"""`whet serve` by the simulated clock, also in the process of its learner, which imports this file anew."""

from __future__ import annotations

from benchmarks.soak.clock import install_from_environment

install_from_environment()

QUALITY_SECONDS = 0.4
"""An hour of the story lasts less than the minute after which a server looks at the quality again."""

if __name__ == "__main__":
    from whet_live.cli.serve import serve
    from whet_live.server import background_tasks

    background_tasks.QUALITY_SECONDS = QUALITY_SECONDS
    serve()
