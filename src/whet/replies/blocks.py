"""Fenced blocks of a reply, and the stretches between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`\n]*+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: from the opening fence to behind the closing one, the text between, and whether it is closed."""

    start: int
    end: int
    body_start: int
    body_end: int
    closed: bool

    def body(self, reply: str) -> str:
        """The text between the fences."""
        return reply[self.body_start : self.body_end]


def blocks_of(reply: str) -> list[Block]:
    """The fenced blocks of a reply, in order; one that is never closed goes to its end."""
    blocks: list[Block] = []
    opened: tuple[int, int, str] | None = None
    at = 0
    for line in reply.splitlines(keepends=True):
        fence = _FENCE.match(line.rstrip("\r\n"))
        if fence and opened is None:
            opened = (at, at + len(line), fence.group(1))
        elif fence and opened and not fence.group(2).strip() and fence.group(1).startswith(opened[2]):
            blocks.append(Block(opened[0], at + len(line), opened[1], max(opened[1], at), True))
            opened = None
        at += len(line)
    if opened is not None:
        blocks.append(Block(opened[0], at, opened[1], at, False))
    return blocks


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """A stretch of a reply, fenced or not: where its text begins and stops, and where the next stretch starts."""

    fenced: bool
    begin: int
    stop: int
    end: int


def parts_of(reply: str) -> Iterator[ReplyPart]:
    """The stretches of a reply, prose and blocks in turn."""
    at = 0
    for block in blocks_of(reply):
        yield ReplyPart(False, at, block.start, block.start)
        text = reply[block.body_start : block.body_end]
        yield ReplyPart(True, block.body_end - len(text.lstrip()), block.body_end, block.end)
        at = block.end
    yield ReplyPart(False, at, len(reply), len(reply))
