"""direct_reasoning: R3 by hand, what it tells apart where other rewards do not, and what a policy learns from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import small
from tests.methods.figures import won_over
from tests.methods.test_dpo import Judging
from tests.rl.reading import token_scores

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import configure
from whet.methods.direct_reasoning import Config, check, deploy, direct_reasoning
from whet.prompt import Prompt
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample
from whet.rl.reasoning_reward import most_divided, r3, reflective_weights
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Message

START = Prompt.parse("so {{input}}")
MENU = ["no", "yes", "perhaps"]
SMALL = Config(steps=12, inputs=4, group=6, lr=8.0, checks=2, max_tokens=8, advantage="dr_grpo")


def test_r3_by_hand() -> None:
    """Two reasonings, three tokens. Standard deviations 1, 0 and 0.5, so that the weights are 2/3, 0 and 1/3."""
    logprobs = [[-1.0, -2.0, -0.5], [-3.0, -2.0, -1.5]]
    assert reflective_weights(logprobs) == pytest.approx([2 / 3, 0.0, 1 / 3])
    assert r3(logprobs) == pytest.approx([-2 / 3 - 0.5 / 3, -2.0 - 1.5 / 3])
    assert r3([[-1.0, -3.0], [-1.0, -3.0]]) == [-2.0, -2.0], (
        "equal shares where no reasoning makes a difference"
    )
    table = torch.tensor(logprobs, dtype=torch.float64)
    spread = table.std(0, correction=0)
    assert r3(logprobs) == pytest.approx((table @ (spread / spread.sum())).tolist())


def test_groups_that_differ_least_are_dropped_and_one_is_always_kept() -> None:
    rewards = [[0.0, 0.0], [0.0, 4.0], [1.0, 2.0], [1.0, 1.5]]
    assert most_divided(rewards, 0.0) == [0, 1, 2, 3] and most_divided(rewards, 0.5) == [1, 2]
    assert most_divided(rewards, 1.0) == [1] and most_divided([], 0.5) == []


def test_the_reference_stands_behind_the_reasoning_and_its_probability_is_the_models() -> None:
    policy = PolicyModel.open("embedded/tiny", LoraSettings(rank=4), seed=1)
    sample = policy.demonstrate(
        [Message("user", "write in capitals the words a b c")], "a thought</think>an answer"
    )
    behind = policy.continue_with(sample, "</think>", "A B C")
    encode = policy.body.weights.encode
    assert behind.prompt == (*sample.prompt, *encode("a thought</think>"))
    assert behind.tokens == (*encode("A B C"), *policy.body.end)
    (scores,) = token_scores(policy, [behind])[0].tolist()
    assert policy.logprobs([behind])[0] == pytest.approx(scores, abs=1e-5)
    bare = replace(sample, text="no mark")
    assert policy.continue_with(bare, "</think>", "A").prompt == (*sample.prompt, *encode("no mark</think>"))


class Reasoning(Judging):
    """A policy whose reference answer is likely after the reasoning `yes`."""

    def continue_with(self, sample: Sample, marker: str, text: str) -> Sample:
        return replace(sample, text=f"{sample.text}{marker}{text}")

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        if not samples or "</think>" not in samples[0].text:
            return super().logprobs(samples)
        return [[-0.2 if s.text.startswith("yes") else -3.0] for s in samples]


def rows() -> Environment:
    env = small(lambda request: "no", 12).env
    every = [replace(row, target="yes") for row in (*env.train, *env.validation)]
    made: Any = replace(env, train=tuple(every[:6]), validation=tuple(every[6:]))
    return made  # type: ignore[no-any-return]


async def search(config: Config = SMALL, seed: int = 0) -> tuple[Candidate, MeteredRun, Any]:
    env, policy = rows(), Reasoning(lambda conversation: MENU)
    run = MeteredRun({"task": env.model}, seed)
    made: Any = policy
    return await direct_reasoning(run, env, made, START, config), run, policy


async def test_reasoning_that_makes_the_reference_likely_is_learned_and_deployed() -> None:
    found, run, policy = await search()
    assert policy.probabilities(MENU)[1] > 0.8
    steps: list[Any] = [value for name, value in run.logged if name == "step"]
    assert steps[0]["certainty"] < steps[-1]["certainty"] < 0
    assert found.system is not None and found.prompt == START
    trained: Any = Reasoning(lambda conversation: MENU)
    system = deploy(rows(), trained, run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({"task": rows().model}), [found.prompt], rows().validation)
    assert score.mean == 1.0


def test_rows_without_a_reference_are_refused() -> None:
    env = rows()
    bare = replace(env, train=(*env.train[:1], replace(env.train[1], target=None), *env.train[2:]))
    with pytest.raises(UsageError, match=f"row {env.train[1].id} has none"):
        check(bare, SMALL)
    with pytest.raises(UsageError, match="draws rows uniformly"):
        check(env, Config(rows="mopps"))


class TestConformance(MethodConformance):
    method = "direct_reasoning"
    settings = {"steps": 3, "inputs": 2, "group": 3, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        trained: Any = Reasoning(lambda conversation: ["positive", "negative", "neither"])
        return asyncio.run(direct_reasoning(run, env or self.environment(), trained, self.start(), config))


# The contest: a long reference of which one token in `LENGTH` depends on the reasoning.

LENGTH, GROUP, SEEDS = 60, 8, range(20)


def told_apart(rewards: Sequence[float], right: Sequence[bool]) -> float:
    """The share of pairs of a right and a wrong reasoning in which the right one earns more."""
    pairs = [
        (a, b)
        for a, good in zip(rewards, right, strict=True)
        for b, bad in zip(rewards, right, strict=True)
        if good > bad
    ]
    return fmean(float(a > b) for a, b in pairs)


def contest(seed: int, gap: float, noise: float) -> tuple[float, float]:
    """By R3 and by the mean over all tokens, which is the log-likelihood of the reference: 30 groups, half of each right."""
    draw = random.Random(seed)
    right = [i % 2 == 0 for i in range(GROUP)]
    shares = []
    for _ in range(30):
        logprobs = [[gap * good - 3, *(draw.gauss(-1.0, noise) for _ in range(LENGTH - 1))] for good in right]
        shares.append((told_apart(r3(logprobs), right), told_apart([fmean(row) for row in logprobs], right)))
    return fmean(a for a, _ in shares), fmean(b for _, b in shares)


def test_in_a_long_reference_r3_tells_good_reasoning_apart_and_the_likelihood_less_often() -> None:
    for noise in (0.3, 0.6):
        found = [contest(seed, 2.5, noise) for seed in SEEDS]
        ours, mean = [a for a, _ in found], [b for _, b in found]
        print(f"\nnoise {noise}: R3 {fmean(ours):.3f}, likelihood {fmean(mean):.3f}")
        assert won_over("the likelihood of the reference", ours, mean).low > 0
    none = [contest(seed, 0.0, 0.3) for seed in SEEDS]
    assert fmean(a for a, _ in none) == pytest.approx(0.5, abs=0.02), (
        "no reasoning is better: nothing to tell apart"
    )
