"""Hints: the reward for keywords by hand, the supervised stage's words, and where a hint stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from tests.environments.worlds import Lines, Scripted, small

from whet.environments.multiturn import multiturn
from whet.errors import UsageError
from whet.methods.dsp import (
    attach_hint,
    common_words,
    keyword_reward,
    keywords_in,
    keywords_of,
    question,
    with_hints,
)
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.testing.runs import MeteredRun
from whet.types import Example, Request


@pytest.mark.parametrize(
    ("hint", "target", "reward"),
    [
        ("cat; dog", "a Cat and a dog", 2.0),
        ("cat; fish", "a cat", 0.8),
        ("fish", "a cat", -0.2),
        ("", "a cat", -0.2),
        ("cat; ; ", "a cat", 0.6),
        ("cat; cat; CAT", "a cat", 0.6),  # told once
        ("and; the", "the cat and the dog", -0.4),  # common words
        ("a cat", "a cat sat", 1.0),
    ],
)
def test_keywords_are_rewarded_with_one_sign(hint: str, target: str, reward: float) -> None:
    assert keyword_reward(hint, target, frozenset({"and", "the"})) == pytest.approx(reward)


def test_keywords_of_a_hint_stand_between_separators() -> None:
    assert keywords_in(" a ;b c;; d ") == ["a", "b c", "", "d"]


def example(text: str, target: object) -> Example:
    return Example("e", {"input": text}, target, {}, text)


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("the red boat", "a boat that was red, near the pier", ["boat", "red", "near", "pier"]),
        ("", "one two three four five six seven", ["one", "two", "three", "four", "five"]),
        ("x", "the and of", []),
        ("sails", ["first target", "second"], ["first", "target"]),
        ("Boat", "boat boat BOAT", ["boat", "BOAT"]),
    ],
)
def test_words_of_the_target_that_the_input_holds_come_first(
    text: str, target: str | Sequence[str], words: list[str]
) -> None:
    assert keywords_of(example(text, target), frozenset(["the", "and", "that", "was"])) == words


def test_words_of_most_long_targets_are_common_in_any_language() -> None:
    """No list of words: German targets, and labels, of which the most frequent is a keyword all the same."""
    beginnings = ("der rote Kahn", "der grüne Wagen", "der alte Baum", "der kleine Hund")
    rows = [example("x", f"{text} steht {n} Tage vor dem Haus {n}x") for n, text in enumerate(beginnings)]
    assert common_words(rows) == {"der", "steht", "tage", "vor", "dem", "haus"}
    assert common_words([example("x", "positive") for _ in range(9)]) == frozenset()


def test_a_hint_stands_behind_the_input() -> None:
    one = attach_hint(example("pine table", "x"), " capitals; hash ")
    assert one.user_text == "pine table\nHint: capitals; hash" == one.values["input"]
    two = attach_hint(Example("e", {"a": "1", "b": "2"}, None, {}), "h")
    assert two.values == {"a": "1", "b": "2\nHint: h"} and two.text is None
    assert question(example("pine table", "x"))[0].content == "Extract the keywords: pine table"


async def test_every_input_is_hinted_at_in_one_batch() -> None:
    made = small(lambda request: "yes" if "Hint: question" in request.messages[-1].content else "no")
    adviser = Lines(lambda conversation: conversation[-1].content.removeprefix("Extract the keywords: "))
    system = with_hints(made.env, adviser)
    run, prompt = MeteredRun({"task": made.model}), Prompt.parse("so")
    assert (await made.env.score(run, [prompt], made.env.validation))[0].mean == 0.0
    (score,) = await system.score(run, [prompt], made.env.validation)
    assert score.mean == 1.0 and adviser.batches == [len(made.env.validation)]
    assert (await system.rollout(run, prompt, made.env.train[0])).reward == 1.0
    pairs = [(prompt, example) for example in made.env.train]
    assert [r.reward for r in await system.rollouts(run, pairs)] == [1.0] * len(pairs)
    assert run.spent["task"] == 2 * len(made.env.validation) + 1 + len(pairs), "a hint costs no task call"


async def test_without_an_adviser_it_is_the_plain_environment() -> None:
    seen: list[str] = []

    def answer(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return "yes"

    made = small(answer)
    model: Scripted = made.model
    (score,) = await dataclasses.replace(
        with_hints(made.env, Lines(lambda conversation: "")), adviser=None
    ).score(MemoryRun({"task": model}), [Prompt.parse("so")], made.env.train)
    assert score.mean == 1.0 and not any("Hint:" in text for text in seen)


async def test_a_task_of_several_turns_is_refused() -> None:
    made = small(lambda request: "yes")
    episodes = multiturn(made.env, actor=Lines(lambda conversation: "yes"))
    with pytest.raises(UsageError, match="several turns"):
        with_hints(episodes, Lines(lambda conversation: "yes"))
