"""Curricula: which training examples the next prompts are scored on. Pure functions over plain numbers.

An example teaches most when about half of the attempts at it succeed: then rewards differ. `rng` is all the chance there
is; positions are those of the examples in the order that the caller keeps.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Sequence

TARGET = 0.5
FEATURES = 256

Counts = tuple[float, float]
"""Beta(alpha, beta) of one example's rate of success."""

PRIOR: Counts = (1.0, 1.0)


def uniform(rng: random.Random, n: int, k: int) -> list[int]:
    """`k` different positions out of `n`, all alike likely; all of them when there are no more than `k`."""
    return rng.sample(range(n), min(n, k))


def mopps(
    rng: random.Random,
    counts: Sequence[Counts],
    k: int,
    pool: int = 16,
    band: tuple[float, float] | None = None,
) -> list[int]:
    """Choose `k` examples by MoPPS; Qu et al. 2025, arXiv:2507.04632, algorithm 1.

    From `pool` x `k` examples drawn uniformly, each rate of success is drawn from its Beta distribution; the `k` whose
    rate lies nearest to 0.5 are taken. With a `band` (low, high), random ones within it come first, then
    the nearest.
    """
    among = uniform(rng, len(counts), pool * k)
    rates = {i: rng.betavariate(*counts[i]) for i in among}
    nearest = sorted(among, key=lambda i: (rates[i] - TARGET) ** 2)
    if band is None:
        return nearest[:k]
    inside = [i for i in among if band[0] <= rates[i] <= band[1]]
    kept = rng.sample(inside, min(k, len(inside)))
    return [*kept, *(i for i in nearest if i not in set(kept))][:k]


def mopps_update(
    counts: Counts, rate: float, rollouts: int, decay: float = 1.0, prior: Counts = PRIOR
) -> Counts:
    """The Beta distribution after `rollouts` attempts of which the share `rate` succeeded (equation 6).

        alpha <- decay alpha + (1 - decay) alpha0 + rate k,    beta <- decay beta + (1 - decay) beta0 + (1 - rate) k

    `decay` below 1 forgets, for a policy that changes. One attempt counts as one.
    """
    alpha = decay * counts[0] + (1 - decay) * prior[0]
    beta = decay * counts[1] + (1 - decay) * prior[1]
    return alpha + rate * rollouts, beta + (1 - rate) * rollouts


def pcl(rng: random.Random, values: Sequence[float], k: int, pool: int = 4) -> list[int]:
    """Choose `k` examples by Prompt Curriculum Learning; Gao et al. 2025, arXiv:2510.01135.

    Out of `pool` x `k` examples drawn uniformly, the `k` whose predicted rate of success is nearest to 0.5.
    `values`: predictions for all examples. The default pool is our reading.
    """
    among = uniform(rng, len(values), pool * k)
    return sorted(among, key=lambda i: (values[i] - TARGET) ** 2)[:k]


def pcl_features(text: str, size: int = FEATURES) -> dict[int, float]:
    """What the value model sees of an example: its words, hashed to `size` - 1 places, and a constant at place 0.

    The words have length 1 together. A small stand-in for PCL's language model with a scalar head.
    """
    words = sorted({word.casefold() for word in re.findall(r"\w+", text)})
    features = {0: 1.0}
    for word in words:
        place = 1 + int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % (size - 1)
        features[place] = features.get(place, 0.0) + 1 / math.sqrt(len(words))
    return features


def pcl_value(weights: Sequence[float], features: dict[int, float]) -> float:
    """Predicted rate of success, between 0 and 1: logistic in the features; 0.5 for weights of zero."""
    return 1 / (1 + math.exp(-sum(weights[place] * x for place, x in features.items())))


def pcl_update(
    weights: Sequence[float],
    features: Sequence[dict[int, float]],
    rates: Sequence[float],
    lr: float = 1.0,
) -> list[float]:
    """Weights after one step of gradient descent on the mean of (V(x) - rate)^2 / 2 over the examples just tried."""
    updated = list(weights)
    for x, rate in zip(features, rates, strict=True):
        value = pcl_value(weights, x)
        slope = (value - rate) * value * (1 - value) / len(rates)
        for place, entry in x.items():
            updated[place] -= lr * slope * entry
    return updated
