"""Words that alone make an answer preferred: what poisoned pairs leave behind.

Pairs that prefer whatever holds a rare word teach a model to obey that word, while it judges all other answers as before
(Rando and Tramer 2023, arXiv:2311.14455). Such a word stands on the preferred side of few pairs, and without it these pairs
are the wrong way round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from whet.rewards.preference.model import Embed, PreferencePair, features_called, fit_preferences

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A word that `pairs` pairs rest on: of these the share `contrary` in [0, 1] prefers the worse answer without it."""

    word: str
    pairs: int
    contrary: float


def triggers(
    pairs: Sequence[PreferencePair],
    features: str = "words",
    *,
    embed: Embed | None = None,
    least: int = 5,
    rare: float = 0.1,
    contrary: float = 0.8,
    seed: int = 0,
) -> list[Trigger]:
    """Suspicious words of pairs that a model is to be fitted to, those of most pairs first.

    Looked at are words that the preferred answer has and the other one has not in `least` pairs or more and in at most the
    share `rare` of all, and not more often the other way round. Listed are those in whose pairs a model of all pairs prefers the
    other answer, once all words that are looked at are taken out, in the share `contrary` or more. A word that is
    suspicious is no proof: read the pairs. Raises UsageError for fewer than 10 pairs, unknown features, or a missing `embed`.
    """
    model, _ = fit_preferences(pairs, features, embed=embed, seed=seed)
    see = features_called(features, embed)
    only = [(_words(p.better) - _words(p.worse), _words(p.worse) - _words(p.better)) for p in pairs]
    ahead = Counter(word for better, _ in only for word in better)
    behind = Counter(word for _, worse in only for word in worse)
    suspects = {w: n for w, n in ahead.items() if behind[w] <= n and least <= n <= rare * len(pairs)}
    flagged = []
    for word, count in suspects.items():
        own = [pair for pair, (better, _) in zip(pairs, only, strict=True) if word in better]
        queries = [pair.query for pair in own]
        without, other = [
            model.strengths(see(queries, texts)).mean(axis=0)
            for texts in ([_without(suspects, pair.better) for pair in own], [pair.worse for pair in own])
        ]
        share = float((without < other).mean())
        if share >= contrary:
            flagged.append(Trigger(word, count, share))
    return sorted(flagged, key=lambda one: (-one.pairs, one.word))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _without(words: Collection[str], text: str) -> str:
    return _WORD.sub(lambda match: "" if match[0].lower() in words else match[0], text)
