"""TSGD-M: what is drawn and answered anew, who is edited, and what the draw is worth beside the last, the best and any prompt."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.readers import SHOWN
from tests.methods.rule_worlds import SORT, RuleWriter, poisoned

import whet
from whet.methods.tsgd import Config, PastPrompts, tsgd, within
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, ConstantReward, review_world
from whet.types import Rollout

CONFORMANCE = {"rounds": 3, "minibatch": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "minibatch": 3, "window": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


def descend(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Writes the text with a phrase that lacks, and forgets a phrase of it now and then."""
    text, forgets = SHOWN.findall(question)[0], writer.option_float("forgets")
    held = [p for p in PHRASES if p in text and chance(writer.seed, question, p) >= forgets]
    return f"<INSTRUCTION>Say yes or no. {' '.join(dict.fromkeys([*held, *phrases]))}</INSTRUCTION>"


def world(seed: int, **options: str) -> KnownWorld:
    """Half of twelve topics fail until the prompt holds their phrase; half of the phrases harm, and an edit loses some."""
    return poisoned(seed, descend, **{"most": "1", **options})


async def search(known: KnownWorld, limits: Budget | None = None, **settings: Any) -> tuple[Candidate, Any]:
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1, limits=limits)
    return await tsgd(run, known.env, LanguagePolicy(), SORT, Config(**settings)), run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


def history(*rewards: float) -> PastPrompts:
    """Past prompts with one rollout each."""
    past = PastPrompts(world(0).env)
    for number, reward in enumerate(rewards):
        prompt = Prompt.parse(f"prompt {number} {{{{input}}}}")
        past.add(Candidate(prompt))
        past.rollouts[prompt.id] = {"r": Rollout("r", prompt.id, "yes", reward)}
    return past


def test_a_better_mean_is_drawn_more_often_as_the_temperature_says() -> None:
    past, run = history(0.5, 0.6, 0.8), MeteredRun({}, 0)
    config = Config(window=1, temperature=0.1)
    drawn = Counter(past.draw(run, config)[0].prompt.text for _ in range(4000))
    ratio = drawn["prompt 1 {{input}}"] / drawn["prompt 0 {{input}}"]
    assert ratio == pytest.approx(2.718, rel=0.25)
    assert drawn["prompt 2 {{input}}"] > 3 * drawn["prompt 1 {{input}}"]
    assert len(past.draw(run, replace(config, window=9))) == 3, "without replacement"


def test_the_controls_edit_the_last_the_best_or_any_prompt() -> None:
    past, run = history(0.5, 0.9, 0.2), MeteredRun({}, 0)
    assert past.draw(run, Config(parent="last"))[0].prompt.text == "prompt 2 {{input}}"
    assert past.draw(run, Config(parent="best"))[0].prompt.text == "prompt 1 {{input}}"
    assert len({past.draw(run, Config(parent="uniform"))[0].id for _ in range(99)}) == 3


async def test_a_prompt_comes_back_and_its_mean_takes_in_what_it_answers_then() -> None:
    _, run = await search(world(2), rounds=12, minibatch=4)
    children = [c for c in logged(run, "candidate") if c["operator"].startswith("round")]
    parents = [c["parents"][0] for c in children]
    assert len(children) >= 8 and len(set(parents)) >= 2
    newest = [SORT.id, *(c["id"] for c in children)]
    assert any(parent != newest[number] for number, parent in enumerate(parents)), "not always the last one"


async def test_rewards_that_are_all_full_leave_the_start() -> None:
    known = world(0)
    best, run = await search(
        replace(known, env=replace(known.env, reward=ConstantReward(1.0))), rounds=4, minibatch=4
    )
    assert best.prompt == SORT and run.spent["optimizer"] == 0


@pytest.mark.parametrize(
    ("parent", "rollouts", "asks", "sizes"),
    [
        ("draw", None, None, (40, 8)),
        ("last", None, None, (40, 8)),
        ("draw", 320, 200, (10, 8)),
        ("best", 320, 200, (20, 8)),
        ("draw", 640, 10, (10, 16)),
        ("draw", 7, None, (0, 8)),
    ],
)
def test_rounds_are_what_a_limit_pays_for_and_more_rows_use_the_rest(
    parent: Any, rollouts: int | None, asks: int | None, sizes: tuple[int, int]
) -> None:
    assert within(Config(parent=parent), SearchPlan(world(0).env, rollouts, asks, 3, 1)) == sizes


@pytest.mark.parametrize("most", [150, 300])
async def test_a_small_limit_is_kept_and_used(most: int) -> None:
    _, run = await search(world(1), Budget(task_calls=most, optimizer_calls=20))
    assert 0.5 * most < run.spent["task"] <= most and 2 <= run.spent["optimizer"] <= 20


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.tsgd.Config(rounds=12),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: the same step, from a drawn prompt, the last, the best, or any; and random search.

LIMITS = {
    "large": Budget(task_calls=1500, optimizer_calls=90),
    "small": Budget(task_calls=300, optimizer_calls=20),
}


@cache
def reached(limits: str, method: str = "tsgd", seeds: int = 12, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, world(seed), seed, LIMITS[limits], settings) for seed in range(seeds)]


@on_seeds(6, 12)
def test_from_the_last_prompt_it_loses(seeds: int) -> None:
    own, other = reached("large", seeds=seeds), reached("large", seeds=seeds, parent="last")
    won = won_over("last, large", own, other)
    assert won.low > 0, won


@pytest.mark.long
def test_against_the_other_parents_and_random_search() -> None:
    for limits in LIMITS:
        own = reached(limits, seeds=30)
        for parent in ("last", "uniform", "best"):
            won = won_over(f"{parent}, {limits}", own, reached(limits, seeds=30, parent=parent))
            assert won.low > 0 or limits == "small" or parent == "best", won
        won = won_over(f"random search, {limits}", own, reached(limits, "random_search", seeds=30))
        assert won.low > 0 or limits == "small", won
