"""ACE online: each row of a stream is answered once with what was learned before it; the contest on a stream that drifts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.drifting_stream import ROWS, START, WARM, stream
from tests.methods.figures import won_over
from tests.methods.rule_worlds import LAST_WORD, optimized

from whet.engine.journal import read_events
from whet.methods.ace import Config, ace
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.lessons import LessonList
from whet.testing.runs import MeteredRun

WINDOW = 15


def online(seed: int, drift: bool = True, limits: Budget | None = None, **settings: Any) -> Any:
    """The windows of a stream as they were logged, the run, and the questions of the task model."""
    world = stream(seed, drift)
    run = MeteredRun({"task": world.env.model, "optimizer": world.writer}, seed, limits=limits)
    config = Config(**{"batch": WINDOW, "online": True, **settings})
    best = asyncio.run(ace(run, world.env, LanguagePolicy(), START, config))
    windows = [value for name, value in run.logged if name == "step"]
    return windows, run, world.env.model.questions, best  # type: ignore[attr-defined]


def test_each_row_is_answered_once_in_order_and_before_it_is_learned_from() -> None:
    windows, _, questions, _ = online(0)
    rows = [one.id for one in stream(0).rows]
    asked = [q.rpartition("Question: ")[2].strip() for q in questions]
    assert [text for text in asked if text in rows] == rows
    first = [q for q in questions if q.rpartition("Question: ")[2].strip() in rows[:WINDOW]]
    assert not any("means" in q for q in first)
    assert [window["answered"] for window in windows] == list(range(WINDOW, ROWS + 1, WINDOW))


def test_the_cumulative_reward_is_that_of_the_windows() -> None:
    windows, *_ = online(0)
    assert windows[-1]["cumulative"] == pytest.approx(WINDOW * sum(window["reward"] for window in windows))


def test_old_verdicts_count_half_in_each_window() -> None:
    lessons = LessonList(START, "Do it.", 5).add("One.").count_verdicts(["L1"], [])
    lessons = lessons.count_verdicts(["L1"], []).count_verdicts(["L1"], ["L1"]).count_verdicts([], ["L1"])
    (halved,) = lessons.halve_counts().lessons
    assert (halved.helpful, halved.harmful) == (1, 0)


@pytest.mark.parametrize("most", [60, 150, 300])
def test_it_keeps_within_limits(most: int) -> None:
    windows, run, *_ = online(0, limits=Budget(task_calls=most, optimizer_calls=12))
    assert run.spent["task"] <= most and run.spent["optimizer"] <= 12
    assert 0.4 * most < windows[-1]["answered"] <= most


def test_through_the_public_face(tmp_path: Path) -> None:
    def write(question: str) -> str:
        tag = "REFLECTION" if "<REFLECTION>" in question else "LESSON"
        return f"<{tag}>{LAST_WORD}</{tag}>"

    assert f"- {LAST_WORD}" in optimized(tmp_path, "ace", write, online=True)
    steps = read_events(tmp_path / "run" / "journal.sqlite", ["step"])
    assert steps[-1].value["cumulative"] > 0


# The contest: the rewards of the rows behind the first ones, on a stream whose rules change in its middle.


@cache
def adapted(seed: int, drift: bool = True, **settings: Any) -> float:
    """The mean reward of the stream behind its first rows, with what is learned on the way."""
    windows, *_ = online(seed, drift, **settings)
    at = next(window for window in windows if window["answered"] >= WARM)
    earned, answered = (windows[-1][name] - at[name] for name in ("cumulative", "answered"))
    return float(earned / answered)


@cache
def frozen(seed: int, drift: bool = True, learned: bool = True) -> float:
    """The same with what ACE learns offline from the first rows, or with the start."""
    world = stream(seed, drift)
    run = MeteredRun({"task": world.env.model, "optimizer": world.writer}, seed)
    env = replace(world.env, train=world.rows[:WARM])

    async def answers(prompt: Prompt) -> float:
        rollouts = await env.evaluate(run, prompt, world.rows[WARM:])
        return sum(rollout.reward for rollout in rollouts) / len(rollouts)

    prompt = START
    if learned:
        prompt = asyncio.run(ace(run, env, LanguagePolicy(), START, Config(batch=WINDOW))).prompt
    return asyncio.run(answers(prompt))


def test_on_a_stream_that_drifts_it_beats_offline_no_adaptation_and_itself_without_removal() -> None:
    seeds = range(5)
    here = [adapted(seed) for seed in seeds]
    assert won_over("learned offline, then frozen", here, [frozen(seed) for seed in seeds]).low > 0.1
    assert won_over("no adaptation", here, [frozen(seed, learned=False) for seed in seeds]).low > 0.1
    assert won_over("no lesson removed", here, [adapted(seed, removal=False) for seed in seeds]).low > 0.1


@pytest.mark.long
def test_where_old_verdicts_count_in_full_it_learns_new_rules_later(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [adapted(seed) for seed in range(5)]
    monkeypatch.setattr(LessonList, "halve_counts", lambda lessons: lessons)
    assert won_over("old verdicts in full", here, [adapted.__wrapped__(seed) for seed in range(5)]).low > 0


def test_on_a_stream_that_does_not_drift_it_wins_nothing_over_offline() -> None:
    here = [adapted(seed, drift=False) for seed in range(5)]
    won = won_over("no drift: learned offline, then frozen", here, [frozen(seed, False) for seed in range(5)])
    assert won.high < 0.1
