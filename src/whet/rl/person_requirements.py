"""What a person requires of answers, stated in reply to a question: at the terminal, or as a function of the user."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from whet._util.storable import describe_exception
from whet._util.terminal import drawings_paused, is_terminal, read_line
from whet._util.user_code import call_beside
from whet.errors import EditRejected, UsageError, parameter
from whet.instructions.guard import visible
from whet.prompt import Prompt, reason_to_refuse
from whet.rewards.functions import function_of_setting
from whet.rl.open_points import OpenPoint
from whet.rl.person_duels import TERMINAL
from whet.run import Run, convert_record
from whet.search.minibatch import shorten
from whet.task.requirements import prompt_with_requirements
from whet.types import JSON, content_hash
from whet_client.storable import show_value

_SHOWN = 3000


@dataclass(frozen=True)
class PersonQuestion:
    """A question, the input and the answers that it is about, as a person sees them; it is number `number` of `of`."""

    text: str
    point: OpenPoint
    number: int
    of: int


Author: TypeAlias = Callable[[PersonQuestion], Awaitable[object]]


def find_author(ask: object) -> Author:
    """Who states requirements: the person at the terminal, a function (question, input, answers), or `ask` of a Python file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    if ask == TERMINAL:
        if not is_terminal():
            raise UsageError(
                "The method rope asks a person, and there is no terminal to ask on. Run it on a terminal, or say who answers: "
                f"{parameter('config.ask', 'FILE.py')}, a file with `def ask(question, input, answers)`, which returns the "
                "requirements as a list of sentences."
            )
        return state_at_terminal
    function = function_of_setting(ask, "ask", ("question", "input", "answers"))

    async def ask_author(question: PersonQuestion) -> object:
        try:
            shown = question.text, question.point.input, list(question.point.answers)
            return await call_beside(partial(function, *shown), None)
        except Exception as error:
            raise UsageError(f"ask() failed: {describe_exception(error)}. Correct it.") from error

    return ask_author


async def state_requirements(run: Run, author: Author, question: PersonQuestion) -> list[str]:
    """The sentences that the author states; asked once in the life of the run.

    Raises UsageError for a function that returns anything but sentences that can stand in a prompt.
    """

    async def compute() -> JSON:
        reply = await author(question)
        sentences = [reply] if isinstance(reply, str) else reply
        if not isinstance(sentences, Sequence) or not all(isinstance(one, str) for one in sentences):
            raise UsageError(
                f"ask() returned {show_value(reply)}. It returns a list of sentences, which may be empty."
            )
        lines = [" ".join(one.split()) for one in sentences]
        for line in filter(None, lines):
            if (reason := reason_to_refuse(line)) is not None:
                raise UsageError(
                    f"ask() returned {show_value(line)}, which cannot be a requirement: {reason}."
                )
        return [*filter(None, lines)]

    digest = content_hash([question.text, question.point.input, *question.point.answers])
    return convert_record(await run.effect("requirements", compute, digest), list[str])


def extend_prompt(start: Prompt, requirements: Sequence[str]) -> Prompt | None:
    """The start with the requirements as lines at the end of its editable text; None where it refuses them."""
    try:
        return prompt_with_requirements(start, requirements)
    except EditRejected:
        return None


async def state_at_terminal(question: PersonQuestion) -> list[str]:
    """What the person at the terminal types, a sentence a line, up to an empty line. Raises UsageError where the input ends."""
    stated: list[str] = []
    with drawings_paused():
        _show(question)
        while True:
            sys.stderr.write("Requirement (an empty line: no more; Ctrl-C keeps what you stated so far): ")
            sys.stderr.flush()
            line = await read_line()
            if line is None:
                raise UsageError(
                    "The input ended. What you stated is kept: the same command goes on with this question."
                )
            if not line:
                return stated
            if (reason := reason_to_refuse(line)) is not None:
                sys.stderr.write(f"This text cannot be a requirement: {reason}.\n")
            else:
                stated.append(line)


def _show(question: PersonQuestion) -> None:
    """Write the input, the different answers one below the other, and the question."""
    from rich.console import Console
    from rich.text import Text

    console, point = Console(stderr=True), question.point
    head = f"\nQuestion {question.number} of {question.of}. Input: {visible(shorten(point.input, _SHOWN))}"
    console.print(Text(head))
    for number, answer in enumerate(dict.fromkeys(point.answers), 1):
        console.print(Text(f"\n[{number}] {visible(shorten(answer, _SHOWN))}"))
    console.print(Text(f"\n{visible(question.text)}"))
