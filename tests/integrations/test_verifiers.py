"""Environments of verifiers through whet: a better system prompt, named rewards, budget, and a resume after kill -9."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet

pytest.importorskip("verifiers", reason="verifiers makes the environments (pip install verifiers)")

import verifiers.v1 as vf

from whet.integrations.verifiers import optimize

pytestmark = pytest.mark.integrations

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # verifiers imports environments by the names of their modules


def environment(harness: Any = None, **taskset: Any) -> Any:
    agent = {"harness": {"id": "digits_environment", **(harness or {})}, "runtime": {"type": "subprocess"}}
    config = {"taskset": {"id": "digits_environment", **taskset}, "agent": agent}
    return vf.load_environment(vf.SingleAgentEnvConfig.model_validate(config))


class TaskModel:
    """Says a number in words, and it alone when told to. `file` counts the calls that arrive."""

    simulated = True
    version = "1"

    def __init__(self, file: Path | None = None, kill_at: int = 0) -> None:
        self.calls, self.file, self.kill_at = 0, file, kill_at

    def __call__(self, messages: Any) -> str:
        self.calls += 1
        if self.file is not None:
            with self.file.open("a") as file:
                file.write("x")
            if self.file.stat().st_size == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        number = re.findall(r"\d+", messages[1].content)[0]
        return (
            number
            if "ONLY" in messages[0].content
            else f"It is {number}."
            if int(number) % 2
            else "I do not know."
        )


def writer(messages: Any) -> str:
    return f"<PROMPT>{'Say ONLY the number.' if 'number only' in str(messages) else 'Be polite.'}</PROMPT>"


def feedback(episode: Any) -> str | None:
    return None if episode.traces[0].reward > 0.9 else "say the number only"


def run(folder: Path, env: Any, model: Any, **more: Any) -> Any:
    own = {"optimizer_lm": writer, "budget": whet.Budget(calls=400), "seed": 1, "feedback": feedback, **more}
    return optimize(env, lm=model, run=folder, **own)


def test_the_system_prompt_of_an_environment_gets_better(tmp_path: Path) -> None:
    model = TaskModel()
    result = run(tmp_path / "run", environment(), model, calls=1)
    assert result.promoted and result.best.prompt.parts["system_prompt"].text == "Say ONLY the number."
    assert 0 < result.baseline.test.mean < 0.2 and result.best.test.mean == 1.0
    assert result.usage.calls["task"] == model.calls
    again = TaskModel()
    assert run(tmp_path / "run", environment(), again, calls=1).promoted and not again.calls


def test_each_turn_is_a_call_in_the_trace_and_rewards_have_names(tmp_path: Path) -> None:
    model = TaskModel()
    result = run(
        tmp_path / "run", environment({"turns": 2}, number=20), model, calls=2, budget=whet.Budget(calls=120)
    )
    assert result.usage.calls["task"] == model.calls
    report = (tmp_path / "run" / "report.html").read_text()
    assert re.findall(r"<b>([^<]+)</b><small> \(task", report)[:2] == ["system_prompt"] * 2
    assert "contained" in report and "exact" in report


DRIVER = """
import sys
from pathlib import Path
from tests.integrations import test_verifiers as t

print(t.of_two_turns(Path(sys.argv[1]), t.TaskModel(Path(sys.argv[2]), int(sys.argv[3]))))
"""


def of_two_turns(folder: Path, model: TaskModel) -> str:
    result = run(folder, environment({"turns": 2}, number=24), model, concurrency=1, calls=2)
    return str(result.best.prompt.text)


def test_kill_9_and_resume_pay_nothing_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = tmp_path / "calls"

    def drive(kill_at: int) -> tuple[int, str]:
        command = [sys.executable, "-c", DRIVER, str(tmp_path / "run"), str(paid), str(kill_at)]
        done = subprocess.run(command, cwd=HERE.parents[1], env=os.environ, capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    model = TaskModel(tmp_path / "of-the-whole")
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state-of-the-whole"))
    whole = of_two_turns(tmp_path / "whole", model)
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state-of-the-killed"))
    assert "ONLY" in whole
    assert drive(model.calls // 2)[0] == -signal.SIGKILL
    assert drive(0) == (0, whole)
    assert paid.stat().st_size == model.calls + 1  # the call in flight is made again


def test_what_cannot_be_used_is_refused_before_a_call(tmp_path: Path) -> None:
    model = TaskModel()
    with pytest.raises(whet.UsageError, match="No task has a system prompt"):
        run(tmp_path / "run", environment(prompted=False), model)
    with pytest.raises(whet.UsageError, match="reward= comes from the environment"):
        run(tmp_path / "run", environment(), model, reward="f1")
    assert not model.calls


def test_the_tools_of_a_harness_stand_in_the_system_message(tmp_path: Path) -> None:
    seen = set[str]()

    def model(messages: Any) -> str:
        seen.add(messages[0].content)
        return '<tool>{"name": "look", "arguments": {}}</tool>'

    run(
        tmp_path / "run",
        environment({"tools": True}, number=20),
        model,
        calls=1,
        budget=whet.Budget(calls=40),
    )
    assert seen and all(
        "- look {" in text and "Call" not in text.partition("You may call tools")[0] for text in seen
    )


def test_a_budget_that_ends_in_an_episode_ends_the_run(tmp_path: Path) -> None:
    model = TaskModel()
    budget = whet.Budget(calls=150)
    result = run(tmp_path / "run", environment(number=60), model, budget=budget, calls=1)
    assert model.calls <= 150 and result.usage.calls["task"] == model.calls


@pytest.mark.skipif(
    shutil.which("uv") is None, reason="verifiers prepares the program of its own harness with uv"
)
def test_the_harness_that_verifiers_ships(tmp_path: Path) -> None:
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    config = {"taskset": {"id": "digits_environment", "number": 20}, "agent": agent}
    env = vf.load_environment(vf.SingleAgentEnvConfig.model_validate(config))
    model = TaskModel()
    own = {"method": "random_search", "budget": whet.Budget(calls=40), "calls": 1, "concurrency": 2}
    result = run(tmp_path / "run", env, model, **own)
    assert 0 < result.baseline.test.mean < 0.2 and result.usage.calls["task"] == model.calls
    assert json.loads((tmp_path / "run" / "result.json").read_text())["warnings"] is not None
