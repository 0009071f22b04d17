"""Figures that the page of a method quotes: `pytest FILE -s` prints them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from whet.testing.paired_benchmark import Advantage, paired_difference


def on_seeds(few: int, most: int) -> pytest.MarkDecorator:
    """The `seeds` of a contest: a few that show its claim, and in the long run those of the figures."""
    return pytest.mark.parametrize("seeds", [few, pytest.param(most, marks=pytest.mark.long)])


def won_over(control: str, first: Sequence[float], second: Sequence[float]) -> Advantage:
    """How much more the first figures are than the second, those of a control, in pairs; printed."""
    won = paired_difference(first, second)
    print(f"\n{control}: behind by {won.mean:+.3f} [{won.low:+.3f}, {won.high:+.3f}]")
    return won
