"""whet makes prompts sharper by reinforcement learning, and proves that they are sharper."""

from __future__ import annotations

from typing import Any

from whet.version import __version__

__all__ = [
    "__version__",
    "compare",
    "evaluate",
    "learn",
    "methods",
    "optimize",
    "optimize_async",
    "report",
    "runs",
]


def __getattr__(name: str) -> Any:
    """Import the façade on first use, so that `import whet` stays light."""
    if name in __all__:
        from whet import api

        return getattr(api, name)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")
