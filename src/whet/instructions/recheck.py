"""Recheck: a critique that an instruction was made of is read once more, beside that instruction.

Where the reader then says that it demands something else, the instruction does not say what its critiques demand, be it vague or
a misreading: it leaves. That costs no call of its own. Shown are the critiques of instructions that were not confirmed so, if new
critiques are spelt much like them: had the instruction said what they demand, such critiques would hardly come again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whet.instructions.answers import Requirement
from whet.instructions.neighbours import trigrams
from whet.instructions.questions import Critique
from whet.prompt.instructions import Instruction

MISREAD = "its own critique was read again and demands something else"
MOST = 24
_NEAR = 0.5


@dataclass
class Rechecks:
    """`quotes` are the critiques that are shown now, by text, with the instruction that was made of each; `confirmed` are the
    instructions whose own critique was said to demand them."""

    quotes: dict[str, str] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)

    def ask(
        self,
        instructions: Sequence[Instruction],
        critiques: Sequence[Critique],
        newest: Collection[str] = (),
        most: int | None = None,
    ) -> list[Critique]:
        """One critique of each instruction, to be shown once more: of those whose critique is spelt much like one of
        these new critiques or that of another instruction, the nearest first, of the `newest`, by id, and, up to `most` in all,
        of others, the oldest first. A critique that several instructions were made of tells nothing about one of them."""
        makers = Counter(text for instruction in instructions for text in set(instruction.critiques))
        own = {
            instruction.id: next((c for c in instruction.critiques if makers[c] == 1), "")
            for instruction in instructions
        }
        quoted = [instruction for instruction in instructions if own[instruction.id]]
        vectors = trigrams([*(own[one.id] for one in quoted), *(c.text for c in critiques)])
        near = vectors[: len(quoted)] @ vectors.T
        np.fill_diagonal(near, 0.0)
        close = dict(zip((one.id for one in quoted), near.max(axis=1, initial=0.0), strict=True))
        alike = {key: value for key, value in close.items() if value >= _NEAR}
        order = sorted(quoted, key=lambda one: (-alike.get(one.id, 0.0), one.id not in newest))
        needed = sum(one.id in newest or one.id in alike for one in order)
        kept = [one for one in order if one.id not in self.confirmed][: min(MOST, max(needed, most or 0))]
        self.quotes = {own[one.id]: one.id for one in kept}
        return [Critique(own[one.id], next(iter(one.evidence), "")) for one in kept]

    def misread(
        self, requirements: Sequence[Requirement], critiques: Sequence[Critique], own: Mapping[str, object]
    ) -> list[str]:
        """The instructions, among one's `own`, whose critique demands something else by these requirements. Of two whose
        critiques demand each other, which say the same, the second one stays."""
        stated, other = set[str](), defaultdict[str, set[str]](set)
        for requirement in requirements:
            for place in requirement.critiques:
                if key := self.quotes.get(critiques[place].text, ""):
                    (stated if requirement.violates == key else other[key]).add(requirement.violates)
        self.confirmed |= stated
        self.quotes = {}
        leaving: list[str] = []
        for key, demanded in other.items():
            if key in own and key not in self.confirmed and demanded.isdisjoint(leaving):
                leaving.append(key)
        return leaving

    def merge(self, kept: str, others: Collection[str]) -> None:
        """Forget what is asked of instructions that became one: a critique of one may be said to demand the other."""
        joined = {kept, *others}
        self.quotes = {text: key for text, key in self.quotes.items() if key not in joined}
