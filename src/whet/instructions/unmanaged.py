"""Unmanaged text: lines of the fence that are no instruction. The reader is shown them like instructions, and they may give way.

A line gives way to a requirement that rewords it or that no answer can follow beside it, if several answers demand that; else the
contradiction is left to a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.instructions.answers import LONGEST, Known, Requirement, is_like
from whet.instructions.changes import OUTWEIGHS, Conflict
from whet.prompt.instructions import Ledger
from whet.prompt.ledger import unmanaged_lines
from whet.search.demonstrations import HEAD
from whet_client.prompt.slots import SLOT


@dataclass(frozen=True)
class Giving:
    """The lines that give way, each with the text that takes its place, the requirements that are left with it settled, and
    those that nothing settled."""

    lines: Mapping[str, str]
    requirements: tuple[Requirement, ...]
    conflicts: tuple[Conflict, ...]


def lines_of(ledger: Ledger, examples: Sequence[str] = ()) -> tuple[list[Known], list[str]]:
    """The unmanaged lines that may give way, with ids, and those that stay: they hold a slot or are long. The `examples`, as far
    as they stand as `block_of` writes them, are one text that may give way."""
    block = block_of(examples)
    lines = unmanaged_lines(ledger, [block] if block else [])
    stays = [line for line in lines if SLOT.search(line) or (len(line) > LONGEST and line != block)]
    movable = (line for line in lines if line not in stays)
    return [
        Known(f"t{n}", line, managed=False, parts=tuple(examples) if line == block else ())
        for n, line in enumerate(movable, 1)
    ], stays


def block_of(examples: Sequence[str]) -> str:
    """Examples as they stand in a prompt, below a heading line; empty without any."""
    return "\n\n".join([HEAD, *examples]) if examples else ""


def giving_way(
    lines: Mapping[str, str], requirements: Sequence[Requirement], voices: Callable[[Requirement], int]
) -> Giving:
    """The meaning of the requirements for these lines, by id; `voices` is the number of answers that demand a line."""
    gone, left, conflicts = dict[str, str](), list[Requirement](), list[Conflict]()
    for requirement in requirements:
        line = lines.get(requirement.violates, "") or lines.get(requirement.contradicts, "")
        own = replace(
            requirement,
            violates="" if requirement.violates in lines else requirement.violates,
            contradicts="" if requirement.contradicts in lines else requirement.contradicts,
        )
        if not line or not requirement.text:
            left += [own] if own.text or own.violates else []
        elif voices(requirement) >= OUTWEIGHS:
            gone.setdefault(line, requirement.text)
            left.append(own)
        elif requirement.contradicts in lines:
            conflicts.append(Conflict(requirement.text, line))
        elif not is_like(line, requirement.text):
            left.append(own)
    return Giving(gone, tuple(left), tuple(conflicts))
