"""The ledger of openings: which two prompts were compared on which sealed rows, and which part of alpha that spent.

One ledger for all run folders of a user, or of a team (`whet.engine.state_place`). Rows are known by the content of their input
and target, so that neither other ids nor added rows, another split or another folder make rows unseen that were seen.

A run reserves before its first sealed call, and settles when both prompts have answered: only then it has a number, and spends
alpha. A run that was killed in between has compared nothing and spends nothing. A copy of a killed run that goes on elsewhere,
and one that goes on to other answers, settle as openings of their own. A verdict that is withheld gives its opening back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from whet.engine.journal import read_meta
from whet.engine.ledger_store import LedgerTables, LedgerUnavailable, reading_ledger, writing_ledger
from whet.engine.plan_json import PlanJSON
from whet.engine.result_json import OpeningsJSON
from whet.errors import StorageError, UsageError, parameter, quantity
from whet.stats import STRICT, discovery_alpha, opening_alpha
from whet.task import Task
from whet.task.examples import input_hash
from whet.types import Example, content_hash

SEALED, SEEN, LOOKED = "test", "train", "look"
_DIGITS = 16
_ADD_RESERVED = "INSERT INTO reserved VALUES (?,?,?) ON CONFLICT DO NOTHING"
_ADD_OPENINGS = "INSERT INTO openings(run, time, number, alpha) VALUES (?,?,?,?) ON CONFLICT DO NOTHING"
_ADD_POLICIES = "INSERT INTO policies VALUES (?,?) ON CONFLICT DO NOTHING"
_ADD_COMPARED = "INSERT INTO compared VALUES (?,?) ON CONFLICT DO NOTHING"
_ADD_ROWS = "INSERT INTO rows VALUES (?,?,?) ON CONFLICT DO NOTHING"
_ADD_VERDICTS = "INSERT INTO verdicts VALUES (?,?) ON CONFLICT DO NOTHING"
_ADD_MEMBERS = "INSERT INTO members VALUES (?,?,?) ON CONFLICT DO NOTHING"
_FORGET = (
    "DELETE FROM openings WHERE run = ?",
    "DELETE FROM policies WHERE run = ?",
    "DELETE FROM verdicts WHERE run = ?",
)


class PolicyDiffers(LedgerUnavailable):
    """Rows were opened under another policy for their alpha: no promise would hold over both."""


@dataclass(frozen=True)
class SealedTestAccess:
    """The opening number `number` of its rows (0: none was charged); `alpha` is what each of its tests may spend. `seen` of the
    rows were rows to learn from in an earlier run, whose folder is `seen_by` as far as it is known. `policy` shares the alpha of
    rows out over their openings."""

    number: int
    alpha: float
    warnings: tuple[str, ...] = ()
    seen: int = 0
    seen_by: str = ""
    policy: str = STRICT

    def figures(self) -> OpeningsJSON:
        """The opening as result.json holds it."""
        figures: OpeningsJSON = {"test_openings": self.number, "test_rows_seen": self.seen}
        if self.seen_by:
            figures["test_rows_seen_by"] = self.seen_by
        if self.policy != STRICT:
            figures["alpha_policy"] = self.policy
        return figures


@dataclass(frozen=True)
class SealedComparison:
    """The comparison of a run on sealed rows: its id, its folder, the rows, and the rows that it has learned from. `digest`:
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
class RowHistory:
    """The next opening of rows: its number, the policy, and for each row its openings that promoted a prompt, in their
    order."""

    number: int
    policy: str
    outcomes: frozenset[tuple[bool, ...]] = frozenset({()})

    def level(self, alpha: float) -> tuple[int, float, str]:
        """The number of the opening, its level and the policy.

        Under `fdr` it is the lowest level that the history of any row allows, so that the promise holds for the openings of
        every single row, also where rows were added or taken away between them.
        """
        if self.policy == STRICT:
            return self.number, opening_alpha(alpha, self.number), self.policy
        lowest = min(
            (discovery_alpha(alpha, outcome) for outcome in self.outcomes), default=discovery_alpha(alpha, ())
        )
        return self.number, lowest, self.policy

    def after_another(self) -> RowHistory:
        """The same after an opening of all rows that promoted nothing."""
        return RowHistory(
            self.number + 1, self.policy, frozenset((*outcome, False) for outcome in self.outcomes)
        )


def first_level(task: Task) -> float:
    """The alpha that the first opening of a task's test rows may spend."""
    return RowHistory(1, task.alpha_policy).level(task.alpha)[1]


@dataclass(frozen=True)
class SealedTestLedger:
    """The ledger of the user or the team. `policy`: how the alpha of rows is shared out over their openings, which all openings
    of a row have in common; one that `follows`, because it promotes nothing, takes the policy that the rows have."""

    family: Family | None = None
    policy: str = STRICT
    follows: bool = False

    def check(self) -> str:
        """Why the ledger cannot be written, what follows and what to do; an empty text where it can."""
        try:
            with writing_ledger():
                return ""
        except LedgerUnavailable as error:
            return (
                f"{error} Without the ledger, the sealed test gives no verdict. Solve this problem "
                "while the run continues, or run the command again later."
            )

    def reserve(self, comparison: SealedComparison) -> None:
        """Write down that a run is about to ask its sealed rows; the same run again is no other. Raises LedgerUnavailable."""
        with writing_ledger() as db:
            db.add(_ADD_RESERVED, [(comparison.run, time.time(), str(comparison.place.absolute()))])

    def settle(self, comparison: SealedComparison, alpha: float) -> SealedTestAccess:
        """The opening that the comparison of two prompts is; the same comparison again is no other.

        Of the level of the opening each test of the family gets an equal part. Raises LedgerUnavailable.
        """
        hashes = {SEALED: row_hashes(comparison.sealed), SEEN: row_hashes(comparison.seen)}
        with writing_ledger() as db:
            member = _own_name(db, comparison)
            run = self._opening_of(db, member)
            number, level, policy = _find_opening(db, run) or self._history(db, run, hashes[SEALED]).level(
                alpha
            )
            db.add(_ADD_OPENINGS, [(run, time.time(), number, level)])
            db.add(_ADD_POLICIES, [(run, policy)])
            db.add(_ADD_COMPARED, [(member, comparison.digest)])
            rows = [(value, run, split) for split, values in hashes.items() for value in values]
            rows += [(digest, prompt, LOOKED) for prompt in comparison.prompts for digest in hashes[SEALED]]
            db.add(_ADD_ROWS, rows)
        seen, seen_by = self.count_learned_rows(comparison.run, comparison.sealed)
        return SealedTestAccess(number, self._part(level), (), seen, seen_by, policy)

    def record(self, comparison: SealedComparison, promoted: bool) -> None:
        """Write down whether the comparison promoted its prompt, where the levels of later openings depend on it. Raises
        LedgerUnavailable."""
        if self.policy == STRICT:
            return
        with writing_ledger() as db:
            run = self._opening_of(db, _own_name(db, comparison))
            db.add(_ADD_VERDICTS, [(run, int(promoted))])
            if promoted:
                db.change("UPDATE verdicts SET promoted = 1 WHERE run = ?", run)

    def foresee(
        self, folder: Path | None, alpha: float, sealed: Sequence[Example]
    ) -> SealedTestAccess | None:
        """The opening that a run in `folder` (None: a new one) would be, as the ledger stands; nothing is written. None where
        the ledger cannot be read. Raises UsageError for rows that were opened under another policy."""
        try:
            with reading_ledger() as db:
                if db is None:
                    number, level, policy = RowHistory(1, self.policy).level(alpha)
                else:
                    run = self._known_opening(db, folder)
                    number, level, policy = _find_opening(db, run) or self._history(
                        db, run, row_hashes(sealed)
                    ).level(alpha)
        except PolicyDiffers as error:
            raise UsageError(error.args[0]) from None
        except LedgerUnavailable:  # `check` says so
            return None
        return SealedTestAccess(number, self._part(level), policy=policy)

    def _part(self, level: float) -> float:
        """The level of each test of the family, of which the opening has this `level` together."""
        return float(level) / (1 if self.family is None else self.family.tests)

    def _history(self, db: LedgerTables, run: str, hashes: Sequence[str]) -> RowHistory:
        """The history of these rows in openings by other runs than `run`. Raises PolicyDiffers."""
        sql = (
            "SELECT rows.hash, openings.run, COALESCE(policies.policy, 'strict'), COALESCE(verdicts.promoted, 0) FROM rows "
            "JOIN openings ON openings.run = rows.run LEFT JOIN policies ON policies.run = rows.run "
            "LEFT JOIN verdicts ON verdicts.run = rows.run WHERE rows.hash = ? AND rows.split = ? AND rows.run != ? "
            "ORDER BY openings.rowid"
        )
        known = db.find_each(sql, hashes, SEALED, run)
        policies = Counter({str(one): str(policy) for _, one, policy, _ in known}.values())
        policy = next(iter(policies), self.policy) if self.follows else self.policy
        if others := [one for one in policies if one != policy]:
            raise PolicyDiffers(
                f"Test rows of this task were opened under the alpha policy {others[0]} before "
                f"({quantity(policies[others[0]], 'opening')}), "
                f"but this run has {policy}. No error rate would hold over both. Use "
                f"{parameter('alpha_policy', others[0])} (with {parameter('fork')}, answers that are "
                "paid are used again), or fresh test rows."
            )
        outcomes: dict[str, list[bool]] = {digest: [] for digest in hashes}
        for one, _, _, promoted in known:
            outcomes[one].append(bool(promoted))
        return RowHistory(
            1 + policies.total(), policy, frozenset(tuple(outcome) for outcome in outcomes.values())
        )

    def release(self, comparison: SealedComparison) -> None:
        """Give back the opening of a comparison that got no verdict. Raises LedgerUnavailable."""
        with writing_ledger() as db:
            member = _own_name(db, comparison)
            run = self._opening_of(db, member)
            db.change("DELETE FROM compared WHERE run = ?", member)
            db.change("DELETE FROM members WHERE run = ?", member)
            if not db.find("SELECT 1 FROM members WHERE opening = ?", run):
                for statement in _FORGET:
                    db.change(statement, run)

    def open(self, run: str, alpha: float, sealed: Sequence[Example]) -> SealedTestAccess:
        """The opening `run` of the rows, reserved and settled at once. Raises LedgerUnavailable."""
        return self.settle(SealedComparison(run, Path(), sealed), alpha)

    def look(self, prompt: Sequence[str], alpha: float, sealed: Sequence[Example]) -> SealedTestAccess | None:
        """Write down that the mean of one prompt, known by these names, on the rows is looked at. None where that compares
        nothing: no other prompt was looked at, or a run has compared this one. Raises LedgerUnavailable."""
        hashes = row_hashes(sealed)
        name = _name_of_look(prompt, hashes)
        with writing_ledger() as db:
            opened, compares = _look_at(db, name, prompt, hashes)
            db.add(_ADD_ROWS, [(digest, known_as, LOOKED) for digest in hashes for known_as in prompt])
        return self.open(name, alpha, sealed) if opened or compares else None

    def foresee_look(self, task: Task) -> PlanJSON:
        """The opening that a `look` at the test rows would add, as a plan says it; nothing is written. Empty where there is none,
        or where the ledger cannot be read. Raises UsageError for rows that were opened under another policy."""
        prompt, hashes = task.prompt.names, row_hashes(task.test)
        try:
            with reading_ledger() as db:
                if db is None:
                    return {}
                opened, compares = _look_at(db, _name_of_look(prompt, hashes), prompt, hashes)
                if opened or not compares:
                    return {}
                history = self._history(db, "", hashes)
        except PolicyDiffers as error:
            raise UsageError(error.args[0]) from None
        except LedgerUnavailable:  # `look` says so
            return {}
        number, without, _ = history.level(task.alpha)
        after = history.after_another().level(task.alpha)[1]
        return {"look": {"opening": number, "alpha_without": without, "alpha_after": after}}

    def find_moved_rows(self, run: str, sealed: Sequence[Example], seen: Sequence[Example]) -> list[str]:
        """Warnings about rows that changed sides since an earlier opening by another run; nothing is written."""
        unsealed = len(self.find_known_rows(self._name(run), seen, (SEALED,)))
        known, folder = self.count_learned_rows(run, sealed)
        remedy = "Go back to the splits of that run (`splits: {seed: ...}`, or the same files), or test on rows that are new."
        warnings = []
        if unsealed:
            warnings.append(
                f"{unsealed} of the {len(seen)} rows to learn from were sealed test rows of an "
                "earlier run. This search may learn from them, so a test on the other rows shows "
                f"less. {remedy}"
            )
        if known:
            was, rest = ("was", "that row") if known == 1 else ("were", "those rows")
            where = f" ({folder})" if folder else ""
            warnings.append(
                f"{known} of {len(sealed)} sealed test rows {was} learned from in an earlier run{where}. "
                f"If this start prompt comes from that run, remove {rest}, or return to its splits "
                "(`splits: {seed: ...}`, or the same files)."
            )
        return warnings

    def count_learned_rows(self, run: str, sealed: Sequence[Example]) -> tuple[int, str]:
        """Return the number of sealed rows that another run than `run` learned from, and the folder of the run with the most of
        them, if known."""
        name, hashes = self._name(run), row_hashes(sealed)
        known = len(self.find_known_rows(name, sealed, (SEEN,)))
        if not known:
            return 0, ""
        sql = "SELECT run FROM rows WHERE hash = ? AND split = ? AND run != ?"
        place = "SELECT place FROM reserved WHERE run = ? OR run IN (SELECT run FROM members WHERE opening = ?) ORDER BY time"
        places: list[tuple[object, ...]] = []
        with suppress(LedgerUnavailable), reading_ledger() as db:
            if db is not None:
                runs = Counter(str(other) for (other,) in db.find_each(sql, hashes, SEEN, name))
                most = runs.most_common(1)[0][0] if runs else ""
                places = db.find(place, most, most)
        return known, _show_folder(Path(str(places[0][0]))) if places else ""

    def find_known_rows(
        self, run: str, rows: Sequence[Example], splits: Sequence[str] = (SEALED, SEEN, LOOKED)
    ) -> list[int]:
        """Positions of the rows that stand in one of these splits of an opening by another run than `run`."""
        sql = "SELECT hash, split FROM rows WHERE hash = ? AND run != ?"
        hashes = row_hashes(rows)
        try:
            with reading_ledger() as db:
                known = [] if db is None else db.find_each(sql, hashes, run)
        except LedgerUnavailable:  # `check` says so
            return []
        held = {str(one) for one, split in known if split in splits}
        return [i for i, one in enumerate(hashes) if one in held]

    def _opening_of(self, db: LedgerTables, run: str) -> str:
        """The opening that a run is part of: of a family, the first `tests` runs are the first, as many after them the next."""
        if self.family is None:
            return run
        family, tests = self._name(run), self.family.tests
        known: dict[str, str] = dict(db.find("SELECT run, opening FROM members WHERE family = ?", family))
        part = len(known) // tests
        opening = known.get(run) or (f"{family}/{part}" if part else family)
        db.add(_ADD_MEMBERS, [(family, run, opening)])
        return str(opening)

    def _known_opening(self, db: LedgerTables, folder: Path | None) -> str:
        """The opening that a run in a folder is part of or would be; an empty text for one that has not begun."""
        own = _id_in(folder)
        first = own if self.family is None else self.family.key or _id_in(self.family.first)
        if self.family is None or not first:
            return first
        family = self._name(own)
        sql = "SELECT run, opening FROM members WHERE family = ?"
        known = {str(run): str(opening) for run, opening in db.find(sql, family)}
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
    """The identity of the run in a folder. A later run in the same folder has another one."""
    name = read_meta(folder / "journal.sqlite", "run")
    if name is None:
        raise UsageError(f"{folder} holds no run. Name the folder of a run.")
    return name


def _id_in(folder: Path | None) -> str:
    """The id of the run in a folder; an empty text where there is none."""
    try:
        return "" if folder is None else run_id(folder)
    except (UsageError, StorageError):
        return ""


def _own_name(db: LedgerTables, comparison: SealedComparison) -> str:
    """The name under which a run settles: its id, or one of its own for a copy of a run.

    A copy lies elsewhere while the original is still there, or has other answers than those that were compared under its name.
    On another machine only the second can be seen.
    """
    name, place = comparison.run, str(comparison.place.absolute())
    there = db.find("SELECT place FROM reserved WHERE run = ?", name)
    if there and there[0][0] != place and _holds(Path(there[0][0]), name):
        name = content_hash([name, place])[:_DIGITS]
    digests = db.find("SELECT digest FROM compared WHERE run = ?", name)
    if digests and digests[0][0] != comparison.digest:
        name = content_hash([name, comparison.digest])[:_DIGITS]
    return name


def _find_opening(db: LedgerTables, run: str) -> tuple[int, float, str] | None:
    """Number, level and policy of an opening; None where there is none of that name."""
    sql = (
        "SELECT openings.number, openings.alpha, COALESCE(policies.policy, 'strict') FROM openings "
        "LEFT JOIN policies ON policies.run = openings.run WHERE openings.run = ?"
    )
    return next(((int(n), float(level), str(policy)) for n, level, policy in db.find(sql, run)), None)


def _holds(folder: Path, run: str) -> bool:
    """Whether a folder holds this run."""
    try:
        return run_id(folder) == run
    except (UsageError, IndexError):
        return False


def _name_of_look(prompt: Sequence[str], hashes: Iterable[str]) -> str:
    """The name under which a look at one prompt on rows is an opening."""
    return content_hash(["look", prompt[0], sorted(hashes)])


def _look_at(db: LedgerTables, name: str, prompt: Sequence[str], hashes: Iterable[str]) -> tuple[bool, bool]:
    """Whether a look is an opening already, and whether it compares a prompt with another one that was looked at."""
    opened = bool(db.find("SELECT 1 FROM openings WHERE run = ?", name))
    sql = "SELECT run FROM rows WHERE hash = ? AND split = ?"
    known = {str(run) for (run,) in db.find_each(sql, hashes, LOOKED)}
    return opened, bool(known) and known.isdisjoint(prompt)
