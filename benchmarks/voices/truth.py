"""What a prompt really holds, counted by the simulator that knows every rule and every comment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from benchmarks.voices.optimizer import BULLET, Optimizer
from benchmarks.voices.world import OUTSIDE, ROW_VALUE, START


@dataclass(frozen=True)
class Truth:
    """Counts over a prompt's lines; all but `stated`, `lines` and `tokens` should be 0."""

    stated: int = 0
    """Active rules that the prompt states and does not contradict."""
    opposites: int = 0
    """Rules whose opposite stands in the prompt."""
    duplicates: int = 0
    """Lines that state what a line before states already."""
    raw: int = 0
    """Lines that hold a comment word by word."""
    commanded: int = 0
    """Lines that a comment commanded."""
    row_values: int = 0
    """Lines with a name, a date or a booking number of one letter."""
    vague: int = 0
    """Lines without content."""
    other: int = 0
    """Lines that the simulator does not know."""
    lines: int = 0
    tokens: int = 0


def truth(instructions: str, optimizer: Optimizer) -> Truth:
    """Count what the instructions (the text inside the fence) hold."""
    world = optimizer.world
    does = {comment.does.rstrip(".").lower() for comment in world.book.comments if comment.does}
    counts: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for line in instructions.splitlines():
        text = BULLET.sub("", line).strip()
        if not text or text in (START, OUTSIDE):
            continue
        counts["lines"] += 1
        stated = world.states(text)
        comments = optimizer.understand.verbatim(text)
        commanded = any(order in text.lower() for order in does) or any(c.does for c in comments)
        vague = optimizer.meaning(text)[1] == 0 and bool(optimizer.meaning(text)[0])
        row = bool(ROW_VALUE.search(text))
        counts["opposites"] += sum(sign < 0 for _, sign in stated)
        counts["duplicates"] += sum(stance in seen for stance in stated)
        counts["raw"] += bool(comments)
        counts["commanded"] += commanded
        counts["row_values"] += row
        counts["vague"] += vague
        counts["other"] += not (stated or comments or commanded or row or vague)
        seen.update(stated)
    active = {rule.key for rule in world.rules}
    counts["stated"] = sum(key in active and (key, -1) not in seen for key, sign in seen if sign > 0)
    return Truth(**counts, tokens=len(instructions) // 4)
