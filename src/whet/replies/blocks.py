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
