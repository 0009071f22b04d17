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
from tests.methods.call_world import PLANS, START, WORDS, call_world, policy, worth
from tests.methods.figures import won_over
from tests.rl.scribe import Scribe

import whet
from whet import api
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import configure
from whet.methods.mmgrpo import Config, deploy, mmgrpo
from whet.rl.call_groups import by_input, places_of, roll_groups
from whet.rl.policy_model import Sample
from whet.rl.training import Trainer
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

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
    assert {place: len(calls) for place, calls in places_of(again[:1]).items()} == {
        ("plan", 0): 1,
        ("plan", 1): 1,
    }


def test_calls_that_read_the_same_are_compared_with_each_other() -> None:
    def read(*prompt: int) -> Sample:
        return Sample("x", prompt, (0,), (0.0,), (True,), True)

    place = [(read(1), 0.0), (read(2), 1.0), (read(1), 0.5), (read(3), 1.0)]
    assert [[reward for _, reward in part] for part in by_input(place)] == [[0.0, 0.5], [1.0, 1.0]]
    assert by_input([(read(1), 1.0)]) == [[(read(1), 1.0)]]


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
        _, run, _ = await search(replace(SMALL, steps=500), limits=Budget(task_calls=calls))
        assert run.spent["task"] <= calls


def test_a_program_is_trained_and_tested_by_a_real_run(tmp_path: Path) -> None:
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
    noise = {}
    for baseline in ("place", "input"):
        settings: dict[str, Any] = {"steps": 1, "problems": 1, "checks": 0, "lr": 1.0}
        config = replace(SMALL, **settings, advantage=advantage, baseline=baseline)  # type: ignore[arg-type]
        runs = [asyncio.run(search(config, seed))[2] for seed in range(150)]
        steps = [trained.logits.get(_key(), [0.0] * 5)[1] for trained in runs]
        noise[baseline] = pvariance(steps) / fmean(steps) ** 2
        print(f"{advantage}, {baseline}: mean {fmean(steps):.4f}, variance {pvariance(steps):.6f}")
    print(noise)
    assert noise["input"] > 0.8 * noise["place"]


def _key() -> str:
    return Scribe(lambda conversation: WORDS)._table(WORDS)[0]
