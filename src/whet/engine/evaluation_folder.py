"""Folders of evaluations and trials: which one holds what, and how one takes the place of another."""

from __future__ import annotations

import shutil
from pathlib import Path

from whet.engine.evaluated_rows import ROWS
from whet.engine.journal import Journal
from whet.engine.options import Options
from whet.engine.run_folder import (
    RESULT,
    Identity,
    RunPlan,
    differing_entries,
    evaluated_split,
    noted_in,
    read_header,
)
from whet.task.spec import TRANSFER

ASKED = "asked"
"""The key under which the journal of an evaluation keeps the question: its header, and the addresses of its models."""

_EVALUATED = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", RESULT, ROWS)
"""The files of an evaluation."""
_WITHOUT_SEARCH = TRANSFER, "learn"
"""The other parts of a run that may begin again in its folder: trials, and the reading of comments."""


def locate_evaluation(opts: Options, plan: RunPlan, split: str, question: str) -> Path:
    """The folder of an evaluation: what the caller names, one of an older version that holds it, or one of its own."""
    if opts.run is not None:
        return Path(opts.run)
    older = Path(opts.root) / f"{plan.task.name}-evaluate-{split}-{plan.task.prompt.id}"
    return (
        older if holds_evaluation(older, plan, question) else older.with_name(f"{older.name}-{question[:8]}")
    )


def holds_evaluation(run: Path, plan: Identity, question: str) -> bool:
    """Whether a folder holds this evaluation or trial."""
    header = read_header(run)
    if header is None or differing_entries(header, plan.header()):
        return False
    return noted_in(run, ASKED) in (None, question)


def clear_evaluation(run: Path) -> None:
    """Make room for an evaluation where another one is; nothing else is touched. Raises RunLocked while another process works
    on it."""
    header = read_header(run)
    if header is not None and (
        evaluated_split(header) is not None or header.get("method") in _WITHOUT_SEARCH
    ):
        clear_records(run)


def clear_records(run: Path) -> None:
    """Remove journal and results of a folder. Raises RunLocked while another process works on it."""
    Journal(run / _EVALUATED[0]).close([run / name for name in _EVALUATED])


def put_in_place(run: Path, fresh: Path) -> None:
    """Let a fresh evaluation that is finished take the place of the one in `run`. Raises RunLocked."""
    clear_evaluation(run)
    for name in _EVALUATED:
        if (fresh / name).exists():
            (fresh / name).replace(run / name)
    shutil.rmtree(fresh)
