"""How seldom the watch over live quality is wrong, and how soon it is right. Prints two tables of docs/figures.md.

    python benchmarks/drift.py [--years 100] [--seeds 40] [--seed 0]

Needs numpy only; takes a few minutes on one core. Traffic is simulated: on each day some users give one value each. Thumbs are up
with a probability, ratings have the mean 4 on 1 to 5, seconds are log-normal (sigma 0.5) and count by their rank among
the first 200. In the second table the change comes after 30 days; a delay counts days from it, and a stream without an
alarm 60 days later has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from whet.stats.changes import ChangeWatch
from whet_live.quality.monitor import SAMPLE, THRESHOLD

Draw = Callable[[np.random.Generator, int, bool], np.ndarray]
REFERENCE, PATIENCE = 30, 60
RATINGS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def thumbs(before: float, after: float) -> Draw:
    """Thumbs up with a probability before and after the change."""
    return lambda rng, n, changed: (rng.random(n) < (after if changed else before)).astype(float)


def stars(rng: np.random.Generator, n: int, changed: bool) -> np.ndarray:
    """Ratings whose mean does not change."""
    return rng.choice(RATINGS, n, p=[0.05, 0.05, 0.15, 0.35, 0.4])


def seconds(factor: float) -> Draw:
    """Latencies that are longer by a factor after the change."""
    return lambda rng, n, changed: rng.lognormal(0.0, 0.5, n) * (factor if changed else 1.0)


def days(draw: Draw, users: int, rng: np.random.Generator, ranked: bool, change: int) -> Iterator[np.ndarray]:
    """The values of one day after another, in [0, 1]."""
    sample = np.sort(draw(rng, SAMPLE, False))
    day = 0
    while True:
        values = draw(rng, users, day >= change)
        if ranked:
            values = (
                (np.searchsorted(sample, values, "left") + np.searchsorted(sample, values, "right"))
                / 2
                / SAMPLE
            )
        yield values
        day += 1


def false_alarms(draw: Draw, users: int, ranked: bool, threshold: float, years: int, seed: int) -> int:
    """Alarms in streams of a year each that never change."""
    alarms = 0
    for n in range(years):
        stream = days(draw, users, np.random.default_rng([seed, n]), ranked, 10**9)
        watch = ChangeWatch()
        for day in range(365):
            watch.add(day, next(stream))
            if watch.alarm(threshold) is not None:
                alarms += 1
                watch = ChangeWatch()
    return alarms


def delay(draw: Draw, users: int, ranked: bool, seed: int) -> tuple[float, bool]:
    """Days from the change to the alarm (nan without one), and whether the alarm came before the change."""
    stream, watch = days(draw, users, np.random.default_rng(seed), ranked, REFERENCE), ChangeWatch()
    for day in range(REFERENCE + PATIENCE):
        watch.add(day, next(stream))
        if watch.alarm(THRESHOLD) is not None:
            return float(day - REFERENCE + 1), day < REFERENCE
    return float("nan"), False


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--years", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kinds: tuple[tuple[str, Draw, int, bool], ...] = (
        ("thumbs, 80% up, 30 users a day", thumbs(0.8, 0.8), 30, False),
        ("errors, 1%, 200 users a day", thumbs(0.01, 0.01), 200, False),
        ("ratings, 10 users a day", stars, 10, False),
        ("seconds, 100 users a day", seconds(1.0), 100, True),
    )
    print(
        f"| no change | allowed in {given.years} years | at 8,766 days | allowed | at 30 days |\n|---|---|---|---|---|"
    )
    for name, draw, users, ranked in kinds:
        rare = false_alarms(draw, users, ranked, THRESHOLD, given.years, given.seed)
        often = false_alarms(draw, users, ranked, 30.0, given.years, given.seed)
        allowed = [2 * 365 * given.years / days for days in (THRESHOLD, 30.0)]
        print(f"| {name} | {allowed[0]:.1f} | {rare} | {allowed[1]:,.0f} | {often} |", flush=True)
    print("\n| change | noticed | median delay | 90% within |\n|---|---|---|---|")
    changes: tuple[tuple[str, Draw, int, bool], ...] = (
        ("thumbs up from 80% to 70%, 30 users a day", thumbs(0.8, 0.7), 30, False),
        ("thumbs up from 80% to 60%, 30 users a day", thumbs(0.8, 0.6), 30, False),
        ("thumbs up from 80% to 60%, 200 users a day", thumbs(0.8, 0.6), 200, False),
        ("errors from 1% to 3%, 200 users a day", thumbs(0.01, 0.03), 200, False),
        ("errors from 1% to 10%, 200 users a day", thumbs(0.01, 0.1), 200, False),
        ("seconds times 1.2, 100 users a day", seconds(1.2), 100, True),
        ("seconds times 1.5, 100 users a day", seconds(1.5), 100, True),
    )
    for name, draw, users, ranked in changes:
        found = np.array([delay(draw, users, ranked, 1000 + n)[0] for n in range(given.seeds)])
        known = np.sort(np.where(np.isnan(found), np.inf, found))
        middle, late = (known[int(share * (given.seeds - 1))] for share in (0.5, 0.9))
        shown = [f"{one:.0f} day{'s'[: one != 1]}" if np.isfinite(one) else "–" for one in (middle, late)]
        print(
            f"| {name} | {np.isfinite(known).sum()} of {given.seeds} | {shown[0]} | {shown[1]} |", flush=True
        )


if __name__ == "__main__":
    main()
