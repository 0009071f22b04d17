"""SIMBA: introspection where answers to the same input differ most; a demonstration or a rule comes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.methods.codes import DEMONSTRATIONS_ALONE, START, codes_world, shown_rows

from whet.environments.environment import Environment
from whet.methods.simba import Config, Contrast, poisson, sample_contrasts, simba
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget, Run
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import T_95, advantage, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, ConstantReward
from whet.types import Completion, Example, Reward, Rollout

CONFORMANCE = {"steps": 2, "minibatch": 8, "samples": 3, "candidates": 3}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 1, "minibatch": 3, "samples": 2, "candidates": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

SMALL: dict[str, Any] = {"steps": 3, "minibatch": 16, "samples": 4, "candidates": 4}
LIMITS = Budget(task_calls=800)


async def search(
    env: Environment | None = None,
    optimizer: Any = None,
    limits: Budget | None = None,
    start: Prompt = START,
    **settings: Any,
) -> tuple[Candidate, MeteredRun]:
    world = codes_world(0, False)
    env = env or world.env
    run = MeteredRun({"task": env.model, "optimizer": optimizer or world.optimizer}, limits=limits)
    return await simba(run, env, LanguagePolicy(), start, Config(**(SMALL | settings))), run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_samples_of_one_input_differ_in_number_and_are_warm() -> None:
    """DSPy and others: identical rollouts where a cache ignores the number of the sample."""
    model = Answers(lambda q, s: "1")
    env = replace(codes_world(0, False).env, model=model)
    await search(env, steps=1)
    warm = [r for r in model.requests if r.temperature == 1.0]
    assert len(warm) == 16 * 4 == len({(r.messages, r.sample) for r in warm})
    assert Counter(r.sample for r in warm) == dict.fromkeys(range(4), 16)


def test_the_largest_spread_comes_first_then_the_best_answer() -> None:
    def contrast(*rewards: float) -> Contrast:
        return Contrast(Example("e", {}), [Rollout("p", "e", "", r) for r in rewards])

    ordered = sorted(
        [contrast(1, 1, 1), contrast(0, 1, 1), contrast(0, 0, 0), contrast(0, 0, 1), contrast(0, 0.5, 0)],
        key=lambda c: c.rank,
        reverse=True,
    )
    assert [[r.reward for r in c.rollouts] for c in ordered] == [
        [0, 0, 1],
        [0, 1, 1],
        [0, 0.5, 0],
        [1, 1, 1],
        [0, 0, 0],
    ]


async def test_a_prompt_with_demonstrations_alone_gets_no_rules() -> None:
    model = Answers(lambda q, s: "<RULE>Take care.</RULE>")
    best, _ = await search(None, model, start=DEMONSTRATIONS_ALONE)
    assert model.questions == [] and shown_rows(best.prompt.text)


class Critical(ExactMatch):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return replace(await super().grade(run, example, completion), critique=f"Note on {example.id}.")


async def test_a_rule_is_written_from_a_good_and_a_bad_answer_with_their_critiques() -> None:
    """DSPy issue 8278: the metric's words are wanted."""
    model = Answers(lambda q, s: "<RULE>Take care.</RULE>")
    best, run = await search(replace(codes_world(0, False).env, reward=Critical()), model, k=0)
    assert model.questions
    for question in model.questions:
        good, _, bad = question.partition("This answer was worse:")
        assert "Reward: 1" in good and "Reward: 0" in bad
        assert question.count("Critique: Note on q") == 2
    texts = [c["messages"][0][1] for c in logged(run, "candidate")]
    assert any("Answer with a digit.\n\nTake care." in text for text in texts)
    assert best.prompt.edit(START.region_text("instructions"), "instructions") == START


async def test_demonstrations_are_answers_at_the_full_reward_and_no_more_than_k() -> None:
    _, run = await search(steps=6, k=2)
    rows = {e.user_text: e.target for e in codes_world(0, False).env.train}
    sets = [shown_rows(c["messages"][0][1]) for c in logged(run, "candidate")]
    assert max(len(s) for s in sets) == 2
    assert all([answer] == rows[question] for s in sets for question, answer in s)


async def test_no_prompt_answers_a_row_that_it_shows() -> None:
    """Its answer would be a copy, and its score too high."""
    env = codes_world(0, False).env
    assert isinstance(env.model, Answers)
    model = Answers(env.model.answer)
    _, run = await search(replace(env, model=model, train=env.train[:16]), steps=6)
    shown = [
        (shown_rows(prompt), text)
        for prompt, _, text in (q.rpartition("Question: ") for q in model.questions)
    ]
    assert sum(bool(rows) for rows, _ in shown) > 50
    assert not [text for rows, text in shown if text in dict(rows)]
    scores = {(c["train_n"], len(shown_rows(c["messages"][0][1]))) for c in logged(run, "candidate")}
    assert (15, 1) in scores and all(n == 16 - shows for n, shows in scores)


async def test_a_prompt_that_shows_all_rows_of_its_step_has_no_score() -> None:
    best, run = await search(steps=6, minibatch=1, k=1)
    assert {
        (c["train"], c["train_n"]) for c in logged(run, "candidate") if shown_rows(c["messages"][0][1])
    } == {(None, None)}
    assert best.id in {START.id, *(c["id"] for c in logged(run, "validated"))}


@pytest.mark.parametrize("value", [0.0, 1.0])
async def test_where_all_answers_are_alike_no_rule_is_written(value: float) -> None:
    model = Answers(lambda q, s: "<RULE>Take care.</RULE>")
    best, _ = await search(replace(codes_world(0).env, reward=ConstantReward(value)), model)
    assert not model.requests
    assert best.prompt == START


async def test_eight_rows_are_enough() -> None:
    """DSPy issue 8592: on 8 examples the prompt did not change."""
    env = codes_world(1, False).env
    best, run = await search(replace(env, train=env.train[:8]), steps=6)
    assert len(logged(run, "candidate")) > 3
    assert best.prompt != START


async def test_a_rule_that_copies_an_input_is_dropped() -> None:
    world = codes_world(0, False)
    rows = tuple(
        replace(e, text=f"{e.text} asked by number {e.id} of the long list") for e in world.env.train
    )
    model = Answers(lambda q, s: f"<RULE>{q.partition('Input: ')[2].splitlines()[0]} means 3</RULE>")
    _, run = await search(replace(world.env, train=rows), model, k=0)
    assert model.requests
    assert logged(run, "candidate") == []


@pytest.mark.parametrize("most", [100, 300, 1000])
async def test_a_limit_is_kept_and_used(most: int) -> None:
    _, run = await search(limits=Budget(task_calls=most), **vars(Config()))
    assert 0.5 * most <= run.spent["task"] <= most
    assert len(logged(run, "validated")) >= 2


def test_poisson_has_its_mean() -> None:
    run = MeteredRun({})
    assert abs(fmean(poisson(run, 0.75) for _ in range(4000)) - 0.75) < 0.06
    assert poisson(run, 0.0) == 0


def test_with_any_rows_instead_of_those_with_the_largest_spread_it_loses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found() -> list[float]:
        few = {"samples": 2, "candidates": 2, "minibatch": 24}
        return [play_world("simba", codes_world(seed, False), seed, LIMITS, few) for seed in range(15)]

    whole = found()

    async def shuffled(run: Run, *rest: Any) -> list[Contrast]:
        contrasts = await sample_contrasts(run, *rest)
        return run.rng.sample(contrasts, len(contrasts))

    monkeypatch.setattr(Contrast, "rank", 0.0)
    monkeypatch.setattr("whet.methods.simba.sample_contrasts", shuffled)
    pairs = [one - other for one, other in zip(whole, found(), strict=True)]
    assert fmean(pairs) - T_95[15] * stdev(pairs) / 15**0.5 > 0.05, pairs


@pytest.mark.long
def test_beats_random_search_at_equal_budget() -> None:
    assert advantage("simba", "random_search", codes_world, LIMITS, range(6)).low > 0.2
