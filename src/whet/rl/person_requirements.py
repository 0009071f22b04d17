"""A person's requirements of answers, stated in reply to a question: at the terminal, or by a function of the user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt, reason_to_refuse
from whet.rl.open_points import OpenPoint
from whet.rl.people import Person, ask_at_terminal, find_person, show_text
from whet.run import Run, convert_record
from whet.task.requirements import prompt_with_requirements
from whet.types import JSON, content_hash
from whet_client.storable import show_value


@dataclass(frozen=True)
class PersonQuestion:
    """A question, the input and the answers that it is about, as a person sees them; it is number `number` of `of`."""

    text: str
    point: OpenPoint
    number: int
    of: int


def find_author(ask: object) -> Person[PersonQuestion]:
    """The source of the requirements: the person at the terminal, a function (question, input, answers), or `ask` of a Python
    file.

    Raises UsageError where there is no terminal, no such file or no such function in it.
    """
    return find_person(
        ask,
        ("ask", "question", "input", "answers"),
        lambda question: (question.text, question.point.input, list(question.point.answers)),
        state_at_terminal,
        "rope",
        "the requirements as a list of sentences",
    )


async def state_requirements(run: Run, author: Person[PersonQuestion], question: PersonQuestion) -> list[str]:
    """The sentences that the author states; asked once in the life of the run.

    Raises UsageError for a function that returns anything but sentences that can stand in a prompt.
    """

    async def compute() -> JSON:
        reply = await author(question)
        sentences = [reply] if isinstance(reply, str) else reply
        if not isinstance(sentences, Sequence) or not all(
            isinstance(sentence, str) for sentence in sentences
        ):
            raise UsageError(
                f"ask() returned {show_value(reply)}. It returns a list of sentences, which may be empty."
            )
        lines = [" ".join(sentence.split()) for sentence in sentences]
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
    """The sentences that the person at the terminal types, one a line, up to an empty line. Raises UsageError where the input
    ends."""
    from rich.text import Text

    stated: list[str] = []

    def read(line: str) -> list[str] | None:
        if not line:
            return stated
        if (reason := reason_to_refuse(line)) is not None:
            sys.stderr.write(f"This text cannot be a requirement: {reason}.\n")
        else:
            stated.append(line)
        return None

    point, head = question.point, f"\nQuestion {question.number} of {question.of}. Input: "
    answers = [
        Text(f"\n[{n}] ").append(show_text(answer))
        for n, answer in enumerate(dict.fromkeys(point.answers), 1)
    ]
    return await ask_at_terminal(
        [Text(head).append(show_text(point.input)), *answers, Text("\n").append(show_text(question.text))],
        "Requirement (an empty line: no more; Ctrl-C keeps what you stated so far):",
        read,
        "What you stated is kept: the same command goes on with this question.",
    )
