"""Phrase edits work by position and never touch a slot."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from whet.prompt import Prompt
from whet.search.edits import (
    PHRASES,
    PhraseSpan,
    delete,
    insert,
    random_edit,
    replace_region,
    spans,
    substitute,
    swap,
    text_in,
    with_words,
)
from whet_client.prompt.slots import slots

TEXT = "Read the review, then answer. Use one word: good or bad!\nReview: {{input}} (see {{ id }}, page 3.5)"


def texts(text: str, level: str = "phrase") -> list[str]:
    return [span.of(text) for span in spans(text, level)]  # type: ignore[arg-type]


def test_phrases_are_clauses_of_at_most_four_words() -> None:
    assert texts("Read the review, then answer. Be brief.") == ["Read the review", "then answer", "Be brief"]
    assert texts("one two three four five six") == ["one two three", "four five six"]


def test_levels() -> None:
    assert texts("Go on. Stop now!", "sentence") == ["Go on", "Stop now"]
    assert texts("Go on. Stop, now!", "word") == ["Go", "on", "Stop", "now"]
    assert texts("Pay 3.5 coins. Leave.", "sentence") == ["Pay 3.5 coins", "Leave"]


@pytest.mark.parametrize("level", ["word", "phrase", "sentence"])
def test_spans_are_disjoint_in_order_and_free_of_slots(level: str) -> None:
    found = spans(TEXT, level)  # type: ignore[arg-type]
    assert found
    assert all(a.stop <= b.start for a, b in pairwise(found))
    assert all("{{" not in span.of(TEXT) and "}}" not in span.of(TEXT) for span in found)


def test_nothing_to_edit() -> None:
    assert texts("") == texts("{{input}}") == texts(" ... , ; \n") == []


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("Read it, then answer.", "then answer", "Read it."),
        ("Read it, then answer.", "Read it", "then answer."),
        ("Be brief. Be kind. Be true.", "Be kind", "Be brief. Be true."),
        ("Be brief. Be kind.", "Be brief", "Be kind."),
        ("one two three", "two", "one three"),
        ("Head:\nBe kind.\nTail", "Be kind", "Head:\n\nTail"),
        ("Use (very short) words", "very short", "Use words"),
    ],
)
def test_delete_leaves_a_clean_seam(text: str, phrase: str, expected: str) -> None:
    at = text.index(phrase)
    assert delete(text, PhraseSpan(at, at + len(phrase))) == expected


def test_only_the_chosen_place_changes() -> None:
    text = "be good, be kind, be good, be good"
    second = spans(text)[2]
    assert substitute(text, second, "be true") == "be good, be kind, be true, be good"
    assert delete(text, second) == "be good, be kind, be good"
    assert swap(text, second, spans(text)[1]) == "be good, be good, be kind, be good"
    assert insert(text, second, "always") == "be good, be kind, be good always, be good"


def test_swap_in_either_order_and_insert_at_the_start() -> None:
    a, b, c = spans("Read it, sort it, file it.")
    assert (
        swap("Read it, sort it, file it.", a, c)
        == swap("Read it, sort it, file it.", c, a)
        == "file it, sort it, Read it."
    )
    assert insert("Sort it.", None, "Please") == "Please Sort it."
    assert b.of("Read it, sort it, file it.") == "sort it"


@pytest.mark.parametrize("text", [TEXT, "x", "{{input}}", "same, same, same", "Say {{a}} {{b}} {{a}} now"])
def test_random_edits_never_lose_a_slot_or_empty_a_text(text: str) -> None:
    kinds = ("delete", "swap", "insert", "duplicate")
    rng = random.Random(1)
    seen = set()
    for _ in range(300):
        edit = random_edit(rng, text, kinds, PHRASES)
        assert edit is not None
        assert slots(edit.text) == slots(text)
        assert [s for s in edit.text.split() if "{{" in s] == [s for s in text.split() if "{{" in s]
        assert edit.text.strip()
        seen.add(edit.kind)
    assert "insert" in seen


def test_an_edit_names_what_it_dropped_and_added() -> None:
    rng = random.Random(0)
    dropped = random_edit(rng, "Read it, sort it.", ("delete",))
    assert dropped is not None and dropped.deleted in ("Read it", "sort it") and dropped.added is None
    added = random_edit(rng, "Read it.", ("insert",), ["Be brief."])
    assert added is not None and added.added == "Be brief." and added.deleted is None


def test_kinds_that_are_impossible_are_not_chosen() -> None:
    rng = random.Random(0)
    assert random_edit(rng, "word", ("delete", "swap", "insert")) is None
    assert random_edit(rng, "Classify the text.", ("substitute",)) is None
    assert random_edit(rng, "a, a", ("swap",)) is None
    assert random_edit(rng, "", ("duplicate", "delete")) is None


def test_text_in_finds_the_edited_text_whatever_its_length() -> None:
    fenced = Prompt.parse("A\n<!-- whet:begin -->\nlong enough text\n<!-- whet:end -->\nB")
    assert text_in(fenced, fenced.edit("x")) == "x"
    free = Prompt.parse("A long first block of text.\n{{input}}\nA short one.")
    edited = free.edit("Tiny.")
    assert edited.region_text() == "A short one."
    assert text_in(free, edited) == "Tiny."
    whole = free.edit("Everything about {{input}} is new.")
    assert text_in(free, whole) == "Everything about {{input}} is new."


def test_apply_and_with_words() -> None:
    start = Prompt.parse("Sort {{input}} please.")
    assert replace_region(start, "Sort it.") is None
    made = with_words(start, ["red", "blue"])
    assert made is not None and made.source == "red blue {{input}}"
    fenced = Prompt.parse("{{input}}\n<!-- whet:begin -->\nSort.\n<!-- whet:end -->")
    made = with_words(fenced, ["red", "blue"])
    assert made is not None and made.region_text() == "red blue"
