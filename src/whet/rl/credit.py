"""The divergence from the reference policy inside the reward, and the samples that are learned from. See docs/mechanics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from whet.rl.advantages import Rows

if TYPE_CHECKING:
    from whet.rl.policy_model import PolicyModel, Sample

T = TypeVar("T")


def divergences(policy: PolicyModel, samples: Sequence[Sample], power: float = 0.0) -> Rows:
    """k1 = log pi_old - log reference of the own tokens of each sample; with `power` times `losses.critical_weights`.

    It belongs into the reward: only there has it the gradient of KL(policy || reference) of whole texts (docs/mechanics.md).
    """
    rows = policy.critical_gaps(samples, power)
    return [
        [gap for gap, own in zip(row, s.own, strict=True) if own]
        for s, row in zip(samples, rows, strict=True)
    ]


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
    """Which samples are learned from: the places of groups, and in each the places of its samples.

    Unless `cut_too`, samples that the bound on tokens cut are left out, of the comparison in the group too: what the whole
    text would have earned is not known (the overlong filter of DAPO, Yu et al. 2025, arXiv:2503.14476, section 3.4). Groups with
    fewer than `least` samples left teach nothing.
    """
    kept = [[j for j, sample in enumerate(group) if cut_too or sample.ended] for group in groups]
    return [(i, places) for i, places in enumerate(kept) if len(places) >= least]
