"""Code of a user that holds the interpreter in somebody's program is named from outside, and nothing is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from whet._util import watchdog
from whet._util.watchdog import Watchdog, Watched
from whet._util.watchdog.process import SURELY_SILENT, ProcessWatch

HOLDS = """
import asyncio, re, sys, whet

def hold(where):
    if where == sys.argv[1]:
        re.match("(a+)+b", "a" * 60)

def lm(messages):
    hold("model")
    return "x"

def reward(example, output):
    hold("reward")
    return float(output == "x")

rows = [{"input": f"x{n}", "target": "x"} for n in range(20)]
asyncio.run(whet.aevaluate("Say {{input}}", data=rows, reward=reward, progress=False, reward_timeout=0.2,
                           lm={"address": lm, "timeout": 0.2}))
"""


def test_the_code_that_began_last_is_named_once_when_python_has_been_silent() -> None:
    watch = ProcessWatch()
    watch.hear(b"1 60.000 the first\n2 1.000 the second\x1e\n")
    watch.now = SURELY_SILENT - 0.1
    assert watch.late() == "", "Python ran a moment ago"
    watch.now = SURELY_SILENT
    assert (watch.late(), watch.late()) == ("the second", "")
    watch.now = 100.0
    assert watch.late() == "", (
        "the first is late too, and does not hold the interpreter: the second began after it"
    )
    watch.hear(b".\n2\n")
    assert watch.late() == ""
    watch.now += SURELY_SILENT
    assert watch.late() == "the first"


def test_code_that_has_returned_or_may_take_longer_is_not_named() -> None:
    watch = ProcessWatch()
    watch.hear(b"1 5.000 the first\n2 30.000 the second\n2\n")
    watch.now = SURELY_SILENT
    assert watch.late() == ""
    watch.now = 5.0
    assert watch.late() == "the first"


def test_outside_of_a_command_the_sentence_says_what_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, ...]] = []

    class Noting(Watchdog):
        def start(self) -> None: ...

        def say(self, *messages: str) -> None:
            lines.append(messages)

    monkeypatch.setattr(watchdog, "_ACTIVE", [])
    monkeypatch.setattr(watchdog, "_NAMING", [Noting()])
    Watched("the reward for row 1", 600.0).end()
    begin, end = lines
    number, seconds, sentence = begin[0].split(" ", 2)
    assert float(seconds) < 20 and "the reward for row 1 has not returned after 10 s" in sentence
    assert "kill this process" in sentence and begin[1] == "" and end == (number,)


@pytest.mark.long
@pytest.mark.parametrize(("where", "name"), [("reward", "reward() for row"), ("model", "the model function")])
def test_a_function_that_holds_the_interpreter_of_a_program_is_named_with_its_row(
    where: str, name: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, where], stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        line = next(line for line in program.stderr if line.startswith("whet: "))
        assert program.poll() is None, "it is named, not ended"
        program.kill()
    assert name in line and "at data[" in line, line
