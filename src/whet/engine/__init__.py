"""The durable engine: journal, budget, cache, calls, and the execution of one method as a run."""

from whet.engine.comparison_json import (
    AdviceJSON,
    AdvisedPlanJSON,
    ComparisonJSON,
    MatrixJSON,
    MethodSummaryJSON,
    ReasonsJSON,
    RunRowJSON,
    TeamRunJSON,
    TransferJSON,
    TransferSummaryJSON,
)
from whet.engine.plan_json import PlanJSON
from whet.engine.result_json import EvaluationJSON, LabelFiguresJSON, MeanJSON, PairJSON, RunJSON, UsageJSON

__all__ = [
    "AdviceJSON",
    "AdvisedPlanJSON",
    "ComparisonJSON",
    "EvaluationJSON",
    "LabelFiguresJSON",
    "MatrixJSON",
    "MeanJSON",
    "MethodSummaryJSON",
    "PairJSON",
    "PlanJSON",
    "ReasonsJSON",
    "RunJSON",
    "RunRowJSON",
    "TeamRunJSON",
    "TransferJSON",
    "TransferSummaryJSON",
    "UsageJSON",
]
