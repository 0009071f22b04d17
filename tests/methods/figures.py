"""Figures that the page of a method quotes: `pytest FILE -s` prints them."""

from __future__ import annotations

from collections.abc import Sequence

from whet.testing.paired_benchmark import Advantage, compare_pairs


def won_over(control: str, first: Sequence[float], second: Sequence[float]) -> Advantage:
    """How much more the first figures are than the second, those of a control, in pairs; printed."""
    won = compare_pairs(first, second)
    print(f"\n{control}: behind by {won.mean:+.3f} [{won.low:+.3f}, {won.high:+.3f}]")
    return won
