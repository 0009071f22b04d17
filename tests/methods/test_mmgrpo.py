"""mmgrpo: which calls form a group, what they are compared with, programs under trained weights; and what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.methods.call_world import (
    MANY_START,
    PLANS,
    START,
    WORDS,
    Reader,
    call_world,
    many_world,
    many_worth,
    part_words_of,
    policy,
    worth,
)
from tests.methods.figures import won_over
from tests.rl.scribe import Scribe

import whet
from whet import api
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import configure
from whet.methods.mmgrpo import Config, deploy, mmgrpo
from whet.rl.call_groups import by_input, held_answers, roll_groups, texts_by_call
from whet.rl.policy_model import Sample
from whet.rl.training import Trainer
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Rollout, TraceStep

SMALL = Config(steps=12, problems=2, group=6, lr=2.0, checks=1)


async def search(
    config: Config, seed: int = 0, matching: bool = False, limits: Budget | None = None, trained: Any = None
) -> tuple[Candidate, MeteredRun, Any]:
    env, made = call_world(matching), trained or policy(matching)
    run = MeteredRun({"task": env.model}, seed, limits=limits)
    return await mmgrpo(run, env, made, START, config), run, made


async def test_every_call_of_a_program_is_learned_from() -> None:
    found, run, trained = await search(SMALL)
    plans, answers = trained.probabilities([*PLANS]), trained.probabilities([*WORDS])
    assert plans.argmax() == answers.argmax() == 1 and worth(trained) > 0.7
    assert found.system is not None and found.operator == "mmgrpo"
    env = call_world()
    system = deploy(env, policy(), run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({}), [found.prompt], env.validation)
    assert score.mean == 1.0, "no model but the policy is asked"


async def test_a_group_is_the_same_call_of_the_rollouts_of_one_row() -> None:
    env, trained, rows = call_world(), policy(), call_world().train[:2]
    config = replace(SMALL, group=3)
    groups = await roll_groups(MemoryRun({}), env, Trainer(trained, config), config, START, rows)
    assert len(groups.samples) == 4 and all(len(group) == 3 for group in groups.samples), (
        "two rows, two prompts"
    )
    assert [[r.reward for r in row] for row in groups.rollouts for _ in range(2)] == groups.rewards


async def test_rollouts_may_make_fewer_or_more_calls() -> None:
    """The second call of a prompt is compared with second calls; a call that one rollout alone made teaches nothing."""

    async def until_sound(lm: Any, prompts: Any, example: Any) -> str:
        word = await lm("plan")
        return f"{word if word == 'sound' else await lm('plan')}/late"

    env, config = call_world(program=until_sound), replace(SMALL, group=24)
    rolled = await roll_groups(MemoryRun({}), env, Trainer(policy(), config), config, START, env.train[:1])
    (rollouts,) = rolled.rollouts
    again = [rollout for rollout in rollouts if len(rollout.steps) == 2]
    assert 1 < len(again) < 24
    assert [len(group) for group in rolled.samples] == [24, len(again)]
    assert rolled.rewards[1] == [rollout.reward for rollout in again]
    assert {place: len(calls) for place, calls in texts_by_call(again[:1]).items()} == {
        ("plan", 0): 1,
        ("plan", 1): 1,
    }


def test_calls_that_read_the_same_are_compared_with_each_other() -> None:
    def read(*prompt: int) -> Sample:
        return Sample("x", prompt, (0,), (0.0,), (True,), True)

    place = [(read(1), 0.0), (read(2), 1.0), (read(1), 0.5), (read(3), 1.0)]
    assert [[reward for _, reward in part] for part in by_input(place)] == [[0.0, 0.5], [1.0, 1.0]]
    assert by_input([(read(1), 1.0)]) == [[(read(1), 1.0)]]


def said(*calls: tuple[str, str]) -> Rollout:
    """A rollout in which prompts answered these texts."""
    record = Sample("x", (1,), (0,), (0.0,), (True,), True).to_json()
    return Rollout("p", "r", "done", 1.0, steps=tuple(TraceStep(p, {}, t, record=record) for p, t in calls))


def test_what_is_held_are_the_other_calls_or_the_earlier_ones() -> None:
    rollout = said(("plan", "a"), ("check", "b"), ("plan", "c"), ("answer", "d"))
    assert held_answers(rollout, ("plan", 1)) == {("plan", 0): "a", ("check", 0): "b", ("answer", 0): "d"}
    assert held_answers(rollout, ("plan", 1), later_too=False) == {("plan", 0): "a", ("check", 0): "b"}
    assert held_answers(rollout, ("plan", 0), later_too=False) == {}


async def test_held_calls_answer_as_they_did_and_a_group_reads_the_same() -> None:
    """The reward of a call is half of its own word and half of the word that the other call is held to."""
    env, trained = call_world(), policy()
    config = replace(SMALL, group=40)
    run = MeteredRun({"task": env.model}, 3)
    groups = await roll_groups(
        run, env, Trainer(trained, config), config, START, env.train[:1], baseline="held"
    )
    ((first,),) = groups.rollouts
    plan, answer = (step.output for step in first.steps)
    assert run.spent["task"] == 2 * 40, "as many calls as 40 rollouts"
    for group, rewards, other in zip(groups.samples, groups.rewards, (answer, plan), strict=True):
        assert len(group) == 40 and len({sample.prompt for sample in group}) == 1
        assert rewards == [((sample.text == "sound") + (other == "sound")) / 2 for sample in group]
        assert len(set(rewards)) == 2


async def test_later_calls_are_made_anew_where_the_earlier_ones_are_held() -> None:
    env, trained = call_world(matching=True), policy(matching=True)
    config = replace(SMALL, group=40)
    run = MeteredRun({"task": env.model}, 0)
    groups = await roll_groups(
        run, env, Trainer(trained, config), config, START, env.train[:1], baseline="rerun"
    )
    plans, answers = groups.samples
    ((first,),) = groups.rollouts
    assert run.spent["task"] == 2 + 39 * 2 + 39
    assert len({sample.text for sample in plans}) == len(PLANS)
    assert {sample.prompt for sample in answers} == {answers[0].prompt}, "all of them read one plan"
    assert groups.rewards[1] == [float(sample.text == first.steps[0].output) for sample in answers]
    held = await roll_groups(
        run, env, Trainer(trained, config), config, START, env.train[:1], baseline="held"
    )
    ((other,),) = held.rollouts
    assert held.rewards[0] == [float(sample.text == other.steps[1].output) for sample in held.samples[0]]


async def test_a_prompt_that_is_asked_twice_is_held_in_its_own_place() -> None:
    async def twice(lm: Any, prompts: Any, example: Any) -> str:
        await lm("plan")
        return f"{await lm('plan')}/late"

    env, config = call_world(program=twice), replace(SMALL, group=30)
    rolled = await roll_groups(
        MemoryRun({}), env, Trainer(policy(), config), config, START, env.train[:1], baseline="held"
    )
    ((first,),) = rolled.rollouts
    assert [len(group) for group in rolled.samples] == [30, 30]
    assert len(set(rolled.rewards[0])) == 1, "the first plan earns nothing"
    assert rolled.rewards[1] == [float(s.text == "sound") / 2 for s in rolled.samples[1]]
    assert first.reward == rolled.rewards[0][0]


async def test_the_calls_of_chosen_prompts_alone_may_be_learned_from() -> None:
    _, _, trained = await search(replace(SMALL, prompts="answer"))
    assert set(trained.probabilities([*PLANS])) == {trained.probabilities([*PLANS])[0]}
    assert trained.probabilities([*WORDS]).argmax() == 1
    with pytest.raises(UsageError, match='no prompt "anser"'):
        await search(replace(SMALL, prompts="anser"))


async def test_one_rollout_a_row_teaches_nothing() -> None:
    _, _, trained = await search(replace(SMALL, group=1))
    assert worth(trained) == pytest.approx(0.5 * (1 / 6 + 1 / 5)) and not trained.seen


async def test_a_limit_on_calls_is_kept() -> None:
    for calls in (60, 300):
        for baseline in ("place", "held", "rerun"):
            config = replace(SMALL, steps=500, baseline=baseline)
            _, run, _ = await search(config, limits=Budget(task_calls=calls))
            assert run.spent["task"] <= calls


@pytest.mark.parametrize("baseline", [pytest.param("place", marks=pytest.mark.long), "held"])
def test_a_program_is_trained_and_tested_by_a_real_run(tmp_path: Path, baseline: str) -> None:
    """A network; a run that begins again takes every answer from its journal. Other trained methods refuse programs."""
    torch.set_num_threads(1)

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        plan = await lm("plan")
        return str(await lm("answer", plan=plan))

    task = whet.Task.of(
        {"plan": "say it\n\n{{input}}", "answer": "say it\n\n{{plan}}"},
        program=program,
        data=[{"input": f"blue bird {i}", "target": "blue bird"} for i in range(20)],
        reward="f1",
    )
    settings = {
        "baseline": baseline,
        "steps": 2,
        "problems": 1,
        "group": 2,
        "max_tokens": 8,
        "temperature": 1.5,
        "lr": 0.01,
        "checks": 1,
    }

    def run() -> Any:
        return api.optimize(
            task,
            method="mmgrpo",
            lm="embedded/tiny",
            policy="embedded/tiny",
            settings=settings,
            run=tmp_path / "run",
        )

    result = run()
    assert result["usage"]["calls"]["task"] > 0 and run()["best"] == result["best"]
    with pytest.raises(UsageError, match="or mmgrpo, which trains"):
        api.optimize(task, method="p2o", lm="embedded/tiny", policy="embedded/tiny", run=tmp_path / "other")


class TestConformance(MethodConformance):
    method = "mmgrpo"
    settings = {"steps": 3, "group": 2, "problems": 2, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        trained: Any = Scribe(lambda conversation: ["positive", "negative", "neither"])
        return asyncio.run(mmgrpo(run, env or self.environment(), trained, self.start(), config))


# The contest.

SEEDS, STEPS = range(10), 12


@cache
def final_worths(matching: bool = False, **settings: Any) -> list[float]:
    """What the policy earns after training, by seed."""
    config = replace(SMALL, **{"steps": STEPS, "checks": 0, "advantage": "dr_grpo", "lr": 4.0, **settings})
    return [worth(asyncio.run(search(config, seed, matching))[2], matching) for seed in SEEDS]


@pytest.mark.long
def test_learning_from_all_calls_is_worth_more_than_from_the_last_one() -> None:
    last = final_worths(prompts="answer")
    assert won_over("no training", final_worths(), final_worths(lr=0.0)).low > 0
    assert won_over("the last call alone", final_worths(), last).low > 0


@pytest.mark.long
@pytest.mark.parametrize("matching", [False, True])
@pytest.mark.parametrize("advantage", ["dr_grpo", "rloo"])
def test_the_baseline_by_input_gains_next_to_nothing(matching: bool, advantage: str) -> None:
    """What earlier calls did is taken off the reward, but the groups are smaller; with their own mean taken off it loses."""
    own, other = (final_worths(matching, advantage=advantage, baseline=b) for b in ("input", "place"))
    print(f"\n{advantage}, matching={matching}: by place {fmean(other):.3f}, by input {fmean(own):.3f}")
    won = won_over("place", own, other)
    assert won.high < 0 if advantage == "dr_grpo" else -0.03 < won.mean < 0.03


@pytest.mark.long
@pytest.mark.parametrize("advantage", ["dr_grpo", "rloo"])
def test_the_spread_of_a_gradient_is_not_smaller_by_input(advantage: str) -> None:
    """Of the logit of "sound" in the answer, after one step from the untrained policy: its variance over its squared mean."""
    assert noise_of_a_step(advantage, "input") > 0.8 * noise_of_a_step(advantage, "place")


@cache
def noise_of_a_step(advantage: str, baseline: str, seeds: int = 150) -> float:
    """The variance of the first step of the logit of "sound" in the answer, over its squared mean."""
    settings: dict[str, Any] = {"steps": 1, "problems": 1, "checks": 0, "lr": 1.0}
    config = replace(SMALL, **settings, advantage=advantage, baseline=baseline)  # type: ignore[arg-type]
    runs = [asyncio.run(search(config, seed))[2] for seed in range(seeds)]
    steps = [trained.logits.get(_key(), [0.0] * 5)[1] for trained in runs]
    print(f"{advantage}, {baseline}: mean {fmean(steps):.4f}, variance {pvariance(steps):.6f}")
    return pvariance(steps) / fmean(steps) ** 2


@pytest.mark.long
@pytest.mark.parametrize("matching", [False, True])
@pytest.mark.parametrize("advantage", ["dr_grpo", "rloo"])
def test_the_counterfactual_baselines_at_equal_calls(matching: bool, advantage: str) -> None:
    """With `rerun`, a step costs 34 calls instead of 24."""
    other = final_worths(matching, advantage=advantage)
    for baseline, steps in (("held", STEPS), ("rerun", STEPS * 24 // 34)):
        own = final_worths(matching, advantage=advantage, baseline=baseline, steps=steps)
        print(f"\n{advantage}, matching={matching}: by place {fmean(other):.3f}, {baseline} {fmean(own):.3f}")
        won_over("place", own, other)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [150])
def test_the_spread_of_a_gradient_is_smaller_with_the_other_call_held(seeds: int) -> None:
    place, held = (noise_of_a_step("rloo", baseline, seeds) for baseline in ("place", "held"))
    assert held < 0.75 * place


@cache
def worths_of_six(lr: float, baseline: str) -> list[float]:
    """What the policy earns in the program of six calls after training, by seed."""

    def train(seed: int) -> float:
        env, trained = many_world(), Reader(part_words_of)
        run = MeteredRun({"task": env.model}, seed)
        settings: dict[str, Any] = {"steps": STEPS, "checks": 0, "advantage": "rloo", "lr": lr}
        config = replace(SMALL, **settings, baseline=baseline)  # type: ignore[arg-type]
        asyncio.run(mmgrpo(run, env, trained, MANY_START, config))  # type: ignore[arg-type]
        return many_worth(trained)

    return [train(seed) for seed in SEEDS]


@pytest.mark.long
@pytest.mark.parametrize("lr", [8.0, 16.0, 32.0, 64.0])
def test_with_six_calls_the_held_baseline_trains_no_faster(lr: float) -> None:
    """Both cost the same calls."""
    own, other = worths_of_six(lr, "held"), worths_of_six(lr, "place")
    print(f"\nlr={lr}: by place {fmean(other):.3f}, held {fmean(own):.3f}")
    assert -0.05 < won_over("place", own, other).mean < 0.05


def _key() -> str:
    return Scribe(lambda conversation: WORDS)._table(WORDS)[0]
