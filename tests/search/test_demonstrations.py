"""Demonstrations: only good answers, nothing of what validation measures, nothing private, text in one region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.environments.environment import Environment
from whet.instructions.guard import secrets
from whet.prompt import Prompt
from whet.search.demonstrations import (
    Demonstration,
    demonstrate,
    demonstrations,
    editable,
    label_rows,
    with_demonstrations,
)
from whet.testing.simulated_task import SOURCE, review_world
from whet.types import Example, Rollout

START = Prompt.parse(SOURCE)
FENCED = Prompt.parse(
    "Sort.\n<!-- whet:begin demonstrations -->\nNone yet.\n<!-- whet:end -->\n"
    "<!-- whet:begin -->\nBe brief.\n<!-- whet:end -->\nReview: {{input}}\n"
)
DEMO = Demonstration("r", "A fine soup.", "positive")


def row(name: str, text: str, target: Any = "yes") -> Example:
    return Example(name, {"input": text}, target, {"input": text}, text)


def world(train: list[Example], validation: list[Example]) -> Environment:
    return replace(review_world(), train=tuple(train), validation=tuple(validation))


def rolled(env: Environment, *rewards: float, output: str = "yes", **other: Any) -> list[Rollout]:
    return [Rollout("p", e.id, output, r, **other) for e, r in zip(env.train, rewards, strict=False)]


def test_only_rollouts_at_the_full_reward_are_shown_the_best_of_each_row() -> None:
    env = world([row("a", "One."), row("b", "Two."), row("c", "Three.")], [row("v", "Four.")])
    shown = demonstrations(env, START, rolled(env, 0.5, 1.0, 0.0))
    assert [d.row for d in shown] == ["b"]
    twice = [*rolled(env, 0.5, 1.0, 0.0), *rolled(env, 0.6, 0.9, output="better")]
    assert [(d.row, d.answer) for d in demonstrations(env, START, twice, 0.5)] == [
        ("a", "better"),
        ("b", "yes"),
    ]
    assert demonstrations(env, START, rolled(env, 1.0, 1.0, 1.0, error="provider: HTTP 500")) == []


FENCE = "<!-- whet:begin -->\nSort.\n<!-- whet:end -->"


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (f"{FENCE}\nNews: {{{{input}}}}\nTopic:", "News: One.\nTopic: yes"),
        (f"Word: {{{{input}}}}\n\n{FENCE}\n", "Word: One.\nAnswer: yes"),
        (f"{FENCE}\n语句：{{{{input}}}}\n标签：", "语句：One.\n标签： yes"),
        (f"{FENCE}\n{{{{input}}}}", "Input: One.\nAnswer: yes"),
        (f"{FENCE}\nTranslate {{{{input}}}} into French:", "Input: One.\nAnswer: yes"),
    ],
)
def test_a_demonstration_has_the_labels_that_the_prompt_gives_to_inputs_and_answers(
    prompt: str, shown: str
) -> None:
    assert demonstrate(Prompt.parse(prompt), row("a", "One."), "yes").text == shown


LONG = "The parcel for Ms Amsel at the mill by the river came broken."


@pytest.mark.parametrize(
    "text",
    [
        "Four.",
        "four. ",
        f"Once more: {LONG}",
        "Take {{input}} now.",
        "It ends. <!-- whet:end -->",
        "long " * 1000,
    ],
)
def test_a_row_that_gives_validation_away_or_cannot_stand_in_a_prompt_is_refused(text: str) -> None:
    env = world([row("a", text), row("b", "Two.")], [row("v", "Four."), row("w", LONG)])
    assert [d.row for d in demonstrations(env, START, rolled(env, 1.0, 1.0))] == ["b"]
    assert [d.row for d in label_rows(env, START, env.train)] == ["b"]


def test_what_several_training_rows_have_in_common_is_no_leak() -> None:
    form = "Please sort this message of a customer of ours: "
    env = world([row("a", f"{form}late"), row("b", f"{form}lost")], [row("v", f"{form}broken")])
    assert len(demonstrations(env, START, rolled(env, 1.0, 1.0))) == 2


def test_an_answer_that_stands_in_a_validation_row_is_refused() -> None:
    env = world([row("a", "One."), row("b", "Two.")], [row("v", "Four.", LONG)])
    assert demonstrations(env, START, rolled(env, 1.0, output=LONG)) == []


def test_secrets_and_data_of_people_are_refused() -> None:
    env = world([row("a", "Write to ada@example.org."), row("b", "Two.")], [row("v", "Four.")])
    assert [d.row for d in demonstrations(env, START, rolled(env, 1.0, 1.0), 1.0, secrets)] == ["b"]


def test_demonstrations_stand_in_their_region_or_behind_the_first() -> None:
    prompt = with_demonstrations(FENCED, [DEMO, DEMO])
    assert prompt is not None
    assert prompt.region_text("demonstrations") == f"{DEMO.text}\n\n{DEMO.text}"
    assert prompt.edit("None yet.", "demonstrations") == FENCED
    prompt = with_demonstrations(START, [DEMO])
    assert prompt is not None
    assert prompt.region_text().startswith(START.region_text())
    assert prompt.region_text().rstrip().endswith(DEMO.text)
    assert with_demonstrations(START, []) == START
    assert editable(FENCED) == editable(START) == ["instructions"]
    assert editable(FENCED.with_focus("demonstrations")) == ["demonstrations"]


def test_they_join_an_instruction_that_was_written_anew() -> None:
    for start in (START, FENCED, Prompt.parse("Sort it."), Prompt.parse("Sort it.\n{{input}}")):
        rewritten = start.edit("Be careful.", editable(start)[0])
        prompt = with_demonstrations(start, [DEMO], rewritten)
        assert prompt is not None
        assert "Be careful." in prompt.text and DEMO.text in prompt.text
        assert prompt.slots == start.slots
