"""Contradictions: of two demands of which no answer can follow both, one stays, by what people object to.

Once an instruction is in the prompt, users who asked for it stop mentioning it. So votes for and against it cannot be compared
directly. What can be compared is how many object to the instruction while it stands, and to its contrary while that one stands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from whet.instructions.answers import Requirement
from whet.instructions.changes import CONTRARY, OUTWEIGHS, Conflict, of_models
from whet.instructions.effects import Effects
from whet.prompt.events import Resolve
from whet.prompt.instructions import Instruction, Ledger, apply_event
from whet.run import Run


@dataclass
class Contradictions:
    """`pairs` are instructions that contradict each other, with how often the model said so. `rivals` came in the place of their
    contrary, to which that share of answers objected; infinite for one that came back, which stays. `named` was logged. Nothing
    is replaced any more at the `ending`."""

    effects: Effects
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    rivals: dict[str, float] = field(default_factory=dict)
    named: set[Conflict] = field(default_factory=set)
    ending: bool = False

    def name(self, run: Run, new: Sequence[Conflict]) -> None:
        """Log conflicts, each once."""
        for one in new:
            if one not in self.named:
                self.named.add(one)
                run.log("conflict", {"first": one.first, "second": one.second, "settled": one.settled})

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Count pairs that the model named, whichever of the two it named first."""
        for one, other in pairs:
            self.pairs[(other, one) if (other, one) in self.pairs else (one, other)] += 1

    def merge(self, keep: str, others: Collection[str]) -> None:
        """Count a contradiction of one of the `others` as a contradiction of the instruction that they became part of."""
        pairs, self.pairs = self.pairs, Counter()
        for pair in pairs.elements():
            one, other = (keep if key in others else key for key in pair)
            self.add([(one, other)] if one != other else [])

    def standing(self, ledger: Ledger) -> list[tuple[str, str]]:
        """The pairs that stand."""
        active = {i.id for i in ledger.active}
        return [pair for pair in self.pairs if set(pair) <= active]

    def replaces(self, one: Requirement, old: Instruction) -> bool:
        """Whether the contrary takes the place of an instruction: for a try, once three answers want it and there are rounds
        left to see who objects then; back, where more object to what came in its place."""
        untried = math.inf if self.ending else 0.0
        return self._objections(old.id) > self.rivals.get(old.id, untried)

    def note_resolution(self, event: Resolve) -> None:
        """Remember how many objected to what leaves; its contrary that is back stays."""
        back = event.drop in self.rivals
        self.rivals[event.keep] = math.inf if back else self._objections(event.drop)

    def _objections(self, key: str) -> float:
        """The share of answers that want the contrary of an instruction, over the last rounds in which it stood; 0 where fewer
        than three do."""
        voices, answers = 0, 0
        for one in reversed(self.effects.rounds):
            if key not in one.shown:
                break
            voices, answers = voices + one.opposed.get(key, 0), answers + one.answers
            if voices >= OUTWEIGHS:
                return voices / max(1, answers)
        return 0.0

    def resolve_contradictions(
        self, requirements: Sequence[Requirement], ledger: Ledger, at: str
    ) -> list[Resolve]:
        """Instructions that leave because another one stands, is violated, and is their contrary."""
        events = []
        for requirement in requirements:
            own = of_models(ledger)
            old = own.get(requirement.contradicts)
            stands = requirement.violates in {i.id for i in ledger.active} - {requirement.contradicts}
            if old and stands and self.replaces(requirement, old):
                events.append(Resolve(keep=requirement.violates, drop=old.id, reason=CONTRARY, at=at))
                ledger = apply_event(ledger, events[-1])
                self.note_resolution(events[-1])
        return events

    def settle(self, run: Run, ledger: Ledger, at: str, *, final: bool) -> tuple[list[Resolve], list[str]]:
        """The instructions of contradicting pairs that leave, and those that the next round tries to omit.

        Of two, one of which is violated while both stand, the one stays that was demanded twice as often (at the end: more often)
        in the answers that treated both alike. At the end a pair that the model named twice is not left standing, unless the
        reader saw both obeyed: the one of more sources stays, else the older one. Else both stand for a person to decide, and
        the weaker one is tried without.
        """
        events, weaker = list[Resolve](), list[str]()
        for pair in self.standing(ledger):
            if any(event.drop in pair for event in events):
                continue
            own, both = of_models(ledger), [r for r in self.effects.rounds if set(pair) <= r.shown.keys()]
            hits = dict(zip(pair, self.effects.count_violations(pair), strict=True))
            wanted = {key: hits[key] if key in own else math.inf for key in pair}
            weak, strong = sorted(reversed(pair), key=lambda key: wanted[key])
            clash = any(r.violated.get(key) for r in both for key in pair)
            settled = weak in own and clash and wanted[strong] > (1 if final else 2) * wanted[weak]
            obeyed = any(any(r.violated.values()) for r in both) and not clash
            if final and not (settled or obeyed) and self.pairs[pair] > 1 and own.keys() & set(pair):
                age = {one.id: n for n, one in enumerate(ledger.active)}
                weak, strong = sorted(pair, key=lambda k: (k not in own, ledger[k].sources, -age[k]))
                settled = True
            first, second = ledger[strong].text, ledger[weak].text
            self.name(run, [Conflict(first, second, first if settled else "")])
            if settled:
                events.append(Resolve(keep=strong, drop=weak, reason="demanded less often", at=at))
                ledger = apply_event(ledger, events[-1])
            elif weak in own:
                weaker.append(weak)
        return events, weaker
