"""align_pro: what is reworded and what the reward sees, the deployed system, and that training ends at the paper's optimum."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.methods.align_pro import Config, align_pro, deploy
from whet.methods.method import configure
from whet.prompt import Prompt
from whet.rl.policy_model import Sample
from whet.rl.written_prompts import AskingReworded, reword
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Completion, Example, Reward

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
MENU = ["a", "b", "good", "c", "d", "e"]
SMALL = Config(steps=25, group=6, requests=3, lr=1.0, checks=2, kl=0.0)


class Anchored(Scribe):
    """A Scribe that knows the log-probabilities of its first state: all texts of a menu alike."""

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        sizes = [len(row) for row in self.logits.values()]
        return [[-float(np.log(sizes[sample.prompt[0]]))] for sample in samples]


def answers(request: Any) -> str:
    return "yes" if "good" in request.messages[-1].content else "no"


async def search(config: Config, policy: Any) -> tuple[Candidate, MeteredRun, Environment]:
    made = small(answers, 12)
    run = MeteredRun({"task": made.model})
    return await align_pro(run, made.env, policy, START, config), run, made.env


async def test_the_model_reads_other_words_and_the_grade_sees_the_request_as_it_was() -> None:
    made = small(answers, 4)
    env: Any = AskingReworded(made.env.model, made.env.reward, made.env.train, made.env.validation)
    example = made.env.train[0]
    reworded = reword(example, "a good one")
    assert env.messages(START, reworded)[-1].content == "so a good one"
    assert (reworded.user_text, reworded.id, reworded.target) == (example.user_text, example.id, "yes")
    (rollout,) = await env.evaluate(MemoryRun({"task": env.model}), START, [reworded])
    assert rollout.reward == 1.0 and rollout.example_id == example.id


async def test_it_learns_and_is_deployed_as_it_was_validated() -> None:
    policy = Anchored(lambda conversation: MENU, gain=6.0)
    found, run, env = await search(SMALL, policy)
    logged = [value["answer"] for name, value in run.logged if name == "step"]
    assert logged[-1] > 0.8 > 0.5 > logged[0]
    assert found.system is not None and found.prompt == START
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}
    fresh: Any = Anchored(lambda conversation: MENU)
    system = deploy(env, fresh, run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({"task": env.model}), [START], env.validation)
    assert score.mean == validated[found.id] == 1.0 and validated[START.id] == 0.0


async def test_rewordings_that_cannot_be_used_earn_nothing_and_cost_no_call() -> None:
    found, run, _ = await search(dataclasses.replace(SMALL, steps=2, checks=0), Anchored(lambda c: ["", " "]))
    assert found.prompt == START and run.spent["task"] == 6


GRADES = {"a": 0.0, "b": 0.25, "good": 1.0, "c": 0.5, "d": 0.5, "e": 0.0}


class Graded:
    """Rewards the answer's text by a table."""

    name, needs = "graded", frozenset[str]()
    low, high = 0.0, 1.0

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        return Reward(GRADES.get(completion.text, 0.0))


def trained(weight: float, steps: int = 120) -> Any:
    """The distribution that training ends at: the mean of its last quarter."""
    made = small(lambda request: request.messages[-1].content.split()[-1], 4)
    env = dataclasses.replace(made.env, reward=Graded())
    seen: list[Any] = []

    class Watched(Anchored):
        def update(self, *given: Any) -> dict[str, float]:
            seen.append(self.probabilities(MENU))
            return super().update(*given)

    policy: Any = Watched(lambda conversation: MENU, gain=2.0)
    config = Config(steps=steps, group=16, requests=1, lr=1.0, checks=0, kl=weight)
    asyncio.run(align_pro(MeteredRun({"task": env.model}, 1), env, policy, START, config))
    return np.mean(seen[-steps // 4 :], axis=0)


def optimum(weight: float) -> Any:
    """rho_0 exp(r / lambda) / Z, with all texts alike at first."""
    shares = np.exp(np.array([GRADES[text] for text in MENU]) / weight)
    return shares / shares.sum()


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_training_ends_at_the_optimum_of_the_paper(weight: float) -> None:
    """Six rewordings with known rewards: from a policy that takes more often what earns more, to nearly the first one."""
    assert np.abs(trained(weight) - optimum(weight)).sum() / 2 < 0.05


def test_without_the_divergence_training_ends_elsewhere() -> None:
    assert np.abs(trained(0.0) - optimum(0.5)).sum() / 2 > 0.3


class TestConformance(MethodConformance):
    method = "align_pro"
    settings = {"steps": 4, "group": 4, "requests": 4, "lr": 1.0, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Great plot.", "Awful.", "", "A film {{input}}", "Fine."]
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Anchored(lambda conversation: menu)
        return asyncio.run(align_pro(run, env or self.environment(), policy, self.start(), config))
