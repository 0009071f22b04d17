"""The reward that runs the code of an answer against the tests of its row."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet._util.confined import (
    Limits,
    as_many_as_cores,
    is_enforced,
    is_late,
    read_output,
    start_confined,
    was_late,
)
from whet.errors import UsageError, quantity
from whet.rewards.asking import RewardOptions
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.python_code import NO_CODE, UNREADABLE, is_unreadable, python_in
from whet.rewards.verifiers.reading import LONGEST_ANSWER, cut, flag_option, number_option
from whet.rewards.verifiers.tests_process import parse_tests
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward

_TESTS, _ANSWER = (Path(__file__).with_name(name) for name in ("tests_process.py", "answer_process.py"))
_MOST_NAMED = 3
TIMED_OUT = "timed_out"
"""The part of a rollout that is 1 where the time ended before the tests, else 0."""
BEYOND_TESTS = "beyond_tests"
"""The part of a rollout that is 1 where a test failed that wants what cannot be done with objects of the answer."""


@dataclass(frozen=True)
class PythonTests(Measured):
    """The share of a row's tests that the code of the answer passes, 0 to 1; with `all`, 1 when all pass, else 0.

    The code is the fenced block that makes what the tests call, with the earlier ones that it needs, else the last one, else the
    statements between the prose, else the whole answer. The tests stand in the row's column `tests`: a list of sources, each
    one test; or one source, of which each function `test...` and each such method of a class (`Test...`, or a `TestCase` of
    unittest) is a test, else `check(candidate)` is called with the function that the column `entry` names, else each `assert` of
    the module is a test. Code and tests run in two confined processes. Tests see
    plain values; other objects of the answer are equal to each other only, so that none passes for a number.
    Parts: `passed`, `tests`, `timed_out`, which is 1 where the time ended before the tests, `unreadable`, which is 1 where the
    answer has no fenced block and is no code, and `beyond_tests`, which is 1 where a failed test wants what cannot be done with
    objects of the answer.
    """

    tests: str = "tests"
    entry: str = "entry_point"
    all: bool = False
    timeout: float = 10.0
    memory: int = 512
    confined: bool = True
    name: str = "python_tests"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    @property
    def denies(self) -> bool:
        """See `Measured`."""
        return self.confined

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without tests, or with tests that are no Python."""
        tests: Any = example.row.get(self.tests)
        sources = tests if isinstance(tests, list) else [tests]
        if not sources or not all(isinstance(source, str) and source.strip() for source in sources):
            raise UsageError(
                f"{example.place} has no tests in the column {self.tests!r}: a text, or a list of texts, with Python's "
                "`assert`. Add them, or name the column: reward: {python_tests: {tests: COLUMN}}."
            )
        try:
            parts = parse_tests(tests, self._entry(example))
        except SyntaxError as error:
            raise UsageError(
                f"the tests of {example.place} are no Python: {error}. Correct the row."
            ) from None
        except ValueError as error:
            raise UsageError(
                f"the tests of {example.place} cannot be run: {error}. Correct the row."
            ) from None
        if all(kind == "setup" for kind, _ in parts):
            raise UsageError(
                f"the tests of {example.place} are none: they hold no assert, no function or method `test...`, and no "
                f"`check(candidate)` with the function's name in the column {self.entry!r}. Correct the row."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        tests: Any = example.row[self.tests]
        source = tests if isinstance(tests, str) else "\n".join(tests)
        code = python_in(completion.text, source, self._entry(example))
        if len(code) > LONGEST_ANSWER:
            return Reward(
                0.0, critique=f"The code was refused: it is longer than {LONGEST_ANSWER:,} characters."
            )
        values: list[JSON] = [code, tests, self._entry(example)]
        graded = await self.compute(run, "run_tests", values, example.place, [example.id, completion.text])
        if not graded["value"] and is_unreadable(completion.text, code):
            critique = f"{graded['critique']}\n{NO_CODE}"
            return Reward(0.0, {**graded["parts"], UNREADABLE: 1.0}, critique)
        return Reward(graded["value"], graded["parts"], graded["critique"])

    def _entry(self, example: Example) -> str:
        """The name of the function that `check` is called with; an empty text where the row names none."""
        return str(example.row.get(self.entry) or "")

    def run_tests(self, code: str, tests: JSON, entry: str) -> dict[str, Any]:
        """The grade of the code."""
        question = {"code": code, "tests": tests, "entry": entry}
        lines, why, late = self._run(question)
        count = next((line["tests"] for line in lines if "tests" in line), 0)
        results = [line for line in lines if "passed" in line]
        passed = sum(line["passed"] for line in results)
        critique = self._critique(lines, count, passed, why)
        share = passed / count if count else 0.0
        value = share if not self.all else float(share == 1.0)
        parts = {"passed": float(passed), "tests": float(count), TIMED_OUT: float(late)}
        if any(line.get("beyond") for line in lines):
            parts[BEYOND_TESTS] = 1.0
        return {"value": value, "parts": parts, "critique": critique or None}

    def _critique(self, lines: list[dict[str, Any]], count: int, passed: int, why: str) -> str:
        if count and passed == count:
            return ""
        sentences = [f"{passed} of {quantity(count, 'test')} passed."] if count else ["No test could be run."]
        sentences += [
            f"The code does not run: {cut(line['fault'])}." for line in lines if set(line) == {"fault"}
        ]
        failed = [line for line in lines if line.get("fault") and len(line) > 1]
        for line in failed[:_MOST_NAMED]:
            sentences.append(
                f"`{cut(line.get('test', line.get('setup', '')))}` failed: {cut(line['fault'])}."
            )
        if why:
            sentences.append(f"The rest was refused: {why}.")
        return "\n".join(sentences)

    def _run(self, question: dict[str, Any]) -> tuple[list[dict[str, Any]], str, bool]:
        """The lines that the process of the tests wrote, why it was ended early, or '', and whether one ran out of time."""
        limits = Limits(self.timeout, self.memory)
        with as_many_as_cores(), _pipe() as (answer_in, to), _pipe() as (back, answer_out):
            started = start_confined(
                _ANSWER, limits, answer_in.number, answer_out.number, confined=self.confined
            )
            with started as answer:
                answer_in.close()
                answer_out.close()
                passed = (to.number, back.number)
                with start_confined(
                    _TESTS, limits, subprocess.PIPE, subprocess.PIPE, passed=passed, confined=self.confined
                ) as process:
                    to.close()
                    back.close()
                    question |= {"to": passed[0], "from": passed[1], "codec": _ANSWER.read_text("utf-8")}
                    output, why = read_output(process, json.dumps(question).encode(), limits, (answer.pid,))
                lines = [json.loads(line) for line in output.decode("utf-8", "replace").split("\n")[:-1]]
                broken = not why and any(line.get("fault") for line in lines)
                late = was_late(answer) if broken else is_late(why, limits)
        return lines, why, late


class _End:
    """One end of a pipe, closed once."""

    def __init__(self, number: int) -> None:
        self.number, self._open = number, True

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self.number)


@contextmanager
def _pipe() -> Iterator[tuple[_End, _End]]:
    ends = tuple(map(_End, os.pipe()))
    try:
        yield ends[0], ends[1]
    finally:
        for end in ends:
            end.close()


def build_python_tests(options: RewardOptions) -> PythonTests:
    """`reward: {python_tests: {tests: COLUMN, entry: COLUMN, all: false, timeout: 10, memory: 512, confined: true}}`.

    Raises UsageError with the place, and where files and network cannot be denied, unless `confined: false`.
    """
    options.only("tests", "entry", "all", "timeout", "memory", "confined")
    confined = flag_option(options, "confined", True)
    if confined and not is_enforced():
        options.refuse(
            "this machine cannot deny files and network to the code of answers: that takes Linux 5.13 with Landlock on x86-64. "
            "Run it there; or, in a container or virtual machine that you can lose, write `confined: false`: then time and "
            "memory "
            "are limited, and nothing else is."
        )
    return PythonTests(
        options.text("tests", "tests"),
        options.text("entry", "entry_point"),
        flag_option(options, "all", False),
        number_option(options, "timeout", 10.0, 600),
        int(number_option(options, "memory", 512, 1 << 20)),
        confined,
    )
