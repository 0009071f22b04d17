"""Bookkeeping of the curator: what became of one group of complaints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.prompt.instructions import Ledger
from whet.search.clustering import Group
from whet.search.lexicon import Token, normative, tokens


@dataclass
class Track:
    """What became of one group: its instruction's id, the texts that were tried with their authors, how often the
    optimizer dropped or garbled it, and since which roll-out it is left alone (infinity: for good)."""

    instruction: str = ""
    tried: list[tuple[str, str]] = field(default_factory=list)
    misses: int = 0
    parked: float | None = None


def without(ledger: Ledger, keys: frozenset[str]) -> Ledger:
    """The state with some instructions left out of the fence."""
    layout = tuple(entry for entry in ledger.layout if entry.id not in keys or not entry.id)
    return Ledger(ledger.instructions, layout, ledger.newline, ledger.counter)


def counted_texts(group: Group) -> list[tuple[str, int]]:
    """Every wording's text with its count, the most frequent first."""
    return [(w.text, w.count) for w in sorted(group.wordings, key=lambda w: -w.count)]


def unclarity(text: str, constants: Sequence[Token]) -> tuple[float, int]:
    """Sort key, clearest first: a text that names more of the group's constant values, that demands instead of
    reporting, and that is short."""
    values = {Token(t.kind, t.value) for t in tokens(text)}
    return -sum(value in values for value in constants) - 1.5 * normative(text), len(text)


FOREVER = math.inf
