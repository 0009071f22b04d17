"""whet makes prompts sharper by reinforcement learning, and proves that they are sharper."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from whet.version import __version__

if TYPE_CHECKING:
    from whet import methods
    from whet.api import (
        acompare,
        aevaluate,
        alearn,
        aoptimize,
        compare,
        evaluate,
        learn,
        optimize,
        report,
        runs,
    )
    from whet.environments.environment import Environment
    from whet.errors import ProviderError, UsageError
    from whet.methods import Method
    from whet.models.language_model import LanguageModel
    from whet.prompt import Prompt
    from whet.results import RunResult
    from whet.run import Budget, Run
    from whet.search.archive import Candidate
    from whet.session import Session
    from whet.task import Task
    from whet.types import Completion, Example, Message, Reward, Rollout

_HOMES = {
    "whet.api": "acompare aevaluate alearn aoptimize compare evaluate learn optimize report runs",
    "whet.environments.environment": "Environment",
    "whet.errors": "ProviderError UsageError",
    "whet.methods": "Method",
    "whet.models.language_model": "LanguageModel",
    "whet.prompt": "Prompt",
    "whet.results": "RunResult",
    "whet.run": "Budget Run",
    "whet.search.archive": "Candidate",
    "whet.session": "Session",
    "whet.task": "Task",
    "whet.types": "Completion Example Message Reward Rollout",
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Budget",
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
    "Rollout",
    "Run",
    "RunResult",
    "Session",
    "Task",
    "UsageError",
    "__version__",
    "acompare",
    "aevaluate",
    "alearn",
    "aoptimize",
    "compare",
    "evaluate",
    "learn",
    "methods",
    "optimize",
    "report",
    "runs",
]

_HOMES = {
    "Candidate": "whet.search",
    "Completion": "whet.types",
    "Environment": "whet.environments.environment",
    "Example": "whet.types",
    "LanguageModel": "whet.models.language_model",
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
    """Import a public name on first use, so that `import whet` stays light."""
    if name == "methods":
        return importlib.import_module("whet.methods")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'whet' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names."""
    return list(__all__)
