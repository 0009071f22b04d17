"""`whet init --ask`: what a good answer is, asked of the person at the terminal, one question after the other.

Ma, Peng, Shen, Koedinger, Wu: What Should We Engineer in Prompts? Training Humans in Requirement-Driven LLM Use. 2024
(arXiv:2409.08775): the quality of answers goes with that of the requirements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from whet import api
from whet.cli.common import show_hidden
from whet.prompt import reason_to_refuse

FIXED = (
    "What must every answer contain?",
    "What must no answer contain or do?",
    "In what form must an answer be, and how long may it be?",
    "Which inputs need to be treated differently from the others, and how?",
    "Who reads the answers, and what do these readers need?",
)
"""The questions where no model asks."""
FIRST = (
    "Write one requirement a line, as a sentence about the answer. An empty line leads to the next question."
)


def elicit(inputs: Sequence[str], address: str | None, prompt: str = "") -> list[str]:
    """The requirements that the person types.

    A model at the address writes the questions, where there is one, 6 at most, each after it has answered the inputs twice under
    the prompt and what is required so far; the input and the two answers that a question is about are shown with it. Raises
    UsageError for an address that there is not, and ProviderError.
    """
    stated: list[str] = []
    click.echo(FIRST, err=True)
    questions: Iterable[tuple[str, Any]] = (
        ((question, None) for question in FIXED)
        if address is None
        else api.requirement_questions(inputs, address, stated, prompt)
    )
    for question, point in questions:
        if point is not None:
            click.echo(f"\nInput: {show_hidden(point.input)}", err=True)
            for number, answer in enumerate(point.answers, 1):
                click.echo(f"[{number}] {show_hidden(answer)}", err=True)
        while True:
            text = str(click.prompt(show_hidden(question), "", show_default=False, err=True)).strip()
            reason = reason_to_refuse(text) if text else None
            if reason is not None:
                click.echo(f"This text cannot be a requirement: {reason}.", err=True)
            elif not text:
                break
            elif text not in stated:
                stated.append(text)
    return stated
