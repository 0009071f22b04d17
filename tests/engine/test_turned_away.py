"""Endpoints that turn calls away: no row is scored that was not answered, no run dies with its result, limits that do not pay for
the test leave a prompt that can be tested later."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import whet
from tests.api.world import right
from tests.engine.odd import ROWS, careful, odd_server, optimize, sorter
from whet.engine.pace import SLOWEST, Pace


def turning_away(every: int, status: int = 429, **headers: str) -> Any:
    """Turns each call away but every so manieth."""

    def handle(body: dict[str, Any], number: int) -> Any:
        if number % every:
            return web.json_response({"error": {"message": "too many"}}, status=status, headers=headers)
        return sorter(body, number)

    return handle


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """No pace is kept; which refusals were those of an overloaded endpoint."""
    noted = list[bool]()
    monkeypatch.setattr(Pace, "note_refusal", lambda self, began, overloaded=False: noted.append(overloaded))
    return noted


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_calls_that_are_turned_away_use_up_no_limit(
    status: int, fast: list[bool], tmp_path: Path
) -> None:
    async with odd_server(task=turning_away(3, status), optimizer=careful) as (url, calls):
        result = await optimize(url, tmp_path, budget=whet.Budget(calls=40))
    assert result.best.prompt.text.startswith("Be careful") and result["tested"]
    assert not any("no answer" in warning for warning in result.warnings)
    used = result.usage
    assert sum(used.calls.values()) <= 40 < calls["task"]
    assert calls["task"] == used.calls["task"] + used.refused["task"]
    assert set(fast) == {status != 429}
    assert result.baseline.test is not None and result.best.test is not None
    assert result.best.test.mean == 1.0


async def test_an_evaluation_scores_no_row_that_was_turned_away(fast: list[bool], tmp_path: Path) -> None:
    async with odd_server(task=turning_away(4)) as (url, _calls):
        found = await whet.aevaluate(
            "Be careful: {{input}}", data=ROWS, split="train", reward=right, lm="openai/task", base_url=url, root=tmp_path,
        )  # fmt: skip
    assert (found.score.mean, found.failed) == (1.0, 0)


async def test_a_test_that_the_limits_do_not_pay_for_leaves_the_prompt_and_goes_on_under_a_larger_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.engine.calls.delay", lambda attempt, wait, rng: 0.0)

    def handle(body: dict[str, Any], number: int) -> Any:
        if number > 15 and number % 2:
            return web.Response(text="{", content_type="application/json")
        return sorter(body, number)

    words = {
        "method": whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1),
        "concurrency": 1,
    }
    async with odd_server(task=handle, optimizer=careful) as (url, calls):
        first = await optimize(url, tmp_path, budget=whet.Budget(calls=60, task_calls=30), **words)
        assert (first.status, first["tested"], first.promoted) == ("budget_exhausted", False, False)
        assert "not tested" in first.improvement.reason and first.best.test is None
        assert first.best.prompt.text.startswith("Be careful")
        run = Path(first["run"])
        assert "Be careful" in (run / "best.md").read_text()
        assert json.loads((run / "result.json").read_text())["tested"] is False
        made = dict(calls)
        again = await optimize(url, tmp_path, budget=whet.Budget(calls=60, task_calls=30), **words)
        assert again["tested"] is False and calls == made, "the same limits print the same result"
        more = await optimize(url, tmp_path, budget=whet.Budget(calls=200, task_calls=150), **words)
    assert Path(more["run"]) == run and more["tested"] and more.best.test is not None
    assert calls["optimizer"] == made["optimizer"], "the search is not paid again"
    assert more.usage.calls["task"] == calls["task"]


class Clock:
    """Seconds that pass only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def ask_in_turn(pace: Pace, clock: Clock, allow: Any, answers: int) -> tuple[int, float]:
    """Ask until so many calls were answered; how many were turned away, and the seconds that it took."""
    taken = refused = 0
    while taken < answers:
        began = await pace.begin()
        if allow(clock.now):
            taken += 1
            pace.note_answer(began)
        else:
            refused += 1
            pace.note_refusal(began)
        clock.now += 0.001
    return refused, clock.now


@pytest.mark.parametrize("seconds", [0.25, 1.0, 8.0])
async def test_a_pace_is_found_that_an_endpoint_takes(seconds: float) -> None:
    clock, last = Clock(), -1e9
    pace = Pace(clock=clock, sleep=clock.sleep)

    def allow(now: float) -> bool:
        nonlocal last
        if now - last < seconds:
            return False
        last = now
        return True

    refused, took = await ask_in_turn(pace, clock, allow, 200)
    assert took < 1.8 * 200 * seconds and refused < 700
    assert pace.rate is not None and 0.4 / seconds < pace.rate < 5 / seconds
    last = -1e9
    _, more = await ask_in_turn(pace, clock, lambda now: True, 600)
    assert more - took < 60 * max(1, seconds), (
        "an endpoint that takes all calls again is soon asked at any pace"
    )


@pytest.mark.parametrize("outage", [5.0, 15.0, 120.0])
async def test_a_burst_of_503_is_over_when_it_is_over(outage: float) -> None:
    """What an overloaded endpoint does not answer says nothing of the pace that it takes afterwards."""
    clock = Clock()
    pace = Pace(clock=clock, sleep=clock.sleep)
    for _ in range(200):
        pace.note_answer(await pace.begin())
        clock.now += 0.01
    over = clock.now + outage
    while clock.now < over:
        pace.note_refusal(await pace.begin(), overloaded=True)
        clock.now += 0.01
    for _ in range(200):
        pace.note_answer(await pace.begin())
        clock.now += 0.01
    assert clock.now < over + 10, "200 calls take 2 s at the pace of before"


async def test_calls_that_are_turned_away_at_any_pace_do_not_stop_the_others() -> None:
    clock, chance = Clock(), random.Random(0)
    pace = Pace(clock=clock, sleep=clock.sleep)
    _, took = await ask_in_turn(pace, clock, lambda now: chance.random() >= 0.4, 700)
    assert took < 240
    assert pace.rate is None or pace.rate > 10 * SLOWEST


async def test_the_rate_of_the_user_is_kept() -> None:
    clock = Clock()
    pace = Pace(60.0, clock=clock, sleep=clock.sleep)
    starts = [await pace.begin() for _ in range(4)]
    assert starts == [0.0, 1.0, 2.0, 3.0]
