"""The context that the reader sees with a comment, where the owner of the prompt allows it: the input and the answer, or the
conversation before them.

Personal data is masked by its form (`mask_personal`), long texts are cut, and what looks like an attack is not shown at all: a
comment counts without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whet.instructions.guard import suspicions
from whet.instructions.personal_data import mask_personal
from whet.search.minibatch import shorten
from whet_client.prompt.slots import text_of_value
from whet_live.learner.feedback_state import Comment
from whet_live.traffic import Filter, StoredInference, Traffic

COMMENT, ANSWER, CONVERSATION = "comment", "answer", "conversation"
READS = (COMMENT, ANSWER, CONVERSATION)
"""The data that the reader may see: the comment alone; the input and answer with it; and earlier answers of the same session
too."""
LONGEST_PART, TURNS = 1000, 3
"""Characters that are shown of one input or answer, and earlier answers of a conversation."""
_SOUGHT = 100

Contexts = Mapping[str, tuple[str, ...]]
"""Lines about the answer of a row, by the row's id."""


def describe_reading(reads: str) -> str:
    """A description of what the reader sees and of the option that changes it, for the person who starts the reader."""
    if reads == COMMENT:
        return (
            "The reader sees comments without the inputs and answers that they are about. To show it these, with personal data "
            "masked: whet prompts learning '*' --reads answer"
        )
    seen = "inputs and answers" if reads == ANSWER else "inputs, answers and earlier answers of the session"
    return (
        f"The reader sees comments with their {seen}; personal data is masked by its form. To show it comments only: "
        "whet prompts learning '*' --reads comment"
    )


def contexts_of(traffic: Traffic, rows: Iterable[Comment], reads: str) -> Contexts:
    """The lines about the answers of some rows that a reader who may see that much is shown; none for a row whose answer is
    gone, or holds signs of an attack."""
    if reads == COMMENT:
        return {}
    by_answer: dict[str, tuple[str, ...]] = {}
    contexts = {}
    for row in rows:
        if row.about not in by_answer:
            stored = traffic.inference(row.about)
            by_answer[row.about] = () if stored is None else _lines(traffic, stored, reads)
        if by_answer[row.about]:
            contexts[row.id] = by_answer[row.about]
    return contexts


def _lines(traffic: Traffic, stored: StoredInference, reads: str) -> tuple[str, ...]:
    lines = list[str]()
    if reads == CONVERSATION and stored.inference.session:
        for one in _find_earlier(traffic, stored):
            lines += _turn(one, "earlier ")
    lines += _turn(stored, "")
    return () if any(map(suspicions, lines)) else tuple(lines)


def _turn(stored: StoredInference, when: str) -> list[str]:
    inputs = stored.inference.inputs
    names = [f"{when}input" if len(inputs) == 1 else f"{when}input {name}" for name in inputs]
    texts = zip(names, map(text_of_value, inputs.values()), strict=True)
    return [
        f"{name}: {_mask_and_cut(text)}"
        for name, text in (*texts, (f"{when}answer", stored.inference.output or ""))
    ]


def _find_earlier(traffic: Traffic, stored: StoredInference) -> list[StoredInference]:
    """The last answers of the same prompt before in the session, by their times, the oldest first."""
    shown = stored.inference
    wanted = Filter(prompt=shown.prompt, session=shown.session, until=shown.time + 1)
    place = shown.time, stored.seq
    before = [
        row for row in traffic.inferences(wanted, _SOUGHT).rows if (row.inference.time, row.seq) < place
    ]
    return sorted(before, key=lambda row: (row.inference.time, row.seq))[-TURNS:]


def _mask_and_cut(text: str) -> str:
    return shorten(mask_personal(text), LONGEST_PART)
