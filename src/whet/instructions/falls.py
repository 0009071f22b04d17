"""A prompt that earned less than an earlier one: what stood there returns, and the next reading begins from it.

Instructions that whole rows demand may get another wording in every round, others beside them, be merged, or take the place of a
line that is no instruction. Without a way back, what spoils the answers is what the next ones are made of, and the best ones are
soon out of the reader's sight.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from whet.instructions.answers import Requirement
from whet.instructions.critiques import CritiqueBatch
from whet.instructions.effects import Round
from whet.instructions.questions import mostly_rows
from whet.instructions.reader import Reading
from whet.instructions.upkeep import worse

FELL = "more answers were right without it"
RETURNED = "more answers were right with it"


@dataclass(frozen=True)
class Fall:
    """A roll-out that earned less than an earlier one. `best` stood there; `reading` lets each wrong answer demand those of its
    instructions that have another text now."""

    best: Round
    reading: Reading


def find_fall(
    rounds: Sequence[Round], now: Round, judged: CritiqueBatch, of_rows: Collection[str]
) -> Fall | None:
    """The fall of a roll-out below one of the earlier `rounds`, by more than chance. None where nothing fell, or where more is to
    be read than rows."""
    best = find_better([*rounds, now], of_rows) if mostly_rows(judged.critiques) else now
    if best.texts == now.texts:
        return None
    places = tuple(place for place, answers in enumerate(judged.answers) if answers)
    texts, standing = best.shown, now.shown
    changed = (key for key in texts if key in standing and key in of_rows and texts[key] != standing[key])
    return Fall(best, Reading(tuple(Requirement(texts[key], places, key) for key in changed)))


def find_better(rounds: Sequence[Round], of_rows: Collection[str]) -> Round:
    """The roll-out that earned most of those that earned more than the last one by more than chance; else that. They differ in
    unmanaged lines and in instructions that whole rows demanded (`of_rows`) alone. Roll-outs of the same texts count together."""
    alike: dict[tuple[tuple[str, str], ...], Round] = {}
    for one in rounds:
        rewards = (*(alike[one.texts].rewards if one.texts in alike else ()), *one.rewards)
        alike[one.texts] = replace(one, rewards=rewards)
    now = alike[rounds[-1].texts]

    def differs_in_rows(one: Round) -> bool:
        keys = one.shown.keys() | now.shown.keys()
        return keys.difference(of_rows) <= {key for key in keys if one.shown.get(key) == now.shown.get(key)}

    better = [one for one in alike.values() if differs_in_rows(one) and worse(now, one)]
    return max(better, key=lambda one: fmean(one.rewards), default=now)
