"""A figure that is not a bound does not look like one, wherever it is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whet.api.results import MeanEstimate
from whet.cli import show
from whet.engine.progress import Progress
from whet.reporting import number_format
from whet.reporting.progress_display import progress_line
from whet.stats.intervals import show_number

NEAR: dict[float, str] = {
    0.9996: "0.9996",
    0.0004: "0.0004",
    0.99996: "0.99996",
    1 - 1e-12: "1.000",
    1e-13: "0.000",
    1: "1.000",
}


def in_a_result(mean: float) -> str:
    return str(MeanEstimate(mean, None, None, 9))


def in_the_terminal(mean: float) -> str:
    return show.show_interval(
        {"mean": mean, "low": mean, "high": mean, "n": 9, "answered": 9, "of": 9}
    ).split()[0]


def in_the_report(mean: float) -> str:
    return number_format.reward_text(mean, 3)


def while_it_runs(mean: float) -> str:
    progress = Progress("t")
    progress.best = mean
    return next(
        part for part in progress_line(progress, 1.0).split(" · ") if part.startswith("best")
    ).split()[1]


@pytest.mark.parametrize("shown", [in_a_result, in_the_terminal, in_the_report, while_it_runs])
@pytest.mark.parametrize("mean", NEAR)
def test_a_mean_beside_a_bound_is_not_shown_as_the_bound(shown: Callable[[float], str], mean: float) -> None:
    assert shown(mean) == NEAR[mean]


@pytest.mark.parametrize(
    ("value", "text"), [(0.9996, "0.9996"), (0.12345, "0.123"), (2, "2"), (-0.0, "0"), (12345.6, "12300")]
)
def test_the_reason_of_the_gate_names_no_bound_that_was_not_reached(value: float, text: str) -> None:
    assert show_number(value) == text
