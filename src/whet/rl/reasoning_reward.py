"""R3, the reasoning reflection reward of Direct Reasoning Optimization: how sure a model is of a reference answer after its own
reasoning, at the tokens where reasoning makes a difference. No judge and no verifier.

arXiv:2506.13351. For the reasonings c_1..c_G to a question, y its reference answer:

    l_ij = log pi(y_j | question, c_i, y_<j);   w_j = std_i l_ij / sum_j std_i l_ij;   R3_i = sum_j w_j l_ij

The paper's exact weights could not be verified: these are ours. Its discount for tokens whose certainty merely follows earlier
tokens of the reference is left out. The certainty without reasoning, which the paper may take off, is the same number for the
whole group: it cancels in every comparison within a group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EVEN = 1e-9
"""Spread below which all reasonings of a group say the same."""


def reflective_weights(logprobs: Sequence[Sequence[float]]) -> list[float]:
    """The share of each token of the reference in R3: its spread over the reasonings (the population's standard deviation); equal
    shares where no token has one. `logprobs` (G, T).

    >>> reflective_weights([[-1.0, -2.0, -0.5], [-3.0, -2.0, -0.5]])
    [1.0, 0.0, 0.0]
    """
    spread = np.asarray(logprobs, dtype=float).std(axis=0)
    if spread.size and spread.max() < EVEN:
        spread = np.ones_like(spread)
    return [float(one) for one in spread / max(spread.sum(), EVEN)]


def r3(logprobs: Sequence[Sequence[float]]) -> list[float]:
    """The reward of each reasoning of a group, in nats: the mean of the log-probabilities of the reference with the weights of
    `reflective_weights`.

        R3_i = sum_j w_j l_ij

    >>> r3([[-1.0, -2.0, -0.5], [-3.0, -2.0, -0.5]])
    [-1.0, -3.0]
    """
    table = np.asarray(logprobs, dtype=float)
    return [float(one) for one in table @ np.asarray(reflective_weights(logprobs))]


def most_divided(rewards: Sequence[Sequence[float]], drop: float) -> list[int]:
    """Places of the groups that are learned from: without the share `drop` of them whose rewards differ least, at least one.

    >>> most_divided([[0.0, 0.0], [0.0, 4.0], [1.0, 2.0]], 0.34)
    [1, 2]
    """
    order = sorted(range(len(rewards)), key=lambda i: (float(np.std(rewards[i])), i))
    return sorted(order[min(int(drop * len(order)), len(order) - 1) :]) if order else []
