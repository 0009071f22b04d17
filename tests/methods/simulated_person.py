"""A simulated person, to whom the longer of two answers is better; and models whose answers are as long as their prompts."""

from __future__ import annotations

from whet.types import Request


def ask(input: str, a: str, b: str) -> str:
    """a, b or tie."""
    return "tie" if len(a) == len(b) else "a" if len(a) > len(b) else "b"


def pick(input: str, answers: list[str]) -> tuple[int, int]:
    """The places of the best and of the worst answer."""
    order = sorted(range(len(answers)), key=lambda at: len(answers[at]))
    return order[-1], order[0]


def answer(request: Request) -> str:
    """What the local server answers: a wording of another length to each question for one, else the prompt itself."""
    text = "\n".join(message.content for message in request.messages)
    return f"<INSTRUCTION>Answer{'!' * request.sample}</INSTRUCTION>" if "<INSTRUCTION>" in text else text
