"""Races: who is dropped, what is paid, and that a look after every block is allowed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from whet.environments.environment import Environment
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.search.racing import Racer, RaceTrack
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, ConstantReward
from whet.types import Completion, Example

ROWS = tuple(Example(f"r{i}", {"input": f"row {i}"}, "yes", text=f"row {i}") for i in range(120))


def track(
    seed: int = 0, block: int = 20, alpha: float = 0.2, left: int | None = None
) -> tuple[RaceTrack, MeteredRun]:
    """A prompt `.7 name` is right on 70 % of the rows, each by a draw of its own."""

    def answer(question: str, sample: int) -> Completion | str:
        if "fails" in question:
            return Completion("", error="provider: down")
        share = float(question.split()[0])
        return "yes" if chance(seed, question) < share else "no"

    env = Environment(Answers(answer), ExactMatch(), ROWS, ())
    return RaceTrack(env, ROWS, block, left, alpha=alpha), MeteredRun({"task": env.model}, seed)


def racers(*texts: str, handicap: float = 0.0) -> list[Racer]:
    return [Racer(Prompt.parse(f"{text} {{{{input}}}}"), handicap) for text in texts]


def names(ranked: object) -> list[str]:
    return [one.racer.prompt.text.rpartition(" ")[0] for one in ranked]  # type: ignore[attr-defined]


async def test_who_is_beaten_by_enough_others_answers_no_more() -> None:
    one, run = track()
    best = await one.race(run, racers(".9 a", ".9 b", ".1 c", ".1 d"), keep=2)
    assert names(best) == [".9 a", ".9 b"] or names(best) == [".9 b", ".9 a"]
    assert run.spent["task"] == 4 * 20, "the race ends when no more than `keep` are left"
    one, run = track(alpha=0.0)
    assert len(await one.race(run, racers(".9 a", ".9 b", ".1 c", ".1 d"), keep=2)) == 2
    assert run.spent["task"] == 4 * 120, "with alpha of 0 nobody is dropped"


async def test_nobody_answers_a_row_twice() -> None:
    one, run = track(alpha=0.0)
    await one.race(run, racers(".9 a", ".5 b"), keep=2)
    await one.race(run, racers(".9 a", ".5 b", ".7 c"), keep=2)
    assert run.spent["task"] == 3 * 120
    assert max(Counter(one.env.model.questions).values()) == 1  # type: ignore[attr-defined]


async def test_equal_answers_drop_nobody() -> None:
    """A t-test of equal vectors is no number, and the paper's code reads it as "not beaten" by luck."""
    one, run = track()
    assert len(await one.race(run, racers("1.0 a", "1.0 b", "1.0 c"), keep=1)) == 1
    assert run.spent["task"] == 3 * 120
    assert not one.beats(*racers("1.0 a", "1.0 b"))


async def test_the_handicap_decides_between_prompts_that_answer_alike() -> None:
    one, run = track()
    long, short = racers("1.0 long", handicap=0.05) + racers("1.0 short", handicap=0.01)
    (best,) = await one.race(run, [long, short], keep=1)
    assert names([best]) == ["1.0 short"] and best.fitness == pytest.approx(0.99) and best.mean == 1.0


async def test_what_is_left_bounds_a_race_and_the_unmeasured_do_not_win() -> None:
    for left in (0, 7, 50, 100):
        one, run = track(left=left)
        best = await one.race(run, racers(".9 a", ".5 b", ".1 c"), keep=3)
        assert left - 3 < run.spent["task"] <= left
        assert len(best) == (3 if left >= 3 else 0)
    assert track(left=39)[0].affords(1) and not track(left=39)[0].affords(2)


async def test_a_call_that_failed_says_nothing() -> None:
    one, run = track()
    assert names(await one.race(run, racers(".9 a", "fails"), keep=2)) == [".9 a"]


async def test_the_blocks_come_in_another_order_in_each_race() -> None:
    one, run = track(left=40)
    await one.race(run, racers(".9 a"), keep=1)
    first = set(one.rewards[racers(".9 a")[0].prompt.id])
    one, run = track(left=40)
    run.rng.random()
    await one.race(run, racers(".9 a"), keep=1)
    assert first != set(one.rewards[racers(".9 a")[0].prompt.id])


async def test_equals_are_dropped_no_more_often_than_alpha_says() -> None:
    """With 24 looks at two equal prompts. A t-test at .2 after each block calls one of them beaten in most races."""
    beaten = 0
    for seed in range(40):
        one, run = track(seed, block=5)
        pair = racers(".5 a", ".5 b")
        for _ in range(24):
            one.rows, one.left = ROWS, 10
            await one.race(run, pair, keep=2)
            if one.beats(*pair):
                beaten += 1
                break
            one.rows = [row for row in ROWS if row.id not in one.rewards[pair[0].prompt.id]]
    assert beaten <= 12


async def test_a_race_keeps_the_best_for_fewer_calls() -> None:
    kept = spent = 0
    for seed in range(20):
        one, run = track(seed)
        best = await one.race(run, racers(".9 best", *(f".6 other{i}" for i in range(7))), keep=1)
        kept += ".9 best" in names(best)
        spent += run.spent["task"]
    assert kept >= 19
    assert spent < 0.8 * 20 * 8 * 120


def test_rewards_of_any_range_count_as_shares_of_it() -> None:
    one, _ = track()
    one.env = replace(one.env, reward=ConstantReward(1.0, low=-1.0, high=3.0))
    racer = racers("x", handicap=0.1)[0]
    one.rewards[racer.prompt.id] = {"r0": 1.0}
    assert one.rank(racer).fitness == pytest.approx((1.0 + 1.0) / 4.0 - 0.1)
