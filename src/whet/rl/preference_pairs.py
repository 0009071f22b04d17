"""Preference pairs out of scored samples, and Direct Preference Optimization of a policy on them.

Pairs as Prompt-A-Video builds them (Ji et al. 2025, arXiv:2412.15156): a sample may be chosen if it is among the best of its
group and good enough; it is preferred to each sample that is worse by a margin. DPO: Rafailov et al. 2023, arXiv:2305.18290.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from whet.rl.policy_model import PolicyModel, Sample, Update

Pair: TypeAlias = tuple[Sample, Sample]
"""The preferred sample and the other one, which answer one question."""


def choose_pairs(
    scores: Sequence[float | None], fit: Sequence[bool], *, top: int, least: float, margin: float
) -> list[tuple[int, int]]:
    """Pairs (preferred, other) of places in a group: one of the `top` best that is `fit` and scores `least` or more, with each
    sample more than `margin` worse. A sample without a score (None) is in no pair.

    >>> choose_pairs([0.9, 0.8, 0.2, None], [True, False, True, True], top=2, least=0.5, margin=0.3)
    [(0, 2)]
    """
    known = [(score, i) for i, score in enumerate(scores) if score is not None]
    best = sorted(known, key=lambda pair: (-pair[0], pair[1]))[:top]
    return [
        (i, j)
        for score, i in best
        if fit[i] and score >= least
        for other, j in known
        if score - other > margin
    ]


def pair_weight(
    chosen: float, rejected: float, reference_chosen: float, reference_rejected: float, beta: float
) -> float:
    """The weight with which DPO pulls a pair apart: beta sigmoid(-beta m), with m the gain of the log-ratio over the reference
    policy.

    Minus this is the derivative of the loss by the log-probability of the preferred text, and this that of the other one.
    """
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    return beta / (1.0 + math.exp(min(700.0, beta * margin)))


def prefer(
    policy: PolicyModel, pairs: Sequence[Pair], *, beta: float, lr: float, epochs: int, length: int
) -> dict[str, float]:
    """`epochs` steps down the DPO loss of pairs, all of them in each step; figures of the last one. `length`: tokens of a text at
    most. `preferred`: the share of pairs whose preferred text has gained more on the reference policy than the other one.

    A step is one of policy gradient whose advantages are the weights of the pairs: both gradients are the same.
    """
    if not pairs:
        return {}
    samples = [sample for pair in pairs for sample in pair]
    reference = [sum(row) for row in policy.reference_logprobs(samples)]
    figures: dict[str, float] = {}
    settings = Update(lr, loss="reinforce", aggregation="constant", length=length)
    for _ in range(epochs):
        now = [sum(row) for row in policy.logprobs(samples)]
        gains = [a - b for a, b in zip(now, reference, strict=True)]
        weights = [
            pair_weight(now[i], now[i + 1], reference[i], reference[i + 1], beta)
            for i in range(0, len(samples), 2)
        ]
        advantages = [value for weight in weights for value in (weight, -weight)]
        preferred = sum(gains[i] > gains[i + 1] for i in range(0, len(samples), 2)) / len(pairs)
        figures = {**policy.update(samples, advantages, settings), "preferred": preferred}
    return figures
