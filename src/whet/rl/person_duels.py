"""Duels of prompts before a person: two answers to one input, at the terminal or as arguments of a function of the user."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from whet._util.storable import describe_exception
from whet._util.terminal import drawings_paused, is_terminal, read_line
from whet._util.user_code import call_beside
from whet.errors import UsageError, parameter
from whet.instructions.guard import visible
from whet.rewards.functions import function_of_setting
from whet.run import Run
from whet.search.minibatch import shorten
from whet.types import content_hash
from whet_client.storable import show_value

TERMINAL = "terminal"
VERDICTS = {"a": 1.0, "b": 0.0, "tie": 0.5}
"""What a person says, and what it is worth for the first answer."""
_SHOWN = 3000


@dataclass(frozen=True)
class PersonDuel:
    """An input with two answers to it, `a` and `b`, as a person sees them; the duel is number `number` of `of`."""

    input: str
    a: str
    b: str
    number: int
    of: int


Chooser: TypeAlias = Callable[[PersonDuel], Awaitable[object]]


def find_chooser(ask: object) -> Chooser:
    """Who chooses: the person at the terminal, a function (input, a, b), or `ask` of a Python file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    if ask == TERMINAL:
        if not is_terminal():
            raise UsageError(
                "The method apohf asks a person, and there is no terminal to ask on. Run it on a terminal, or say who answers: "
                f"{parameter('config.ask', 'FILE.py')}, a file with `def ask(input, a, b)`, which returns a, b or tie."
            )
        return ask_at_terminal
    function = function_of_setting(ask, "ask", ("input", "a", "b"))

    async def ask_person(duel: PersonDuel) -> object:
        try:
            return await call_beside(partial(function, duel.input, duel.a, duel.b), None)
        except Exception as error:
            raise UsageError(f"ask() failed: {describe_exception(error)}. Correct it.") from error

    return ask_person


async def choose(run: Run, chooser: Chooser, duel: PersonDuel) -> float:
    """1 where the person prefers the answer `a`, 0 where `b`, 0.5 where neither; asked once in the life of the run.

    Raises UsageError for a function that returns anything but a, b or tie.
    """

    async def compute() -> float:
        reply = await chooser(duel)
        verdict = VERDICTS.get(reply) if isinstance(reply, str) else None
        if verdict is None:
            raise UsageError(f"ask() returned {show_value(reply)}. It returns a, b or tie.")
        return verdict

    return float(str(await run.effect("choice", compute, content_hash([duel.input, duel.a, duel.b]))))


async def ask_at_terminal(duel: PersonDuel) -> str:
    """The choice of the person at the terminal. Raises UsageError where the input ends."""
    with drawings_paused():
        _show(duel)
        while True:
            sys.stderr.write("Which answer is better: a, b or tie? (Ctrl-C keeps what you chose so far) ")
            sys.stderr.flush()
            line = await read_line()
            if line is None:
                raise UsageError(
                    "The input ended. The choices are kept: the same command goes on with this duel."
                )
            if line.lower() in VERDICTS:
                return line.lower()


def _show(duel: PersonDuel) -> None:
    """Write the input, and the two answers side by side."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True)
    for name in ("a", "b"):
        table.add_column(name, ratio=1)
    table.add_row(*(Text(visible(shorten(text, _SHOWN))) for text in (duel.a, duel.b)))
    console = Console(stderr=True)
    console.print(Text(f"\nDuel {duel.number} of {duel.of}. Input: {visible(shorten(duel.input, _SHOWN))}"))
    console.print(table)
