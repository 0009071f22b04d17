"""What a local server answers in tests: a process of its own imports it."""

from __future__ import annotations

from whet.types import Request


def answer(request: Request) -> str:
    """The first words of the question; a sampled answer ends with its seed."""
    words = request.messages[-1].content.split()[: (request.max_tokens or 3)][:3]
    if request.temperature > 0:
        words = [*words[:-1], str(request.seed)]
    text = " ".join(words)
    for stop in request.stop:
        text = text.partition(stop)[0]
    return text
