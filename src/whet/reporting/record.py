"""The content of a run's journal, gathered for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import orjson

from whet.engine.journal import read_events, read_journal_rows, read_meta
from whet.engine.result_json import UsageJSON
from whet.engine.run_folder import read_header
from whet.errors import quantity
from whet.prompt import Prompt
from whet.search.over_optimisation import trained_reward
from whet.types import ROLES, Message
from whet_client.media import look_for_images_in

JOURNAL = "journal.sqlite"
RESULT = "result.json"
STEP_INDEX = "step"
START = "start"
FREE = ("embedded/", "hf/", "scripted/")


@dataclass(frozen=True)
class ReportedCandidate:
    """A candidate as the journal knows it."""

    number: int
    """From 0 in order of appearance."""
    id: str
    source: str
    parents: tuple[str, ...]
    operator: str
    calls: int
    """Model calls that were made by then."""
    train: float | None = None
    """Mean reward over `train_n` examples."""
    train_n: int | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    validation: float | None = None
    """Mean reward over `validation_n` examples."""
    validation_n: int | None = None
    incumbent: bool = False

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sort key: best validation first, then best training score, then the older."""
        return (
            -(self.validation if self.validation is not None else -math.inf),
            -(self.train if self.train is not None else -math.inf),
            self.number,
        )


@dataclass(frozen=True)
class ScoredPoint:
    """A score at a number of model calls, over `n` rows. `incumbent`: it became the best on validation."""

    calls: int
    value: float
    incumbent: bool = False
    n: int | None = None


@dataclass(frozen=True)
class Spending:
    """The cost of one role: paid calls (including retries), failed and lost calls among them, attempts that an endpoint
    refused (which are not calls), answers from the cache, tokens, USD."""

    role: str
    calls: int = 0
    failed: int = 0
    lost: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    refused: int = 0


@dataclass
class Record:
    """Everything a report shows. `result` is empty while the run goes on; `place` is how commands name the run's folder."""

    name: str
    header: Mapping[str, Any]
    result: Mapping[str, Any]
    candidates: dict[str, ReportedCandidate] = field(default_factory=dict)
    trained: list[ScoredPoint] = field(default_factory=list)
    validated: list[ScoredPoint] = field(default_factory=list)
    steps: list[Mapping[str, float]] = field(default_factory=list)
    rewards: list[ScoredPoint] = field(default_factory=list)
    place: str = ""
    final: Mapping[str, Any] = field(default_factory=dict)
    others: dict[str, list[Any]] = field(default_factory=dict)
    spending: list[Spending] = field(default_factory=list)
    seconds: float | None = None
    calls: int = 0

    @property
    def finished(self) -> bool:
        """Whether the sealed test was made."""
        return isinstance(side(self.result, "best").get("test"), Mapping)

    @property
    def rows_seen(self) -> int:
        """Test rows that an earlier run had to learn from."""
        return int(finite_number(self.result.get("test_rows_seen")) or 0)

    @property
    def start(self) -> ReportedCandidate | None:
        """The candidate that the search began from."""
        return next((c for c in self.candidates.values() if c.operator == START), None)

    @property
    def incumbent(self) -> ReportedCandidate | None:
        """The best candidate on validation so far."""
        incumbents = [c for c in self.candidates.values() if c.incumbent]
        return min(incumbents, key=lambda c: c.rank, default=None)

    @property
    def baseline_text(self) -> str | None:
        """Source of the baseline prompt, as far as known."""
        text = side(self.result, "baseline").get("prompt")
        if text is not None:
            return str(text)
        return None if self.start is None else self.start.source

    @property
    def best_text(self) -> str | None:
        """Source of the best prompt, as far as known."""
        text = side(self.result, "best").get("prompt")
        if text is not None:
            return str(text)
        return None if self.incumbent is None else self.incumbent.source

    @property
    def best_id(self) -> str | None:
        """Id of the best prompt, as far as known."""
        best = side(self.result, "best").get("id")
        if best is not None:
            return str(best)
        return None if self.incumbent is None else self.incumbent.id

    @property
    def measured_again(self) -> bool:
        """Whether the end of the run measured a prompt on validation anew, on more rows than the search or in other words of
        a model: the search's numbers are then another quantity."""
        measured = [
            (mean - seen.validation, score.get("n"), seen.validation_n)
            for seen in (self.start, self.candidates.get(self.best_id or ""))
            if seen is not None and seen.validation is not None and (score := self.validation(seen.id))
            if (mean := finite_number(score.get("mean"))) is not None
        ]
        return any(abs(gap) > 1e-9 or n != rows for gap, n, rows in measured)

    def validation(self, candidate: str) -> Mapping[str, Any]:
        """The validation score of baseline or best at the end of the run; empty for other candidates and before the end."""
        sides = (side(self.result, name) for name in ("best", "baseline"))
        return next((side(one, "validation") for one in sides if one.get("id") == candidate), {})

    @property
    def search_split(self) -> str:
        """The rows over which the search's own validation scores are means, in words."""
        if not self.measured_again:
            return "validation"
        sizes = {c.validation_n for c in self.candidates.values() if c.validation_n is not None}
        all_rows = side(side(self.result, "baseline"), "validation").get("n")
        if len(sizes) == 1 and sizes != {all_rows} and isinstance(all_rows, int):
            return f"{sizes.pop():,} of the {all_rows:,} validation rows"
        return "validation (answers of the search)"

    @property
    def digits(self) -> int:
        """Decimals of a reward, so that a reward in [0, 1] has three."""
        low, high = finite_number(self.final.get("low")), finite_number(self.final.get("high"))
        values = [abs(p.value) for p in (*self.trained, *self.validated)]
        width = high - low if low is not None and high is not None else max(values, default=1.0)
        return 3 if width <= 2 else 2 if width <= 20 else 1

    @property
    def example_digits(self) -> int:
        """Decimals of the reward of one example: none where every example is simply right or wrong."""
        rows = [
            row
            for name in ("baseline", "best")
            for row in self.final.get(name) or ()
            if isinstance(row, Mapping)
        ]
        whole = all(
            float(v).is_integer() for row in rows if (v := finite_number(row.get("reward"))) is not None
        )
        return 0 if whole else self.digits

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The roles whose calls may cost something that nobody has said; before the end of a run those of models outside
        this process that have cost nothing."""
        if usage := side(self.result, "usage"):
            return tuple(usage.get("price_unknown") or ())
        models = side(self.header, "models")
        roles = (
            (row.role, str(models.get(row.role, ""))) for row in self.spending if row.calls and not row.cost
        )
        return tuple(role for role, address in roles if address and not address.startswith(FREE))

    @property
    def priceless(self) -> tuple[str, ...]:
        """The roles with calls whose models run in this process or are scripted, and have no price."""
        if usage := side(self.result, "usage"):
            return tuple(usage.get("not_priced") or ())
        models = side(self.header, "models")
        return tuple(
            row.role
            for row in self.spending
            if row.calls and not row.cost and str(models.get(row.role, "")).startswith(FREE)
        )

    @property
    def simulated(self) -> bool:
        """Whether a scripted model answered in place of a language model."""
        models = side(self.header, "models").values()
        return bool(self.result.get("simulated")) or any(str(m).startswith("scripted/") for m in models)


def side(mapping: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """The mapping below a key, empty when there is none."""
    value = mapping.get(name)
    return value if isinstance(value, Mapping) else {}


def usage_in(result: Mapping[str, Any]) -> UsageJSON:
    """The usage of a result, empty when there is none."""
    return cast("UsageJSON", side(result, "usage"))


def rows_of(score: Mapping[str, object]) -> str:
    """Over how many rows a score is a mean, and how many there were where not all were answered.

    >>> rows_of({"n": 90}), rows_of({"n": 87, "answered": 87, "of": 90})
    ('90 examples', '87 of 90 examples answered')
    >>> rows_of({"n": 87, "answered": 90, "of": 90, "compared": 87})
    '87 of 90 examples answered by both prompts'
    >>> rows_of({"n": 90, "groups": 9})
    '90 examples in 9 groups'
    """
    n, answered, of = (finite_number(score.get(key)) for key in ("n", "answered", "of"))
    compared = finite_number(score.get("compared"))
    if compared is not None and of is not None:
        return f"{compared:,.0f} of {of:,.0f} examples answered by both prompts{in_groups(score)}"
    if answered is not None and of is not None and answered < of:
        return f"{answered:,.0f} of {of:,.0f} examples answered{in_groups(score)}"
    return "– examples" if n is None else f"{n:,.0f} example" + ("" if n == 1 else "s") + in_groups(score)


def in_groups(score: Mapping[str, object]) -> str:
    """The words after the number of rows of a score if the rows form groups."""
    groups = finite_number(score.get("groups"))
    return "" if groups is None else f" in {quantity(int(groups), 'group')}"


def finite_number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def read_record(folder: Path, result: Mapping[str, Any] | None) -> Record:
    """Gather a run folder's journal and its result. Raises UsageError when there is no journal."""
    path = folder / JOURNAL
    place, here = folder.resolve(), Path.cwd()
    for parent in (place, place.parent):
        look_for_images_in(parent / "images")
    named = str(place.relative_to(here)) if place.is_relative_to(here) else str(place)
    record = Record(place.name, {}, result or {}, place=named)
    for event in read_events(path):
        _take(record, event.name, event.value, event.calls)
    record.header = read_header(folder) or {}
    record.spending = _spending(path)
    elapsed = read_meta(path, "elapsed")
    record.seconds = None if elapsed is None else float(elapsed)
    return record


def read_run(folder: Path) -> Record:
    """Read the present content of a run folder. Raises UsageError if there is no journal."""
    path = folder / RESULT
    return read_record(folder, orjson.loads(path.read_bytes()) if path.is_file() else None)


def _take(record: Record, name: str, value: Any, calls: int) -> None:
    record.calls = max(record.calls, calls)
    if name in ("candidate", "validated") and isinstance(value, Mapping) and "id" in value:
        _take_candidate(record, value, calls)
    elif name == "step" and isinstance(value, Mapping):
        figures = {str(k): f for k, v in value.items() if (f := finite_number(v)) is not None}
        record.steps.append({STEP_INDEX: float(len(record.steps)), **figures})
        if (reward := trained_reward(figures)) is not None:
            record.rewards.append(ScoredPoint(calls, reward))
    elif name == "final" and isinstance(value, Mapping):
        record.final = value
    else:
        record.others.setdefault(name, []).append(value)


def _take_candidate(record: Record, value: Mapping[str, Any], calls: int) -> None:
    key = str(value["id"])
    seen = record.candidates.get(key) or ReportedCandidate(
        len(record.candidates),
        key,
        _source(value.get("messages") or ()),
        tuple(str(p) for p in value.get("parents") or ()),
        str(value.get("operator", "")),
        calls,
    )
    train, validation = finite_number(value.get("train")), finite_number(value.get("validation"))
    if train is not None:
        parts = {str(k): f for k, v in side(value, "parts").items() if (f := finite_number(v)) is not None}
        seen = replace(seen, train=train, train_n=value.get("train_n"), parts=parts)
        if validation is None:
            record.trained.append(ScoredPoint(calls, train))
    if validation is not None:
        incumbent = bool(value.get("incumbent"))
        seen = replace(seen, validation=validation, validation_n=value.get("n"), incumbent=incumbent)
        record.validated.append(ScoredPoint(calls, validation, incumbent, value.get("n")))
    record.candidates[key] = seen


def _source(messages: Iterable[Any]) -> str:
    return Prompt(tuple(Message(*map(str, values)) for values in messages)).source


def _spending(path: Path) -> list[Spending]:
    """One row per role that was called, in the order of the roles."""
    by_role: dict[str, Spending] = {}
    attempts = read_journal_rows(
        path,
        "SELECT role, state, COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(cost) FROM calls"
        " WHERE state NOT IN ('unsent', 'given up') GROUP BY role, state",
    )
    for role, state, calls, tokens_in, tokens_out, cost in attempts:
        row = by_role.get(role, Spending(role))
        by_role[role] = replace(
            row,
            calls=row.calls + (0 if state in ("cached", "refused") else calls),
            refused=row.refused + (calls if state == "refused" else 0),
            failed=row.failed + (calls if state in ("failed", "silent") else 0),
            lost=row.lost + (calls if state == "lost" else 0),
            cached=row.cached + (calls if state == "cached" else 0),
            input_tokens=row.input_tokens + tokens_in,
            output_tokens=row.output_tokens + tokens_out,
            cost=row.cost + cost,
        )
    local = read_journal_rows(
        path, "SELECT role, SUM(calls) FROM effects WHERE role IS NOT NULL GROUP BY role"
    )
    for role, calls in local:
        row = by_role.get(role, Spending(role))
        by_role[role] = replace(row, calls=row.calls + calls)
    order = {role: i for i, role in enumerate(ROLES)}
    return sorted(
        (r for r in by_role.values() if r.calls or r.cached or r.refused),
        key=lambda r: order.get(r.role, len(order)),
    )
