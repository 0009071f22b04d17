"""CALM: parents, children and what the writer earns for them; and that what it learns serves the rest of the evolution."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.methods.figures import won_over
from tests.methods.gene_world import GeneWriter, gene_world, good_genes, start, worth
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.calm import ADD, COMBINE, REWRITE, Config, Pool, calm, form_groups, reward_of
from whet.methods.method import configure
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

SMALL = Config(steps=6, questions=2, group=3, examples=10, lr=2.0, finalists=2)


async def search(config: Config, seed: int = 0, known: int = 0) -> tuple[Candidate, MeteredRun, GeneWriter]:
    env, writer = gene_world(seed), GeneWriter()
    run = MeteredRun({"task": env.model}, seed)
    first = start(good_genes(seed)[:known])
    trained: Any = writer
    return await calm(run, env, trained, first, config), run, writer


async def test_the_writer_learns_while_the_pool_improves() -> None:
    found, run, writer = await search(replace(SMALL, steps=30))
    steps: list[Any] = [value for name, value in run.logged if name == "step"]
    assert worth(0, found.prompt.text) > 0.4 and found.operator == "child"
    assert steps[-1]["best"] > steps[0]["best"] and len(set(writer.logits)) > 1


async def test_a_frozen_writer_is_evolution_alone() -> None:
    _, _, writer = await search(replace(SMALL, lr=0.0))
    assert set(writer.logits) == {0.0}


def test_what_a_writer_earns_by_hand() -> None:
    env, child = gene_world(0), start([1])
    assert reward_of(env, SMALL, child, 0.5, [0.25, 0.75]) == -0.25
    assert reward_of(env, SMALL, None, 0.0, [0.25]) == -1.0
    assert reward_of(env, replace(SMALL, reward="absolute"), child, 0.5, [0.25, 0.75]) == 0.5


def test_compared_with_children_of_the_same_parents_both_rewards_are_the_same() -> None:
    """The earnings of the parents cancel within a question, and do not within a step."""
    samples: list[Any] = [["a", "b"], ["c", "d"]]
    gains, earned = [[0.2, 0.0], [0.1, -0.1]], [[0.5, 0.3], [0.9, 0.7]]

    def advantages(rewards: list[list[float]], compare: Any) -> list[float]:
        _, grouped = form_groups(samples, rewards, replace(SMALL, compare=compare))
        return [round(r - fmean(group), 9) for group in grouped for r in group]

    assert advantages(gains, "question") == advantages(earned, "question")
    assert advantages(gains, "step") != advantages(earned, "step")


async def test_parents_are_drawn_from_the_best_and_measured_on_the_rows_of_their_children() -> None:
    policy: Any = Scribe(lambda conversation: ["x"])
    pool = Pool(policy, start(), replace(SMALL, top=2, pool=3))
    texts = [start([gene]) for gene in range(4)]
    pool.settle([*texts, None], [0.1, 0.4, 0.3, 0.2, 0.0])
    assert pool.texts == [texts[i].region_text() for i in (1, 2, 3)]
    for number in range(20):
        operator, parents = pool.ask(MemoryRun(seed=number))
        assert operator in (COMBINE, ADD, REWRITE) and set(parents) <= set(pool.texts[:2])
        assert len(parents) == (2 if operator == COMBINE else 1)
    pool.settle([texts[1]], [0.0])
    assert pool.texts[0] == texts[2].region_text(), "the mean of both measurements counts"


async def test_a_pool_that_is_stuck_collapses_to_its_best_and_the_start() -> None:
    policy: Any = Scribe(lambda conversation: ["x"])
    pool = Pool(policy, start(), replace(SMALL, collapse=2))
    best, other = start([1]), start([2])
    for _ in range(3):
        assert pool.settle([best, other], [0.9, 0.1]) == 0.9
    assert pool.texts == [best.region_text(), start().region_text()]


async def test_a_selection_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="rows=mopps"):
        await search(replace(SMALL, rows="mopps"))


class TestConformance(MethodConformance):
    method = "calm"
    settings = {"steps": 3, "questions": 2, "group": 2, "examples": 4, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "Be quick.", "", "Name it {{input}}", "Guess."]
        policy: Any = Scribe(lambda conversation: menu, gain=2.0)
        config = configure(self.load(), self.settings if settings is None else settings)
        return asyncio.run(calm(run, env or self.environment(), policy, self.start(), config))


# The contest: the same evaluations, from a poor start and from one that is half good; early and late.

SEEDS, EARLY, LATE = range(10), 15, 40
ARMS: dict[str, dict[str, Any]] = {
    "frozen": {"lr": 0.0},
    "absolute": {"reward": "absolute"},
    "compared within a question": {"compare": "question"},
}


@cache
def final_worths(known: int = 0, steps: int = LATE, **settings: Any) -> list[float]:
    """What the result is worth, by seed."""
    base = {"steps": steps, "questions": 4, "advantage": "dr_grpo", "lr": 40.0}
    config = replace(SMALL, **{**base, **settings})
    return [worth(seed, asyncio.run(search(config, seed, known))[0].prompt.text) for seed in SEEDS]


@pytest.mark.long
@pytest.mark.parametrize("known", [0, 4])
def test_a_trained_writer_wins_from_a_poor_start(known: int) -> None:
    """From a start that is half good no benefit is shown."""
    for steps in (EARLY, LATE):
        own, frozen = final_worths(known, steps), final_worths(known, steps, **ARMS["frozen"])
        print(f"\n{known} known, {steps} steps: relative {fmean(own):.3f}, frozen {fmean(frozen):.3f}")
        won = won_over("frozen", own, frozen)
    assert (won.low > 0) == (known == 0)


@pytest.mark.long
@pytest.mark.parametrize("known", [0, 4])
@pytest.mark.parametrize("name", ["absolute", "compared within a question"])
def test_the_relative_reward_is_not_shown_to_be_what_it_wins_by(known: int, name: str) -> None:
    own, other = final_worths(known), final_worths(known, **ARMS[name])
    print(f"\n{known} known: relative {fmean(own):.3f}, {name} {fmean(other):.3f}")
    assert won_over(name, own, other).low <= 0
