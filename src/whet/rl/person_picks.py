"""The best and the worst of several answers, as a person picks them: at the terminal, or as a function of the user."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from whet._util.storable import describe_exception
from whet._util.terminal import drawings_paused, is_terminal, read_line
from whet._util.user_code import call_beside
from whet.errors import UsageError, parameter
from whet.instructions.guard import visible
from whet.rewards.functions import function_of_setting
from whet.rl.person_duels import TERMINAL
from whet.run import Run, convert_record
from whet.search.minibatch import shorten
from whet.types import JSON, content_hash
from whet_client.storable import show_value

_SHOWN = 3000
_NUMBERS = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True)
class PersonPick:
    """An input with several different answers to it, as a person sees them; the pick is number `number` of `of`."""

    input: str
    answers: tuple[str, ...]
    number: int
    of: int


Picker: TypeAlias = Callable[[PersonPick], Awaitable[object]]


def find_picker(pick: object) -> Picker:
    """Who picks: the person at the terminal, a function (input, answers), or `pick` of a Python file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    if pick == TERMINAL:
        if not is_terminal():
            raise UsageError(
                "The method icpl asks a person, and there is no terminal to ask on. Run it on a terminal, or say who picks: "
                f"{parameter('config.pick', 'FILE.py')}, a file with `def pick(input, answers)`, which returns the places of the "
                "best and of the worst answer, from 0."
            )
        return pick_at_terminal
    function = function_of_setting(pick, "pick", ("input", "answers"))

    async def ask_person(pick: PersonPick) -> object:
        try:
            return await call_beside(partial(function, pick.input, list(pick.answers)), None)
        except Exception as error:
            raise UsageError(f"pick() failed: {describe_exception(error)}. Correct it.") from error

    return ask_person


async def pick_extremes(run: Run, picker: Picker, pick: PersonPick) -> tuple[int, int]:
    """The places of the best and of the worst answer; asked once in the life of the run.

    Raises UsageError for a function that returns anything but two different places.
    """

    async def compute() -> JSON:
        reply = await picker(pick)
        places = list(reply) if isinstance(reply, Sequence) and not isinstance(reply, str) else []
        known = range(len(pick.answers))
        if (
            len(places) != 2
            or any(type(p) is not int or p not in known for p in places)
            or len({*places}) < 2
        ):
            raise UsageError(
                f"pick() returned {show_value(reply)}. It returns the places of the best and of the worst answer, two different "
                f"numbers from 0 to {len(pick.answers) - 1}."
            )
        return [*places]

    digest = content_hash([pick.input, *pick.answers])
    best, worst = convert_record(await run.effect("pick", compute, digest), list[int])
    return best, worst


async def pick_at_terminal(pick: PersonPick) -> tuple[int, int]:
    """What the person at the terminal picks. Raises UsageError where the input ends."""
    with drawings_paused():
        _show(pick)
        most = len(pick.answers)
        while True:
            sys.stderr.write(
                f"Which answer is best and which is worst? Two numbers, such as 2 {most} (Ctrl-C keeps what you picked so far) "
            )
            sys.stderr.flush()
            line = await read_line()
            if line is None:
                raise UsageError(
                    "The input ended. The picks are kept: the same command goes on with this one."
                )
            numbers = [int(number) for number in _NUMBERS.findall(line)]
            if len(numbers) == 2 and numbers[0] != numbers[1] and all(1 <= n <= most for n in numbers):
                return numbers[0] - 1, numbers[1] - 1


def _show(pick: PersonPick) -> None:
    """Write the input, and the answers one below the other."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    console.print(Text(f"\nPick {pick.number} of {pick.of}. Input: {visible(shorten(pick.input, _SHOWN))}"))
    for number, answer in enumerate(pick.answers, 1):
        console.print(Text(f"\n[{number}] {visible(shorten(answer, _SHOWN))}"))
