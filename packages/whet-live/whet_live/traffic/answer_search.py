"""Words in answers: found anywhere in inputs and output, in every script, in any case, composed or decomposed.

There is no index of these texts, which are most of a database: rows are read from the newest, `LOOKED_AT` of them at a time, and
the next page goes on behind them. Filters choose rows by the index of times before.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from whet_live.traffic.search import Filter, StoredInference, hide_forgotten, inference_rows, stored_inference
from whet_live.traffic.traffic_tables import inferences

LOOKED_AT = 5_000
_BATCH = 250


@dataclass(frozen=True, slots=True)
class AnswerMatches:
    """Answers that hold all words, the newest first; how many were looked at, and where to go on (None: all were)."""

    rows: list[StoredInference]
    looked: int
    next: str | None


def search_answers(
    connection: Connection, wanted: Filter, words: str, limit: int, cursor: str | None
) -> AnswerMatches:
    """A page of answers whose inputs and output hold every word. Raises UsageError for a cursor that is none."""
    parts = [fold_case(word) for word in words.split()]
    matches: list[StoredInference] = []
    looked, place = 0, cursor
    while looked < LOOKED_AT:
        rows = inference_rows(connection, wanted, _BATCH, place)
        shown = {one.seq for one in map(stored_inference, hide_forgotten(connection, inferences, rows))}
        for row in rows:
            looked, place = looked + 1, f"{row.time}.{row.seq}"
            if row.seq in shown and holds(parts, row.inputs, row.output):
                matches.append(stored_inference(row))
                if len(matches) == limit:
                    return AnswerMatches(matches, looked, place)
        if len(rows) < _BATCH:
            return AnswerMatches(matches, looked, None)
    return AnswerMatches(matches, looked, place)


def holds(parts: Sequence[str], inputs: Mapping[str, object], output: str) -> bool:
    """Whether every folded part stands somewhere in the texts."""
    if not parts:
        return True
    text = fold_case("\n".join([output, *_texts(inputs)]))
    return all(part in text for part in parts)


def fold_case(text: str) -> str:
    """A text without case, and with its accents composed (Unicode NFC)."""
    return unicodedata.normalize("NFC", text.casefold())


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif value is not None:
        yield str(value)
