"""Every wrong input of the tables: one message with place and remedy, exit code 2, nothing paid, no file; or a warning
before the first call."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.wrong_inputs.case import FILES, Case
from tests.wrong_inputs.commands import COMMANDS
from tests.wrong_inputs.folders import DATA, FEEDBACK, PROMPTS, REWARDS, TASKS
from whet.cli.main import main
from whet.models.addresses import resolve
from whet.types import Completion, Request, Usage

GROUPS = {
    "command": COMMANDS,
    "task": TASKS,
    "prompt": PROMPTS,
    "data": DATA,
    "reward": REWARDS,
    "feedback": FEEDBACK,
}
ALL = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}


class Counting:
    """Counts its calls, and keeps what stood on stderr before the first one."""

    can_generate, can_score, local, simulated, address = True, False, False, True, "openai/counting"

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.calls, self.before = capsys, 0, ""

    async def generate(self, request: Request) -> Sequence[Completion]:
        if not self.calls:
            self.before = self.capsys.readouterr().err
        self.calls += 1
        return [Completion("4", usage=Usage(3, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Counting:
    counting = Counting(capsys)

    def choose(address: str, **how: Any) -> Any:
        return counting if address == counting.address else resolve(address, **how)

    monkeypatch.setattr("whet.models.callable.resolve", choose)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return counting


def write(root: Path, case: Case) -> None:
    files: dict[str, str | bytes | None] = {**FILES, **case.files}
    files["task/task.yaml"] = f"{files['task/task.yaml']}{case.yaml}"
    for name, content in files.items():
        if content is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["whet", *shlex.split(command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_input_is_told_before_anything_is_paid(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: Counting,
) -> None:
    case = ALL[name]
    write(tmp_path, case)
    monkeypatch.chdir(tmp_path)
    for variable, value in case.env.items():
        monkeypatch.setenv(variable, value)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    code = run(case.command, monkeypatch)
    output = capsys.readouterr()
    warned = case.warned or case.code == 0
    message = model.before if warned else output.err
    assert code == case.code, message
    assert "Traceback" not in output.err + model.before
    missing = [piece for piece in case.says if piece not in message]
    assert not missing, f"{missing} not in {message}"
    if not warned:
        assert model.calls == 0 and output.out == ""
        assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
    else:
        assert model.calls > 0
