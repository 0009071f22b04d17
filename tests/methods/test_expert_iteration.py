"""expert_iteration: what it imitates, that it learns, what it cannot learn, and what it costs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.expert_iteration import Config, best_texts, expert_iteration
from whet.methods.method import configure
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
MENU = ["a", "b", "c", "good", "d", "e", "f", "g"]
SMALL = Config(rounds=4, samples=24, examples=2, lr=2.0, rewrites=4)


def scribe(menu: Sequence[str] = MENU) -> Any:
    return Scribe(lambda conversation: menu)


async def search(
    config: Config, policy: Any, word: str = "good", limits: Budget | None = None
) -> tuple[Candidate, MeteredRun]:
    made = small(lambda request: "yes" if word in request.messages[-1].content.lower() else "no", 12)
    run = MeteredRun({"task": made.model}, limits=limits)
    return await expert_iteration(run, made.env, policy, START, config), run


def rounds(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "round"]


async def test_what_earned_most_on_the_way_is_a_finalist_though_the_last_policy_does_not_write_it() -> None:
    """240 samples of 60 texts have the good one; the four at the end would have it in 6 of 100 runs."""
    menu = [f"text {i}" for i in range(59)] + ["good"]
    found, run = await search(dataclasses.replace(SMALL, rounds=4, samples=60, imitations=0), scribe(menu))
    assert found.prompt.region_text() == "good"
    assert sum(name == "validated" for name, _ in run.logged) <= 6


async def test_texts_that_can_be_used_are_imitated_where_most_cannot() -> None:
    """Of four texts three are empty: the fourth earns more than the mean of all, though no other that can be used earns less."""
    assert best_texts(["good", None, None, None], [0.8, 0.0, 0.0, 0.0], 0.25) == ["good"]
    assert best_texts([None, None], [0.0, 0.0], 0.25) == []
    menu = ["", " ", "good", "\n"]
    policy = scribe(menu)
    await search(SMALL, policy)
    assert policy.probabilities(menu).argmax() == 2


async def test_it_learns_what_earns_most_and_returns_it() -> None:
    policy = scribe()
    found, run = await search(SMALL, policy)
    rewards = [one["reward"] for one in rounds(run)]
    assert len(rewards) == 4 and rewards[0] < 0.4 and rewards[-1] > 0.8, rewards
    assert policy.probabilities(MENU).argmax() == 3
    assert found.prompt.region_text() == "good" and found.operator == "expert_iteration"


async def test_where_everything_fails_there_is_nothing_to_imitate() -> None:
    policy = scribe(["a", "b"])
    _, run = await search(SMALL, policy)
    assert [one["kept"] for one in rounds(run)] == [0] * 4
    assert policy.probabilities(["a", "b"]).tolist() == [0.5, 0.5]


async def test_without_imitations_the_policy_stays_what_it_is() -> None:
    policy = scribe()
    await search(dataclasses.replace(SMALL, imitations=0), policy)
    assert set(policy.probabilities(MENU)) == {1 / 8}


async def test_a_restart_imitates_from_the_first_weights() -> None:
    """The first policy is uniform; one imitation of one text adds 2 to its logit, however many rounds there were."""
    going, again = scribe(), scribe()
    await search(SMALL, going)
    await search(dataclasses.replace(SMALL, restart=True), again)
    (logits,), (longer,) = again.logits.values(), going.logits.values()
    assert max(logits) == 2.0 < max(longer)


async def test_rewrites_that_the_prompt_refuses_are_never_imitated() -> None:
    policy = scribe(["good {{other}}", "", "good", "a"])
    imitated: list[str] = []

    def imitate(pairs: Any, how: Any) -> dict[str, float]:
        imitated.extend(text for _, text in pairs)
        return {}

    policy.imitate = imitate
    await search(SMALL, policy)
    assert set(imitated) == {"good"}


def test_the_best_different_texts_above_the_mean_are_kept() -> None:
    assert best_texts(["a", "b", "b", "c", "d"], [0.0, 1.0, 1.0, 0.6, 0.25], 0.5) == ["b", "c"]
    assert best_texts(["a", "b"], [0.5, 0.5], 1.0) == [] == best_texts([], [], 0.5)
    assert best_texts(["long", "b", "c"], [1.0, 1.0, 0.0], 0.1) == ["b"], (
        "the shorter of equals, at least one"
    )


@pytest.mark.long
async def test_a_network_learns_to_ask_for_what_is_rewarded() -> None:
    torch.set_num_threads(1)
    config = Config(rounds=3, samples=24, examples=1, lr=3e-3, imitations=10, max_tokens=40, rewrites=1)
    policy = PolicyModel.open("embedded/tiny", config.lora, 0)
    _, run = await search(config, policy, "capital")
    first, *_, last = rounds(run)
    assert last["reward"] > first["reward"] + 0.25, rounds(run)


@pytest.mark.parametrize("name", ["rounds", "samples", "examples", "keep", "rewrites", "max_tokens"])
def test_unusable_settings_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be"):
        Config(**{name: 0})  # type: ignore[arg-type]


class TestConformance(MethodConformance):
    method = "expert_iteration"
    settings = {"rounds": 2, "samples": 4, "examples": 4, "lr": 1.0, "rewrites": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "", "Guess {{input}}", "Be quick."]
        config = configure(self.load(), self.settings if settings is None else settings)
        return asyncio.run(
            expert_iteration(run, env or self.environment(), scribe(menu), self.start(), config)
        )
