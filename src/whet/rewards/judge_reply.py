"""A judge's own words in its reply: its JSON and its text, without quotations.

A judge quotes the answer that it judges, which may hold a verdict of its own. So JSON and scores inside of quotation marks,
inline code, block quotations and fenced blocks are no verdict; a fenced block that is JSON as a whole is the usual form of one.
Where two contradicting verdicts are left, none is read, because either may be the judge's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import regex

from whet._util.words import fold
from whet.replies import records
from whet.replies.quotations import HiddenPieces, Span, hide_pieces, quotations_in
from whet.replies.values import PROSE, Value, placed_values

T = TypeVar("T")

_PLACE = regex.compile(r"[\s*_#(\[]{0,8}([0-9]{1,6})[\s*_.):\]]{0,8}")


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The JSON objects of a reply, the most trustworthy first, keys in lower case; its text, in which JSON, blocks and quotations
    are hidden; and all of it. A list of objects stands under the key "items". `latest_first` are the same objects, the one that
    stands last first, and behind them those that were cut off."""

    objects: list[dict[str, object]]
    own: HiddenPieces
    full: str
    latest_first: list[dict[str, object]]


def read_reply(reply: str, whole: bool = True) -> JudgeReply:
    """The reply's own text, without thinking. `whole` says that it was not cut off. The last line of a reply that was cut off
    is left out, because a number at its end may be incomplete."""
    full, values = placed_values(reply, whole=whole)
    with_objects = [one for one in values if any(records(one.value))]
    spans = [(one.start, one.stop) for one in with_objects]
    quotations = quotations_in(full, spans)
    own_values = [
        one for one in with_objects if one.place != PROSE or not _is_inside((one.start, one.stop), quotations)
    ]
    latest_first = sorted(own_values, key=lambda one: (one.cut, -one.start))
    own = hide_pieces(full, [*spans, *quotations])
    if not whole:
        own = HiddenPieces(own.text.rpartition("\n")[0], own.pieces)
    return JudgeReply(_objects(own_values), own, full, _objects(latest_first))


def _objects(values: Sequence[Value]) -> list[dict[str, object]]:
    return [keys for one in values if (keys := _object(one.value))]


def _object(value: object) -> dict[str, object]:
    if isinstance(value, Mapping):
        return lower_keys(value)
    return {"items": value} if isinstance(value, list) and all(isinstance(v, dict) for v in value) else {}


def _is_inside(span: Span, quotations: Sequence[Span]) -> bool:
    at = bisect_right(quotations, (span[0], span[1])) - 1
    return at >= 0 and span[1] <= quotations[at][1]


def agree_on(verdicts: Sequence[T], meaning: Callable[[T], object]) -> T | None:
    """The first of some verdicts of one reply that all mean the same; None where two differ, or where there is none."""
    meanings = [meaning(verdict) for verdict in verdicts]
    return verdicts[0] if meanings and all(one == meanings[0] for one in meanings) else None


def parse_place(value: object) -> int | None:
    """The place that an entry of a reply names: a whole number with nothing but marks beside it. "2 sources" is a text.

    >>> [parse_place(one) for one in (2, "2.", "[2]", 2.0, "2 sources", "2.5", True)]
    [2, 2, 2, 2, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        match = _PLACE.fullmatch(fold(value[:40]))
        return int(match[1]) if match and len(value) <= 40 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def lower_keys(value: Mapping[object, object]) -> dict[str, object]:
    """A mapping with its keys as trimmed lower-case text."""
    return {str(key).strip().casefold(): item for key, item in value.items()}
