"""The benchmark of experiments still runs, and its own figures are computed rightly."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.simulated_experiments import (
    NEVER,
    AllocationPolicy,
    SimulatedExperiment,
    draw,
    published_winners,
)

from benchmarks import experiments as benchmark


def test_shares_and_medians_are_printed_with_their_intervals() -> None:
    assert benchmark.rate(5, 100) == " 5.00% (2.15 to 11.18; 5/100)"
    assert benchmark.median(np.arange(1, 102)) == "51 (41 to 61)"
    assert benchmark.median(np.array([10, 20, NEVER, NEVER, NEVER])) == "more than simulated"


def test_the_rule_to_compare_with_decides_as_published() -> None:
    """0.60 against 0.50, a look every 50 per arm: the published median is 460 per arm, a look apart at most."""
    sample = draw(np.random.default_rng(0), SimulatedExperiment((0.5, 0.6)), AllocationPolicy(), 300, 3000)
    found = published_winners(sample, every=100)
    assert np.median(found.units) / 2 == pytest.approx(460, abs=60)
    assert found.wrong(SimulatedExperiment((0.5, 0.6))) <= 3


@pytest.mark.long
def test_every_table_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.guard_rails(20, 0)
    benchmark.watches(20, 0)
    benchmark.late_answers(20, 0)
    benchmark.missing_answers(20, 0)
    benchmark.assignment(100)
    benchmark.looks(100, 0)
    printed = capsys.readouterr().out
    assert "counted when the unit's window closes" in printed
    assert "p99" in printed
    assert "held out" in printed
    assert "nothing new" in printed
