"""The ledger of openings: who looked at which sealed rows, and which part of alpha that spent.

One file for all run folders of a user. Rows are known by the content of their input and target, so that neither other ids nor
added rows, another split or another folder make rows unseen that were seen.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from whet.engine.journal import read_rows
from whet.errors import StorageError
from whet.stats import opening_alpha
from whet.task.examples import input_hash
from whet.types import Example, content_hash

STATE = "WHET_STATE"
LEDGER = "openings.sqlite"
SEALED, SEEN = "test", "train"
_WAIT_SECONDS = 60
_DIGITS = 16
_TABLES = """
CREATE TABLE IF NOT EXISTS openings(run TEXT PRIMARY KEY, time REAL NOT NULL, number INTEGER NOT NULL, alpha REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rows(hash TEXT NOT NULL, run TEXT NOT NULL, split TEXT NOT NULL, PRIMARY KEY (hash, run, split))
WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members(family TEXT NOT NULL, run TEXT NOT NULL, opening TEXT NOT NULL, PRIMARY KEY (family, run))
WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Opening:
    """The opening number `number` of its rows; `alpha` is what each of its tests may spend. `seen` of the rows were rows to learn
    from in an earlier run."""

    number: int
    alpha: float
    warnings: tuple[str, ...] = ()
    seen: int = 0


@dataclass(frozen=True)
class Family:
    """Runs that open the test together, as one opening: their number of tests shares its alpha.

    `first` is the folder of the first of them and `name` says what makes this family another one than one that
    began with the same run. Runs beyond that number, which were made anew, are an opening of their own.
    """

    first: Path
    name: str
    tests: int


@dataclass(frozen=True)
class Member:
    """A run of a family of so many tests."""

    family: str
    run: str
    tests: int


@dataclass(frozen=True)
class OpeningLedger:
    """The ledger of the user, or that in the folder `beside` where the user's cannot be written."""

    beside: Path
    family: Family | None = None

    def open(
        self, run: str, alpha: float, sealed: Sequence[Example], seen: Sequence[Example] = ()
    ) -> Opening:
        """Write down that `run` opens the rows `sealed` after having seen the rows `seen`; the same run again is no other.

        Of the level of the opening each test of the family gets an equal part. Raises StorageError.
        """
        tests = 1 if self.family is None else self.family.tests
        warnings = []
        hashes = {SEALED: row_hashes(sealed), SEEN: row_hashes(seen)}
        member = None if self.family is None else Member(self._name(run), run, tests)
        try:
            number, level = _record(state_folder(), member or run, alpha, hashes)
        except (OSError, RuntimeError, sqlite3.Error) as error:
            warnings.append(
                f"The openings of test rows are counted in {self.beside / LEDGER} only, for {_place()} could not be written "
                f"({error}). Set {STATE} to a folder that can be: what other folders' runs opened is not known."
            )
            try:
                number, level = _record(self.beside, member or run, alpha, hashes)
            except (OSError, sqlite3.Error) as second:
                path = self.beside / LEDGER
                raise StorageError(
                    f"{path}: the opening of the test rows could not be written: {second}."
                ) from second
        learned = len(self.known(self._name(run), sealed, (SEEN,)))
        return Opening(number, level / tests, tuple(warnings), learned)

    def moved(self, run: str, sealed: Sequence[Example], seen: Sequence[Example]) -> list[str]:
        """Warnings about rows that changed sides since an earlier opening by another run; nothing is written."""
        run = self._name(run)
        unsealed = len(self.known(run, seen, (SEALED,)))
        known = len(self.known(run, sealed, (SEEN,)))
        remedy = "Go back to the splits of that run (`splits: {seed: ...}`, or the same files), or test on rows that are new."
        warnings = []
        if unsealed:
            warnings.append(
                f"{unsealed} of the {len(seen)} rows to learn from were sealed test rows of an earlier run: what was seen of "
                f"them may be learned now, and a test on the others says less. {remedy}"
            )
        if known:
            warnings.append(
                f"{known} of the {len(sealed)} sealed test rows were seen by an earlier run: if the prompt of this task comes "
                f"from it, it was made with their help, and its test proves nothing. {remedy}"
            )
        return warnings

    def known(self, run: str, rows: Sequence[Example], splits: Sequence[str] = (SEALED, SEEN)) -> list[int]:
        """Positions of the rows that stand in one of these splits of an opening by another run than `run`."""
        folder = _readable(self.beside)
        if folder is None:
            return []
        sql = "SELECT split FROM rows WHERE hash = ? AND run != ?"
        try:
            with closing(_connect(folder)) as db:
                splits_of = [{str(split) for (split,) in db.execute(sql, (h, run))} for h in row_hashes(rows)]
        except sqlite3.Error:  # `open` says so
            return []
        return [i for i, where in enumerate(splits_of) if where & set(splits)]

    def _name(self, run: str) -> str:
        """The run, or the family that opens the test together with it."""
        if self.family is None:
            return run
        return content_hash([run_id(self.family.first), self.family.name])


def row_hashes(rows: Sequence[Example]) -> list[str]:
    """A short hash of each row's input and target."""
    return [content_hash([input_hash(row), row.target])[:_DIGITS] for row in rows]


def run_id(folder: Path) -> str:
    """What tells the run in a folder from every other one, also from a later one in the same folder."""
    return str(read_rows(folder / "journal.sqlite", "SELECT value FROM meta WHERE key = 'run'")[0][0])


def state_folder() -> Path:
    """The user's folder for state: `$WHET_STATE`, else `$XDG_STATE_HOME/whet`, else `~/.local/state/whet`."""
    if own := os.environ.get(STATE):
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "whet"


def _place() -> str:
    try:
        return str(state_folder() / LEDGER)
    except RuntimeError:  # no home
        return "the ledger of the user"


def _readable(beside: Path) -> Path | None:
    """The folder of the ledger that is there, the user's before the one beside the runs."""
    try:
        own = state_folder()
    except RuntimeError:
        own = beside
    return next((folder for folder in (own, beside) if os.access(folder / LEDGER, os.R_OK)), None)


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / LEDGER, isolation_level=None, timeout=_WAIT_SECONDS)


def _record(folder: Path, who: str | Member, alpha: float, hashes: dict[str, list[str]]) -> tuple[int, float]:
    """Number and level of the run's opening, in one transaction: two processes never get the same number."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LEDGER).touch(mode=0o600)
    with closing(_connect(folder)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_TABLES)
        db.execute("BEGIN IMMEDIATE")
        run = who if isinstance(who, str) else _opening_of(db, who)
        earlier = db.execute("SELECT number, alpha FROM openings WHERE run = ?", (run,)).fetchone()
        if earlier is None:
            number = 1 + len(_sharing(db, hashes[SEALED]))
            earlier = number, opening_alpha(alpha, number)
            db.execute("INSERT INTO openings VALUES (?,?,?,?)", (run, time.time(), *earlier))
        rows = [(one, run, split) for split, values in hashes.items() for one in values]
        db.executemany("INSERT OR IGNORE INTO rows VALUES (?,?,?)", rows)
        db.execute("COMMIT")
    return int(earlier[0]), float(earlier[1])


def _opening_of(db: sqlite3.Connection, member: Member) -> str:
    """The opening that a run of a family is part of: the first `tests` runs are the first, as many after them the next."""
    known = dict(db.execute("SELECT run, opening FROM members WHERE family = ?", (member.family,)).fetchall())
    part = len(known) // member.tests
    opening = known.get(member.run) or (f"{member.family}/{part}" if part else member.family)
    db.execute("INSERT OR IGNORE INTO members VALUES (?,?,?)", (member.family, member.run, opening))
    return str(opening)


def _sharing(db: sqlite3.Connection, hashes: Iterable[str]) -> set[str]:
    """The runs that opened any of the rows."""
    sql = "SELECT run FROM rows WHERE hash = ? AND split = ?"
    return {str(run) for one in hashes for (run,) in db.execute(sql, (one, SEALED))}
