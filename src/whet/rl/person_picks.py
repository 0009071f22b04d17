"""The best and the worst of several answers, as a person picks them: at the terminal, or as a function of the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.errors import UsageError
from whet.rl.people import Person, ask_at_terminal, find_person, show_text
from whet.run import Run, convert_record
from whet.types import JSON, content_hash
from whet_client.storable import show_value

_NUMBERS = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True)
class PersonPick:
    """An input with several different answers to it, as a person sees them; the pick is number `number` of `of`."""

    input: str
    answers: tuple[str, ...]
    number: int
    of: int


def find_picker(pick: object) -> Person[PersonPick]:
    """The source of the pick: the person at the terminal, a function (input, answers), or `pick` of a Python file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    returns = "the places of the best and of the worst answer, from 0"
    return find_person(
        pick,
        ("pick", "input", "answers"),
        lambda question: (question.input, list(question.answers)),
        pick_at_terminal,
        "icpl",
        returns,
    )


async def pick_extremes(run: Run, picker: Person[PersonPick], pick: PersonPick) -> tuple[int, int]:
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
    """The places of the two answers that the person at the terminal picks. Raises UsageError where the input ends."""
    from rich.text import Text

    most = len(pick.answers)

    def read(line: str) -> tuple[int, int] | None:
        numbers = [int(number) for number in _NUMBERS.findall(line)]
        if len(numbers) != 2 or numbers[0] == numbers[1] or not all(1 <= n <= most for n in numbers):
            return None
        return numbers[0] - 1, numbers[1] - 1

    answers = [Text(f"\n[{n}] ").append(show_text(answer)) for n, answer in enumerate(pick.answers, 1)]
    return await ask_at_terminal(
        [Text(f"\nPick {pick.number} of {pick.of}. Input: ").append(show_text(pick.input)), *answers],
        f"Which answer is best and which is worst? Two numbers, such as 2 {most} (Ctrl-C keeps what you picked so far)",
        read,
        "The picks are kept: the same command goes on with this one.",
    )
