"""The lesson of a group whose rewards are all equal: none by a comparison inside the group, some by RL-ZVP and ERPO.

Groups whose rewards differ are left as they are by both. `right` is the reward from which equal rewards count as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from whet.rl.advantages import Rows, equal

ZeroVariance = Literal["skip", "zvp", "erpo"]
"""The treatment of groups of equal rewards: nothing, RL-ZVP, or the pseudo-negative of ERPO."""


def zvp(reward: float, entropies: Sequence[Sequence[float]], alpha: float, right: float) -> Rows:
    """Advantages of the tokens of a group whose texts all earned `reward`; Le et al. 2025, arXiv:2509.21880, equation 5.

        all right:  A_t = alpha H_t
        all wrong:  A_t = -alpha (max_k H_k - H_t),   the maximum within the text

    `entropies`: H_t in nats of the whole distribution before each own token of each text, a constant for the gradient. Right
    texts are encouraged, most where the policy was unsure; wrong ones discouraged, most where it was sure. Equation 5 is known
    to us from a re-implementation; the paper's alpha could not be verified.

    >>> zvp(0.0, [[0.5, 0.25]], 0.1, 0.5)
    [[-0.0, -0.025]]
    """
    if reward >= right:
        return [[alpha * h for h in row] for row in entropies]
    return [[-alpha * (max(row) - h) for h in row] for row in entropies]


def with_pseudo_negative(rewards: Sequence[float], penalty: float, right: float) -> list[float]:
    """The rewards of a group and, if they are equal and right, that of one imagined text `penalty` below them.

    The reactivation of ERPO (arXiv:2511.04800), our reading: the caller drops the imagined text once advantages are computed,
    and those of the others are small and positive: with GRPO 1 / sqrt(n + 1), with Dr. GRPO penalty / (n + 1).

    >>> with_pseudo_negative([1.0, 1.0], 0.1, 0.5), with_pseudo_negative([1.0, 0.0], 0.1, 0.5)
    ([1.0, 1.0, 0.9], [1.0, 0.0])
    """
    values = [float(reward) for reward in rewards]
    return [*values, values[0] - penalty] if equal(values) and values and values[0] >= right else values
