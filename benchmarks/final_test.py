"""The test of best against baseline: what it needs and how often it errs, by simulation. Prints tables of docs/gate.md.

    python benchmarks/final_test.py [--runs 400] [--seed 0]

Needs numpy and scipy. About a minute on one core, with `--runs 10000` half an hour. Differences are rewards of best minus
rewards of baseline in units of the range's width. All tests are one-sided at alpha / 2 = 2.5%.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from whet.stats.paired import p_value

Array = NDArray[np.float64]
Rows = tuple[Array, NDArray[np.int64] | None]
Sampler = Callable[[np.random.Generator, int], Array]
Test = Callable[[Array], float]

ALPHA = 0.05
DRAWS = 1_999


def right_or_wrong(wins: float, losses: float) -> Sampler:
    """Differences of 0/1 rewards."""
    return lambda rng, n: rng.choice([1.0, -1.0, 0.0], n, p=[wins, losses, 1 - wins - losses])


def ordinal(shift: float, level: float) -> Sampler:
    """Differences of marks from 1 to 5 for the same rows: a row's own difficulty, and noise for each answer."""

    def sample(rng: np.random.Generator, n: int) -> Array:
        row = rng.normal(level, 1, n)
        marks = [np.digitize(row + s + rng.normal(0, 0.7, n), (-1.5, -0.5, 0.5, 1.5)) for s in (0, shift)]
        return (marks[1] - marks[0]) / 4

    return sample


def normal(effect: float, spread: float) -> Sampler:
    """Graded differences of this mean and standard deviation."""
    return lambda rng, n: np.clip(rng.normal(effect, spread, n), -1, 1)


def draw_graded_differences(rng: np.random.Generator, n: int) -> Array:
    """Differences of rewards between 0 and 1: best Beta(6, 3), baseline Beta(5, 4), correlated by the row."""
    row = rng.normal(size=n)
    u = [stats.norm.cdf(0.7 * row + 0.51**0.5 * rng.normal(size=n)) for _ in range(2)]
    return np.asarray(stats.beta.ppf(u[0], 6, 3) - stats.beta.ppf(u[1], 5, 4))


def mcnemar(d: Array) -> float:
    """Exact McNemar test."""
    wins, losses = int((d > 0).sum()), int((d < 0).sum())
    return float(stats.binom.sf(wins - 1, wins + losses, 0.5))


def paired_t(d: Array) -> float:
    """Paired t-test; 1 without any spread."""
    spread = d.std(ddof=1)
    return float(stats.t.sf(d.mean() / spread * len(d) ** 0.5, len(d) - 1)) if spread > 1e-12 else 1.0


def wilcoxon(d: Array) -> float:
    """Wilcoxon's signed-rank test, zeros dropped, corrected for ties."""
    d = d[d != 0]
    if len(d) == 0:
        return 1.0
    ranks = stats.rankdata(np.abs(d))
    return float(stats.norm.sf(ranks @ np.sign(d) / np.sqrt((ranks**2).sum())))


def ours(d: Array) -> float:
    """The gate's test."""
    return p_value(d, draws=DRAWS)


WORLDS: dict[str, tuple[Sampler, dict[str, Test], int]] = {
    "0/1: repairs 10%, breaks 5%": (right_or_wrong(0.10, 0.05), {"exact McNemar": mcnemar}, 500),
    "0/1: repairs 25%, breaks 5%": (right_or_wrong(0.25, 0.05), {"exact McNemar": mcnemar}, 61),
    "0/1: repairs 50%, breaks none": (right_or_wrong(0.5, 0.0), {"exact McNemar": mcnemar}, 15),
    "5 levels, shift 0.5": (ordinal(0.5, 0.0), {"paired t": paired_t, "Wilcoxon": wilcoxon}, 36),
    "5 levels, shift 0.3": (ordinal(0.3, 0.0), {"paired t": paired_t, "Wilcoxon": wilcoxon}, 95),
    "5 levels near the top, shift 0.6": (ordinal(0.6, 1.0), {"paired t": paired_t, "Wilcoxon": wilcoxon}, 37),
    "graded: effect 0.05, spread 0.05": (normal(0.05, 0.05), {"paired t": paired_t}, 10),
    "graded: effect 0.05, spread 0.15": (normal(0.05, 0.15), {"paired t": paired_t}, 73),
    "graded: Beta(6, 3) against Beta(5, 4)": (draw_graded_differences, {"paired t": paired_t}, 25),
}


def rows_for_power(samples: Sequence[Sequence[Array]], sizes: Sequence[int], test: Test) -> float:
    """Rows for a power of 80%: the normal quantile of the simulated power, fitted by a line in the root of n."""
    power = [np.clip(np.mean([test(d) <= ALPHA / 2 for d in some]), 0.01, 0.99) for some in samples]
    slope, start = np.polyfit(np.sqrt(sizes), stats.norm.ppf(power), 1)
    return float(((stats.norm.ppf(0.8) - start) / slope) ** 2)


def power(runs: int, rng: np.random.Generator) -> None:
    """The table of rows needed."""
    print("\n| rewards | this test | best textbook test | ratio |\n|---|---|---|---|")
    for name, (sampler, tests, near) in WORLDS.items():
        sizes = sorted({round(near * share) for share in (0.75, 0.9, 1.0, 1.1, 1.3)})
        samples = [[sampler(rng, n) for _ in range(runs)] for n in sizes]
        needed = {label: rows_for_power(samples, sizes, test) for label, test in tests.items()}
        best = min(needed, key=lambda label: needed[label])
        own = rows_for_power(samples, sizes, ours)
        print(f"| {name} | {own:.1f} | {needed[best]:.1f} ({best}) | {own / needed[best]:.2f} |")


def copies(rows: int, times: int) -> Callable[[np.random.Generator], Rows]:
    """Rows that stand in the test several times with ids of their own."""
    return lambda rng: (
        np.repeat(right_or_wrong(0.2, 0.2)(rng, rows), times),
        np.repeat(np.arange(rows), times),
    )


def conversations(rng: np.random.Generator) -> Rows:
    """20 conversations of 5 turns whose differences share half of their variance."""
    d = rng.normal(0, 0.1, (20, 1)) + rng.normal(0, 0.1, (20, 5))
    return d.ravel(), np.repeat(np.arange(20), 5)


def outage(share: float) -> Callable[[np.random.Generator], Rows]:
    """Two equal prompts; the provider fails on this share of the baseline's calls. Failed ones are asked again once, and then
    count as right: a promotion must hold in the worst case. Where both are equal, both are right."""

    def sample(rng: np.random.Generator) -> Rows:
        d = right_or_wrong(0.2, 0.2)(rng, 100)
        failed = (rng.random(100) < share) & (rng.random(100) < share)
        return np.where(failed, np.minimum(d, 0.0), d), None

    return sample


def rows(sampler: Sampler, n: int) -> Callable[[np.random.Generator], Rows]:
    """Independent rows."""
    return lambda rng: (sampler(rng, n), None)


def two_values(usual: float, share: float) -> Sampler:
    """`usual` on most rows, and on a share of them what makes the mean 0."""
    return lambda rng, n: np.where(rng.random(n) < share, usual - usual / share, usual)


def lognormal(rng: np.random.Generator, n: int) -> Array:
    """A long tail of losses (skewness -6)."""
    return np.asarray(0.05 * (np.exp(0.5) - np.minimum(rng.lognormal(0, 1, n), 20)))


NULLS: dict[str, Callable[[np.random.Generator], Rows]] = {
    "20 rows x 5 copies": copies(20, 5),
    "10 rows x 10 copies": copies(10, 10),
    "20 conversations x 5 turns": conversations,
    "outage of 10%": outage(0.1),
    "outage of 20%": outage(0.2),
    "outage of 30%": outage(0.3),
    "ties: 4 of 5 rows equal, 50 rows": rows(
        lambda rng, n: rng.choice([-0.25, 0, 0.25], n, p=[0.1, 0.8, 0.1]), 50
    ),
    "0/1, 200 rows": rows(right_or_wrong(0.2, 0.2), 200),
    "5 levels, 50 rows": rows(ordinal(0.0, 0.0), 50),
    "skew: Beta(5, 1), 20 rows": rows(lambda rng, n: rng.beta(5, 1, n) - 5 / 6, 20),
    "skew: exponential, 20 rows": rows(lambda rng, n: 0.1 - np.minimum(rng.exponential(0.1, n), 1), 20),
    "skew: lognormal, 10 rows (named in docs/gate.md)": rows(lognormal, 10),
    "skew: lognormal, 20 rows": rows(lognormal, 20),
    "skew: lognormal, 100 rows": rows(lognormal, 100),
    "-0.4 on 20% of the rows, else +0.1, 30 rows": rows(two_values(0.1, 0.2), 30),
    "-0.9 on 10%, else +0.1, 50 rows": rows(two_values(0.1, 0.1), 50),
    "-0.95 on 5%, else +0.05, 100 rows": rows(two_values(0.05, 0.05), 100),
    "+0.95 on 5%, else -0.05, 100 rows": rows(two_values(-0.05, 0.05), 100),
}


def noisy(usual: float, share: float) -> Sampler:
    """As `two_values` with the range's width as the loss, and noise that hides that the others are all alike."""
    return lambda rng, n: two_values(usual, share)(rng, n) + rng.normal(0, usual, n)


UNSEEN = [(noisy(q / (1 - q), q), q, n) for q in (0.05, 0.1, 0.2) for n in (10, 20, 50, 100)]


def rate(sampler: Callable[[np.random.Generator], Rows], runs: int, rng: np.random.Generator) -> str:
    """Share of promotions in percent with its exact 95% interval. A gain of at most 0 has a p-value of at least 1/4."""
    samples = (sampler(rng) for _ in range(runs))
    hits = sum(d.sum() > 0 and p_value(d, index, draws=DRAWS) <= ALPHA / 2 for d, index in samples)
    ends = stats.binomtest(hits, runs).proportion_ci(method="exact")
    return f"{100 * hits / runs:.2f} ({100 * ends.low:.2f} to {100 * ends.high:.2f})"


def errors(runs: int, rng: np.random.Generator) -> None:
    """The tables of promotions where there is no difference."""
    print("\n| no real difference | promoted, % |\n|---|---|")
    for name, sampler in NULLS.items():
        print(f"| {name} | {rate(sampler, runs, rng)} |")
    print("\n| losses of the whole range | rows | no loss seen, % | promoted, % |\n|---|---|---|---|")
    for sampler, share, n in UNSEEN:
        cells = f"{100 * share:g}% | {n} | {100 * (1 - share) ** n:.1f}"
        print(f"| {cells} | {rate(rows(sampler, n), runs, rng)} |")


def of_sizes(clusters: int, low: int, high: int) -> Callable[[np.random.Generator], Rows]:
    """Groups of some to many rows whose differences share half of their variance."""

    def sample(rng: np.random.Generator) -> Rows:
        index = np.repeat(np.arange(clusters), rng.integers(low, high + 1, clusters))
        return np.clip(rng.normal(0, 0.2, clusters)[index] + rng.normal(0, 0.2, len(index)), -1, 1), index

    return sample


def large_lose(clusters: int, share: float, size: int) -> Callable[[np.random.Generator], Rows]:
    """Groups of one row gain 0.2, and a share of them is large and loses what makes the mean over rows 0."""
    loss = (1 - share) * 0.2 / (share * size)

    def sample(rng: np.random.Generator) -> Rows:
        large = rng.random(clusters) < share
        index = np.repeat(np.arange(clusters), np.where(large, size, 1))
        usual = np.where(large, -loss, 0.2)
        return np.clip(usual[index] + rng.normal(0, 0.2, len(index)), -1, 1), index

    return sample


GROUPS = {
    "6 groups of 5 rows": of_sizes(6, 5, 5),
    "8 groups of 1 to 20 rows": of_sizes(8, 1, 20),
    "20 groups of 1 to 50 rows": of_sizes(20, 1, 50),
    "20 groups, 1 of 10 large (none seen in 12.2%)": large_lose(20, 0.1, 20),
    "50 groups, 1 of 20 large (none seen in 7.7%)": large_lose(50, 0.05, 20),
    "100 groups, 1 of 20 large (none seen in 0.6%)": large_lose(100, 0.05, 20),
}


def groups(runs: int, rng: np.random.Generator) -> None:
    """The table of promotions where rows come in few groups, or where large groups differ from small ones."""
    print("\n| groups | promoted, % |\n|---|---|")
    for name, sampler in GROUPS.items():
        print(f"| {name} | {rate(sampler, runs, rng)} |")


def in_other_words(rows: int, times: int, alike: float) -> Callable[[np.random.Generator], Rows]:
    """Rows that stand in the test several times in other words, which the gate takes for rows of their own: each writing has the
    row's difference with the probability `alike`, and else one of its own."""

    def sample(rng: np.random.Generator) -> Rows:
        differences = right_or_wrong(0.2, 0.2)
        own, shared = differences(rng, rows * times), np.repeat(differences(rng, rows), times)
        return np.where(rng.random(rows * times) < alike, shared, own), None

    return sample


def paraphrases(runs: int, rng: np.random.Generator) -> None:
    """The table of promotions where rows say the same in other words."""
    print(
        "\n| writings of each row | answered alike, promoted, % | alike in 3 of 4, promoted, % |\n|---|---|---|"
    )
    for times in (1, 2, 5, 10):
        cells = [rate(in_other_words(200 // times, times, alike), runs, rng) for alike in (1.0, 0.75)]
        print(f"| {times} | {cells[0]} | {cells[1]} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description="Power and errors of the final test.")
    parser.add_argument(
        "--runs", type=int, default=400, help="simulated tests a cell (10000 for docs/gate.md)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=["power", "errors", "groups", "paraphrases"], help="this part alone"
    )
    options = parser.parse_args()
    print(f"{options.runs:,} runs a cell, seed {options.seed}")
    for number, table in enumerate((power, errors, groups, paraphrases)):
        if options.only in (None, table.__name__):
            table(options.runs, np.random.default_rng([options.seed, number] if number else options.seed))


if __name__ == "__main__":
    main()
