"""whet makes prompts sharper by reinforcement learning, and proves that they are sharper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy
from whet_client.version import __version__

if TYPE_CHECKING:
    from whet import methods
    from whet.api.advising import aadvise, advise
    from whet.api.aligning import aligned_rubric, judge_task
    from whet.api.functions import (
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
    from whet.api.migrating import amigrate, migrate
    from whet.api.preferences import alearn_preferences, learn_preferences, preference_questions
    from whet.api.results import RunResult
    from whet.api.session import Session
    from whet.api.shards import merge
    from whet.api.study import astudy_components, astudy_sensitivity, study_components, study_sensitivity
    from whet.api.transfer_matrix import atransfer_matrix, transfer_matrix
    from whet.api.transferring import atransfer, transfer
    from whet.engine.progress import Progress
    from whet.environments.environment import Environment
    from whet.errors import ProviderError, UsageError
    from whet.methods import Method
    from whet.models.language_model import LanguageModel
    from whet.prompt import Prompt
    from whet.run import Budget, Run
    from whet.search.archive import Candidate
    from whet.task import Task
    from whet.types import Completion, Example, Message, Reward, Rollout

_HOMES = {
    "whet": "api methods",
    "whet.api.advising": "aadvise advise",
    "whet.api.aligning": "aligned_rubric judge_task",
    "whet.api.functions": "acompare aevaluate alearn aoptimize compare evaluate learn optimize report runs",
    "whet.engine.progress": "Progress",
    "whet.environments.environment": "Environment",
    "whet.errors": "ProviderError UsageError",
    "whet.methods": "Method",
    "whet.models.language_model": "LanguageModel",
    "whet.prompt": "Prompt",
    "whet.api.migrating": "amigrate migrate",
    "whet.api.preferences": "alearn_preferences learn_preferences preference_questions",
    "whet.api.shards": "merge",
    "whet.api.results": "RunResult",
    "whet.run": "Budget Run",
    "whet.search.archive": "Candidate",
    "whet.api.session": "Session",
    "whet.api.study": "astudy_components astudy_sensitivity study_components study_sensitivity",
    "whet.task": "Task",
    "whet.api.transfer_matrix": "atransfer_matrix transfer_matrix",
    "whet.api.transferring": "atransfer transfer",
    "whet.types": "Completion Example Message Reward Rollout",
}

__all__ = [
    "Budget",
    "Candidate",
    "Completion",
    "Environment",
    "Example",
    "LanguageModel",
    "Message",
    "Method",
    "Progress",
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
    "aadvise",
    "acompare",
    "advise",
    "aevaluate",
    "alearn",
    "alearn_preferences",
    "aligned_rubric",
    "amigrate",
    "aoptimize",
    "astudy_components",
    "astudy_sensitivity",
    "atransfer",
    "atransfer_matrix",
    "compare",
    "evaluate",
    "judge_task",
    "learn",
    "learn_preferences",
    "merge",
    "methods",
    "migrate",
    "optimize",
    "preference_questions",
    "report",
    "runs",
    "study_components",
    "study_sensitivity",
    "transfer",
    "transfer_matrix",
]

__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    """All public names."""
    return list(__all__)
