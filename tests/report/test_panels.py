"""Which of a method's figures the report draws, and in which order."""

from __future__ import annotations

import re

from whet.reporting.curves import MOST_PANELS, _row, step_figures
from whet.reporting.record import Record


def drawn(*names: str) -> list[str]:
    record = Record("run", {}, {})
    record.steps = [{"step": float(i), **{name: float(i) for name in names}} for i in range(3)]
    return re.findall(r"<figcaption>([A-Za-z ]+)<small>", str(step_figures(record)))


def test_the_reward_comes_first_however_late_it_was_logged() -> None:
    others = [f"figure {chr(97 + i)}" for i in range(MOST_PANELS + 3)]
    found = drawn(*others, "entropy", "kl", "reward")
    assert found[:3] == ["Training reward", "KL divergence", "Entropy"] and len(found) == MOST_PANELS
    assert found[3:] == others[: MOST_PANELS - 3]


def test_without_a_reward_the_figures_stand_as_they_were_logged() -> None:
    assert drawn("second", "best") == ["second", "Best so far"]


def test_each_figure_is_explained_and_what_only_grows_is_not_averaged() -> None:
    record = Record("run", {}, {})
    record.steps = [{"step": float(i), "best": float(i), "entropy": 1.0 / (i + 1)} for i in range(60)]
    best, entropy = str(step_figures(record)).split("</figure>")[1::-1]
    assert "Highest training reward" in best and "bold line" not in best
    assert "Entropy of the policy" in entropy and "bold line: mean of 3 steps" in entropy


def test_a_late_opening_is_not_called_certain() -> None:
    """Its level has so many nines that three digits would make 100% of it."""
    ends = {"mean": 0.1, "low": 0.0, "high": 0.2}
    rows = [_row("Best", {**ends, "alpha": alpha}, "dot", "best", 3) for alpha in (0.05, 9.5e-5, 2e-9)]
    assert [row.method for row in rows if row] == [
        "95% interval",
        "99.99% interval",
        "99.9999998% interval",
    ]
