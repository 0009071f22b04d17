"""The values of a rating that are good and those that are bad: constants that formats of other tools fix, and statements of the
user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whet.errors import UsageError, parameter
from whet_client.storable import show_value

FORMATS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "booleans as text": (("true",), ("false",)),
    "thumbs, Dialogflow": (
        ("👍", "up", "thumb_up", "thumbs_up"),
        ("👎", "down", "thumb_down", "thumbs_down"),
    ),
    "OpenAI, ratings": (("good",), ("bad",)),
    "OpenAI, graders": (("pass", "passed"), ("fail", "failed")),
    "Dify": (("like",), ("dislike",)),
    "MLflow, judges": (("yes",), ("no",)),
    "Phoenix, evaluators": (("correct", "factual"), ("incorrect", "hallucinated")),
}
"""Values that each format fixes, good and bad, in lower case with underscores. docs/learn.md lists them."""

_FIXED = {
    value: good
    for pair in FORMATS.values()
    for good, side in zip((True, False), pair, strict=True)
    for value in side
}


def _constant(value: str) -> str:
    text = value.strip().casefold()
    return text if text in _FIXED else "_".join(text.replace("-", " ").split())


@dataclass(frozen=True)
class Verdicts:
    """The meanings of the values in a column: those that a user stated, by the value in lower case, else those of `FORMATS`."""

    stated: Mapping[str, bool] = field(default_factory=dict)

    def of(self, value: object) -> bool | None:
        """Whether a value is good; None for one of which neither the user nor a format says it. Booleans say it themselves."""
        if isinstance(value, bool):
            return value
        if not isinstance(value, str):
            return None
        own = self.stated.get(value.strip().casefold())
        return _FIXED.get(_constant(value)) if own is None else own


def order_values(columns: Mapping[str, Sequence[str]], good: Sequence[str], bad: Sequence[str]) -> Verdicts:
    """The verdicts on the different values of `columns` that are texts. `good` and `bad` are values as a user states them; where
    only one of the two values of a column is stated, the other one is the opposite.

    Raises UsageError for a stated value that is in no column or on both sides, for a column with a stated value and several
    that are open, and for a column of two values that nobody has ordered.
    """
    stated = {value.strip().casefold(): True for value in good}
    for value in bad:
        if stated.setdefault(value.strip().casefold(), False):
            raise UsageError(f"{_flags(value)} both name {show_value(value)}. Leave one of them out.")
    known = {value.strip().casefold() for values in columns.values() for value in values}
    for value in (*good, *bad):
        if value.strip().casefold() not in known:
            shown = sorted({value for values in columns.values() for value in values})[:8]
            there = f"Its words: {', '.join(map(show_value, shown))}" if shown else "There are no words in it"
            name = "good" if value in good else "bad"
            raise UsageError(f"{parameter(name, value)} is no value of a rating. {there}.")
    whole = dict(stated)
    for name, values in columns.items():
        whole.update(_opposites(name, values, stated))
    return Verdicts(whole)


def _opposites(name: str, values: Sequence[str], stated: Mapping[str, bool]) -> dict[str, bool]:
    keys = {value.strip().casefold(): value for value in values}
    left = [key for key in keys if key not in stated]
    sides = {stated[key] for key in keys if key in stated}
    if not sides:
        if len(keys) == 2 and not any(Verdicts().of(key) is not None for key in keys):
            raise UsageError(
                f"The values of {show_value(name)} are {' and '.join(show_value(v) for v in keys.values())}, and nothing says "
                f"which one is good. State it: {' or '.join(parameter('good', v) for v in keys.values())}. "
                "Categories belong in a column called label."
            )
        return {}
    if len(sides) == 2 or not left:
        return {}
    if len(left) > 1:
        raise UsageError(
            f"The values of {show_value(name)} are {', '.join(show_value(v) for v in keys.values())}: more than two. State both "
            f"sides, with {parameter('good')} and {parameter('bad')}; what neither names stays a label."
        )
    return {left[0]: not sides.pop()}


def _flags(value: str) -> str:
    return f"{parameter('good', value)} and {parameter('bad', value)}"
