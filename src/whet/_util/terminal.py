"""The terminal, of which a process has one: a person is asked there for a line, and what is drawn there rests meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol

_LONGEST = 4096


class Drawing(Protocol):
    """A text on the terminal that is drawn again and again."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


_DRAWINGS: list[Drawing] = []


def announce(drawing: Drawing) -> None:
    """From now on the drawing is paused while a person is asked."""
    _DRAWINGS.append(drawing)


def is_terminal() -> bool:
    """Whether a person can be asked: standard input and standard error are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


@contextlib.contextmanager
def drawings_paused() -> Iterator[None]:
    """Meanwhile nothing is drawn."""
    for drawing in _DRAWINGS:
        drawing.pause()
    try:
        yield
    finally:
        for drawing in _DRAWINGS:
            drawing.resume()


async def read_line() -> str | None:
    """The next line that a person types, without blanks at its ends; None at the end of the input.

    The event loop goes on meanwhile, so that Ctrl-C cancels the wait. Needs a terminal that hands out whole lines.
    """
    loop, place = asyncio.get_running_loop(), sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(place, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(place)
    typed = os.read(place, _LONGEST)
    return typed.decode("utf-8", "replace").strip() if typed else None
