"""The always-on learner: the feedback state, its requirements, the gate, and the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.learner.answer_context import READS, describe_reading
    from whet_live.learner.context import AUTHOR, LearnerConfig
    from whet_live.learner.evaluation import EvaluatorState, describe_evaluators
    from whet_live.learner.evaluator_config import EvaluatorConfig
    from whet_live.learner.gate_config import GateConfig
    from whet_live.learner.learner import REQUIREMENT, Learner
    from whet_live.learner.learner_store import MODES
    from whet_live.learner.pattern_reading import LONGEST_DESCRIPTION, LONGEST_PATTERN_NAME
    from whet_live.learner.pattern_report import WEEKS, FailurePattern, PatternReport
    from whet_live.learner.patterns import PATTERN_CALLS, describe_patterns
    from whet_live.learner.reader_check import check_reader
    from whet_live.learner.reading import UNREADABLE
    from whet_live.learner.search_config import SearchConfig, check_searches
    from whet_live.learner.searching import PromptSearch
    from whet_live.learner.terms import InstructionTerms, read_dates, read_review
    from whet_live.learner.terms_files import export_prompts, import_prompts

__all__ = [
    "AUTHOR",
    "LONGEST_DESCRIPTION",
    "LONGEST_PATTERN_NAME",
    "MODES",
    "PATTERN_CALLS",
    "READS",
    "REQUIREMENT",
    "UNREADABLE",
    "WEEKS",
    "EvaluatorConfig",
    "EvaluatorState",
    "FailurePattern",
    "GateConfig",
    "InstructionTerms",
    "Learner",
    "LearnerConfig",
    "PatternReport",
    "PromptSearch",
    "SearchConfig",
    "check_reader",
    "check_searches",
    "describe_evaluators",
    "describe_patterns",
    "describe_reading",
    "export_prompts",
    "import_prompts",
    "read_dates",
    "read_review",
]

__getattr__ = lazy(
    __name__,
    {
        "whet_live.learner.answer_context": "READS describe_reading",
        "whet_live.learner.context": "AUTHOR LearnerConfig",
        "whet_live.learner.evaluation": "EvaluatorState describe_evaluators",
        "whet_live.learner.evaluator_config": "EvaluatorConfig",
        "whet_live.learner.gate_config": "GateConfig",
        "whet_live.learner.learner": "REQUIREMENT Learner",
        "whet_live.learner.learner_store": "MODES",
        "whet_live.learner.pattern_reading": "LONGEST_DESCRIPTION LONGEST_PATTERN_NAME",
        "whet_live.learner.pattern_report": "FailurePattern PatternReport WEEKS",
        "whet_live.learner.patterns": "PATTERN_CALLS describe_patterns",
        "whet_live.learner.reader_check": "check_reader",
        "whet_live.learner.reading": "UNREADABLE",
        "whet_live.learner.search_config": "SearchConfig check_searches",
        "whet_live.learner.searching": "PromptSearch",
        "whet_live.learner.terms": "InstructionTerms read_dates read_review",
        "whet_live.learner.terms_files": "export_prompts import_prompts",
    },
)
