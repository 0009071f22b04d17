"""The gate with several objectives: how often it promotes what it must not, and what it should, by simulation.

    python benchmarks/objectives_gate.py [--runs 400] [--seed 0]

Needs numpy and scipy. Accuracy is right or wrong, a mark is graded from 0 to 1, each with a margin of
0.05; lengths are lognormal tokens with a bound of 1.1x. A wrong promotion may have a probability of at most 2.5% (alpha / 2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from whet.stats import Bound, Goal
from whet.stats.joint import p_values_of_objectives

Array = NDArray[np.float64]
Values = dict[str, Array]

ALPHA, DRAWS = 0.05, 999
ACCURACY = Goal("accuracy", maximise=True, width=1.0, margin=0.05)
MARK = Goal("mark", maximise=True, width=1.0, margin=0.05)
LENGTH = Goal("length", maximise=False, bounds=(Bound(True, 1.1, True),))
GOALS = (ACCURACY, MARK, LENGTH)


@dataclass(frozen=True)
class Case:
    """True changes: of accuracy and mark as differences, of length as a factor; the spread of single lengths; and their tie to
    accuracy, so that what is worse in one is worse in the other."""

    name: str
    accuracy: float = 0.0
    mark: float = 0.0
    length: float = 1.0
    spread: float = 0.3
    tied: bool = False

    def sample(self, rng: np.random.Generator, n: int) -> tuple[Values, Values]:
        """Values of baseline and candidate on n rows."""
        hard = rng.normal(0.0, 1.0, n)
        before = (rng.random(n) < 0.7).astype(np.float64)
        flip, way = rng.random(n), np.where(before > 0, -1.0, 1.0)
        lost, won = (0.1 - self.accuracy / 2) / 0.7, (0.1 + self.accuracy / 2) / 0.3
        after = before + way * (flip < np.where(before > 0, lost, won))
        marks = [
            np.clip(0.5 + 0.1 * hard + rng.normal(0, 0.1, n) + shift, 0, 1) for shift in (0.0, self.mark)
        ]
        noise = [rng.normal(0.0, self.spread, n) for _ in range(2)]
        if self.tied:
            noise[1] -= 0.5 * self.spread * (after - before)
            noise[1] -= np.log(np.exp(noise[1]).mean()) - self.spread**2 / 2
        base = np.exp(5.0 + 0.5 * hard)
        lengths = [base * np.exp(one) * factor for one, factor in zip(noise, (1.0, self.length), strict=True)]
        names = ("accuracy", "mark", "length")
        return dict(zip(names, (before, marks[0], lengths[0]), strict=True)), dict(
            zip(names, (after, marks[1], lengths[1]), strict=True)
        )


WRONG = (
    Case("nothing changes"),
    Case("nothing changes, objectives tied", tied=True),
    Case("nothing changes, lengths with a long tail", spread=1.0),
    Case("length halves, accuracy at its margin", accuracy=-0.05, length=0.5),
    Case("accuracy rises by 0.15, length at its bound", accuracy=0.15, length=1.1),
    Case(
        "accuracy rises by 0.15, length with a long tail at its bound", accuracy=0.15, length=1.1, spread=1.0
    ),
    Case("length halves, mark at its margin", mark=-0.05, length=0.5),
    Case("length halves, accuracy and mark at their margins", accuracy=-0.05, mark=-0.05, length=0.5),
)
RIGHT = (
    Case("length falls by a fifth, nothing else changes", length=0.8),
    Case("length halves, nothing else changes", length=0.5),
    Case("accuracy rises by 0.1, nothing else changes", accuracy=0.1),
    Case("all three gain a little", accuracy=0.05, mark=0.03, length=0.9),
)


def rate(case: Case, n: int, runs: int, rng: np.random.Generator) -> str:
    """Share of promotions in percent with its exact 95% interval."""
    hits = 0
    for _ in range(runs):
        p_values = p_values_of_objectives(GOALS, *case.sample(rng, n), draws=DRAWS).values()
        hits += min(p for p, _ in p_values) <= ALPHA / 2 and max(p for _, p in p_values) <= ALPHA / 2
    ends = stats.binomtest(hits, runs).proportion_ci(method="exact")
    return f"{100 * hits / runs:.2f} ({100 * ends.low:.2f} to {100 * ends.high:.2f})"


def table(
    title: str, cases: tuple[Case, ...], sizes: tuple[int, ...], cell: Callable[[Case, int], str]
) -> None:
    """One table."""
    head = " | ".join(f"{n} rows, %" for n in sizes)
    print(f"\n| {title} | {head} |\n|---|{'---|' * len(sizes)}")
    for case in cases:
        print(f"| {case.name} | {' | '.join(cell(case, n) for n in sizes)} |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Errors and power of the gate with several objectives.")
    parser.add_argument("--runs", type=int, default=400, help="simulated tests a cell")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(f"{options.runs:,} runs a cell, seed {options.seed}")
    table("must not be promoted", WRONG, (50, 200), lambda case, n: rate(case, n, options.runs, rng))
    table("should be promoted", RIGHT, (50, 200, 500), lambda case, n: rate(case, n, options.runs, rng))


if __name__ == "__main__":
    main()
