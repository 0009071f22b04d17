"""The comments in rows of feedback, verbatim, and the comments that are likely about the same thing.

No word is understood here: equal texts are equal, and near ones are near for the embedding, where it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.errors import UsageError
from whet.feedback.rows import FeedbackRow
from whet.instructions.neighbours import Vectors, comparable, group_by_cosine
from whet.instructions.questions import Critique

MOST_EMBEDDED = 500
"""Different comments that are embedded at most; more are grouped where they are equal."""
_SAME_GROUP = 0.55
"""Cosine of all-MiniLM from which comments are shown together. In a mixed sample of English and German complaints no two of
different meaning reach it."""
_CONTEXT, _LONGEST_SIDE = 60, 600


def critiques_of(row: FeedbackRow) -> tuple[list[str], str]:
    """The critique of a row, word by word, and the reason if there is none.

    A comment, the explanation of a verdict that is not good, and a correction as was and should be.
    """
    texts = [row.comment, row.explanation if row.liked is not True else None]
    if row.corrected is not None and row.output is not None and row.corrected.strip() != row.output.strip():
        texts.append(correction(row.output, row.corrected))
    critiques = list(dict.fromkeys(text for text in texts if text))
    if row.explanation and row.liked is True:
        reason = "its verdict is good"
    elif row.corrected is not None and row.output is None:
        reason = "a correction says what to change only beside the answer that it corrects (`output`)"
    elif row.corrected is not None:
        reason = "the correction equals the answer"
    else:
        reason = "a rating or label alone does not say what to change"
    return critiques, reason


def correction(output: str, corrected: str) -> str:
    """A correction as was and should be: the part in which the two texts differ, with a little around it.

    >>> print(correction("The total is 5 USD.", "The total is 5 EUR."))
    Was: "The total is 5 USD."
    Should be: "The total is 5 EUR."
    """
    shortest = min(len(output), len(corrected))
    start = next((n for n in range(shortest) if output[n] != corrected[n]), shortest)
    most = shortest - start
    end = next((n for n in range(most) if output[-1 - n] != corrected[-1 - n]), most)
    was, now = (_part(text, start, len(text) - end) for text in (output, corrected))
    return f'Was: "{was}"\nShould be: "{now}"'


def _part(text: str, start: int, stop: int) -> str:
    """The part of a text and `_CONTEXT` characters on both sides; an ellipsis replaces the rest, and a text that is too long."""
    first, last = max(0, start - _CONTEXT), min(len(text), stop + _CONTEXT)
    part = text[first:last]
    if len(part) > _LONGEST_SIDE:
        part = f"{part[: _LONGEST_SIDE // 2]} … {part[-_LONGEST_SIDE // 2 :]}"
    return f"{'…' if first else ''}{part}{'…' if last < len(text) else ''}"


@dataclass(frozen=True, slots=True)
class Group:
    """Comments that no model reads, likely ones about the same thing together. `rows` are their ids, `instruction` is what a
    person wrote for them, empty for none."""

    rows: tuple[str, ...]
    texts: tuple[str, ...]
    instruction: str = ""

    def as_json(self) -> dict[str, object]:
        """The group as JSON values."""
        return {"feedback": list(self.rows), "texts": list(self.texts)}


def groups_of(critiques: Sequence[Critique]) -> tuple[Group, ...]:
    """The critiques in groups: equal ones together, and near ones where the embedding is installed."""
    rows_of: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for critique in critiques:
        key = comparable(critique.text) or critique.text
        rows_of.setdefault(key, []).append(critique.source)
        texts.setdefault(key, critique.text)
    keys = list(texts)
    vectors = _embed_texts(list(texts.values())) if 1 < len(keys) <= MOST_EMBEDDED else None
    places = [[n] for n in range(len(keys))] if vectors is None else group_by_cosine(vectors, _SAME_GROUP)
    return tuple(
        Group(
            tuple(dict.fromkeys(row for n in group for row in rows_of[keys[n]])),
            tuple(texts[keys[n]] for n in group),
        )
        for group in places
    )


def _embed_texts(texts: Sequence[str]) -> Vectors | None:
    """Unit vectors of texts, None where the embedded encoder is not installed."""
    try:
        from whet.models.embedded.encoder import EncoderModel

        return np.asarray(EncoderModel().embed(texts), dtype=np.float64)
    except (ImportError, UsageError):
        return None
