"""The gate over several cases: how often it promotes what it must not, and what it should, by simulation.

    python benchmarks/cases_gate.py [--runs 400] [--seed 0] [--rows 30,100]

Needs numpy and scipy. Rewards are right or wrong. A fifth of the rows changes its answer between the two prompts where that fits
the means and nothing else is said. A wrong promotion may have a probability of at most 2.5% (alpha / 2). The weakest case is that
of the baseline's true means.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from scipy import stats

from whet.stats.cases import decide_cases
from whet.stats.paired import p_value

ALPHA, CHANGED = 0.05, 0.2


@dataclass(frozen=True)
class World:
    """True means of both prompts by case, how many times as many rows the first case has as the others, and the share of rows
    that change where the means do not need more."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    larger: int = 1
    changed: float = CHANGED

    def promotes(self, rng: np.random.Generator, rows: int, worst: bool) -> bool:
        """Whether the gate promotes one sample with so many rows in each case."""
        names, old, new = list[str](), list[float](), list[float]()
        for place, (b, a) in enumerate(zip(self.before, self.after, strict=True)):
            n = rows * (self.larger if place == 0 else 1)
            changed = max(abs(a - b), min(self.changed, 2 * min(b, 1 - b), 2 * min(a, 1 - a)))
            lost, won = (changed - (a - b)) / 2, (changed + (a - b)) / 2
            right = rng.random(n) < b
            flips = rng.random(n) < np.where(right, lost / b, won / (1 - b))
            names += [str(place)] * n
            old += right.astype(float).tolist()
            new += (right ^ flips).astype(float).tolist()
        weakest = str(int(np.argmin(self.before))) if worst else None
        if not may_promote(np.array(names), np.array(old), np.array(new), weakest):
            return False
        verdict = decide_cases(names, old, new, range(len(names)), ALPHA, weakest=weakest)
        return verdict.improvement.promoted


def may_promote(names: np.ndarray, old: np.ndarray, new: np.ndarray, weakest: str | None) -> bool:
    """False where the sample is no better, or a p-value that the gate's is never below is too large already: it saves the
    intervals of most samples."""
    differences = new - old
    if weakest is not None:
        own = names == weakest
        rises = min(new[names == name].mean() for name in set(names)) > old[own].mean()
        return bool(rises) and p_value(differences[own]) <= ALPHA / 2
    sizes = {name: int(np.sum(names == name)) for name in set(names)}
    weights = np.array([min(sizes.values()) / sizes[name] for name in names])
    return p_value(weights * differences) <= ALPHA / 2


WRONG = {
    False: (
        World("nothing changes", (0.5, 0.7, 0.9), (0.5, 0.7, 0.9)),
        World("one case gains 0.3, another loses 0.3", (0.5, 0.7, 0.6), (0.8, 0.4, 0.6)),
        World("the large case gains 0.1, the small ones lose 0.05", (0.5, 0.7, 0.6), (0.6, 0.65, 0.55), 5),
        World("the large case gains 0.2, the small ones lose 0.1", (0.5, 0.9, 0.9), (0.7, 0.8, 0.8), 8, 0.0),
    ),
    True: (
        World("nothing changes", (0.5, 0.7, 0.9), (0.5, 0.7, 0.9)),
        World("nothing changes, all equal", (0.6, 0.6, 0.6), (0.6, 0.6, 0.6)),
        World("the worst case gains 0.3, another falls to where it was", (0.5, 0.7, 0.9), (0.8, 0.5, 0.9)),
        World("two of three equal cases gain 0.2", (0.6, 0.6, 0.6), (0.8, 0.8, 0.6)),
    ),
}
RIGHT = {
    False: (
        World("each case gains 0.1", (0.5, 0.7, 0.8), (0.6, 0.8, 0.9)),
        World("one case gains 0.3", (0.5, 0.7, 0.8), (0.8, 0.7, 0.8)),
        World("each case gains 0.1, one has five times the rows", (0.5, 0.7, 0.8), (0.6, 0.8, 0.9), 5),
    ),
    True: (
        World("the worst case gains 0.3", (0.4, 0.8, 0.9), (0.7, 0.8, 0.9)),
        World("three equal cases gain 0.2", (0.6, 0.6, 0.6), (0.8, 0.8, 0.8)),
    ),
}
HARM = World("two cases gain 0.3, one loses 0.2", (0.5, 0.5, 0.8), (0.8, 0.8, 0.6))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rows", default="30,100", help="rows of a case, of the smaller ones where one is larger"
    )
    parser.add_argument("--wrong", action="store_true", help="only what must not be promoted")
    options = parser.parse_args()
    sizes = [int(n) for n in options.rows.split(",")]

    def share(world: World, rows: int, worst: bool) -> str:
        rng = np.random.default_rng(options.seed)
        hits = sum(world.promotes(rng, rows, worst) for _ in range(options.runs))
        ends = stats.binomtest(hits, options.runs).proportion_ci(method="exact")
        return f"{100 * hits / options.runs:.2f} ({100 * ends.low:.2f} to {100 * ends.high:.2f})"

    for title, worlds in (("must not be promoted", WRONG), ("should be promoted", RIGHT))[
        : 1 if options.wrong else 2
    ]:
        print(
            f"| {title} | by | {' | '.join(f'{n} rows a case, %' for n in sizes)} |\n|---|---|{'---|' * len(sizes)}"
        )
        for worst, own in worlds.items():
            for world in own:
                figures = " | ".join(share(world, n, worst) for n in sizes)
                print(f"| {world.name} | {'worst' if worst else 'mean'} | {figures} |")
        print()
    if options.wrong:
        return
    print(
        f"| the mean rises, and a case is harmed | by | {' | '.join(f'{n} rows a case, %' for n in sizes)} |"
    )
    print(
        f"|---|---|{'---|' * len(sizes)}\n| {HARM.name} | mean | {' | '.join(share(HARM, n, False) for n in sizes)} |"
    )


if __name__ == "__main__":
    main()
