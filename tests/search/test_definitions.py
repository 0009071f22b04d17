"""Definitions of labels: which words may define one, and where the lines go."""

from __future__ import annotations

import dataclasses

import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.search.definitions import Definitions, defining_words
from whet.testing.simulated_task import review_world
from whet.types import Example

TEXTS = {
    "sea": ["the boat has sails", "the boat and the tide", "a tide at the pier"],
    "land": ["the cart has wheels", "the cart and the road", "a road at the gate"],
}
ENV = dataclasses.replace(
    review_world(scores=True),
    train=tuple(
        Example(f"{label}-{i}", {"input": text}, label, text=text)
        for label, texts in TEXTS.items()
        for i, text in enumerate(texts)
    ),
    labels={"sea": "sea", "land": "cart"},
)


def test_words_are_those_that_tell_the_label_from_the_others() -> None:
    # "boat" and "tide" stand in two inputs of sea and in none of land; "the", "has" in as many of both labels
    assert defining_words(ENV, 10) == {"sea": ["boat", "tide"], "cart": ["road"]}
    assert defining_words(ENV, 1)["sea"] == ["boat"]


def test_a_label_without_telling_words_takes_any_and_one_without_words_gets_no_line() -> None:
    rows = (*ENV.train, Example("x", {"input": "the has"}, "air", text="the has"))
    labels = {**ENV.labels, "air": "air"}
    assert set(defining_words(dataclasses.replace(ENV, train=rows, labels=labels), 9)["air"]) == {
        "the",
        "has",
    }
    assert defining_words(dataclasses.replace(ENV, labels=labels), 9) == defining_words(ENV, 9)
    with pytest.raises(UsageError, match="labels sea, land has a word"):
        defining_words(dataclasses.replace(ENV, train=()), 9)
    with pytest.raises(UsageError, match="Add `labels:`"):
        defining_words(dataclasses.replace(ENV, labels={}), 9)


def test_the_lines_go_into_the_region_of_that_name_and_slots_stay() -> None:
    words = {"sea": ["boat"], "cart": ["road"]}
    named = "{{input}}\n<!-- whet:begin -->Say it<!-- whet:end -->\n<!-- whet:begin definitions -->\n\n<!-- whet:end -->"
    edited = Definitions(Prompt.parse(named), words).prompt([["boat", "tide"], ["road"]])
    assert edited is not None
    assert edited.text == "{{input}}\nSay it\nsea: boat, tide\ncart: road\n"
    only = Definitions(
        Prompt.parse("Sort.\n<!-- whet:begin -->Old {{mask}}<!-- whet:end --> {{input}}"), words
    )
    assert only.text([["boat"], ["road"]]) == "sea: boat\ncart: road\n{{mask}}"
    assert only.prompt([["boat"], ["road"]]) is not None
