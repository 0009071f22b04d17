"""The reward for code that compiles."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from whet._util.confined import (
    Limits,
    OutOfBounds,
    as_many_as_cores,
    read_output,
    run_confined,
    start_confined,
)
from whet.replies import without_thought
from whet.replies.blocks import stretches_of
from whet.rewards.asking import RewardOptions
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.python_code import UNREADABLE
from whet.rewards.verifiers.reading import LONGEST_ANSWER, PYTHON, code_in, cut, number_option
from whet.run import Run
from whet.types import Completion, Example, Reward

_PYTHON, _COMMAND = (Path(__file__).with_name(name) for name in ("compile_process.py", "command_process.py"))


NO_FENCE = "No fenced block stands in the answer, so all of it was taken for code."


@dataclass(frozen=True)
class Compiles(Measured):
    """1 when the code of the answer compiles, else 0, with what the compiler says as critique.

    The code is the last fenced block, else the whole answer: prose around code without a fence does not compile. The part
    `unreadable` is 1 where an answer without a fenced block does not. Without a `command` it is Python, compiled in a confined
    process and not executed. A `command` gets the code in its standard input, and its exit code 0 counts; its time and memory
    are limited and it can write no file, but it may read files and start processes, as the compiler that it is.
    """

    command: tuple[str, ...] = ()
    timeout: float = 10.0
    memory: int = 1024
    name: str = "compiles"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    @property
    def places(self) -> tuple[str, ...]:
        """See `Measured`."""
        return self.command[:1]

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        code = code_in(completion.text, () if self.command else PYTHON)
        if not code.strip() or len(code) > LONGEST_ANSWER:
            return Reward(
                0.0,
                critique=f"The code was refused: it is empty, or longer than {LONGEST_ANSWER:,} characters.",
            )
        what = "find_command_fault" if self.command else "find_python_fault"
        fault = await self.compute(run, what, [code], example.place, [example.id, completion.text])
        if not fault:
            return Reward(1.0)
        critique = f"The code does not compile: {cut(fault)}."
        if len(stretches_of(without_thought(completion.text))) < 2:
            return Reward(0.0, {UNREADABLE: 1.0}, f"{critique} {NO_FENCE}")
        return Reward(0.0, critique=critique)

    def find_python_fault(self, code: str) -> str:
        """The error in a Python program, or ''."""
        try:
            return str(run_confined(_PYTHON, {"code": code}, Limits(self.timeout, self.memory))["fault"])
        except OutOfBounds as error:
            return f"it was refused: {error}"

    def find_command_fault(self, code: str) -> str:
        """The message of the command if it refuses the code, or ''."""
        limits = Limits(self.timeout, self.memory)
        variables = {"WHET_COMMAND": json.dumps(self.command)}
        with (
            as_many_as_cores(),
            start_confined(
                _COMMAND, limits, subprocess.PIPE, subprocess.PIPE, confined=False, variables=variables
            ) as process,
        ):
            output, why = read_output(process, code.encode("utf-8", "replace"), limits)
        message = " ".join(output.decode("utf-8", "replace").split())
        return f"{why}; {message}" if why and message else why


def build_compiles(options: RewardOptions) -> Compiles:
    """`reward: compiles` for Python, `reward: {compiles: {command: [cc, -fsyntax-only, -xc, -], timeout: 10, memory: 1024}}`.

    Raises UsageError with the place, and for a command that is not installed.
    """
    options.only("command", "timeout", "memory")
    command = options.values.get("command", [])
    if not isinstance(command, list) or not all(isinstance(part, str) and part for part in command):
        options.refuse(
            f"the option command must be a list of texts, such as [cc, -fsyntax-only, -xc, -]; this is {command!r}."
        )
    path = shutil.which(command[0]) if command else None
    if command and path is None:
        options.refuse(f"the command {command[0]} is not installed.")
    return Compiles(
        (path, *command[1:]) if path else (),
        number_option(options, "timeout", 10.0, 600),
        int(number_option(options, "memory", 1024, 1 << 20)),
    )
