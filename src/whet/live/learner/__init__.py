"""The always-on learner: the feedback state, its requirements, the gate, and the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.lazy import lazy

if TYPE_CHECKING:
    from whet.live.learner.context import AUTHOR, LearnerConfig
    from whet.live.learner.gate_config import GateConfig
    from whet.live.learner.learner import REQUIREMENT, Learner
    from whet.live.learner.learner_store import MODES
    from whet.live.learner.reader_check import check_reader
    from whet.live.learner.reading import UNREADABLE

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
        "whet.live.learner.context": "AUTHOR LearnerConfig",
        "whet.live.learner.gate_config": "GateConfig",
        "whet.live.learner.learner": "REQUIREMENT Learner",
        "whet.live.learner.learner_store": "MODES",
        "whet.live.learner.reader_check": "check_reader",
        "whet.live.learner.reading": "UNREADABLE",
    },
)
