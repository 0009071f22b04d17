"""Drawing examples and showing what went wrong."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from whet.search.minibatch import gains, minibatch, mistakes, show_example, show_rollout
from whet.types import Example, Rollout

ROWS = [Example(str(i), {"input": f"row {i}"}, "a" if i % 5 else "b") for i in range(50)]


def rollout(reward: float, error: str | None = None) -> Rollout:
    return Rollout("p", "e", "out", reward, error=error)


def test_a_minibatch_has_no_repeats_and_depends_on_the_generator_only() -> None:
    drawn = minibatch(random.Random(3), ROWS, 20)
    assert len({e.id for e in drawn}) == 20
    assert drawn == minibatch(random.Random(3), ROWS, 20)
    assert drawn != minibatch(random.Random(4), ROWS, 20)


def test_more_than_there_is_gives_all() -> None:
    assert {e.id for e in minibatch(random.Random(0), ROWS, 99)} == {e.id for e in ROWS}
    assert len(minibatch(random.Random(0), ROWS, 99, balanced=True)) == 50
    assert minibatch(random.Random(0), [], 5, balanced=True) == []


def test_a_balanced_minibatch_takes_targets_in_turn() -> None:
    assert Counter(e.target for e in minibatch(random.Random(0), ROWS, 16, balanced=True)) == {"a": 8, "b": 8}
    assert Counter(e.target for e in minibatch(random.Random(0), ROWS, 40, balanced=True)) == {
        "a": 30,
        "b": 10,
    }


def test_mistakes_of_a_binary_reward_are_the_errors() -> None:
    rollouts = [rollout(1.0), rollout(0.0), rollout(1.0), rollout(0.0)]
    assert mistakes(rollouts, 1.0) == [rollouts[1], rollouts[3]]
    assert mistakes([rollout(0.0)] * 3, 1.0) == [rollout(0.0)] * 3
    assert mistakes([rollout(1.0)] * 3, 1.0) == mistakes([], 1.0) == []


def test_mistakes_of_a_graded_reward_are_those_below_the_mean_worst_first() -> None:
    rollouts = [rollout(v) for v in (0.9, 0.2, 0.5, 0.1)]
    assert [r.reward for r in mistakes(rollouts, 1.0)] == [0.1, 0.2]


def test_a_dead_call_teaches_nothing_but_an_unreadable_answer_does() -> None:
    rollouts = [rollout(0.0, "provider: down"), rollout(0.0, "parse: no label"), rollout(1.0)]
    assert mistakes(rollouts, 1.0) == [rollouts[1]]


def test_an_answer_on_which_the_reward_failed_counts_as_any_other_answer() -> None:
    """It left the comparison, so that a prompt was better by the few rows on which its reward worked."""
    olds, news = [rollout(1.0), rollout(0.0)], [rollout(0.0, "reward: JSONDecodeError"), rollout(1.0)]
    assert gains(olds, news) == [-1.0, 1.0] and mistakes(news, 1.0) == [news[0]]


def test_a_rollout_is_shown_with_target_answer_and_critique() -> None:
    example = Example("7", {"input": "x" * 5000}, "yes")
    shown = show_rollout(example, Rollout("p", "7", "no", 0.25, critique="Too curt.", error="parse: odd"))
    assert (
        "Wanted: yes" in shown
        and "Answered: no" in shown
        and "Critique: Too curt." in shown
        and "odd" in shown
    )
    assert len(shown) < 2000
    assert show_example(Example("8", {"input": "q"})) == "Input: q"


def test_a_critique_that_only_names_the_right_answer_is_not_shown_beside_it() -> None:
    example = Example("a", {"input": "One."}, "yes", {"input": "One.", "target": "yes"}, "One.")
    told = Rollout("p", "a", "no", 0.0, critique='The answer "no" should be "yes".')
    assert show_rollout(example, told) == "Input: One.\nWanted: yes\nAnswered: no\nReward: 0"
    assert "Critique: Too curt." in show_rollout(example, replace(told, critique="Too curt."))
