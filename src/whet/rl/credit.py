"""The divergence from the reference policy inside the reward, and the samples that are learned from. See docs/mechanics.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from whet.errors import SearchStopped
from whet.rl.advantages import Rows

if TYPE_CHECKING:
    from whet.rl.policy_model import PolicyModel, Sample

T = TypeVar("T")
KL_CAP = 10.0
"""Most that one token counts, as in `losses.kl`."""


def divergences(policy: PolicyModel, samples: Sequence[Sample], power: float = 0.0, tag: str = "") -> Rows:
    """k1 = log pi_old - log reference of the own tokens of each sample; with `power` times `losses.critical_weights`, with `tag`
    times `losses.partial_weights`.

    It belongs into the reward: only there has it the gradient of KL(policy || reference) of whole texts (docs/mechanics.md).
    """
    rows = policy.critical_gaps(samples, power, tag)
    return [
        [gap for gap, own in zip(row, s.own, strict=True) if own]
        for s, row in zip(samples, rows, strict=True)
    ]


def text_divergence(policy: PolicyModel, samples: Sequence[Sample]) -> float:
    """Estimate of KL(policy || reference) of whole texts in nats: the mean over samples of the policy as it is, at their
    temperature, of the sum of k3 over own tokens.

        k3 = exp(q) - q - 1,  q = log reference - log pi_old      (`losses.kl`; Schulman 2020)

    At each token k3 has the divergence of the two next-token distributions as its mean, so the sum has that of the texts
    (chain rule); it is never negative. A token counts 10 at most, which a policy far away underestimates. 0 without samples.
    """
    total = 0.0
    for sample, row in zip(samples, policy.reference_logprobs(samples), strict=True):
        for old, reference, own in zip(sample.logprobs, row, sample.own, strict=True):
            q = min(KL_CAP, reference - old)
            total += min(KL_CAP, math.expm1(q) - q) if own else 0.0
    return total / max(1, len(samples))


def check_divergence(divergence: float, limit: float) -> None:
    """Raise SearchStopped for a divergence above a limit, both in nats a text; a limit of 0 is none."""
    if limit and divergence > limit:
        raise SearchStopped(
            f"the policy is {divergence:.3g} nats a text away from its reference, and the limit is {limit:.3g} (kl_limit)"
        )


def take_off_divergences(
    rows: Rows,
    gaps: Rows,
    sizes: Sequence[int],
    kl: float,
    estimate: Callable[[Sequence[float]], list[float]],
) -> Rows:
    """Advantages of the own tokens of all samples with the divergence in the reward, for estimators that compare in a group.

        A_{i,t} - kl estimate(K_{.})_i,   K_i: sum of `gaps` of sample i

    `estimate` has no division by a spread (dr_grpo, rloo): it moves the divergence to mean 0 in its group and leaves its weight.
    Inside an estimator that divides by the rewards' standard deviation, as grpo's, a kl of 0.01 would weigh 1 in a group whose
    rewards differ by 0.01, and everything in a group of equal rewards.
    """
    totals = [k for group in split_by_sizes(map(sum, gaps), sizes) for k in estimate(list(group))]
    return [[a - kl * k for a in row] for row, k in zip(rows, totals, strict=True)]


def split_by_sizes(items: Iterable[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Items in groups of the given sizes, in order."""
    rest = iter(items)
    return (list(islice(rest, size)) for size in sizes)


def learnable(
    groups: Sequence[Sequence[Sample]], least: int, *, cut_too: bool
) -> list[tuple[int, list[int]]]:
    """Choose the samples that are learned from: the places of groups, and in each the places of its samples.

    Unless `cut_too`, samples that the bound on tokens cut are left out, of the comparison in the group too: what the whole
    text would have earned is not known (the overlong filter of DAPO, Yu et al. 2025, arXiv:2503.14476, section 3.4). Groups with
    fewer than `least` samples left teach nothing.
    """
    kept = [[j for j, sample in enumerate(group) if cut_too or sample.ended] for group in groups]
    return [(i, places) for i, places in enumerate(kept) if len(places) >= least]
