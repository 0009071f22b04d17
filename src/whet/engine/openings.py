"""The ledger of openings: which two prompts were compared on which sealed rows, and which part of alpha that spent.

One file for all run folders of a user. Rows are known by the content of their input and target, so that neither other ids nor
added rows, another split or another folder make rows unseen that were seen.

A run reserves before its first sealed call, and settles when both prompts have answered: only then it has a number, and spends
alpha. What was killed in between has compared nothing and spends nothing. A copy of a killed run that goes on elsewhere, and one
that goes on to other answers, settle as openings of their own. A verdict that is withheld gives its opening back.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from whet.engine.journal import read_rows
from whet.engine.plan_json import PlanJSON
from whet.engine.result_json import OpeningsJSON
from whet.errors import StorageError, UsageError
from whet.stats import opening_alpha
from whet.task import Task
from whet.task.examples import input_hash
from whet.types import Example, content_hash

STATE = "WHET_STATE"
LEDGER = "openings.sqlite"
SEALED, SEEN, LOOKED = "test", "train", "look"
WAIT_SECONDS = 3.0
"""How long the ledger is waited for while another process writes to it."""
_DIGITS = 16
_TABLES = """
CREATE TABLE IF NOT EXISTS openings(run TEXT PRIMARY KEY, time REAL NOT NULL, number INTEGER NOT NULL, alpha REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rows(hash TEXT NOT NULL, run TEXT NOT NULL, split TEXT NOT NULL, PRIMARY KEY (hash, run, split))
WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members(family TEXT NOT NULL, run TEXT NOT NULL, opening TEXT NOT NULL, PRIMARY KEY (family, run))
WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reserved(run TEXT PRIMARY KEY, time REAL NOT NULL, place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS compared(run TEXT PRIMARY KEY, digest TEXT NOT NULL);
"""


class LedgerUnavailable(StorageError):
    """The ledger of openings is locked or cannot be written: without it there is no verdict."""


@dataclass(frozen=True)
class SealedTestAccess:
    """The opening number `number` of its rows (0: none was charged); `alpha` is what each of its tests may spend. `seen` of the
    rows were rows to learn from in an earlier run, whose folder is `seen_by` as far as it is known."""

    number: int
    alpha: float
    warnings: tuple[str, ...] = ()
    seen: int = 0
    seen_by: str = ""

    def figures(self) -> OpeningsJSON:
        """What result.json says of it."""
        figures: OpeningsJSON = {"test_openings": self.number, "test_rows_seen": self.seen}
        if self.seen_by:
            figures["test_rows_seen_by"] = self.seen_by
        return figures


@dataclass(frozen=True)
class SealedComparison:
    """What a run compares on sealed rows: its id, where its folder lies, the rows, and those that it has learned from. `digest`:
    that of the prompts and their answers, and `prompts` the names of both (`Prompt.names`), once these are known."""

    run: str
    place: Path
    sealed: Sequence[Example]
    seen: Sequence[Example] = ()
    digest: str = ""
    prompts: Sequence[str] = ()


@dataclass(frozen=True)
class Family:
    """Runs that open the test together, as one opening: their number of tests shares its alpha.

    `first` is the folder of the first of them and `name` says what makes this family another one than one that
    began with the same run; `key` stands in the place of the first run where that may be on another machine. Runs beyond that
    number, which were made anew, are an opening of their own.
    """

    first: Path
    name: str
    tests: int
    key: str = ""


@dataclass(frozen=True)
class SealedTestLedger:
    """The ledger of the user."""

    family: Family | None = None

    def check(self) -> str:
        """Why the ledger cannot be written, what follows and what to do; an empty text where it can."""
        try:
            with _writing():
                return ""
        except LedgerUnavailable as error:
            return f"{error} Without it the sealed test gives no verdict: mend that while the run goes on, or run it again later."

    def reserve(self, comparison: SealedComparison) -> None:
        """Write down that a run is about to ask its sealed rows; the same run again is no other. Raises LedgerUnavailable."""
        with _writing() as db:
            row = (comparison.run, time.time(), str(comparison.place.absolute()))
            db.execute("INSERT OR IGNORE INTO reserved VALUES (?,?,?)", row)

    def settle(self, comparison: SealedComparison, alpha: float) -> SealedTestAccess:
        """The opening that the comparison of two prompts is; the same comparison again is no other.

        Of the level of the opening each test of the family gets an equal part. Raises LedgerUnavailable.
        """
        hashes = {SEALED: row_hashes(comparison.sealed), SEEN: row_hashes(comparison.seen)}
        with _writing() as db:
            member = _own_name(db, comparison)
            run = self._opening_of(db, member)
            row = db.execute("SELECT number, alpha FROM openings WHERE run = ?", (run,)).fetchone()
            if row is None:
                number = 1 + len(_sharing(db, hashes[SEALED]) - {run})
                row = number, opening_alpha(alpha, number)
                db.execute("INSERT INTO openings VALUES (?,?,?,?)", (run, time.time(), *row))
            db.execute("INSERT OR IGNORE INTO compared VALUES (?,?)", (member, comparison.digest))
            rows = [(one, run, split) for split, values in hashes.items() for one in values]
            rows += [(one, prompt, LOOKED) for prompt in comparison.prompts for one in hashes[SEALED]]
            db.executemany("INSERT OR IGNORE INTO rows VALUES (?,?,?)", rows)
        tests = 1 if self.family is None else self.family.tests
        seen, seen_by = self.count_learned_rows(comparison.run, comparison.sealed)
        return SealedTestAccess(int(row[0]), float(row[1]) / tests, (), seen, seen_by)

    def foresee(
        self, folder: Path | None, alpha: float, sealed: Sequence[Example]
    ) -> SealedTestAccess | None:
        """The opening that a run in `folder` (None: a new one) would be, as the ledger stands; nothing is written. None where
        the ledger cannot be read."""
        tests = 1 if self.family is None else self.family.tests
        try:
            path = state_folder() / LEDGER
            if not path.exists():
                return SealedTestAccess(1, opening_alpha(alpha, 1) / tests)
            with closing(_connect(path)) as db:
                run = self._known_opening(db, folder)
                row = db.execute("SELECT number, alpha FROM openings WHERE run = ?", (run,)).fetchone()
                number = 1 + len(_sharing(db, row_hashes(sealed)) - {run})
        except (OSError, RuntimeError, sqlite3.Error):  # `check` says so
            return None
        if row is not None:
            return SealedTestAccess(int(row[0]), float(row[1]) / tests)
        return SealedTestAccess(number, opening_alpha(alpha, number) / tests)

    def release(self, comparison: SealedComparison) -> None:
        """Give back the opening of a comparison that got no verdict. Raises LedgerUnavailable."""
        with _writing() as db:
            member = _own_name(db, comparison)
            run = self._opening_of(db, member)
            db.execute("DELETE FROM compared WHERE run = ?", (member,))
            db.execute("DELETE FROM members WHERE run = ?", (member,))
            if not db.execute("SELECT 1 FROM members WHERE opening = ?", (run,)).fetchone():
                db.execute("DELETE FROM openings WHERE run = ?", (run,))

    def open(self, run: str, alpha: float, sealed: Sequence[Example]) -> SealedTestAccess:
        """The opening `run` of the rows, reserved and settled at once. Raises LedgerUnavailable."""
        return self.settle(SealedComparison(run, Path(), sealed), alpha)

    def look(self, prompt: Sequence[str], alpha: float, sealed: Sequence[Example]) -> SealedTestAccess | None:
        """Write down that the mean of one prompt, known by these names, on the rows is looked at. None where that compares
        nothing: no other prompt was looked at, or a run has compared this one. Raises LedgerUnavailable."""
        hashes = row_hashes(sealed)
        name = _name_of_look(prompt, hashes)
        with _writing() as db:
            opened, compares = _look_at(db, name, prompt, hashes)
            looked = [(one, known_as, LOOKED) for one in hashes for known_as in prompt]
            db.executemany("INSERT OR IGNORE INTO rows VALUES (?,?,?)", looked)
        return self.open(name, alpha, sealed) if opened or compares else None

    def foresee_look(self, task: Task) -> PlanJSON:
        """The opening that a `look` at the test rows would add, as a plan says it; nothing is written. Empty where there is none,
        or where the ledger cannot be read."""
        prompt, hashes = task.prompt.names, row_hashes(task.test)
        try:
            path = state_folder() / LEDGER
            if not path.exists():
                return {}
            with closing(_connect(path)) as db:
                opened, compares = _look_at(db, _name_of_look(prompt, hashes), prompt, hashes)
                number = 1 + len(_sharing(db, hashes))
        except (OSError, RuntimeError, sqlite3.Error):  # `look` says so
            return {}
        if opened or not compares:
            return {}
        without, after = (opening_alpha(task.alpha, later) for later in (number, number + 1))
        return {"look": {"opening": number, "alpha_without": without, "alpha_after": after}}

    def find_moved_rows(self, run: str, sealed: Sequence[Example], seen: Sequence[Example]) -> list[str]:
        """Warnings about rows that changed sides since an earlier opening by another run; nothing is written."""
        unsealed = len(self.find_known_rows(self._name(run), seen, (SEALED,)))
        known, folder = self.count_learned_rows(run, sealed)
        remedy = "Go back to the splits of that run (`splits: {seed: ...}`, or the same files), or test on rows that are new."
        warnings = []
        if unsealed:
            warnings.append(
                f"{unsealed} of the {len(seen)} rows to learn from were sealed test rows of an earlier run: what was seen of "
                f"them may be learned now, and a test on the others says less. {remedy}"
            )
        if known:
            was, rest = ("was", "that row") if known == 1 else ("were", "those rows")
            where = f" ({folder})" if folder else ""
            warnings.append(
                f"{known} of {len(sealed)} sealed test rows {was} learned from in an earlier run{where}. If this start prompt "
                f"comes from that run, leave {rest} out, or go back to its splits (`splits: {{seed: ...}}`, or the same files)."
            )
        return warnings

    def count_learned_rows(self, run: str, sealed: Sequence[Example]) -> tuple[int, str]:
        """How many of the sealed rows another run than `run` had to learn from, and the folder of the one with the most of them,
        where it is known."""
        name, hashes = self._name(run), row_hashes(sealed)
        known = len(self.find_known_rows(name, sealed, (SEEN,)))
        if not known:
            return 0, ""
        runs: Counter[str] = Counter()
        sql = "SELECT run FROM rows WHERE hash = ? AND split = ? AND run != ?"
        place = "SELECT place FROM reserved WHERE run = ?1 OR run IN (SELECT run FROM members WHERE opening = ?1) ORDER BY time"
        with suppress(OSError, RuntimeError, sqlite3.Error), closing(_connect(state_folder() / LEDGER)) as db:
            for one in hashes:
                runs.update(str(other) for (other,) in db.execute(sql, (one, SEEN, name)))
            row = db.execute(place, (runs.most_common(1)[0][0],)).fetchone()
            return known, "" if row is None else _show_folder(Path(row[0]))
        return known, ""

    def find_known_rows(
        self, run: str, rows: Sequence[Example], splits: Sequence[str] = (SEALED, SEEN, LOOKED)
    ) -> list[int]:
        """Positions of the rows that stand in one of these splits of an opening by another run than `run`."""
        sql = "SELECT split FROM rows WHERE hash = ? AND run != ?"
        try:
            path = state_folder() / LEDGER
            if not os.access(path, os.R_OK):
                return []
            with closing(_connect(path)) as db:
                splits_of = [{str(split) for (split,) in db.execute(sql, (h, run))} for h in row_hashes(rows)]
        except (RuntimeError, sqlite3.Error):  # `check` says so
            return []
        return [i for i, where in enumerate(splits_of) if where & set(splits)]

    def _opening_of(self, db: sqlite3.Connection, run: str) -> str:
        """The opening that a run is part of: of a family, the first `tests` runs are the first, as many after them the next."""
        if self.family is None:
            return run
        family, tests = self._name(run), self.family.tests
        known = dict(db.execute("SELECT run, opening FROM members WHERE family = ?", (family,)).fetchall())
        part = len(known) // tests
        opening = known.get(run) or (f"{family}/{part}" if part else family)
        db.execute("INSERT OR IGNORE INTO members VALUES (?,?,?)", (family, run, opening))
        return str(opening)

    def _known_opening(self, db: sqlite3.Connection, folder: Path | None) -> str:
        """The opening that a run in a folder is part of or would be; an empty text for one that has not begun."""
        own = _id_in(folder)
        first = own if self.family is None else self.family.key or _id_in(self.family.first)
        if self.family is None or not first:
            return first
        family = self._name(own)
        sql = "SELECT run, opening FROM members WHERE family = ?"
        known = {str(run): str(opening) for run, opening in db.execute(sql, (family,))}
        part = len(known) // self.family.tests
        return known.get(own) or (f"{family}/{part}" if part else family)

    def _name(self, run: str) -> str:
        """The run, or the family that opens the test together with it."""
        if self.family is None:
            return run
        return content_hash([self.family.key or run_id(self.family.first), self.family.name])


def row_hashes(rows: Sequence[Example]) -> list[str]:
    """A short hash of each row's input and target."""
    return [content_hash([input_hash(row), row.target])[:_DIGITS] for row in rows]


def _show_folder(folder: Path) -> str:
    """A folder as commands of here name it."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def run_id(folder: Path) -> str:
    """What tells the run in a folder from every other one, also from a later one in the same folder."""
    return str(read_rows(folder / "journal.sqlite", "SELECT value FROM meta WHERE key = 'run'")[0][0])


def state_folder() -> Path:
    """The user's folder for state: `$WHET_STATE`, else `$XDG_STATE_HOME/whet`, else `~/.local/state/whet`."""
    if own := os.environ.get(STATE):
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "whet"


def _id_in(folder: Path | None) -> str:
    """The id of the run in a folder; an empty text where there is none."""
    try:
        return "" if folder is None else run_id(folder)
    except (UsageError, StorageError, IndexError):
        return ""


@contextmanager
def _writing() -> Iterator[sqlite3.Connection]:
    """The ledger in one transaction: two processes never get the same number. Raises LedgerUnavailable."""
    place: Path | str = "the ledger of openings of test rows"
    try:
        place = state_folder() / LEDGER
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
        with closing(_connect(place)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";")[:-1]:
                db.execute(statement)
            yield db
            db.execute("COMMIT")
    except (OSError, RuntimeError, sqlite3.Error) as error:
        locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        reason = f"another process has locked it for {WAIT_SECONDS:g} s" if locked else str(error)
        raise LedgerUnavailable(
            f"{place}, which counts openings of test rows, cannot be written ({reason}). End what holds it, or set {STATE} to "
            "a folder that can be written."
        ) from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)


def _own_name(db: sqlite3.Connection, comparison: SealedComparison) -> str:
    """The name under which a run settles: its id, or one of its own for a copy of a run.

    A copy lies elsewhere while the original is still there, or has other answers than those that were compared under its name.
    """
    name, place = comparison.run, str(comparison.place.absolute())
    row = db.execute("SELECT place FROM reserved WHERE run = ?", (name,)).fetchone()
    if row is not None and row[0] != place and _holds(Path(row[0]), name):
        name = content_hash([name, place])[:_DIGITS]
    row = db.execute("SELECT digest FROM compared WHERE run = ?", (name,)).fetchone()
    if row is not None and row[0] != comparison.digest:
        name = content_hash([name, comparison.digest])[:_DIGITS]
    return name


def _holds(folder: Path, run: str) -> bool:
    """Whether a folder holds this run."""
    try:
        return run_id(folder) == run
    except (UsageError, IndexError):
        return False


def _name_of_look(prompt: Sequence[str], hashes: Iterable[str]) -> str:
    """The name under which a look at one prompt on rows is an opening."""
    return content_hash(["look", prompt[0], sorted(hashes)])


def _look_at(
    db: sqlite3.Connection, name: str, prompt: Sequence[str], hashes: Iterable[str]
) -> tuple[bool, bool]:
    """Whether a look is an opening already, and whether it compares a prompt with another one that was looked at."""
    opened = db.execute("SELECT 1 FROM openings WHERE run = ?", (name,)).fetchone() is not None
    sql = "SELECT run FROM rows WHERE hash = ? AND split = ?"
    known = {str(run) for one in hashes for (run,) in db.execute(sql, (one, LOOKED))}
    return opened, bool(known) and known.isdisjoint(prompt)


def _sharing(db: sqlite3.Connection, hashes: Iterable[str]) -> set[str]:
    """The openings of any of the rows."""
    sql = "SELECT run FROM rows JOIN openings USING (run) WHERE hash = ? AND split = ?"
    return {str(run) for one in hashes for (run,) in db.execute(sql, (one, SEALED))}
