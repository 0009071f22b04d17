"""Shapley values by sampled orders: what a player adds on average, when players come one after another in a random order.

Castro, Gomez and Tejada: Polynomial calculation of the Shapley value based on sampling. Computers and Operations Research
36:1726-1730, 2009. The value of player i is the mean over orders of v(S + i) - v(S), with S the players before i; the values
sum to v(all) - v(none).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Coalition = frozenset[int]


def sample_orders(players: int, number: int, rng: random.Random) -> list[list[int]]:
    """So many orders of the players 0 to `players` - 1, drawn with equal chances."""
    return [rng.sample(range(players), players) for _ in range(number)]


def coalitions_of(orders: Sequence[Sequence[int]]) -> list[Coalition]:
    """All players that came first in one of the orders, from none to all; each once."""
    return list(dict.fromkeys(frozenset(order[:k]) for order in orders for k in range(len(order) + 1)))


def shapley_weights(orders: Sequence[Sequence[int]], places: Mapping[Coalition, int]) -> NDArray[np.float64]:
    """Orders x players x coalitions: +1 and -1 where the value of a coalition enters what a player adds in an order.

    `places` numbers the coalitions from 0. The mean over orders weighs values to the estimate of each player.
    """
    players = len(orders[0])
    weights = np.zeros((len(orders), players, len(places)))
    for number, order in enumerate(orders):
        for k, player in enumerate(order):
            weights[number, player, places[frozenset(order[: k + 1])]] += 1.0
            weights[number, player, places[frozenset(order[:k])]] -= 1.0
    return weights


def order_error(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard error of each player's estimate that comes from drawing orders; not a number for one order.

    `values`: of each coalition; `weights`: those of `shapley_weights`.
    """
    each = weights @ values
    if len(each) < 2:
        return np.full(each.shape[1], np.nan)
    return np.asarray(each.std(axis=0, ddof=1) / np.sqrt(len(each)), dtype=np.float64)
