"""The source of answers to a method's question for a person: the person at the terminal, or a function of the user."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from whet._util.storable import describe_exception
from whet._util.terminal import drawings_paused, is_terminal, read_line
from whet._util.user_code import call_beside
from whet.errors import UsageError, parameter
from whet.instructions.guard import visible
from whet.rewards.functions import function_of_setting
from whet.search.minibatch import shorten

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Q = TypeVar("Q")
A = TypeVar("A")
Person: TypeAlias = Callable[[Q], Awaitable[object]]

TERMINAL = "terminal"
_SHOWN = 3000


def find_person(
    choice: object,
    signature: tuple[str, ...],
    arguments: Callable[[Q], Sequence[object]],
    at_terminal: Person[Q],
    method: str,
    returns: str,
) -> Person[Q]:
    """The source of the answers: the person at the terminal, a function, or a function of a Python file; `signature` is its
    name and those of its parameters, `arguments` is what it gets for a question.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    name, *parameters = signature
    if choice == TERMINAL:
        if is_terminal():
            return at_terminal
        raise UsageError(
            f"The method {method} asks a person, and there is no terminal to ask on. Run it on a terminal, or say who answers: "
            f"{parameter(f'config.{name}', 'FILE.py')}, a file with `def {name}({', '.join(parameters)})`, which "
            f"returns {returns}."
        )
    function = function_of_setting(choice, name, tuple(parameters))

    async def ask(question: Q) -> object:
        try:
            return await call_beside(partial(function, *arguments(question)), None)
        except Exception as error:
            raise UsageError(f"{name}() failed: {describe_exception(error)}. Correct it.") from error

    return ask


async def ask_at_terminal(
    drawn: Sequence[RenderableType], question: str, read: Callable[[str], A | None], ended: str
) -> A:
    """The answer of the person at the terminal, asked again until `read` can read the line.

    Raises UsageError where the input ends.
    """
    from rich.console import Console

    with drawings_paused():
        console = Console(stderr=True)
        for one in drawn:
            console.print(one)
        while True:
            sys.stderr.write(f"{question} ")
            sys.stderr.flush()
            line = await read_line()
            if line is None:
                raise UsageError(f"The input ended. {ended}")
            if (answer := read(line)) is not None:
                return answer


def show_text(text: str) -> Text:
    """A text as a terminal shows it: cut, and without control characters."""
    from rich.text import Text

    return Text(visible(shorten(text, _SHOWN)))
