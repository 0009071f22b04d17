"""A model that repeats what it was asked, between marks that a page must not obey."""

from __future__ import annotations

from whet.types import Request

HOSTILE = "<img src=x onerror=window.HACKED=1>"


def answer(request: Request) -> str:
    """What the last message says."""
    return f"{HOSTILE} You said: {request.messages[-1].content}"
