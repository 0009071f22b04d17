"""The public functions, and the use cases behind them: a run and its result, sessions, comparison, transfer, advice, `doctor`.

Python programs, the command line and the server call what `__all__` names here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.api.advising import aadvise
    from whet.api.aligning import aligned_rubric, forget_judgements, judge_task
    from whet.api.exporting import export_policy
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
        run_events,
        runs,
    )
    from whet.api.migrating import amigrate
    from whet.api.preferences import UnclearPreferences, alearn_preferences, preference_questions
    from whet.api.requirements import requirement_questions
    from whet.api.results import (
        Evaluation,
        MeanEstimate,
        MethodComparison,
        RunResult,
        sample_size,
    )
    from whet.api.running import find_run, read_result
    from whet.api.shards import merge
    from whet.api.transfer_matrix import atransfer_matrix
    from whet.api.transferring import atransfer
    from whet.engine.options import Options
    from whet.engine.plan_text import plan_lines
    from whet.engine.progress import Progress
    from whet.engine.result_json import answered_rows, describe_agreement, show_gaps
    from whet.engine.run_folder import RESULT

_HOMES = {
    "whet.api.advising": "aadvise",
    "whet.api.aligning": "aligned_rubric forget_judgements judge_task",
    "whet.api.exporting": "export_policy",
    "whet.api.functions": (
        "acompare aevaluate alearn aoptimize compare evaluate learn optimize report run_events runs"
    ),
    "whet.api.migrating": "amigrate",
    "whet.api.preferences": "UnclearPreferences alearn_preferences preference_questions",
    "whet.api.requirements": "requirement_questions",
    "whet.api.results": "Evaluation MeanEstimate MethodComparison RunResult sample_size",
    "whet.api.running": "find_run read_result",
    "whet.api.shards": "merge",
    "whet.api.transfer_matrix": "atransfer_matrix",
    "whet.api.transferring": "atransfer",
    "whet.engine.plan_text": "plan_lines",
    "whet.engine.options": "Options",
    "whet.engine.progress": "Progress",
    "whet.engine.result_json": "answered_rows describe_agreement show_gaps",
    "whet.engine.run_folder": "RESULT",
}

__all__ = [
    "RESULT",
    "Evaluation",
    "MeanEstimate",
    "MethodComparison",
    "Options",
    "Progress",
    "RunResult",
    "UnclearPreferences",
    "aadvise",
    "acompare",
    "aevaluate",
    "alearn",
    "alearn_preferences",
    "aligned_rubric",
    "amigrate",
    "answered_rows",
    "aoptimize",
    "atransfer",
    "atransfer_matrix",
    "compare",
    "describe_agreement",
    "evaluate",
    "export_policy",
    "find_run",
    "forget_judgements",
    "judge_task",
    "learn",
    "merge",
    "optimize",
    "plan_lines",
    "preference_questions",
    "read_result",
    "report",
    "requirement_questions",
    "run_events",
    "runs",
    "sample_size",
    "show_gaps",
]

__getattr__ = lazy(__name__, _HOMES)
