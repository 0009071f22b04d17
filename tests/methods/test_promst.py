"""PROMST: how episodes failed, what is rewritten, what the predictor keeps; and that reading and the predictor matter."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over
from tests.methods.rooms import DOORS, START, rooms

from whet.environments import ActorAction, Trajectory, Turn
from whet.errors import UsageError
from whet.methods.promst import Config, Evolution, check, promst
from whet.models.scripted import chance
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Archive, Candidate
from whet.search.failure_rules import LOW, REPEATED, UNFINISHED, UNREADABLE, kind_of_failure
from whet.stats.ridge import predict_by_ridge
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import review_world
from whet.types import Rollout

CONFORMANCE = {"depth": 2, "width": 2, "episodes": 12, "known": 3, "candidates": 4}
"""Settings of a run in the conformance suite."""
SWEEP = {"depth": 2, "width": 1, "episodes": 2, "known": 2, "candidates": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(limits: Budget | None = None, **settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    known = rooms(0)
    model: Any = known.optimizer
    run = MeteredRun({"task": known.env.model, "optimizer": model}, 1, limits=limits)
    best = await promst(run, known.env, LanguagePolicy(), START, Config(**settings))
    return best, model.questions, run


def played(*steps: tuple[str, str], end: Any = "done", **notes: float) -> Trajectory:
    return Trajectory((), tuple(Turn(seen, ActorAction(text)) for seen, text in steps), end, notes=notes)


@pytest.mark.parametrize(
    ("episode", "reward", "kind"),
    [
        (played(("a", "x"), wasted=1.0), 0.2, UNREADABLE),
        (played(*[("a", "x")] * 5, end="turns"), 0.2, REPEATED),
        (played(*[("a", "x")] * 4, end="turns"), 0.2, UNFINISHED),
        (played(*[("a", "x")] * 4, ("b", "x")), 0.2, LOW),
        (played(*[("a", "x")] * 5, end="turns", wasted=1.0), 1.0, None),
    ],
)
def test_how_an_episode_failed(episode: Trajectory, reward: float, kind: str | None) -> None:
    assert kind_of_failure(episode, Rollout("p", "e", "", reward), 1.0) == kind


async def test_each_kind_of_failure_is_summarised_once_for_all_rewrites_with_the_last_two_turns() -> None:
    _, questions, _ = await search(depth=1, width=3, predictor="none")
    summaries = [q for q in questions if "<FEEDBACK>" in q]
    rewrites = [q for q in questions if "<FEEDBACK>" not in q]
    assert len(summaries) == 2 and len(rewrites) == 3
    for summary in summaries:
        assert 1 <= summary.count("Reward:") <= 4 and summary.count("Done:") == 2 * summary.count("Reward:")
    for kind in (UNREADABLE, REPEATED):
        assert sum(kind in q for q in summaries) == 1 and all(kind in q for q in rewrites)


async def test_a_rewriter_sees_the_prompts_on_the_way_with_their_scores() -> None:
    _, questions, _ = await search(depth=2, width=2, kept=1, predictor="none")
    rewrites = [q for q in questions if "<FEEDBACK>" not in q]
    assert [q.count("Score: ") for q in rewrites] == [0, 0, 1, 1]


async def test_the_predictor_screens_once_it_has_learned() -> None:
    """The repository of the paper has a stub in its place."""
    _, questions, run = await search(depth=2, width=3, kept=2, known=7, candidates=9)
    candidates = [value["operator"] for name, value in run.logged if name == "candidate"]  # type: ignore[index, call-overload]
    assert candidates.count("level 1") == 3 and 3 < candidates.count("level 2") <= 6
    assert sum("<FEEDBACK>" not in q for q in questions) == 3 + 3 + 9


async def test_the_predictor_keeps_what_is_like_what_scored_well() -> None:
    known = rooms(0)
    scored = [
        Candidate(START.edit(f"Text {n}. {'Good words.' if n % 2 else 'Bad ones.'}"), score=mean(n % 2))
        for n in range(8)
    ]
    new = [Candidate(START.edit(f"Another {n}. {'Good words.' if n > 2 else 'Bad ones.'}")) for n in range(5)]
    plan: Any = None
    search = Evolution(known.env, LanguagePolicy(), START, Config(), plan, Archive(), [], 0)
    order: Any = await search.screen(MeteredRun(), scored, new)
    assert {*order[:2]} == {3, 4}


def mean(value: float) -> Any:
    from whet.types import Score

    return Score(value, 10)


def test_ridge_is_the_mean_far_from_all_and_near_the_values_at_them() -> None:
    points, values = np.eye(3), np.array([0.0, 0.5, 1.0])
    near = predict_by_ridge(points, values, points, 1e-6)
    assert np.allclose(near, values, atol=1e-3)
    assert np.allclose(predict_by_ridge(points, values, points, 1e6), 0.5, atol=1e-3)
    assert np.allclose(predict_by_ridge(points[:1], values[:1], points, 1.0), 0.0)


@pytest.mark.parametrize(
    ("bests", "ends"), [([0.5, 0.4, 0.3], True), ([0.5, 0.5, 0.3], False), ([0.3, 0.5, 0.4], False)]
)
def test_the_search_ends_where_the_best_score_of_a_level_fell_twice(bests: list[float], ends: bool) -> None:
    plan: Any = None
    search = Evolution(rooms(0).env, LanguagePolicy(), START, Config(), plan, Archive(), [], 9, bests)
    assert search.falls(2) == ends


async def test_rules_of_the_user_name_the_failures() -> None:
    def failure(steps: list[Any], reward: float) -> str | None:
        return "it waited" if reward < 1 and any(step["output"] == "wait" for step in steps) else None

    _, questions, _ = await search(depth=1, width=2, rules=failure, predictor="none")
    summaries = [q for q in questions if "<FEEDBACK>" in q]
    assert len(summaries) == 1 and "it waited" in summaries[0]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (lambda steps, reward: 1, "failure\\(\\) returned 1"),
        (lambda steps, reward: 1 / 0, "ZeroDivisionError"),
    ],
)
async def test_rules_that_cannot_be_used_are_named(rules: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await search(depth=1, width=2, rules=rules)


def test_rules_that_there_are_not_are_refused_before_anything_is_paid() -> None:
    with pytest.raises(UsageError, match="Give a function"):
        check(review_world(), Config(rules="nothing"))


# The contests: episodes of other doors than its own, and no predictor.

SEEDS, LIMITS = range(12), Budget(task_calls=12_000)


def elsewhere(question: str) -> str:
    """A question whose episodes came to a halt before other doors."""
    return re.sub(
        r"(?m)^(Seen: .*door )\d\.$", lambda m: f"{m[1]}{int(chance(question, 'door') * DOORS)}.", question
    )


@cache
def reached(change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    """What the method finds in the world of each seed."""
    return [play_world("promst", rooms(s, change=change), s, LIMITS, settings) for s in SEEDS]


@pytest.mark.long
def test_what_it_reads_of_failures_is_what_it_wins_by() -> None:
    assert won_over("with episodes that halt before other doors", reached(), reached(elsewhere)).low > 0


@pytest.mark.long
def test_with_the_predictor_it_beats_itself_without() -> None:
    assert won_over("without the predictor", reached(), reached(predictor="none")).low > 0


@pytest.mark.long
def test_it_beats_random_search_over_the_same_phrases() -> None:
    other = [play_world("random_search", rooms(s), s, LIMITS) for s in SEEDS]
    assert won_over("random search", reached(), other).low > 0
