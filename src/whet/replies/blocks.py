"""Fenced blocks of a reply, and the stretches of prose between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`\n]*+)$")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Prose or a fenced block: its text lies between `begin` and `stop`, the next stretch starts at `end`. A block that is
    never closed goes to the end of the reply.
    """

    begin: int
    stop: int
    end: int
    fenced: bool = False
    closed: bool = False


def stretches_of(reply: str) -> list[Stretch]:
    """The stretches of a reply, prose and blocks in turn, prose first and last."""
    stretches: list[Stretch] = []
    at, begin, fence = 0, 0, ""
    for line in reply.splitlines(keepends=True):
        mark = _FENCE.match(line.rstrip("\r\n"))
        after = at + len(line)
        if mark and not fence:
            stretches.append(Stretch(begin, at, at))
            begin, fence = after, mark.group(1)
        elif mark and not mark.group(2).strip() and mark.group(1).startswith(fence):
            stretches.append(Stretch(begin, max(begin, at), after, True, True))
            begin, fence = after, ""
        at = after
    if fence:
        stretches.append(Stretch(begin, at, at, True))
        begin = at
    return [*stretches, Stretch(begin, at, at)]


def blocks_in(reply: str) -> list[str]:
    """The texts of the fenced blocks that are closed, in order."""
    return [reply[s.begin : s.stop] for s in stretches_of(reply) if s.closed]


def outer_blocks(reply: str) -> list[tuple[str, str]] | None:
    """The name and the text of each outermost block; None where fences do not pair. A fence inside a block opens another one when
    it has a name, and closes the innermost one of its kind when it has none.

    >>> outer_blocks("```\\na\\n```json\\n{}\\n```\\nb\\n```")
    [('', 'a\\n```json\\n{}\\n```\\nb')]
    """
    blocks: list[tuple[str, str]] = []
    stack: list[str] = []
    at, begin, name = 0, 0, ""
    for line in reply.splitlines(keepends=True):
        mark = _FENCE.match(line.rstrip("\r\n"))
        after = at + len(line)
        if mark and not stack:
            stack, begin, name = [mark.group(1)], after, mark.group(2).strip()
        elif mark and mark.group(1)[0] == stack[0][0] and len(mark.group(1)) >= len(stack[0]):
            if mark.group(2).strip():
                stack.append(mark.group(1))
            elif mark.group(1).startswith(stack[-1]):
                stack.pop()
                if not stack:
                    blocks.append((name, reply[begin:at].removesuffix("\n").removesuffix("\r")))
        at = after
    return None if stack else blocks
