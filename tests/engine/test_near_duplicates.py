"""Sealed rows that say the same as others are named before anything is paid."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.engine.near_duplicates import meaning_warnings, normalise_input, writing_warnings
from whet.methods import opro

TOPICS = (
    ("The amount on my invoice is wrong.", "My invoice shows the wrong amount."),
    ("I forgot my password, how can I reset it?", "How do I reset my password? I forgot it."),
    ("The app crashes when I open settings.", "Opening the settings makes the app crash."),
    ("Please cancel my subscription.", "I want to cancel my subscription, please."),
)
OTHERS = tuple(
    """Where can I download the manual?|The parcel has not arrived yet.|Do you ship to Norway?|The blue one is sold out.
My card was declined at checkout.|Can two people share an account?|The video has no sound.|Which cable fits this lamp?
The courier was rude to my neighbour.|Is there a discount for students?|The zip of the jacket broke.|How warm is this bag?
I never got a reply to my letter.|Your newsletter arrives twice a day.|The battery lasts ten minutes.|Who won it?""".replace(
        "\n", "|"
    ).split("|")
)


def task(test: list[str], train: tuple[str, ...] = ("one", "two", "three"), **options: Any) -> whet.Task:
    seen = [{"input": text, "target": "a"} for text in train]
    sealed = [{"input": text, "target": "a", "who": str(i % 7)} for i, text in enumerate(test)]
    data = {"train": seen[:-1], "validation": seen[-1:], "test": sealed}
    return whet.Task.of("Answer.", data=data, reward="exact_match", **options)


def test_what_tells_two_writings_of_an_input_apart() -> None:
    same = normalise_input("How  do I reset it?")
    assert same == normalise_input("how do I reset it") == normalise_input("ＨＯＷ do i reset\u200b it?!")
    assert normalise_input("-5") != normalise_input("5") and normalise_input("a + b = c") != normalise_input(
        "a - b = c"
    )
    assert normalise_input("3 - 5") != normalise_input("3 + 5") and normalise_input("?") != normalise_input(
        "!"
    )


def test_other_writings_are_counted_with_an_example_and_groups_settle_them() -> None:
    texts = [*OTHERS[:6], "do you ship to norway", "DO YOU SHIP TO NORWAY?", "Do you ship to Norway?"]
    (warning,) = writing_warnings(task(texts))
    assert (
        warning.startswith("2 of the 9 sealed rows say the same as another sealed row") and "18%" in warning
    )
    assert warning.lower().count("do you ship to norway") == 2
    assert writing_warnings(task(list(OTHERS))) == []
    seen = [{"input": text, "target": "a", "who": f"s{i}"} for i, text in enumerate(("one", "two", "three"))]
    sealed = [
        {"input": t, "target": "a", "who": "x" if "orway" in t.lower() else str(i)}
        for i, t in enumerate(texts)
    ]
    data = {"train": seen[:2], "validation": seen[2:], "test": sealed}
    assert writing_warnings(whet.Task.of("Answer.", data=data, reward="exact_match", group="who")) == []


def test_rows_that_the_search_sees_in_another_writing_are_named() -> None:
    (warning,) = writing_warnings(task(list(OTHERS), train=("one", "two", "do you ship to NORWAY?")))
    assert warning.startswith("1 of the 16 sealed rows say the same as a row of train or validation")


def test_a_run_says_it_before_the_first_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, model, told = rows(), Counted(), list[str]()
    again = {**data[40], "input": data[40]["input"].upper()}
    splits = {"train": data[:20], "validation": data[20:40], "test": [*data[40:], again]}

    def answer(messages: list[whet.Message]) -> str:
        told.append("" if told else capsys.readouterr().err)
        return model(messages)

    result = whet.optimize(
        PROMPT, data=splits, reward=right, lm=answer, optimizer_lm=writer, run=tmp_path / "run",
        method=opro.Config(steps=2, samples=2, examples=10, finalists=1), budget=whet.Budget(calls=1000),
    )  # fmt: skip
    assert sum("say the same as another sealed row" in warning for warning in result.warnings) == 1
    assert (
        "say the same as another sealed row" in told[0] and "as `group`" in told[0] and "\x00" not in told[0]
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the embedded encoder")
async def test_inputs_with_other_numbers_do_not_say_the_same() -> None:
    orders = [f"Order {10230 + n} was not delivered, please refund my money." for n in range(5)]
    assert await meaning_warnings(task([*OTHERS, *orders])) == []
    again = [order.replace("please refund my money", "I want my money back, please") for order in orders]
    (warning,) = await meaning_warnings(task([*OTHERS, *orders, *again]))
    assert warning.startswith("5 of the 26 sealed rows")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the embedded encoder")
async def test_other_words_are_found_where_the_encoder_is_installed() -> None:
    pairs = [text for pair in TOPICS for text in pair]
    (warning,) = await meaning_warnings(task([*OTHERS, *pairs]))
    assert (
        "of the 24 sealed rows may say the same as another sealed row in other words: an encoder finds them close"
        in warning
    )
    assert int(warning.split()[0]) >= 3 and any(pair[0] in warning and pair[1] in warning for pair in TOPICS)
    firsts, seconds = ([pair[side] for pair in TOPICS] for side in (0, 1))
    (seen,) = await meaning_warnings(task([*OTHERS, *firsts], train=tuple(seconds)))
    assert "a row of train or validation in other words" in seen
    assert await meaning_warnings(task([*OTHERS, *firsts])) == []
    template = [f"Dish {i} was {word}." for i in range(6) for word in ("bad", "dull", "good", "lovely")]
    assert await meaning_warnings(task(template)) == []
