"""The limit of seconds ends whatever hangs: calls, rewards, commands. The run has a result, and goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from tests.environments.test_harness import answers
from tests.environments.test_harness import task as command_task

STEP = whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("execute", "durable"):
        monkeypatch.setattr(f"whet.engine.{module}.INTERRUPT_SECONDS", 0.05)


def wait_for_ever(*_: object) -> Any:
    threading.Event().wait()


async def wait_for_ever_in_the_loop(*_: object) -> Any:
    await asyncio.Event().wait()


def loop_for_ever(*_: object) -> Any:
    while True:
        pass


def words(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "data": rows(4), "reward": right, "lm": Counted(), "optimizer_lm": writer, "method": STEP,
        "budget": whet.Budget(calls=90, seconds=1), "run": folder / "r", "progress": False, **more,
    }  # fmt: skip


def check_untested(result: whet.RunResult, what: str = "") -> None:
    assert (result.status, result["ended_by"]) == ("budget_exhausted", "the limit of seconds")
    assert not result["tested"] and result.best.prompt.source == PROMPT
    assert "The limit of 1 seconds is reached" in result["improvement"]["reason"]
    assert what in result["improvement"]["reason"]


HANGING: list[Callable[..., Any]] = [wait_for_ever, wait_for_ever_in_the_loop, loop_for_ever]


@pytest.mark.parametrize("hangs", HANGING)
@pytest.mark.parametrize("role", ["lm", "reward"])
def test_a_function_that_hangs_ends_with_the_limit(
    role: str, hangs: Callable[..., Any], tmp_path: Path
) -> None:
    result = whet.optimize(PROMPT, **words(tmp_path, **{role: hangs}))
    check_untested(result, "reward() for row" if role == "reward" else "calls in flight")


async def test_a_reward_that_hangs_ends_with_the_limit_beside_a_loop_of_the_program(tmp_path: Path) -> None:
    running = whet.aoptimize(PROMPT, **words(tmp_path, reward=wait_for_ever))
    check_untested(await asyncio.wait_for(running, 50))


def test_a_judge_that_hangs_ends_with_the_limit(tmp_path: Path) -> None:
    judged = words(tmp_path, reward={"judge": {"rubric": "Is it right?"}}, judge_lm=wait_for_ever)
    check_untested(whet.optimize(PROMPT, **judged))


@pytest.mark.parametrize("workers", [None, 1])
@pytest.mark.parametrize("where", ["command", "check"])
def test_a_command_that_hangs_ends_with_the_limit(tmp_path: Path, where: str, workers: int | None) -> None:
    hangs = "import signal, threading\nsignal.alarm(120)\nthreading.Event().wait()\n"
    agent, check = (hangs if where == name else "print('yes')" for name in ("command", "check"))
    (tmp_path / "other.py").write_text(check)
    folder = command_task(tmp_path, agent, check=["python", "other.py"], seconds=100)
    more: dict[str, Any] = {
        "budget": whet.Budget(seconds=1),
        "run": tmp_path / "r",
        "progress": False,
        "workers": workers,
    }
    result = whet.optimize(folder, lm=answers, optimizer_lm=writer, method=STEP, **more)
    assert result["ended_by"] == "the limit of seconds" and not result["tested"]


def ask_for_care(messages: Any) -> str:
    return "<PROMPT>Be careful and sort the review.</PROMPT>"


class Gate:
    """A reward that waits on some rows until it is opened."""

    version = 1

    def __init__(self, places: set[str]) -> None:
        self._places, self.open = places, threading.Event()

    def __call__(self, example: dict[str, Any], output: str) -> float:
        if example["input"] in self._places:
            self.open.wait()
        return right(example, output)


class Asked(Counted):
    """A model that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __call__(self, messages: list[whet.Message]) -> str:
        self.asked.append(" ".join(m.content for m in messages))
        return super().__call__(messages)


@pytest.mark.parametrize("split", ["test", "validation"])
def test_what_is_given_up_is_done_under_a_larger_limit(tmp_path: Path, split: str) -> None:
    """What was found is kept, and what was paid is not paid again."""
    data = {"train": rows(8)[:6], "validation": rows(8)[6:16], "test": rows(8)[16:]}
    reward, model = Gate({row["input"] for row in data[split]}), Asked()
    careful = {"reward": reward, "lm": model, "optimizer_lm": ask_for_care}
    more = words(tmp_path, data=data, **careful, budget=whet.Budget(calls=180, seconds=4))
    first = whet.optimize(PROMPT, **more)
    assert first["ended_by"] == "the limit of seconds" and not first["tested"]
    before = list(model.asked)
    reward.open.set()
    second = whet.optimize(PROMPT, **{**more, "budget": whet.Budget(calls=180, seconds=100)})
    assert second["tested"] and second["usage"]["calls"]["task"] == len(model.asked)
    assert not set(before) & set(model.asked[len(before) :])


def test_a_control_that_hangs_leaves_the_result_of_its_run(tmp_path: Path) -> None:
    class Hanging(Counted):
        def __call__(self, messages: list[whet.Message]) -> str:
            if (tmp_path / "r" / "result.json").exists():
                threading.Event().wait()
            return super().__call__(messages)

    budget = whet.Budget(calls=400, seconds=10)
    more = words(tmp_path, lm=Hanging(), budget=budget, control="random_search")
    with pytest.warns(UserWarning, match="The control random_search is not part of this result"):
        result = whet.optimize(PROMPT, **more)
    assert result["tested"] and "control" not in result.json
    assert any("The control random_search is not part" in warning for warning in result.warnings)
