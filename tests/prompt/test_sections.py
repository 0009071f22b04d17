"""All prompts of a program are one prompt: one text that can be read back, with a region for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt
from whet.search.edits import text_in
from whet.types import Message

PLAN = "Plan it.\r\n<!-- whet:begin -->\nBe brief.\n<!-- whet:end -->\n{{question}}\r\n\n"
ANSWER = "<!-- whet:begin rules -->\nUse it.\n<!-- whet:end -->\n<!-- whet:begin shots -->\nQ: A\n<!-- whet:end -->"
CHAT = Prompt.from_messages((Message("system", "Check it."), Message("user", "{{answer}}")))
PARTS = {"plan": PLAN, "answer": ANSWER, "check": CHAT}


def test_the_text_of_a_program_is_read_back_byte_for_byte() -> None:
    program = Prompt.of_parts(PARTS)
    again = Prompt.parse(program.source)
    assert again == program
    assert again.id == program.id
    assert again.parts["plan"].messages[0].content == PLAN
    assert again.parts["answer"].messages[0].content == ANSWER
    assert again.parts["check"] == CHAT


@given(st.lists(st.text(max_size=30).filter(lambda t: "whet:" not in t), min_size=1, max_size=4))
def test_joining_and_cutting_are_inverses(texts: list[str]) -> None:
    if not any(text.strip() for text in texts):
        texts = [*texts, "x"]
    parts = {f"p{i}": text for i, text in enumerate(texts) if text.strip()}
    assert {n: p.messages[0].content for n, p in Prompt.of_parts(parts).parts.items()} == parts


def test_regions_have_names_of_their_own() -> None:
    program = Prompt.of_parts(PARTS)
    texts = {region.name: program.region_text(region.name) for region in program.regions}
    assert texts == {
        "plan": "Be brief.",
        "answer.rules": "Use it.",
        "answer.shots": "Q: A",
        "check": "Check it.",
    }


def test_an_edit_changes_one_region_and_nothing_else() -> None:
    program = Prompt.of_parts(PARTS)
    edited = program.edit("Be thorough.\nAlways.", "answer.shots")
    assert edited.source == program.source.replace("Q: A", "Be thorough.\nAlways.")
    assert edited.edit("Q: A", "answer.shots") == program
    whole = program.edit("Check twice.", "check")
    assert whole.parts["check"].messages == (Message("system", "Check twice."), Message("user", "{{answer}}"))


@pytest.mark.parametrize("text", ["", "<!-- whet:prompt other -->\nx", "{{question}}"])
def test_an_edit_cannot_add_a_prompt_or_a_slot(text: str) -> None:
    with pytest.raises(EditRejected):
        Prompt.of_parts(PARTS).edit(text, "answer.rules")


def test_the_region_in_focus_is_meant_where_none_is_named() -> None:
    program = Prompt.of_parts(PARTS)
    focused = program.with_focus("check")
    assert focused == program
    assert focused.region_text() == "Check it."
    edited = focused.edit("Check twice.")
    assert edited.region_text() == "Check twice."
    assert text_in(focused, edited) == "Check twice."
    assert edited.parts["plan"] == program.parts["plan"]


def test_one_prompt_is_what_it_was() -> None:
    prompt = Prompt.parse("Answer.\n{{input}}")
    assert prompt.parts == {}
    assert [region.name for region in prompt.regions] == ["instructions"]


@pytest.mark.parametrize(
    "text",
    [
        "before\n<!-- whet:prompt a -->\nx",
        "<!-- whet:prompt a -->\nx\n<!-- whet:prompt b -->\ny\n<!-- whet:prompt a -->\nz",
        "<!-- whet:prompt a -->\nx\n<!-- whet:prompt a -->\nz",
        "<!-- whet:prompt a -->\n\n<!-- whet:prompt b -->\ny",
        "<!-- whet:prompt a -->\n<!-- whet:begin -->\nnever closed",
    ],
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Prompt.parse(text)


def test_names_and_texts_that_could_not_be_read_back_are_refused() -> None:
    with pytest.raises(UsageError, match="no name for a prompt"):
        Prompt.of_parts({"a.b": "x"})
    with pytest.raises(UsageError, match="holds several prompts"):
        Prompt.of_parts({"a": "<!-- whet:prompt b -->\nx"})
