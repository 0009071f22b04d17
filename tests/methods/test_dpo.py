"""dpo: what it learns from judged answers, when it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import json
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
from whet.errors import SearchStopped, UsageError
from whet.methods.dpo import Config, deploy, dpo
from whet.methods.method import configure
from whet.prompt import Prompt
from whet.rl.policy_model import Sample
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

START = Prompt.parse("so {{input}}")
MENU = ["no", "yes", "perhaps"]
SMALL = Config(steps=12, batch=4, lr=40.0, checks=3)


class Judging(Scribe):
    """A scribe that knows the log-probabilities of answers, those of its first weights too."""

    def demonstrate(self, conversation: Any, text: str) -> Sample:
        menu = list(self.menu(conversation))
        self._table(menu)
        return self._sample(menu, menu.index(text), 1.0)

    def _rows(self, samples: Sequence[Sample], first: bool) -> list[list[float]]:
        menus = [json.loads(key) for key in self.logits]
        chosen = [menus[s.prompt[0]] for s in samples]
        chances = [
            [1 / len(menu)] * len(menu) if first else self.probabilities(menu).tolist() for menu in chosen
        ]
        return [[float(np.log(chance[s.tokens[0]]))] for s, chance in zip(samples, chances, strict=True)]

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return self._rows(samples, False)

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return self._rows(samples, True)


def judging(menu: Sequence[str] = MENU) -> Any:
    return Judging(lambda conversation: menu)


def judged(env: Environment, **columns: Any) -> Environment:
    """The environment whose training and validation rows have judgements."""

    def rows(examples: Any) -> Any:
        return tuple(dataclasses.replace(e, row={**e.row, **columns}) for e in examples)

    return dataclasses.replace(env, train=rows(env.train), validation=rows(env.validation))


async def search(
    config: Config, seed: int = 0, **columns: Any
) -> tuple[Candidate, MeteredRun, Environment, Any]:
    made, policy = small(lambda request: "no", 12), judging()
    run = MeteredRun({"task": made.model}, seed)
    env = judged(made.env, **(columns or {"pairs": [["yes", "no"], ["yes", "perhaps"]]}))
    return await dpo(run, env, policy, START, config), run, env, policy


def steps_of(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto", "pmpo"])
async def test_what_people_preferred_is_learned_and_deployed_as_it_was_validated(loss: Any) -> None:
    found, run, env, policy = await search(
        dataclasses.replace(SMALL, loss=loss, lr=0.5 if loss in ("ipo", "pmpo") else SMALL.lr)
    )
    assert policy.probabilities(MENU).argmax() == 1
    assert found.system is not None and found.prompt == START
    measured = [step for step in steps_of(run) if "divergence" in step]
    assert len(measured) == 3 and measured[-1]["agreement"] == 1.0
    assert 0 < measured[0]["divergence"] < measured[-1]["divergence"]
    system = deploy(env, judging(), run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({"task": env.model}), [found.prompt], env.validation)
    assert score.mean == 1.0


async def test_thumbs_of_one_kind_teach_pmpo() -> None:
    for thumbs, likely in (([["yes", True]], True), ([["yes", False]], False)):
        config = dataclasses.replace(SMALL, loss="pmpo", lr=0.2)
        _, _, _, policy = await search(config, thumbs=thumbs)
        assert bool(policy.probabilities(MENU)[1] > 1 / 3) is likely


@pytest.mark.parametrize(("beta", "weight"), [(1.0, 0.5), (0.1, 0.0), (1.9, 0.05)])
def test_a_beta_that_does_not_hold_bad_answers_is_refused(beta: float, weight: float) -> None:
    with pytest.raises(UsageError, match="beta must be above"):
        Config(loss="pmpo", beta=beta, weight_good=weight)
    assert Config(loss="pmpo", weight_good=weight).strength > 2 * (1 - weight)
    assert Config(beta=beta, weight_good=weight).strength == beta and Config().strength == 0.1


async def test_thumbs_alone_teach_kto() -> None:
    config = dataclasses.replace(SMALL, loss="kto")
    _, run, _, policy = await search(config, thumbs=[["yes", True], ["no", False]])
    assert policy.probabilities(MENU).argmax() == 1
    assert steps_of(run)[-1]["agreement"] == 1.0


async def test_the_training_ends_at_the_limit_of_the_divergence_before_its_weights_are_kept() -> None:
    with pytest.raises(SearchStopped, match="kl_limit"):
        await search(dataclasses.replace(SMALL, kl_limit=1e-4))
    made = small(lambda request: "no", 12)
    run = MeteredRun({"task": made.model})
    with pytest.raises(SearchStopped):
        env = judged(made.env, pairs=[["yes", "no"]])
        await dpo(run, env, judging(), START, dataclasses.replace(SMALL, kl_limit=1e-4))
    assert not run.kept and len([name for name, _ in run.logged if name == "validated"]) == 1


async def test_no_answer_of_a_model_is_in_the_update() -> None:
    """What costs calls is validation alone: of the start by the task model, and of each kept state."""
    found, run, env, _ = await search(SMALL)
    assert found.system is not None
    assert run.spent["task"] == 4 * len(env.validation)


async def test_rows_without_judgements_are_refused() -> None:
    with pytest.raises(UsageError, match="learns from pairs"):
        await search(SMALL, other=1)
    with pytest.raises(UsageError, match=r"choose config\.loss=kto"):
        await search(SMALL, thumbs=[["yes", True], ["no", False]])


@pytest.mark.parametrize("name", ["beta", "batch", "max_tokens"])
def test_unusable_settings_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be"):
        Config(**{name: 0})  # type: ignore[arg-type]


class TestConformance(MethodConformance):
    method = "dpo"
    settings = {"steps": 4, "batch": 4, "lr": 40.0, "checks": 2}  # noqa: RUF012

    def environment(self) -> Environment:
        return judged(super().environment(), pairs=[["good", "bad"]])

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        policy = judging(["bad", "good", "fair"])
        return asyncio.run(dpo(run, env or self.environment(), policy, self.start(), config))
