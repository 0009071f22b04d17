"""online_dpo: who wins against whom, in both orders; what is learned from it; and preferences that no reward can say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import Scripted, small
from tests.methods.figures import on_seeds, won_over
from tests.methods.test_dpo import Judging

from whet import api
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import configure
from whet.methods.online_dpo import Config, check, deploy, extremes, online_dpo, payable_steps, win_rates
from whet.prompt import Prompt
from whet.rl.policy_model import Sample
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.plan import SearchPlan
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Request, Reward, Rollout

START = Prompt.parse("so {{input}}")
MENU = ["no", "yes", "perhaps"]
SMALL = Config(steps=12, inputs=4, lr=40.0, checks=2, max_tokens=8)
ANSWER = re.compile(r"Answer of system (\d) to input 1, between the two markers:\n\[\[\w+\]\]\n(\w+)")
Prefers = Callable[[str, str], bool]


def judge(prefers: Prefers) -> Any:
    """A judge of two answers; `prefers` says whether it likes the first one better."""

    def answer(request: Request) -> str:
        first, other = (text for _, text in ANSWER.findall(request.messages[-1].content))
        return f"<BETTER>{1 if prefers(first, other) else 2}</BETTER>"

    return Scripted(answer)


def likes_yes(first: str, other: str) -> bool:
    return first == "yes" or (other != "yes" and first < other)


def likes_the_next(first: str, other: str) -> bool:
    """Each answer of the menu beats the one after it, and the last one beats the first: there is no best one."""
    return MENU.index(other) == (MENU.index(first) + 1) % len(MENU)


class Rewarded:
    """The reward of an answer by a table; training rows have none unless they may be read."""

    name, low, high, needs = "rewarded", 0.0, 1.0, frozenset[str]()

    def __init__(self, table: Mapping[str, float], training: bool = False) -> None:
        self.table, self.training = table, training

    async def grade(self, run: Any, example: Any, completion: Any) -> Reward:
        assert self.training or int(example.id[1:]) >= 6, "the reward of a training row was asked for"
        return Reward(self.table.get(completion.text, 0.0))


def rows(table: Mapping[str, float] | None = None, training: bool = False) -> Environment:
    """Six training rows and six validation rows."""
    env = small(lambda request: "no", 12).env
    every, reward = [*env.train, *env.validation], Rewarded(table or {"yes": 1.0}, training)
    every = [replace(row, id=f"e{number}") for number, row in enumerate(every)]
    made: Any = replace(env, train=tuple(every[:6]), validation=tuple(every[6:12]), reward=reward)
    return made  # type: ignore[no-any-return]


async def search(
    config: Config = SMALL,
    prefers: Prefers = likes_yes,
    env: Environment | None = None,
    seed: int = 0,
    limits: Budget | None = None,
) -> tuple[Candidate, MeteredRun, Any]:
    env, policy = env or rows(), Judging(lambda conversation: MENU)
    run = MeteredRun({"task": env.model, "optimizer": judge(prefers)}, seed, limits=limits)
    made: Any = policy
    return await online_dpo(run, env, made, START, config), run, policy


def steps_of(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


async def test_win_rates_are_shares_of_the_others_and_ties_are_half_wins() -> None:
    """Rewards 1, 0, 1, 0.5: the first beats two and ties with one, (1 + 0.5 + 1) / 3."""
    rollouts = [
        Rollout("p", "r", text, reward) for text, reward in zip("abcd", (1.0, 0.0, 1.0, 0.5), strict=True)
    ]
    rates = await win_rates(MemoryRun({}), rows().train[0], rollouts, None)
    assert rates == pytest.approx([2.5 / 3, 0.0, 2.5 / 3, 1 / 3])


async def test_a_judge_is_asked_in_both_orders_and_never_about_equal_answers() -> None:
    model = judge(likes_yes)
    run = MeteredRun({"optimizer": model})
    rollouts = [Rollout("p", "r", text, 0.0) for text in ("no", "yes", "no")]
    rates = await win_rates(run, rows().train[0], rollouts, "Say yes.")
    assert rates == [0.25, 1.0, 0.25]
    assert run.spent["optimizer"] == 4, "two pairs differ, each in two orders"


async def test_a_judge_that_likes_the_first_place_teaches_nothing() -> None:
    for learn in ("dpo", "win_rate"):
        config = replace(SMALL, learn=learn)  # type: ignore[arg-type]
        _, run, policy = await search(config, lambda first, other: True)
        assert len(set(policy.probabilities(MENU).tolist())) == 1
        assert {step["decided"] for step in steps_of(run)} == {0.0}


@pytest.mark.parametrize("learn", ["dpo", "win_rate"])
async def test_what_a_judge_prefers_is_learned_without_the_reward_of_training_rows(learn: Any) -> None:
    config = replace(SMALL, learn=learn, group=4)
    found, run, policy = await search(config)
    assert policy.probabilities(MENU)[1] > 0.8
    assert found.system is not None and found.prompt == START
    trained: Any = Judging(lambda conversation: MENU)
    system = deploy(rows(), trained, run.kept[found.system], config)
    (score,) = await system.score(MemoryRun({"task": rows().model}), [found.prompt], rows().validation)
    assert score.mean == 1.0


async def test_the_reward_may_compare_and_asks_no_judge() -> None:
    config = replace(SMALL, compare="reward", group=4)
    _, run, policy = await search(config, env=rows(training=True))
    assert policy.probabilities(MENU)[1] > 0.8 and run.spent["optimizer"] == 0


def test_the_pair_is_the_best_and_the_worst_and_none_where_the_best_was_cut() -> None:
    one, two, three = (Sample(name, (0,), (0,), (0.0,), (True,), True) for name in "abc")
    assert extremes([one, two, three], [0.5, 0.0, 1.0]) == (three, two)
    assert extremes([one, two], [0.5, 0.5]) is None
    cut = Sample("d", (0,), (0,), (0.0,), (True,), False)
    assert extremes([cut, two], [1.0, 0.0]) is None and extremes([one, cut], [1.0, 0.0]) == (one, cut)


@pytest.mark.parametrize(
    ("compare", "rollouts", "asks", "steps"),
    [
        ("judge", None, None, 30),
        ("judge", 160, None, 10),
        ("judge", None, 200, 12),
        ("reward", None, 200, 30),
        ("judge", 15, 1000, 0),
    ],
)
def test_steps_within_limits(compare: Any, rollouts: int | None, asks: int | None, steps: int) -> None:
    """Eight rows with two answers each: 16 answers a step, and 16 verdicts."""
    plan = SearchPlan(rows(), rollouts, asks, 2, 1)
    assert payable_steps(Config(compare=compare, group=2), plan, 8) == steps


async def test_limits_on_calls_are_kept() -> None:
    for limits in (Budget(task_calls=60, optimizer_calls=400), Budget(task_calls=400, optimizer_calls=40)):
        _, run, _ = await search(replace(SMALL, steps=500), limits=limits)
        assert run.spent["task"] <= limits.task_calls and run.spent["optimizer"] <= limits.optimizer_calls  # type: ignore[operator]
        assert steps_of(run)


def test_settings_that_do_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="group must be"):
        Config(group=1)
    with pytest.raises(UsageError, match="draws rows uniformly"):
        check(rows(), Config(rows="mopps"))


def test_a_real_run_begins_again_without_a_call(tmp_path: Path) -> None:
    torch.set_num_threads(1)

    def run() -> Any:
        return api.optimize(
            "<!-- whet:begin -->\nSay it.\n<!-- whet:end -->\n{{input}}",
            data=[{"input": f"bird {i}", "target": f"bird {i}"} for i in range(24)],
            reward="f1",
            method="online_dpo",
            lm="embedded/tiny",
            optimizer_lm=lambda messages: "<BETTER>1</BETTER>",
            policy="embedded/tiny",
            settings={"steps": 2, "inputs": 2, "max_tokens": 6, "temperature": 1.5, "checks": 1},
            run=tmp_path / "run",
        )

    result = run()
    assert result["usage"]["calls"]["task"] > 0 and run()["best"] == result["best"]


class TestConformance(MethodConformance):
    method = "online_dpo"
    settings = {"steps": 3, "inputs": 2, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        trained: Any = Judging(lambda conversation: ["positive", "negative", "neither"])
        return asyncio.run(online_dpo(run, env or self.environment(), trained, self.start(), config))


# The contest: a judge whose preferences run in a circle, and one whose preferences do not.

SEEDS = 10


def beaten_by(policy: Any) -> float:
    """By how much more than half the best answer against the policy wins: 0 where none does, 0.5 for a policy that always says
    the same."""
    chances = dict(zip(MENU, policy.probabilities(MENU), strict=True))
    wins = [sum(p * (0.5 if a == b else likes_the_next(a, b)) for b, p in chances.items()) for a in MENU]
    return float(max(wins)) - 0.5


def ends(
    compare: Any, learn: Any, advantage: Any = "dr_grpo", lr: float = 1.0, seeds: int = SEEDS
) -> list[float]:
    """How far the policy can be beaten after training, by seed. A reward of the three answers that is nearly the same."""
    config = replace(
        SMALL, compare=compare, learn=learn, group=6, steps=60, lr=lr, checks=0, advantage=advantage
    )
    env = rows({"no": 0.5, "yes": 0.51, "perhaps": 0.5}, training=True)
    return [
        beaten_by(asyncio.run(search(config, likes_the_next, env if compare == "reward" else None, seed))[2])
        for seed in range(seeds)
    ]


@on_seeds(3, SEEDS)
@pytest.mark.parametrize("learn", [pytest.param("dpo", marks=pytest.mark.long), "win_rate"])
def test_where_preferences_run_in_a_circle_any_reward_ends_in_a_corner(learn: Any, seeds: int) -> None:
    own, reward = ends("judge", learn, seeds=seeds), ends("reward", learn, seeds=seeds)
    print(f"\n{learn}: can be beaten by {fmean(own):.3f}; with a reward {fmean(reward):.3f}")
    won = won_over(f"a reward, {learn}", reward, own)
    assert won.low > 0, won


@pytest.mark.long
def test_shares_of_the_spread_drive_win_rates_into_a_corner() -> None:
    """`advantage=grpo` divides by the spread within the group: a policy near the balance is pushed as hard as any other."""
    own, other = ends("judge", "win_rate"), ends("judge", "win_rate", "grpo")
    print(f"\ndr_grpo {fmean(own):.3f}, grpo {fmean(other):.3f}")
    assert won_over("grpo", other, own).low > 0


@pytest.mark.long
@pytest.mark.parametrize("learn", ["dpo", "win_rate"])
def test_where_there_is_a_best_answer_both_find_it(learn: Any) -> None:
    config = replace(SMALL, learn=learn, group=6, steps=60, lr=4.0, checks=0, advantage="dr_grpo")
    right = [asyncio.run(search(config, likes_yes, seed=s))[2].probabilities(MENU)[1] for s in range(SEEDS)]
    print(f"\n{learn}: says the best answer {fmean(right):.3f} of the time")
    assert fmean(right) > 0.8
