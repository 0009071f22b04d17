"""The meaning of a number of another tool: thumbs, a scale, or a plain number. All numbers of a column or metric decide it
together.

A scale is kept as stars from 1 to 5, so that ratings of different scales may be compared; what was given stands in the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from whet.errors import UsageError, did_you_mean
from whet_client.records import KINDS, Feedback

THUMBS = frozenset(("thumb", "thumbs", "vote", "like", "user_feedback", "thumbs_up"))
STARS = frozenset(("rating", "stars", "user_rating"))
_RANGE = re.compile(r"([-+]?\d{1,6}(?:\.\d{1,6})?)\.\.([-+]?\d{1,6}(?:\.\d{1,6})?)")
_FORMS = "thumbs, stars, score, or the worst and the best value, as in 1..10"


@dataclass(frozen=True, slots=True)
class RawFeedback:
    """Feedback as its row has it, with a number as a score. `column` names the column or metric of the number, `out_of` the
    best value where the row says it (4/5), `scale` is the scale that the row itself states, `updated` when it was last changed
    (microseconds)."""

    feedback: Feedback
    column: str = ""
    out_of: float | None = None
    scale: str | None = None
    updated: int | None = None

    @property
    def changed(self) -> int:
        """The time of the row's content: that of its last change, else the row's time."""
        return self.feedback.time if self.updated is None else self.updated


class RatingScale(NamedTuple):
    """From the worst to the best value of a rating; of thumbs the values of down and up; a score has no bounds."""

    kind: str
    worst: float = 0.0
    best: float = 1.0

    def holds(self, value: float) -> bool:
        """Whether a value is on the scale."""
        if self.kind == "thumb":
            return value in (-1, 0, 1)
        return self.kind == "score" or min(self[1:]) <= value <= max(self[1:])

    def apply(self, raw: RawFeedback) -> Feedback:
        """The feedback with the kind and the value that its number means."""
        one, value = raw.feedback, raw.feedback.value
        if self.kind == "score" or value is None:
            return one
        if self.kind == "thumb":
            return replace(one, kind="thumb", value=float(value > 0))
        if self == _FIVE:
            return replace(one, kind="rating")
        stars = 1 + 4 * (value - self.worst) / (self.best - self.worst)
        before = {"given": value, "scale": f"{self.worst:g}..{self.best:g}"}
        return replace(one, kind="rating", value=stars, metadata={**one.metadata, **before})

    def __str__(self) -> str:
        if self.kind == "thumb":
            return f"thumbs, {self.best:g} is up and {self.worst:g} is down"
        if self.kind == "score":
            return "plain numbers"
        if self == _FIVE:
            return "stars from 1 to 5"
        return f"a scale from {self.worst:g} (worst) to {self.best:g} (best), kept as stars from 1 to 5"


_FIVE = RatingScale("rating", KINDS["rating"].low, KINDS["rating"].high)
_NAMED = {"thumbs": RatingScale("thumb"), "stars": _FIVE, "score": RatingScale("score")}


def parse_scale(text: str, where: str) -> RatingScale:
    """`thumbs`, `stars`, `score`, or WORST..BEST as a scale. Raises UsageError (`where` first)."""
    match = _RANGE.fullmatch(text.strip())
    if match is not None and float(match[1]) != float(match[2]):
        return RatingScale("rating", float(match[1]), float(match[2]))
    if text.strip() not in _NAMED:
        raise UsageError(f"{where}: {text[:40]!r} is no scale. Write {_FORMS}.")
    return _NAMED[text.strip()]


def settle_scales(
    rows: Sequence[tuple[str, RawFeedback]], stated: Mapping[str, RatingScale]
) -> tuple[list[Feedback], list[str]]:
    """Feedback of files, each with its place, and a note about each scale.

    `stated` are scales by column or metric; the others follow from all numbers of a column. Raises UsageError for a column
    whose scale its numbers leave open, for a number outside a stated scale, and for a stated column without numbers.
    """
    columns: dict[str, list[tuple[str, RawFeedback]]] = {}
    for where, one in rows:
        if one.column and one.feedback.value is not None:
            columns.setdefault(one.column, []).append((where, one))
    for name in stated:
        if name not in columns:
            raise UsageError(
                f'--scale: no column or metric "{name}" has numbers.{did_you_mean(name, columns)}'
            )
    scales: dict[str, RatingScale] = {}
    notes = []
    for name, members in columns.items():
        if name in stated:
            scales[name] = _check_members(name, stated[name], members)
        elif name in THUMBS | STARS:
            scales[name] = _scale_of(name, members)
        else:
            continue
        hint = "" if name in stated else f" If that is wrong, import with --scale {name}=WORST..BEST."
        notes.append(f"{name}: {scales[name]}, in {len(members)} row{'s'[: len(members) != 1]}.{hint}")
    plain = RatingScale("score")
    return [scales.get(one.column, plain).apply(one) for _, one in rows], notes


def _check_members(name: str, scale: RatingScale, members: Iterable[tuple[str, RawFeedback]]) -> RatingScale:
    seen = set()
    for where, one in members:
        value = one.feedback.value or 0.0
        seen.add(value)
        if not scale.holds(value):
            raise UsageError(
                f'{where}: {value:g} in "{name}" is outside of --scale {name}: {scale}. Correct one of them.'
            )
    return _thumbs(name, seen, members) if scale.kind == "thumb" else scale


def _thumbs(name: str, seen: set[float], members: Iterable[tuple[str, RawFeedback]]) -> RatingScale:
    """Thumbs with the value that is down in them."""
    if seen >= {-1.0, 0.0}:
        where = next(where for where, one in members if one.feedback.value == 0)
        raise UsageError(
            f'{where}: "{name}" holds 0 and -1, so 0 is not down. Write --scale {name}=-1..1, where 0 is the middle.'
        )
    return RatingScale("thumb", min(seen) if min(seen) < 1 else 0.0)


def _scale_of(name: str, members: Sequence[tuple[str, RawFeedback]]) -> RatingScale:
    """The scale that all numbers of a column together show. Raises UsageError when they leave it open."""
    values = {float(one.feedback.value or 0.0) for _, one in members}
    tops = {one.out_of for _, one in members if one.out_of is not None}
    low, high = min(values), max(values | tops)
    first = 0.0 if low < 1 else 1.0
    sides = values <= {0.0, 1.0} or values <= {-1.0, 1.0}
    if len(tops) > 1:
        raise _open(name, members, "have different best values", ("1..5", "1..10"))
    if not tops and sides and name != "stars" and (name in THUMBS or len(values) == 2 or low < 0):
        return RatingScale("thumb", low if low < 1 else 0.0)
    if low < 0:
        if low >= -1 and high <= 1:
            return RatingScale("rating", -1.0, 1.0)
        raise _open(name, members, "leave their scale open", (f"{low:g}..{high:g}",))
    if tops and high > 1:
        return RatingScale("rating", first, high)
    if high <= 1 and not sides:
        return RatingScale("rating", 0.0, 1.0)
    if high <= 1 and name != "stars":
        raise _open(name, members, "leave their scale open", ("thumbs", "0..1", f"{first:g}..5"))
    if high <= 5:
        return RatingScale("rating", first, 5.0)
    if 7 < high <= 10:
        return RatingScale("rating", first, 10.0)
    if 50 < high <= 100:
        return RatingScale("rating", 0.0, 100.0)
    more = (f"{first:g}..7", f"{first:g}..10") if high <= 7 else (f"{first:g}..{high:g}", "score")
    raise _open(name, members, "leave their scale open", more)


def _open(
    name: str, members: Sequence[tuple[str, RawFeedback]], fault: str, forms: Sequence[str]
) -> UsageError:
    values = [one.feedback.value or 0.0 for _, one in members]
    span = f"from {min(values):g} to {max(values):g}" if min(values) < max(values) else f"only {values[0]:g}"
    choices = " or ".join(f"--scale {name}={form}" for form in forms)
    return UsageError(
        f'{members[0][0]}: the numbers of "{name}" ({span}) {fault}. State the worst and the best value: {choices}.'
    )


def settle_batch(rows: Sequence[tuple[str, RawFeedback]]) -> list[Feedback | UsageError]:
    """Feedback of one request, each with its place, and in the place of what cannot be used the reason.

    A request shows too few numbers to know a scale by. So the name decides: thumbs are 1 and 0 or -1, stars 1 to 5. Where
    one number under a name does not fit, every row with that name is refused that states no scale.
    """
    values: dict[str, set[float]] = {}
    for _, one in rows:
        if one.scale is None and one.feedback.value is not None:
            values.setdefault(one.column, set()).add(one.feedback.value)
    return [_settle_one(where, one, values.get(one.column, set())) for where, one in rows]


def _settle_one(where: str, one: RawFeedback, values: set[float]) -> Feedback | UsageError:
    if one.feedback.value is None or not one.column:
        return one.feedback
    try:
        if one.scale is not None:
            scale, values = parse_scale(one.scale, f"{where}: scale"), {one.feedback.value}
        else:
            name = "thumbs" if one.column in THUMBS else "stars" if one.column in STARS else "score"
            scale = _NAMED[name]
    except UsageError as error:
        return error
    outside = next((f"{value:g}" for value in sorted(values) if not scale.holds(value)), "")
    if scale.kind == "thumb" and values >= {-1.0, 0.0}:
        outside = "0 beside -1"
    if not outside:
        return scale.apply(one)
    expected = "thumbs (1, and 0 or -1)" if scale.kind == "thumb" else scale
    remedy = "Correct one of them." if one.scale is not None else f"State the `scale` in each row: {_FORMS}."
    return UsageError(f'{where}: "{one.column}" is {outside} in this request; expected: {expected}. {remedy}')
