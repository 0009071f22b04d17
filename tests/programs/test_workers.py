"""Programs in worker processes: the same rollouts as in one process, also where a worker dies in the middle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.engine.world import Model, child_processes, close, open_core, run_of
from whet._util.workers.pool import make_pool
from whet.environments.environment import Environment
from whet.environments.program import as_program, load_user_program
from whet.errors import BudgetExceeded, UsageError
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.run import Budget
from whet.types import Example, Message

PROGRAM = """
import asyncio, os, signal
from pathlib import Path

HERE = Path(__file__).parent

def die_once(name):
    marker = HERE / name
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def look(text):
    if "MARKER" in text:
        die_once("tool")
    return {"seen": text, "by": str(os.getpid() == int((HERE / "parent").read_text()))}

async def program(lm, prompts, example):
    print("thinking")
    plan = await lm("plan")
    if example["id"] == "DIES":
        die_once("call")
    both = await asyncio.gather(lm("answer", plan=plan), lm.ask(f"again {plan}"))
    seen = await lm.tool(look, "MARKER" if example["id"] == "TOOL" else both[1])
    if example["id"] == "BAD":
        return await lm("no such prompt")
    if example["id"] == "HALF":
        return f"{both[0]} \\ud83d"
    return f"{both[0]} {seen['by']}"
"""


def model(messages: tuple[Message, ...]) -> str:
    return messages[-1].content.split()[-1]


class Counting:
    """`model`, and how often it was asked."""

    version = "1"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Any) -> str:
        self.calls += 1
        return model(messages)


def write_task(tmp_path: Path, rows: list[str], program: str = PROGRAM) -> Path:
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.yaml").write_text(
        "name: words\nprogram: {file: program.py, seconds: 30}\nprompts: {plan: plan.md, answer: answer.md}\n"
        "data: {train: rows.jsonl, validation: others.jsonl}\nreward: reward.py\n"
    )
    (task / "plan.md").write_text("Plan {{input}}")
    (task / "answer.md").write_text("<!-- whet:begin -->\nAnswer\n<!-- whet:end -->\n{{plan}}")
    (task / "program.py").write_text(program)
    (task / "parent").write_text(str(os.getpid()))
    (task / "reward.py").write_text(
        "def reward(example, output):\n    return float(output.partition(' ')[0] == example['target'])\n"
    )
    lines = [json.dumps({"id": row, "input": f"w{i}", "target": f"w{i}"}) for i, row in enumerate(rows)]
    (task / "rows.jsonl").write_text("\n".join(lines))
    (task / "others.jsonl").write_text('{"id": "other", "input": "v", "target": "v"}')
    return task


def evaluate(task: Path, workers: int, **options: Any) -> Mapping[str, Any]:
    where = task.parent / f"run-{workers}"
    options = {"split": "train", "lm": model, "run": where, "progress": False, **options}
    return whet.evaluate(task, workers=workers, **options)


def facts(result: Mapping[str, Any]) -> Any:
    return [result[key] for key in ("score", "warnings", "failed")]


ROWS = [f"r{i}" for i in range(10)]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_rollouts_are_those_of_one_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task = write_task(tmp_path, [*ROWS[:9], "HALF", "BAD"])
    counted = [Counting(), Counting()]
    here = evaluate(task, 0, lm=counted[0])
    printed = capfd.readouterr().err.count("thinking")
    there = evaluate(task, 2, lm=counted[1])
    assert facts(here) == facts(there)
    assert here["score"]["mean"] == pytest.approx(10 / 11)
    assert any('no prompt "no such prompt"' in warning for warning in there["warnings"])
    assert counted[0].calls == counted[1].calls == 33
    printed_there = capfd.readouterr()
    assert printed == printed_there.err.count("thinking") > 0 and "thinking" not in printed_there.out
    assert not child_processes()


def test_a_program_leaves_this_process(tmp_path: Path) -> None:
    program = "import os\nasync def program(lm, prompts, example):\n    return example['input'] + ' ' + str(os.getpid())\n"
    task = write_task(tmp_path, ROWS, program)
    reward = (
        "def reward(example, output):\n    return float(output[:1] == 'w' and not output.endswith(PARENT))\n"
    )
    (task / "reward.py").write_text(f"PARENT = ' {os.getpid()}'\n{reward}")
    assert [evaluate(task, workers)["score"]["mean"] for workers in (0, 2)] == [0.0, 1.0]


def test_a_rollout_whose_worker_dies_is_repeated_and_no_call_is_paid_again(tmp_path: Path) -> None:
    """After a call, and inside a tool; the rollouts beside it in the same process are repeated too."""
    task = write_task(tmp_path, [*ROWS, "DIES", "TOOL"])
    counting = Counting()
    result = evaluate(task, 2, lm=counting)
    assert (task / "call").exists() and (task / "tool").exists()
    assert result["score"]["mean"] == 1.0 and counting.calls == 36
    (tmp_path / "run-2" / "result.json").unlink()
    again = evaluate(task, 0, lm=counting, run=tmp_path / "run-2")
    assert facts(again) == facts(result) and counting.calls == 36


ALWAYS = """
import os
async def program(lm, prompts, example):
    plan = await lm("plan")
    if example["id"] == "DIES":
        os._exit(3)
    return plan
"""


def test_a_row_that_ends_its_worker_each_time_is_named(tmp_path: Path) -> None:
    """And none of those that shared the worker with it."""
    task = write_task(tmp_path, ["r0", "r1", "DIES", "r2", "r3"], ALWAYS)
    with pytest.raises(UsageError, match=r"the program for row DIES.*exit code 3, 3 times"):
        evaluate(task, 1)


RANDOM = """
import itertools, os
from pathlib import Path
async def program(lm, prompts, example):
    marker = Path(__file__).parent / "marker"
    plan = await lm.ask("first" if not marker.exists() else "second")
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return plan
"""


def test_code_that_asks_otherwise_when_it_is_repeated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        whet.errors.ReplayDiverged, match=r"program for row r0.*asked something else at call 1"
    ):
        evaluate(write_task(tmp_path, ["r0"], RANDOM), 1)


HANGS = """
import re
async def program(lm, prompts, example):
    plan = await lm("plan")
    re.match("(a+)+b", "a" * 60)
    return plan
"""


def test_a_program_that_holds_the_interpreter_is_ended(tmp_path: Path) -> None:
    task = write_task(tmp_path, ["r0"], HANGS)
    config = (task / "task.yaml").read_text()
    (task / "task.yaml").write_text(config.replace("seconds: 30", "seconds: 1"))
    with pytest.raises(UsageError, match=r"has taken 1 s beside its calls for row r0"):
        evaluate(task, 1)
    assert not child_processes()


async def test_a_limit_ends_the_run_inside_a_program(tmp_path: Path) -> None:
    program = load_user_program(write_task(tmp_path, ROWS, ALWAYS) / "program.py", "task.yaml:3")
    rows = [{"id": word, "input": word} for word in ("why", "how")]
    examples = [Example(row["id"], {"input": row["input"]}, "x", row) for row in rows]
    env = as_program(Environment(Model(), ExactMatch(), tuple(examples), tuple(examples)), program)
    core = open_core(tmp_path / "run", Model(), Budget(calls=1))
    core.executor = make_pool(1)
    try:
        with pytest.raises(BudgetExceeded):
            await env.evaluate(run_of(core), Prompt.of_parts({"plan": "Plan {{input}}"}), examples)
    finally:
        await core.executor.close()
        await close(core)


def test_a_program_that_cannot_be_sent_stays_here(tmp_path: Path) -> None:
    held = object()

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return f"{await lm('plan')} {held is not None} {os.getpid()}"

    def reward(example: Any, output: str) -> float:
        return float(output.endswith(example["target"]))

    rows = [{"input": f"w{i}", "target": str(os.getpid())} for i in range(4)]
    result = whet.evaluate(
        {"plan": "Plan {{input}}"}, program=program, data=rows, reward=reward, lm=model, split="train",
        run=tmp_path / "run", workers=1, progress=False,
    )  # fmt: skip
    assert result["score"]["mean"] == 1.0
