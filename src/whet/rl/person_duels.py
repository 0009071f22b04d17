"""Duels of prompts before a person: two answers to one input, at the terminal or as arguments of a function of the user."""

from __future__ import annotations

from dataclasses import dataclass

from whet.errors import UsageError
from whet.rl.people import Person, ask_at_terminal, find_person, show_text
from whet.run import Run
from whet.types import content_hash
from whet_client.storable import show_value

VERDICTS = {"a": 1.0, "b": 0.0, "tie": 0.5}
"""The person's possible replies, and the value of each for the first answer."""


@dataclass(frozen=True)
class PersonDuel:
    """An input with two answers to it, `a` and `b`, as a person sees them; the duel is number `number` of `of`."""

    input: str
    a: str
    b: str
    number: int
    of: int


def find_chooser(ask: object) -> Person[PersonDuel]:
    """The source of the choice: the person at the terminal, a function (input, a, b), or `ask` of a Python file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    return find_person(
        ask,
        ("ask", "input", "a", "b"),
        lambda duel: (duel.input, duel.a, duel.b),
        choose_at_terminal,
        "apohf",
        "a, b or tie",
    )


async def ask_person(run: Run, chooser: Person[PersonDuel], duel: PersonDuel) -> float:
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


async def choose_at_terminal(duel: PersonDuel) -> str:
    """The choice of the person at the terminal, who sees the answers side by side. Raises UsageError where the input ends."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True)
    for name in ("a", "b"):
        table.add_column(name, ratio=1)
    table.add_row(show_text(duel.a), show_text(duel.b))
    return await ask_at_terminal(
        [Text(f"\nDuel {duel.number} of {duel.of}. Input: ").append(show_text(duel.input)), table],
        "Which answer is better: a, b or tie? (Ctrl-C keeps what you chose so far)",
        lambda line: line.lower() if line.lower() in VERDICTS else None,
        "The choices are kept: the same command goes on with this duel.",
    )
