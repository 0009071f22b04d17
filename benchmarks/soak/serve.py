"""`whet serve` by the simulated clock, also in the process of its learner, which imports this file anew."""

from __future__ import annotations

from benchmarks.soak.clock import install_from_environment

install_from_environment()

if __name__ == "__main__":
    from whet_live.cli.serve import serve

    serve()
