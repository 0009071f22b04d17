"""The always-on learner: the feedback state, its requirements, the gate, and the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.learner.context import AUTHOR, LearnerConfig
    from whet_live.learner.gate_config import GateConfig
    from whet_live.learner.learner import REQUIREMENT, Learner
    from whet_live.learner.learner_store import MODES
    from whet_live.learner.reader_check import check_reader
    from whet_live.learner.reading import UNREADABLE

__all__ = [
    "AUTHOR",
    "MODES",
    "REQUIREMENT",
    "UNREADABLE",
    "GateConfig",
    "Learner",
    "LearnerConfig",
    "check_reader",
]

__getattr__ = lazy(
    __name__,
    {
        "whet_live.learner.context": "AUTHOR LearnerConfig",
        "whet_live.learner.gate_config": "GateConfig",
        "whet_live.learner.learner": "REQUIREMENT Learner",
        "whet_live.learner.learner_store": "MODES",
        "whet_live.learner.reader_check": "check_reader",
        "whet_live.learner.reading": "UNREADABLE",
    },
)
