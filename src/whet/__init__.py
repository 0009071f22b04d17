"""whet makes prompts sharper by reinforcement learning, and proves that they are sharper."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.version import __version__

if TYPE_CHECKING:
    from whet.env import Environment
    from whet.errors import ProviderError, UsageError
    from whet.methods import Method
    from whet.models.base import LanguageModel
    from whet.prompt import Prompt
    from whet.run import Run
    from whet.search import Candidate
    from whet.types import Completion, Example, Message, Reward

__all__ = [
    "Candidate",
    "Completion",
    "Environment",
    "Example",
    "LanguageModel",
    "Message",
    "Method",
    "Prompt",
    "ProviderError",
    "Reward",
    "Run",
    "UsageError",
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

_HOMES = {
    "Candidate": "whet.search",
    "Completion": "whet.types",
    "Environment": "whet.env",
    "Example": "whet.types",
    "LanguageModel": "whet.models.base",
    "Message": "whet.types",
    "Method": "whet.methods",
    "Prompt": "whet.prompt",
    "ProviderError": "whet.errors",
    "Reward": "whet.types",
    "Run": "whet.run",
    "UsageError": "whet.errors",
}
"""The module of each name that is not a function of the façade."""


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that `import whet` stays light."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "whet.api")), name)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")
