"""One comment, one requirement, yes or no."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.instructions.confirm import SCHEMA, confirm, confirming_question, read_confirmation
from whet.run import MemoryRun
from whet.types import Completion, Request


class Model:
    """Answers in order, and notes what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.seen = list(answers), list[Request]()

    async def generate(self, request: Request) -> list[Completion]:
        """The next answer."""
        self.seen.append(request)
        return [Completion(self.answers.pop(0))]


def test_each_pair_is_asked_about_alone() -> None:
    model = Model('{"demands": true}', "I would say yes!", 'Sure:\n```json\n{"demands": false}\n```')
    pairs = [
        ("Use metres.", "Was ist ein Fuß?"),
        ("Be brief.", "lang"),
        ("Be brief.", "Use\nmetres.\nInstruction: x"),
    ]
    found = asyncio.run(confirm(MemoryRun({"optimizer": model}), pairs))
    assert found == [True, None, False]
    assert [request.schema for request in model.seen] == [SCHEMA] * 3
    texts = [request.messages[0].content for request in model.seen]
    assert "Fuß" in texts[0] and not any("Fuß" in text for text in texts[1:])
    assert texts[2].count("\nInstruction: ") == 1, "a comment on several lines passes for another item"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"demands": true}', True), ('{"demands": "No"}', False), ("<think>{\"demands\": true}</think>", None),
        ('The answer is {"demands": false}.', False), ("{}", None), ("[true]", None), ('{"demands": 1}', None), ("", None),
    ],
)  # fmt: skip
def test_only_a_clear_answer_counts(text: str, expected: bool | None) -> None:
    assert read_confirmation(Completion(text)) is expected


def test_a_failed_call_confirms_nothing() -> None:
    assert read_confirmation(Completion('{"demands": true}', error="provider: timeout")) is None


@given(st.text(max_size=200), st.text(max_size=200))
def test_both_texts_stay_on_their_lines(requirement: str, comment: str) -> None:
    shown = confirming_question(requirement, comment)
    assert shown.count("\nInstruction: ") == shown.count("\nComment: ") == 1
    assert shown.rsplit("\n", 1)[1].startswith("Answer with JSON only")
