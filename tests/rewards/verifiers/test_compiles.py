"""Code that compiles: Python in a process of its own, other languages by a command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rewards.verifiers.grading import grade

from whet.errors import UsageError

_COMMAND = [sys.executable, "-c", "import sys; t = sys.stdin.read(); print('no:', t); sys.exit(t != 'good')"]
_SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize(
    ("options", "answer", "says"),
    [
        ({}, "x = 1", ""),
        ({}, "```python\nwhile True: pass\n```", ""),
        ({}, "x = 1\n```", ""),
        ({}, "x = 1\n```\nThis sets x.", ""),
        ({}, "```python\nx = 1", ""),
        ({}, "Here it is:\n```python\nx = 1", ""),
        ({}, "````markdown\n```python\nx = 1\n```\n````", ""),
        ({}, "Here it is:\n```\nx =", "SyntaxError"),
        ({}, "x =", "SyntaxError"),
        ({}, "(" * 100_000, "SyntaxError"),
        ({"memory": 256}, "-" * 900_000 + "1", "refused"),
        ({}, "", "empty"),
        ({"command": _COMMAND}, "good", ""),
        ({"command": _COMMAND}, "bad", "no: bad"),
        ({"command": _SLEEPS, "timeout": 0.3}, "good", "had not ended"),
    ],
)
async def test_what_the_compiler_says(options: dict[str, Any], answer: str, says: str) -> None:
    graded = await grade({"compiles": options}, answer, {})
    assert graded.value == float(not says) and says in (graded.critique or ""), graded.critique


async def test_python_is_not_executed(tmp_path: Path) -> None:
    assert (await grade("compiles", f"open({str(tmp_path / 'x')!r}, 'w')", {})).value == 1.0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["cc", [1], ["no-such-compiler"]])
async def test_commands_that_cannot_be_used_are_refused(command: Any) -> None:
    with pytest.raises(UsageError, match="command"):
        await grade({"compiles": {"command": command}}, "x", {})
