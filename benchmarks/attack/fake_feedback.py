"""Forged ratings: hostile users who rate their own answers so that what people do is read the wrong way round.

The traffic is simulated. Honest people are pleased or not, act accordingly and rate now and then, more often when annoyed; the
odds are those of `expected`. Hostile users send answers, signals and ratings of their own, in patterns that aim at the
weights. What is measured is what a forged reward would decide: how much better an answer that was copied looks than one that
was asked for again and abandoned (`contrast`), and whether the page says that something is odd.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from whet_live.traffic.behaviour import MOST, BehaviourModel, RatedAnswer, fit_behaviour

GOOD: Mapping[str, float] = {"copy": 1.0, "abandon": 0.0, "dwell": 20.0}
"""What is done with an answer that pleases."""
BAD: Mapping[str, float] = {"copy": 0.0, "regenerate": 1.0, "abandon": 1.0, "dwell": 20.0}
"""What is done with one that does not."""
LONGEST = 86_400.0
"""Seconds of dwelling that the store takes at most."""


@dataclass(frozen=True)
class Forgery:
    """How hostile users rate: `liked` and `disliked` are the signals of the answers that they rate 1 and 0, in turn; beside each
    rated one they leave `silent` equal ones unrated, so that few with such signals seem to rate."""

    name: str
    liked: Mapping[str, float]
    disliked: Mapping[str, float]
    silent: int = 0


FORGERIES = (
    Forgery("flip", BAD, GOOD),
    Forgery("flip, rarely rated", BAD, GOOD, silent=20),
    Forgery("praise", BAD, {**BAD, "copy": 1.0}),
    Forgery("far out", {**BAD, "regenerate": 1000.0, "dwell": LONGEST}, {**GOOD, "share": 1000.0}),
    Forgery("far out, rarely rated", {**BAD, "regenerate": 1000.0}, {**GOOD, "share": 1000.0}, silent=20),
)


@dataclass(frozen=True)
class Bent:
    """What became of the reward: `contrast` is the reward of GOOD less that of BAD, from -1 to 1; `corrected` the estimated mean
    of all ratings; `noticed` the warnings that speak of people."""

    contrast: float
    corrected: float
    noticed: tuple[str, ...]


def pleasure_probability(copied: bool, again: bool, left: bool, seconds: float) -> float:
    """The probability that somebody who did this is pleased: the truth of the simulation."""
    odds = 0.3 + 1.6 * copied - 1.4 * again - 1.2 * left + 0.3 * (math.log1p(seconds) - 3)
    return 1 / (1 + math.exp(-odds))


def truth() -> float:
    """The contrast that an honest, endless traffic would teach."""
    return pleasure_probability(True, False, False, 20.0) - pleasure_probability(False, True, True, 20.0)


def honest(seed: int, users: int = 1000, answers: int = 3) -> list[RatedAnswer]:
    """Simulated answers to honest users, some of them rated."""
    rng, rows = random.Random(f"honest {seed}"), []
    for number in range(users * answers):
        copied, again = rng.random() < 0.4, rng.random() < 0.3
        left = rng.random() < (0.5 if again else 0.1)
        seconds = rng.lognormvariate(3, 1)
        pleased = rng.random() < pleasure_probability(copied, again, left, seconds)
        odds = -1.6 + 1.5 * again + 1.5 * left - 0.8 * copied
        rated = rng.random() < 1 / (1 + math.exp(-odds))
        signals = {"copy": float(copied), "abandon": float(left), "dwell": seconds}
        signals |= {"regenerate": 1.0} if again else {}
        user = f"customer-{number % users}"
        rows.append(RatedAnswer(f"a{number}", signals, float(pleased) if rated else None, user))
    return rows


def forge_answers(forgery: Forgery, accounts: int, ratings: int) -> Iterator[RatedAnswer]:
    """The answers of the hostile accounts, each with `ratings` rated ones."""
    for account in range(accounts):
        for number in range(ratings):
            liked = (account + number) % 2 == 0
            signals = forgery.liked if liked else forgery.disliked
            for copy in range(forgery.silent + 1):
                rating = float(liked) if copy == 0 else None
                yield RatedAnswer(f"x{account}-{number}-{copy}", signals, rating, f"mallory-{account}")


def bend(
    rows: list[RatedAnswer], forgery: Forgery | None, accounts: int, ratings: int, most: float = MOST
) -> Bent:
    """Fit the reward to honest rows with forged ones among them; without a forgery, to the honest ones."""
    hostile = [] if forgery is None else list(forge_answers(forgery, accounts, ratings))
    model = fit_behaviour([*rows, *hostile], most=most)
    return Bent(
        contrast(model),
        model.corrected.value,
        tuple(w for w in model.warnings if "users rate so much" in w or "the wrong way round" in w),
    )


def contrast(model: BehaviourModel) -> float:
    """How much better what pleases is rewarded than what does not."""
    return model.reward(GOOD) - model.reward(BAD)


def worst(rows: list[RatedAnswer], accounts: int, ratings: int, most: float = MOST) -> tuple[Forgery, Bent]:
    """The forgery that bends the reward most: the attacker tries them all."""
    tried = [(one, bend(rows, one, accounts, ratings, most)) for one in FORGERIES]
    return min(tried, key=lambda pair: pair[1].contrast)
