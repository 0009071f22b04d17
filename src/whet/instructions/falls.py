"""Wordings that earned less than an earlier one: the better one returns, and the next reading begins from it.

An instruction that whole rows demand may get another wording in every round. Without a way back, a wording that spoils the
answers is what the next one is made of, and the best one is soon out of the reader's sight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from whet.instructions.answers import Requirement
from whet.instructions.critiques import CritiqueBatch
from whet.instructions.effects import Round
from whet.instructions.questions import mostly_rows
from whet.instructions.reader import Reading
from whet.instructions.upkeep import worse


def read_fall(
    rounds: Sequence[Round], standing: Mapping[str, str], judged: CritiqueBatch, of_rows: Collection[str]
) -> Reading | None:
    """What a roll-out says whose instructions earned less than in earlier `rounds` with other wordings, by more than chance: each
    wrong answer demands the best of those wordings. None where nothing fell, or where more is to be read than rows."""
    now = Round(judged.counted, standing, {}, judged.rewards)
    before = find_better_texts([*rounds, now]) if mostly_rows(judged.critiques) else {}
    places = tuple(place for place, answers in enumerate(judged.answers) if answers)
    returning = [Requirement(text, places, key) for key, text in before.items() if key in of_rows]
    return Reading(tuple(returning)) if returning else None


def find_better_texts(rounds: Sequence[Round]) -> dict[str, str]:
    """The texts that differ from those of the last round, of the roll-outs of the same instructions that earned most, where they
    earned more than that by more than chance. Roll-outs of the same texts count together."""
    alike: dict[frozenset[tuple[str, str]], Round] = {}
    for one in rounds:
        texts = frozenset(one.shown.items())
        rewards = (*(alike[texts].rewards if texts in alike else ()), *one.rewards)
        alike[texts] = replace(one, rewards=rewards)
    now = alike[frozenset(rounds[-1].shown.items())]
    better = [one for one in alike.values() if one.shown.keys() == now.shown.keys() and worse(now, one)]
    best = max(better, key=lambda one: fmean(one.rewards), default=now)
    return {key: text for key, text in best.shown.items() if text != now.shown[key]}
