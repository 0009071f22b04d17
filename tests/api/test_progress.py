"""What Python programs are shown while they wait: the plan, warnings, a line that is true; and nothing with `progress=False`."""

from __future__ import annotations

import asyncio
import html
import sys
import threading
import types
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet._util.user_code import call_within
from whet.api import Progress
from whet.engine.budget import Spent
from whet.engine.progress import Speed
from whet.reporting import Display, progress_display
from whet.reporting.progress_display import progress_line
from whet.run import Budget
from whet.types import Rollout

OPRO = whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words(**changes: Any) -> dict[str, Any]:
    return {
        "data": rows(),
        "reward": right,
        "lm": Counted(),
        "optimizer_lm": writer,
        "method": OPRO,
        "budget": whet.Budget(calls=900),
        **changes,
    }


def test_python_is_told_plan_and_warnings_before_anything_is_paid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = Counted()
    before: list[str] = []

    def lm(messages: Any) -> str:
        if not model.calls:
            before.append(capsys.readouterr().err)
        return model(messages)

    whet.optimize("Sort {input}.", **words(lm=lm))
    assert "plan: " in before[0] and "task calls" in before[0]
    assert "warning: prompt: {input} goes to the model as it stands" in before[0]


def test_rows_with_several_keys_and_a_prompt_without_a_slot_are_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = [{"input": {"ticket": row["input"], "customer": "a"}, "target": row["target"]} for row in rows()]
    whet.optimize("Sort the ticket.", **words(data=data, dry_run=True))
    whet.evaluate("Sort the ticket.", data=data, reward=right, lm=Counted())
    told = capsys.readouterr().err
    assert "warning: The prompt uses no slot" in told and "(ticket, customer)" in told
    whet.evaluate("Sort {{ticket}}.", data=data, reward=right, lm=Counted())
    assert "uses no slot" not in capsys.readouterr().err


def test_without_progress_nothing_is_written_and_warnings_are_python_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.warns(UserWarning, match="goes to the model as it stands"):
        whet.optimize("Sort {input}.", **words(), progress=False)
    assert capsys.readouterr().err == ""


def test_plain_lines_show_best_and_baseline_and_go_on_in_a_running_loop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_display, "PLAIN_SECONDS", (0.0, 0.001))
    monkeypatch.setattr(progress_display, "TICK_SECONDS", 0.001)
    model = Counted()

    async def slow(messages: Any) -> str:
        await asyncio.sleep(0.002)
        return model(messages)

    async def both() -> Any:
        one = {"data": rows(), "reward": right}
        return await asyncio.gather(
            whet.aoptimize(PROMPT, **words(lm=slow, concurrency=4)),
            whet.aevaluate(PROMPT, lm=slow, split="train", concurrency=4, **one),
        )

    asyncio.run(both())
    told = capsys.readouterr().err
    assert "search · " in told and "baseline 0." in told and "(n=" in told
    assert "train rows " in told and "sealed test " in told
    assert progress_display._SCREEN.lines() == []


def test_a_notebook_shows_plan_and_line_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Cell:
        def update(self, value: str) -> None:
            shown.append(value)

    display = types.ModuleType("IPython.display")
    display.__dict__.update(HTML=lambda text: text, display=lambda value, display_id: Cell())
    shell = types.ModuleType("IPython")
    shell.__dict__.update(get_ipython=lambda: types.SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    whet.evaluate(PROMPT, data=rows(), reward=right, lm=Counted())
    last = html.unescape(shown[-1])
    assert last.startswith("<pre") and "plan: " in last and "validation rows " in last


def told_rollouts(progress: Progress, prompt: str, rewards: dict[str, float]) -> None:
    for row, reward in rewards.items():
        progress.on_rollout(Rollout(prompt, row, "", reward))


def test_best_and_baseline_are_on_the_same_rows() -> None:
    progress = Progress(phase="search")
    start = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}
    progress.on_baseline([Rollout("start", row, "", reward) for row, reward in start.items()], 10)
    assert progress_line(progress, 1.0).startswith(
        "search · baseline 0.500 on 4 of 10 validation rows, no better prompt validated yet · 1 s"
    )
    told_rollouts(progress, "new", {"b": 1.0, "c": 0.0})
    progress.on_event("validated", {"id": "new", "incumbent": True, "validation": 0.5, "n": 2})
    shown = progress_line(progress, 1.0)
    assert "best 0.500 (baseline 0.000) on 2 of 10 validation rows" in shown
    assert "prompt tried now 0.50 (n=2)" in shown
    told_rollouts(progress, "other", {"b": 1.0})
    assert "prompt tried now 1.00 (n=1)" in progress_line(progress, 1.0)
    told_rollouts(progress, "new", {"b": 1.0})
    assert "latest rollouts 0.75 (n=4, several prompts)" in progress_line(progress, 1.0)
    progress.on_event("validated", {"id": "unseen", "incumbent": True, "validation": 0.75, "n": 3})
    assert "best 0.750 on 3 of 10 validation rows" in progress_line(progress, 1.0)
    progress.on_event("validated", {"id": "full", "incumbent": True, "validation": 1.0, "n": 4})
    assert "best 1.000 (baseline 0.500)" in progress_line(progress, 1.0)


def test_a_rollout_without_an_answer_is_not_among_the_latest() -> None:
    progress = Progress(phase="search")
    progress.on_rollout(Rollout("p", "a", "", 0.0, error="provider: throttled"))
    progress.on_rollout(Rollout("p", "b", "", 1.0))
    assert progress.latest == deque([1.0]) and progress.done == 2


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Client:
    address: str = "openai/x"
    rests: float = 0.0
    in_flight: int = 0

    @property
    def model(self) -> Client:
        return self

    @property
    def limiter(self) -> Client:
        return self


@dataclass
class Account:
    """The parts of a run's core that the line reads."""

    limits: Budget = field(default_factory=lambda: Budget(calls=1000))
    spent: Spent = field(default_factory=Spent)
    client: Client = field(default_factory=Client)
    seconds: float = 0.0
    steps: int = 0

    @property
    def budget(self) -> Account:
        return self

    @property
    def caller(self) -> Account:
        return self

    @property
    def clients(self) -> dict[str, Client]:
        return {"task": self.client}


def spend(core: Any, speed: Speed, clock: Clock, seconds: int, calls: int) -> None:
    """`calls` calls in each of so many seconds."""
    for _ in range(seconds):
        clock.now += 1
        core.spent.calls["task"] += calls
        speed.sample(core)


def shown_of(core: Any, speed: Speed) -> str:
    return progress_line(Progress(phase="search", core=core), 60.0, speed)


def test_time_left_is_said_once_the_pace_is_steady_and_not_while_a_server_rests() -> None:
    core, clock = Account(), Clock()
    speed: Any = Speed(clock)
    spend(core, speed, clock, 10, 5)
    assert "left" not in shown_of(core, speed), "too early"
    spend(core, speed, clock, 30, 5)
    assert "200 calls of 1,000 · 5.0 calls/s · at most about 160 s left" in shown_of(core, speed).replace(
        "2.67 min", "160 s"
    )
    core.client.rests = 42.0
    rests = shown_of(core, speed)
    assert "openai/x asked whet to wait 42 s more" in rests and "left" not in rests
    core.client.rests, core.client.in_flight = 0.0, 3
    spend(core, speed, clock, 14, 0)
    silent = shown_of(core, speed)
    assert "no answer for 14 s, 3 calls in flight" in silent and "left" not in silent


async def test_a_reward_that_computes_is_named_and_not_a_model_that_does_not_answer() -> None:
    core, clock, over = Account(), Clock(), threading.Event()
    core.client.in_flight = 3
    speed: Any = Speed(clock)
    spend(core, speed, clock, 15, 0)
    computing = asyncio.ensure_future(call_within(over.wait, 60, "reward.py: reward() for row 7"))
    shown = ""
    with patch.object(progress_display, "COMPUTING", 0.0):
        while "reward.py" not in shown:
            await asyncio.sleep(0.01)
            shown = shown_of(core, speed)
    assert "reward.py: reward() for row 7 has been computing for 0 s" in shown and "no answer" not in shown
    over.set()
    await computing
    assert "no answer for 14 s, 3 calls in flight" in shown_of(core, speed)


def test_a_pace_that_changes_gives_no_time_left() -> None:
    core, clock = Account(), Clock()
    speed: Any = Speed(clock)
    spend(core, speed, clock, 40, 10)
    spend(core, speed, clock, 40, 1)
    assert "left" not in shown_of(core, speed)


def test_calls_that_are_turned_away_give_no_pace_below_nothing() -> None:
    core, clock = Account(), Clock()
    speed: Any = Speed(clock)
    core.spent.calls["task"] = 12
    spend(core, speed, clock, 2, 0)
    core.spent.calls["task"] = 0
    spend(core, speed, clock, 2, 0)
    shown = shown_of(core, speed)
    assert "calls/s" not in shown and "a call every" not in shown and "left" not in shown


def test_answers_from_a_cache_are_no_pace() -> None:
    core, clock = Account(), Clock()
    speed: Any = Speed(clock)
    spend(core, speed, clock, 5, 0)
    core.spent.calls["task"] += 500
    core.spent.cached["task"] += 500
    spend(core, speed, clock, 5, 1)
    assert "0.6 calls/s" in shown_of(core, speed).replace("a call every 2 s", "0.6 calls/s")


def test_runs_that_go_on_at_once_have_a_line_each_below_the_whole() -> None:
    display = Display()
    progress = display.progress
    progress.title, progress.phase, progress.earlier, progress.planned_calls = "1 of 3 runs made", "", 40, 90
    progress.parts |= {"opro, seed 0": "search", "gepa, seed 0": "starting"}
    whole, *parts = display.lines()
    assert whole.startswith("1 of 3 runs made · 40 calls of 90") and display.share() == 40 / 90
    assert parts == ["  opro, seed 0: search", "  gepa, seed 0: starting"]
