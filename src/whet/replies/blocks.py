"""Fenced blocks of a reply, and the stretches of prose between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)([^`\n]*+)$")
_DEEPER = 4
"""Blanks by which a fence inside of a block is at least indented more than that of the block (CommonMark, fenced code blocks)."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Prose or a fenced block: its text lies between `begin` and `stop`, the next stretch starts at `end`. A block that is
    never closed goes to the end of the reply. `name` is the first word behind the fence that opens it, in small letters, and
    `indent` how far that fence is indented.
    """

    begin: int
    stop: int
    end: int
    fenced: bool = False
    closed: bool = False
    name: str = ""
    indent: int = 0

    def text_in(self, reply: str) -> str:
        """The text, its lines moved to the left by the indent of the fence."""
        text = reply[self.begin : self.stop]
        if not self.indent:
            return text
        lines = text.splitlines(keepends=True)
        blank = [len(line) - len(line.lstrip(" \t")) for line in lines]
        return "".join(line[min(n, self.indent) :] for line, n in zip(lines, blank, strict=True))


def stretches_of(reply: str) -> list[Stretch]:
    """The stretches of a reply, prose and blocks in turn, prose first and last."""
    stretches = _stretches(reply, _DEEPER)
    return stretches if len(stretches) < 2 or stretches[-2].closed else _stretches(reply, len(reply))


def _stretches(reply: str, deeper: int) -> list[Stretch]:
    """The stretches where a fence that is indented by `deeper` more than the first one closes nothing."""
    stretches: list[Stretch] = []
    at, begin, fence, indent, name = 0, 0, "", 0, ""
    for line in reply.splitlines(keepends=True):
        mark = _FENCE.match(line.rstrip("\r\n"))
        after = at + len(line)
        if mark and not fence:
            stretches.append(Stretch(begin, at, at))
            begin, fence, indent = after, mark[2], len(mark[1])
            name = next(iter(mark[3].split()), "").strip("{}.").lower()
        elif mark and not mark[3].strip() and mark[2].startswith(fence) and len(mark[1]) < indent + deeper:
            stretches.append(Stretch(begin, max(begin, at), after, True, True, name, indent))
            begin, fence = after, ""
        at = after
    if fence:
        stretches.append(Stretch(begin, at, at, True, False, name, indent))
        begin = at
    return [*stretches, Stretch(begin, at, at)]


def blocks_in(reply: str) -> list[str]:
    """The texts of the fenced blocks that are closed, in order."""
    return [stretch.text_in(reply) for stretch in stretches_of(reply) if stretch.closed]


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
            stack, begin, name = [mark[2]], after, mark[3].strip()
        elif mark and mark[2][0] == stack[0][0] and len(mark[2]) >= len(stack[0]):
            if mark[3].strip():
                stack.append(mark[2])
            elif mark[2].startswith(stack[-1]):
                stack.pop()
                if not stack:
                    blocks.append((name, reply[begin:at].removesuffix("\n").removesuffix("\r")))
        at = after
    return None if stack else blocks
