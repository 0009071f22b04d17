"""parrot: what dominates, whose weights are nothing, what the frozen model reads, and how much of the front is covered."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import SearchStopped, UsageError
from whet.methods.method import configure
from whet.methods.parrot import Config, check, deploy, non_dominated, parrot, scale_to_group
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rl.policy_model import Sample
from whet.run import MemoryRun, Run
from whet.search.archive import Candidate
from whet.stats import Goal
from whet.testing.methods import MethodConformance
from whet.testing.paired_benchmark import paired_difference
from whet.testing.runs import MeteredRun
from whet.types import Completion, Example, Reward

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
WORLD: Mapping[str, tuple[float, float, float]] = {
    "grand": (1.0, 0.5, 50.0),
    "true": (0.4, 1.0, 50.0),
    "quick": (0.4, 0.4, 100.0),
    "both": (0.6, 0.6, 60.0),
    "loud": (1.0, 0.1, 10.0),
    "pious": (0.1, 1.0, 10.0),
    "hasty": (0.1, 0.1, 100.0),
    "bad": (0.1, 0.2, 5.0),
}
"""What each text earns: beauty, faith, and pace on another scale. The first four are the front. The next three have the best of
one reward too, and throw the others away."""
AIMS = ("beauty", "faith", "pace")


@dataclasses.dataclass(frozen=True)
class Graded:
    """The reward of an answer's text, which is the text that the model read last."""

    name: str
    high: float
    low: float = 0.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        value = WORLD.get(completion.text, (0.0, 0.0, 0.0))[AIMS.index(self.name)]
        return Reward(min(value, self.high))


def world() -> Environment:
    made = small(lambda request: request.messages[-1].content.split()[-1], 4)
    highs = (1.0, 1.0, 100.0)
    items = tuple(
        Objective(Goal(aim, maximise=True, width=high), part=i)
        for i, (aim, high) in enumerate(zip(AIMS, highs, strict=True))
    )
    reward = Objectives(
        [(1.0, Graded(aim, high)) for aim, high in zip(AIMS, highs, strict=True)],
        items=items,
        baseline=dict.fromkeys(AIMS, 0.0),
    )
    return dataclasses.replace(made.env, reward=reward)


def by_aim(conversation: Any) -> list[str]:
    """The same texts, in an order of its own for each question about other rewards: so each has logits of its own."""
    text = conversation[-1].content
    aims = [aim for aim in AIMS if aim in text.partition("\n\n")[0]]
    turn = 0 if len(aims) != 1 else 1 + AIMS.index(aims[0])
    texts = list(WORLD)
    return [*texts[turn:], *texts[:turn]]


async def search(
    policy: Any, env: Environment | None = None, seed: int = 0, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or world()
    run = MeteredRun({"task": env.model}, seed)
    config = Config(**{"steps": 1, "group": 12, "requests": 1, "lr": 1.0, "checks": 0, "kl": 0.0, **settings})
    return await parrot(run, env, policy, START, config), run


vectors = st.lists(st.lists(st.integers(0, 3).map(float), min_size=2, max_size=2), min_size=1, max_size=8)


@given(rows=vectors)
def test_somebody_is_free_and_whoever_is_not_is_beaten_by_somebody_who_is(rows: list[list[float]]) -> None:
    free = non_dominated(rows)
    front = [row for row, good in zip(rows, free, strict=True) if good]
    assert front
    for row, good in zip(rows, free, strict=True):
        beaten = any(all(a >= b for a, b in zip(f, row, strict=True)) and f != row for f in front)
        assert beaten is not good


@given(rows=vectors, scale=st.sampled_from([0.01, 100.0]))
def test_the_scale_of_a_reward_does_not_matter(rows: list[list[float]], scale: float) -> None:
    stretched = [[a, scale * b] for a, b in rows]
    assert non_dominated(stretched) == non_dominated(rows)
    np.testing.assert_allclose(scale_to_group(stretched), scale_to_group(rows))


async def test_dominated_samples_have_no_weight_and_others_that_of_their_own_reward() -> None:
    policy = Scribe(by_aim)
    _, run = await search(policy, group=64)
    ((texts, weights, _),) = policy.seen
    dominated = {"loud", "pious", "hasty", "bad"}
    assert {w for text, w in zip(texts, weights, strict=True) if text in dominated} == {0.0}
    first = dict(zip(texts[:16], weights[:16], strict=True))
    assert first["grand"] == 1.0 and 0 < first.get("both", 0.5) < 1
    fronts = [value["front"] for name, value in run.logged if name == "step"]  # type: ignore[index, call-overload]
    assert 0 < fronts[0] < 1


class Watched(Scribe):
    """A writer that is a nat away from its reference at each text."""

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return [[one.logprobs[0] - 1.0] for one in samples]


async def test_the_limit_on_the_divergence_and_its_weight_hold_for_every_selection() -> None:
    policy = Watched(by_aim)
    with pytest.raises(SearchStopped, match="kl_limit"):
        await search(policy, kl_limit=0.1)
    assert not policy.seen, "the alarm comes before the update"
    policy = Watched(by_aim)
    await search(policy, kl=0.3, advantage="reinforce++")
    assert {settings.kl for _, _, settings in policy.seen} == {0.3}


def test_losses_and_divergences_of_whole_groups_are_refused_where_each_sample_has_its_weight() -> None:
    check(world(), Config(loss="rebel", selection="weighted"))
    with pytest.raises(UsageError, match="selection=pareto"):
        check(world(), Config(loss="rebel"))
    with pytest.raises(UsageError, match="selection=all"):
        check(world(), Config(selection="all", kl_in="reward"))


async def test_each_reward_is_named_in_turn_or_all_of_them() -> None:
    policy = Scribe(by_aim)
    await search(policy)
    heads = [c[-1].content.partition("\n\n")[0].rpartition("counts: ")[2] for c in policy.asked]
    assert heads == ["beauty.", "faith.", "pace.", "beauty, faith, pace."]
    policy = Scribe(by_aim)
    await search(policy, aims=False)
    assert policy.asked[0][-1].content.partition("\n\n")[0].endswith("counts: beauty, faith, pace.")


@pytest.mark.parametrize("keep", [True, False])
async def test_the_frozen_model_reads_the_request_before_its_rewording(keep: bool) -> None:
    read: list[str] = []

    def answer(request: Any) -> str:
        read.append(request.messages[-1].content)
        return "grand"

    made = small(answer, 4)
    env = dataclasses.replace(world(), model=made.env.model)
    await search(Scribe(by_aim), env, keep_request=keep)
    own = [text for text in read if text.split()[-1] in WORLD]
    assert own and all(("question" in text) is keep for text in own)


async def test_what_cannot_be_used_teaches_nothing_and_costs_nothing() -> None:
    policy = Scribe(lambda c: ["", " "])
    found, run = await search(policy, steps=2)
    assert found.prompt == START and run.spent["task"] == len(world().validation) and not policy.seen


async def test_with_few_samples_and_many_rewards_most_are_on_the_front() -> None:
    """Then the selection is off by construction."""
    shares = []
    for group in (4, 32):
        _, run = await search(Scribe(by_aim), group=group, steps=20)
        fronts = [v["front"] for n, v in run.logged if n == "step"]  # type: ignore[index, call-overload]
        shares.append(sum(fronts) / len(fronts))
    assert shares[0] > shares[1] + 0.1


async def test_a_reward_alone_is_one_objective_and_the_system_is_deployed_as_validated() -> None:
    made = small(lambda r: "yes" if "good" in r.messages[-1].content else "no", 12)
    policy = Scribe(lambda c: ["a", "good", "b"], gain=6.0)
    config = Config(steps=20, group=6, requests=3, lr=1.0, checks=2, kl=0.0)
    run = MeteredRun({"task": made.env.model})
    found = await parrot(run, made.env, policy, START, config)  # type: ignore[arg-type]
    assert found.system is not None and "What counts" not in policy.asked[0][-1].content
    fresh: Any = Scribe(lambda c: ["a", "good", "b"])
    system = deploy(made.env, fresh, run.kept[found.system], config)
    (score,) = await system.score(MemoryRun({"task": made.env.model}), [START], made.env.validation)
    assert score.mean == 1.0


async def test_fewer_samples_than_rewards_are_refused() -> None:
    with pytest.raises(UsageError, match="each of the 3 rewards needs a sample"):
        await search(Scribe(by_aim), group=3)


# The contest: how much of the front the trained rewriter writes, equal samples.


GRID = np.stack(np.meshgrid(*[np.linspace(0.025, 0.975, 20)] * 3), -1).reshape(-1, 3)


def box(text: str) -> Any:
    """The points of a grid in the unit cube that a text dominates, each reward brought to [0, 1]."""
    return (np.array(WORLD[text]) / np.array([1.0, 1.0, 100.0]) >= GRID).all(-1)


GAIN = 4.0


@cache
def covered(selection: str, aims: bool = True, seeds: int = 10) -> list[float]:
    """The volume of 12 texts that the trained rewriter writes, on average, by seed."""
    boxes = {text: box(text) for text in WORLD}
    found = []
    for seed in range(seeds):
        policy = Scribe(by_aim, gain=GAIN)
        asyncio.run(search(policy, None, seed, steps=60, selection=selection, aims=aims))
        rng = np.random.default_rng(seed)
        questions = [*(f"What counts: {aim}.\n\nx" for aim in AIMS if aims), "x"]
        menus = [by_aim([dataclasses.make_dataclass("M", ["content"])(q)]) for q in questions]
        chances = [policy.probabilities(menu) for menu in menus]
        each, volumes = 12 // len(menus), []
        for _ in range(20):
            pairs = zip(menus, chances, strict=True)
            texts = {str(text) for menu, p in pairs for text in rng.choice(menu, each, p=p)}
            volumes.append(float(np.any([boxes[text] for text in texts], axis=0).mean()))
        found.append(float(np.mean(volumes)))
    return found


@pytest.mark.long
def test_without_the_selection_less_of_the_front_is_covered() -> None:
    won = paired_difference(covered("pareto"), covered("all"))
    assert won.low > 0.01, (won, covered("pareto"), covered("all"))


@pytest.mark.long
def test_without_naming_each_reward_less_of_the_front_is_covered() -> None:
    won = paired_difference(covered("pareto"), covered("pareto", aims=False))
    assert won.low > 0.05, (won, covered("pareto"), covered("pareto", aims=False))


class TestConformance(MethodConformance):
    method = "parrot"
    settings = {"steps": 4, "group": 4, "requests": 4, "lr": 1.0, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "", "Name it {{input}}", "Guess."]
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Scribe(lambda c: menu)
        return asyncio.run(parrot(run, env or self.environment(), policy, self.start(), config))
