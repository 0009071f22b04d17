"""Guide-GRPO: learning from texts that were written with a hint, as if the policy had written them without it.

Nath et al. 2025, arXiv:2506.13923; sizes as in the published code (vaskar-open-source-research/guide_rl).

    a row whose whole group failed is asked again with a hint o ~ pi_old(. | q, hint)
    rho = pi(o | q) / pi_old(o | q, hint)            the question without the hint is what is learned from
    loss = -A rho / (rho + gamma)                    gamma: the 0.9 quantile of rho over the batch's hinted tokens, at least 1e-4

rho is far from 1 for most tokens, so it is shaped instead of clipped: a token that the policy would never write without the hint
gets little weight, and no token more than 1/4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from whet.rl.advantages import Rows
from whet.types import Example

if TYPE_CHECKING:
    from whet.rl.policy_model import PolicyModel, Sample

QUANTILE = 0.9
LEAST_GAMMA = 1e-4
FAILED = 1e-3
"""Rewards, brought to 0 to 1, below which a whole group has failed; the published threshold."""


def all_failed(rewards: Sequence[float]) -> bool:
    """Whether no text of a group earned anything. `rewards` are brought to 0 to 1."""
    return max(rewards) < FAILED


def hint_of(example: Example, column: str) -> str:
    """The hint that a row brings in a column; '' without one."""
    hint = example.row.get(column) if column else None
    return "" if hint is None else str(hint).strip()


def with_hint(example: Example, hint: str) -> Example:
    """The row with a hint on a line of its own after its input (after the last value of several)."""
    last = list(example.values)[-1]
    values = {**example.values, last: f"{example.values[last]}\n{HINT} {hint}"}
    text = None if example.text is None else f"{example.text}\n{HINT} {hint}"
    return replace(example, values=values, text=text)


def shaping_weights(plain: Rows, hinted: Rows) -> Rows:
    """The weight of each hinted token's advantage in a policy gradient on the question without the hint.

        d/d theta [rho / (rho + gamma)] = gamma rho / (rho + gamma)^2  d/d theta log pi

    `plain`, `hinted`: log-probabilities of the written tokens under the present policy without the hint and under the one
    that wrote them with it. With these weights a gradient step at the present policy is that of the shaped loss; they are held
    for the further minibatches and epochs of an update, in which the published code computes rho anew.
    """
    rows = [np.exp(np.subtract(a, b)) for a, b in zip(plain, hinted, strict=True)]
    ratios = np.concatenate(rows) if rows else np.zeros(0)
    gamma = max(LEAST_GAMMA, float(np.quantile(ratios, QUANTILE))) if ratios.size else LEAST_GAMMA
    return [(gamma * rho / (rho + gamma) ** 2).tolist() for rho in rows]


def without_hints(
    policy: PolicyModel, samples: Sequence[Sample], plain: Sequence[Sample]
) -> tuple[list[Sample], Rows]:
    """Samples that were written with hints as samples of the questions without them, and the weights of their tokens.

    `plain`: for each a sample whose prompt is the question without the hint. The log-probabilities become those of the present
    policy.
    """
    plain_samples = [replace(one, prompt=other.prompt) for one, other in zip(samples, plain, strict=True)]
    now = policy.logprobs(plain_samples)
    moved = [replace(one, logprobs=tuple(row)) for one, row in zip(plain_samples, now, strict=True)]
    own = [[i for i, mine in enumerate(sample.own) if mine] for sample in samples]
    plain_rows = [[row[i] for i in places] for row, places in zip(now, own, strict=True)]
    hinted = [[one.logprobs[i] for i in places] for one, places in zip(samples, own, strict=True)]
    weights: Rows = []
    for one, places, row in zip(samples, own, shaping_weights(plain_rows, hinted), strict=True):
        by_place = dict(zip(places, row, strict=True))
        weights.append([by_place.get(i, 0.0) for i in range(len(one.tokens))])
    return moved, weights


HINT = "Hint:"
