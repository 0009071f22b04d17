"""SPO: same rows for both prompts, a judge who knows nothing of who is in place, and no target read."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.judged import START, coin, verdict, world

from whet.methods.spo import Config, spo, within
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import ConstantReward

CONFORMANCE = {"rounds": 3, "comparisons": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "questions": 1, "comparisons": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(known: KnownWorld, **settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1)
    best = await spo(run, known.env, LanguagePolicy(), START, Config(**settings))
    model: Any = known.optimizer
    return best, model.questions, run


async def test_both_prompts_answer_the_same_rows_and_each_comparison_has_its_own() -> None:
    _, questions, run = await search(world(0), rounds=4, comparisons=3)
    duels: Any = [value for name, value in run.logged if name == "duel"]
    rows = [value["rows"] for value in duels]
    assert len(rows) == 4
    assert all(len(set(drawn)) == 9 for drawn in rows)
    for question in [q for q in questions if "<BETTER>" in q]:
        texts = re.findall(r"quality [\d.-]+ on (.*)", question)
        assert texts[::2] == texts[1::2] and len(set(texts)) == 3


async def test_the_judge_sees_answers_and_neither_prompts_nor_rewards() -> None:
    _, questions, _ = await search(world(0), rounds=3)
    written = [q for q in questions if "<BETTER>" in q]
    assert written
    for question in written:
        assert not any(phrase in question for phrase in PHRASES)
        assert "Reward" not in question and "round" not in question


async def test_no_reward_is_asked_for_training_rows() -> None:
    best, _, _ = await search(world(0), rounds=6, comparisons=2)
    assert best.parents


@pytest.mark.parametrize("bias", [10.0, -10.0])
async def test_a_judge_who_likes_a_place_changes_nothing(bias: float) -> None:
    known = world(0, lambda question, sample: verdict(question, 0, sample, bias, 0.0))
    best, _, run = await search(known, rounds=6)
    assert best.prompt == START
    assert {value["won"] for name, value in run.logged if name == "duel"} == {0.5}  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "reply", ["<BETTER>Both</BETTER>", "<BETTER>1 or 2</BETTER>", "", "<BETTER>3</BETTER>"]
)
async def test_a_reply_that_names_neither_decides_nothing(reply: str) -> None:
    best, _, _ = await search(world(0, lambda question, sample: reply), rounds=3)
    assert best.prompt == START


def test_a_worthless_challenger_seldom_wins() -> None:
    """A coin as the judge: a prompt that is no better wins fewer than the 31 % of rounds that four loose verdicts let pass."""
    wins = []
    for seed in range(12):
        _, _, run = asyncio.run(search(world(seed, coin(seed)), rounds=10, comparisons=1))
        wins += [value["won"] > 0.5 for name, value in run.logged if name == "duel"]  # type: ignore[index, call-overload, operator]
    assert fmean(wins) < 0.31


@pytest.mark.parametrize(
    ("rollouts", "asks", "sizes"),
    [(None, None, (10, 4)), (90, 15, (5, 1)), (1000, 60, (6, 4)), (None, 12, (4, 1)), (12, None, (2, 1))],
)
def test_comparisons_go_before_rounds(rollouts: int | None, asks: int | None, sizes: tuple[int, int]) -> None:
    plan = SearchPlan(None, rollouts, asks, 3, 1)  # type: ignore[arg-type]
    assert within(Config(), plan) == sizes


async def test_requirements_are_told_to_optimizer_and_judge() -> None:
    _, questions, _ = await search(world(0), rounds=1, requirements="Answers must rhyme.")
    assert all("Answers must rhyme." in question for question in questions)


async def test_constant_rewards_keep_the_start() -> None:
    known = world(0)
    known = replace(known, env=replace(known.env, reward=ConstantReward(0.5)))
    best, _, _ = await search(known, rounds=4)
    assert best.prompt == START


# The contest: with a judge who tosses a coin it loses what it won.

SEEDS, LIMITS = range(15), Budget(task_calls=300, optimizer_calls=60)


@cache
def reached(method: str, tossed: bool = False, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, world(s, coin(s) if tossed else None), s, LIMITS, settings) for s in SEEDS]


def test_with_a_coin_as_the_judge_it_loses_what_it_won() -> None:
    lost = won_over("with a coin as the judge", reached("spo"), reached("spo", tossed=True))
    assert lost.low > 0, lost
