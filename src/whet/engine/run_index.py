"""The index of runs of a team: which runs there are on which machines, how they stand, what they found.

It lies where the state lies, once somebody has said where that is. A run's own folder has the truth; the index is a copy that
each session of the run writes at its begin and at its end.
"""

from __future__ import annotations

import asyncio
import platform
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import orjson

from whet._util.storable import to_json
from whet.engine.comparison_json import RunRowJSON, TeamRunJSON
from whet.engine.journal import read_journal_rows
from whet.engine.ledger_store import WAIT_SECONDS
from whet.engine.openings import run_id
from whet.engine.progress import Progress
from whet.engine.result_json import CallsJSON
from whet.engine.run_folder import evaluated_split, read_header, read_result
from whet.engine.state_place import STATE, StateDatabase, is_shared, state_place
from whet.engine.usage_sums import usage_without_control
from whet.errors import StorageError, UsageError

INDEX = "runs.sqlite"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS runs(id TEXT PRIMARY KEY, machine TEXT NOT NULL, began REAL NOT NULL, changed REAL NOT NULL, "
    "figures TEXT NOT NULL)"
)
_NOTE = (
    "INSERT INTO runs VALUES (?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET machine = excluded.machine, "
    "changed = excluded.changed, figures = excluded.figures"
)
_LIST = "SELECT machine, began, changed, figures FROM runs ORDER BY began, id"


async def note_in_index(folder: Path, progress: Progress) -> None:
    """Write down for the team how the run in a folder stands, where somebody has said where state lies. Where that fails, which
    is said once, the run goes on: its folder has everything."""
    if not is_shared():
        return
    try:
        await asyncio.to_thread(_note, folder, run_row(folder))
    except StorageError as error:
        if not progress.index_failed:
            progress.index_failed = True
            progress.say(
                f"warning: the index of runs was not written ({error}); run the same command again to write it"
            )


def _note(folder: Path, row: RunRowJSON) -> None:
    """Write a row into the index. Raises StorageError."""
    now = time.time()
    figures = to_json({**row, "run": str(folder.absolute())}).decode()
    values = (run_id(folder), platform.node(), now, now, figures)
    place = state_place()
    if isinstance(place, StateDatabase):
        with place.writing() as connection:
            connection.execute(cast("Any", _NOTE.replace("?", "%s")), values)
        return
    with _file(place) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(_TABLE)
        db.execute(_NOTE, values)
        db.execute("COMMIT")


def list_runs() -> list[TeamRunJSON]:
    """Every run in the index, in the order in which they began; times in seconds since 1970. Raises UsageError where nobody has
    said where state lies, StorageError where it cannot be read."""
    if not is_shared():
        raise UsageError(
            f"The index of a team's runs is stored with the state of the team. Set {STATE} to a "
            "shared folder, or to postgresql://USER:PASSWORD@HOST/DATABASE."
        )
    place = state_place()
    if isinstance(place, StateDatabase):
        with place.reading() as connection:
            rows = [] if connection is None else connection.execute(_LIST).fetchall()
    elif (place / INDEX).exists():
        with _file(place) as db:
            rows = db.execute(_LIST).fetchall()
    else:
        rows = []
    return [
        cast("TeamRunJSON", {**orjson.loads(figures), "machine": machine, "began": began, "changed": changed})
        for machine, began, changed, figures in rows
    ]


@contextmanager
def _file(folder: Path) -> Iterator[sqlite3.Connection]:
    """The index in a folder. Raises StorageError."""
    path = folder / INDEX
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)) as db:
            yield db
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path} cannot be used ({error})") from error


def run_row(folder: Path) -> RunRowJSON:
    """A run folder in one row: its kind, its state, its result. Calls and dollars are its own, with those of added rows;
    a control run has a row of its own."""
    header, result = read_header(folder) or {}, read_result(folder)
    usage = usage_without_control(result["usage"]) if result.get("usage") else _spent_so_far(folder)
    score = result.get("score") or (result.get("best") or {}).get("test") or {}
    split = evaluated_split(header)
    return {
        "run": str(folder),
        "task": header.get("task"),
        "method": result.get("method", header.get("method") if split is None else "evaluate"),
        "seed": header.get("seed"),
        "status": result.get("status", "unfinished"),
        "split": split or "test",
        "mean": score.get("mean"),
        "n": score.get("n"),
        "answered": score.get("answered"),
        "of": score.get("of", score.get("n")),
        "test": score.get("mean") if "best" in result else None,
        "promoted": (result.get("improvement") or {}).get("promoted"),
        "calls": sum(usage.get("calls", {}).values()),
        "cost_usd": usage.get("cost_usd"),
        "price_unknown": usage.get("price_unknown", []),
        "not_priced": usage.get("not_priced", []),
    }


def _spent_so_far(folder: Path) -> CallsJSON:
    """Calls and US dollars of a run that has no result yet, as far as its journal says."""
    made = (
        "SELECT role, COUNT(*), SUM(cost) FROM calls"
        " WHERE state NOT IN ('unsent', 'refused', 'given up', 'cached') GROUP BY role"
    )
    try:
        rows = read_journal_rows(folder / "journal.sqlite", made)
    except UsageError:
        return {"calls": {}, "cost_usd": None}
    cost = sum(row[2] for row in rows)
    return {"calls": {role: n for role, n, _ in rows}, "cost_usd": cost or None}
