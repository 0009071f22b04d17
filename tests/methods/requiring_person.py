"""A simulated person who requires of answers what the question names: for the suites that run the method `rope`."""

from __future__ import annotations


def ask(question: str, input: str, answers: list[str]) -> list[str]:
    """The question as a requirement."""
    return [question[:100]]
