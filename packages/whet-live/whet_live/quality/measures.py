"""The measures of a prompt's quality: rates of answers, ratings, and amounts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

SCORE = "score:"
"""The prefix of the name of a measure that is a score under a name of the caller."""


@dataclass(frozen=True, slots=True)
class QualityMeasure:
    """One measure. `kind`: a `share` of answers, a `bounded` number, or an `amount` without bounds. `better`: 1 where more is
    better, -1 where less is, 0 where neither is said. `of`: which answers it is taken over."""

    name: str
    title: str
    kind: Literal["share", "bounded", "amount"]
    better: int
    unit: str = ""
    of: str = "all answers"
    low: float = 0.0
    high: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """The measure as JSON values; an amount has no bounds."""
        shown = asdict(self)
        if self.kind == "amount":
            shown["low"], shown["high"] = None, None
        return shown


_JUDGED = "answers that were judged so"

FIXED: tuple[QualityMeasure, ...] = (
    QualityMeasure("rating", "Stars", "bounded", 1, "stars", "rated answers", 1.0, 5.0),
    QualityMeasure("thumb", "Thumbs up", "share", 1, "", "answers with a thumb"),
    QualityMeasure("external_check", "Outside checks", "bounded", 1, "", "checked answers"),
    QualityMeasure("correction", "Corrected", "share", -1),
    QualityMeasure("comment", "Commented on", "share", 0),
    QualityMeasure("regenerate", "Asked again", "share", -1),
    QualityMeasure("abandon", "Abandoned", "share", -1),
    QualityMeasure("copy", "Copied", "share", 1),
    QualityMeasure("edit_distance", "Rewritten", "bounded", -1, "", "edited answers"),
    QualityMeasure("error", "Errors", "share", -1),
    QualityMeasure("refusal", "Refused or empty", "share", -1),
    QualityMeasure("latency", "Latency", "amount", -1, "s", "answers with a latency"),
    QualityMeasure("input_tokens", "Tokens read", "amount", 0, "tokens", "answers with tokens"),
    QualityMeasure("output_tokens", "Tokens written", "amount", 0, "tokens", "answers with tokens"),
    QualityMeasure("cost", "Cost", "amount", -1, "$", "answers with a cost"),
)
"""Every measure but the scores, in the order in which pages show them."""
BY_NAME = {one.name: one for one in FIXED}

JUDGED = frozenset(("rating", "thumb", "external_check", "edit_distance"))
"""Kinds of feedback whose value is the measure, over answers that have one."""
DONE = frozenset(("correction", "comment", "regenerate", "abandon", "copy"))
"""Kinds of feedback of which an answer has one or not: shares of all answers."""
FIELDS = ("latency", "input_tokens", "output_tokens", "cost")
"""Amounts that an answer carries itself."""


def measure_named(name: str) -> QualityMeasure:
    """The measure with that name; a score is an amount of which more is better."""
    if name.startswith(SCORE):
        return QualityMeasure(name, name.removeprefix(SCORE), "amount", 1, "", _JUDGED)
    return BY_NAME[name]


def order_of(name: str) -> tuple[int, str]:
    """The place of a measure in the order: scores come first, because somebody asked for them."""
    names = list(BY_NAME)
    return (names.index(name) + 1 if name in BY_NAME else 0, name)
