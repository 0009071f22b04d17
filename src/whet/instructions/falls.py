"""Instructions that earned less than those of an earlier roll-out: the better ones return, and the next reading begins from them.

Instructions that whole rows demand may get another wording in every round, others beside them, or be merged. Without a way back,
what spoils the answers is what the next ones are made of, and the best ones are soon out of the reader's sight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    """What a roll-out says whose instructions earned less than those of an earlier one. `texts` stood there, by id; `reading`
    lets each wrong answer demand those of them that have another text now."""

    texts: Mapping[str, str]
    reading: Reading


def find_fall(
    rounds: Sequence[Round], standing: Mapping[str, str], judged: CritiqueBatch, of_rows: Collection[str]
) -> Fall | None:
    """The fall of a roll-out below one of the earlier `rounds`, by more than chance. None where nothing fell, or where more is to
    be read than rows."""
    now = Round(judged.counted, standing, {}, judged.rewards)
    texts = find_better_texts([*rounds, now], of_rows) if mostly_rows(judged.critiques) else standing
    if texts == standing:
        return None
    places = tuple(place for place, answers in enumerate(judged.answers) if answers)
    changed = (key for key in texts if key in standing and key in of_rows and texts[key] != standing[key])
    return Fall(texts, Reading(tuple(Requirement(texts[key], places, key) for key in changed)))


def find_better_texts(rounds: Sequence[Round], of_rows: Collection[str]) -> Mapping[str, str]:
    """The instructions of the roll-out that earned most, by id, where they earned more than those of the last one by more than
    chance; else those. They differ in instructions that whole rows demanded (`of_rows`) alone. Roll-outs of the same texts
    count together."""
    alike: dict[frozenset[tuple[str, str]], Round] = {}
    for one in rounds:
        texts = frozenset(one.shown.items())
        rewards = (*(alike[texts].rewards if texts in alike else ()), *one.rewards)
        alike[texts] = replace(one, rewards=rewards)
    now = alike[frozenset(rounds[-1].shown.items())]

    def differs_in_rows(one: Round) -> bool:
        keys = one.shown.keys() | now.shown.keys()
        return keys.difference(of_rows) <= {key for key in keys if one.shown.get(key) == now.shown.get(key)}

    better = [one for one in alike.values() if one.shown and differs_in_rows(one) and worse(now, one)]
    return max(better, key=lambda one: fmean(one.rewards), default=now).shown
