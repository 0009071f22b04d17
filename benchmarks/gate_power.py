"""What the gate costs and what it buys, by simulation: prints tables of docs/figures.md.

    python benchmarks/gate_power.py [--experiments 10000] [--seed 0]

Needs numpy and scipy; takes about a minute and a half on one core. Differences are rewards of the candidate
minus rewards of the baseline, in units of the range's width.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from whet.stats import interval
from whet.stats.betting import BETS, LOG_WEIGHTS, confidence_sequence

Array = NDArray[np.float64]
Sampler = Callable[[np.random.Generator, int, int], Array]

ALPHA = 0.05
SIZES = (20, 50, 100, 200, 500)
EFFECTS = (0.05, 0.1, 0.2, 0.3, 0.5)
LOSSES = 0.05


def outcomes(wins: float, losses: float) -> Sampler:
    """Differences of right-or-wrong rewards: 1 with probability wins, -1 with probability losses, else 0."""

    def sample(rng: np.random.Generator, experiments: int, n: int) -> Array:
        u = rng.random((experiments, n))
        return (u < wins).astype(np.float64) - (u > 1 - losses)

    return sample


def draw_graded_differences(rng: np.random.Generator, experiments: int, n: int) -> Array:
    """Differences of two independent rewards with the same Beta(2, 1) distribution."""
    return rng.beta(2, 1, (experiments, n)) - rng.beta(2, 1, (experiments, n))


def rare_damage(rng: np.random.Generator, experiments: int, n: int) -> Array:
    """A little better on 95% of the examples, much worse on 5%: the mean difference is 0."""
    return np.where(rng.random((experiments, n)) < 0.95, 0.05, -0.95)


NULLS: dict[str, Sampler] = {
    "0/1, 10% of the examples differ": outcomes(0.05, 0.05),
    "0/1, 40% of the examples differ": outcomes(0.2, 0.2),
    "0/1, all examples differ": outcomes(0.5, 0.5),
    "graded (Beta)": draw_graded_differences,
    "rare damage (95% +0.05, 5% -0.95)": rare_damage,
}


def share(hits: int, trials: int) -> str:
    """A share in percent with its exact (Clopper-Pearson) 95% interval."""
    found = stats.binomtest(hits, trials).proportion_ci(method="exact")
    return f"{100 * hits / trials:.2f} ({100 * found.low:.2f} to {100 * found.high:.2f})"


def e_values(differences: Array) -> Array:
    """The one-sided e-value against E[d] <= 0 after every example: (experiments, n)."""
    growth = np.zeros((len(differences), len(BETS)))
    found = np.empty_like(differences)
    for step in range(differences.shape[1]):
        growth += np.log1p(np.multiply.outer(differences[:, step], BETS))
        found[:, step] = np.exp(growth) @ np.exp(LOG_WEIGHTS)
    return found


def t_test_p_values(differences: Array) -> Array:
    """One-sided p-values of the paired t-test after every example from the second on; 1 without variance."""
    n = np.arange(1, differences.shape[1] + 1)
    mean = differences.cumsum(1) / n
    variance = ((differences**2).cumsum(1) - n * mean**2)[:, 1:] / (n[1:] - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = mean[:, 1:] / np.sqrt(variance / n[1:])
    return np.where(variance > 1e-12, stats.t.sf(statistic, n[1:] - 1), 1.0)


def sign_test_p_values(differences: Array) -> Array:
    """One-sided p-values of the exact sign test on untied examples (for 0/1 rewards: exact McNemar)."""
    wins, losses = (differences > 0).cumsum(1), (differences < 0).cumsum(1)
    return np.asarray(stats.binom.sf(wins - 1, wins + losses, 0.5))


def false_promotions(experiments: int, rng: np.random.Generator) -> None:
    """Null hypotheses: how often a look after every example, up to 500, ends in a promotion."""
    print(
        f"\n## False promotions in percent, {experiments:,} experiments, a look after each of 500 examples\n"
    )
    print("| no real difference | gate (e >= 40) | e >= 20 | sign test, p <= .025 | t-test, p <= .025 |")
    print("|---|---|---|---|---|")
    for name, sampler in NULLS.items():
        differences = sampler(rng, experiments, 500)
        top = e_values(differences).max(1)
        sign = (sign_test_p_values(differences) <= ALPHA / 2).any(1)
        t_test = (t_test_p_values(differences)[:, 3:] <= ALPHA / 2).any(1)
        cells = [top >= 2 / ALPHA, top >= 1 / ALPHA, sign, t_test]
        print(f"| {name} | " + " | ".join(share(int(c.sum()), experiments) for c in cells) + " |")


def critical_wins(log_weights: Array, threshold: float, most: int) -> NDArray[np.int64]:
    """For each number of untied examples the fewest wins whose e-value reaches it (else most + 1)."""
    found = np.full(most + 1, most + 1)
    for untied in range(1, most + 1):
        wins = np.arange(untied + 1)[:, None]
        logs = log_weights + wins * np.log1p(BETS) + (untied - wins) * np.log1p(-BETS)
        reached = np.flatnonzero(np.logaddexp.reduce(logs, axis=1) >= np.log(threshold))
        if reached.size:
            found[untied] = reached[0]
    return found


def sign_test_wins(level: float, most: int) -> NDArray[np.int64]:
    """The same for the exact sign test at a one-sided level."""
    found = np.full(most + 1, most + 1)
    for untied in range(1, most + 1):
        reached = np.flatnonzero(stats.binom.sf(np.arange(untied + 1) - 1, untied, 0.5) <= level)
        if reached.size:
            found[untied] = reached[0]
    return found


def exact_power(critical: NDArray[np.int64], n: int, wins: float, losses: float) -> float:
    """Probability that n examples hold enough wins, by summing over the number of untied examples."""
    untied = np.arange(n + 1)
    chance = stats.binom.pmf(untied, n, wins + losses)
    return float(chance @ stats.binom.sf(critical[: n + 1] - 1, untied, wins / (wins + losses)))


def t_test_power(n: int, effect: float, losses: float, experiments: int, rng: np.random.Generator) -> float:
    """Simulated power of the one-sided paired t-test at alpha / 2."""
    differences = outcomes(effect + losses, losses)(rng, experiments, n)
    return float((t_test_p_values(differences)[:, -1] <= ALPHA / 2).mean())


def power(experiments: int, rng: np.random.Generator) -> None:
    """Power at one look, 0/1 rewards: the gate, the same at e >= 20, and two fixed-sample tests."""
    gate, one_sided = (critical_wins(LOG_WEIGHTS, c / ALPHA, max(SIZES)) for c in (2, 1))
    sign = sign_test_wins(ALPHA / 2, max(SIZES))
    print(
        "\n## Power in percent at one look: gate / e >= 20 / exact McNemar, p <= .025 / paired t, p <= .025\n"
    )
    print(f"0/1 rewards; breaks {100 * LOSSES:g}% of the examples, repairs that plus the effect.\n")
    print("| examples | " + " | ".join(f"effect {e:g}" for e in EFFECTS) + " |")
    print("|---|" + "---|" * len(EFFECTS))
    for n in SIZES:
        cells = []
        for effect in EFFECTS:
            found = [exact_power(c, n, effect + LOSSES, LOSSES) for c in (gate, one_sided, sign)]
            found.append(t_test_power(n, effect, LOSSES, experiments, rng))
            cells.append(" / ".join(f"{100 * p:.0f}" for p in found))
        print(f"| {n} | " + " | ".join(cells) + " |")


def examples_for_power() -> None:
    """Examples needed for a power of 80%, and their ratio: the price of anytime validity."""
    most = 4000
    gate, sign = critical_wins(LOG_WEIGHTS, 2 / ALPHA, most), sign_test_wins(ALPHA / 2, most)
    print("\n## Examples for a power of 80 %\n\n| effect | gate | exact McNemar | ratio |\n|---|---|---|---|")
    for effect in EFFECTS:
        needed = []
        for critical in (gate, sign):
            low, high = 1, most
            while high - low > 1:
                middle = (low + high) // 2
                enough = exact_power(critical, middle, effect + LOSSES, LOSSES) >= 0.8
                low, high = (low, middle) if enough else (middle, high)
            needed.append(high)
        print(f"| {effect:g} | {needed[0]} | {needed[1]} | {needed[0] / needed[1]:.2f} |")


def scenarios() -> list[tuple[int, float, float]]:
    """Number of examples, effect, share of broken examples (2, 10 and 20%, where they leave room)."""
    pairs = [
        (effect, losses) for effect in EFFECTS for losses in (0.02, 0.1, 0.2) if effect + 2 * losses <= 1
    ]
    return [(n, effect, losses) for n in SIZES for effect, losses in pairs]


def predictable(rule: str, cap: float) -> Callable[[Array], Array]:
    """Last capital of a gambler who sets each bet from the differences before it.

    aGRAPA: mean / (variance + mean^2). Plug-in: sqrt(2 log(2/alpha) / (variance t log(t + 1))) in the
    scale of x = (d + 1)/2, so half of it in the scale of d. Both cut off at `cap` (Waudby-Smith and
    Ramdas 2024, section 4 and appendix B), with one pseudo-observation of mean 0, variance 1/4 of x.
    """

    def capital(differences: Array) -> Array:
        experiments, n = differences.shape
        total, squares, log_capital = np.zeros(experiments), np.ones(experiments), np.zeros(experiments)
        for step in range(1, n + 1):
            mean = total / step
            variance = np.maximum(squares / step - mean**2, 1e-6)
            if rule == "aGRAPA":
                bet = mean / (variance + mean**2)
            else:
                bet = np.sqrt(2 * np.log(2 / ALPHA) / (variance / 4 * step * np.log(step + 1))) / 2
            d = differences[:, step - 1]
            log_capital += np.log1p(np.clip(bet, 0, cap) * d)
            total, squares = total + d, squares + d**2
        return np.exp(log_capital)

    return capital


def mixtures(experiments: int, rng: np.random.Generator) -> None:
    """Average power of several ways to bet, at e >= 40 and one look."""
    slope = BETS * (1 - BETS)
    densities = {
        "Beta(2, 2) (chosen)": slope**2,
        "Beta(1.5, 1.5)": slope**1.5,
        "uniform": slope,
        "Beta(1/2, 1/2)": slope**0.5,
        "Beta(2, 1)": slope * BETS,
        "Beta(1, 2)": slope * (1 - BETS),
        "uniform in log b": 1 - BETS,
    }
    print(f"\n## Ways to bet: mean power in percent over {len(scenarios())} settings, at e >= 40\n")
    print("| bets | all | " + " | ".join(f"n = {n}" for n in SIZES) + " |\n|---|---|" + "---|" * len(SIZES))
    for name, density in densities.items():
        critical = critical_wins(np.log(density / density.sum()), 2 / ALPHA, max(SIZES))
        _print_powers(name, [exact_power(critical, n, e + lost, lost) for n, e, lost in scenarios()])
    for name, gambler in {
        "aGRAPA, bets up to 1/2": predictable("aGRAPA", 0.5),
        "aGRAPA, bets up to 0.9": predictable("aGRAPA", 0.9),
        "predictable plug-in, up to 1/2": predictable("plug-in", 0.5),
        "predictable plug-in, up to 0.9": predictable("plug-in", 0.9),
    }.items():
        powers = []
        for n, effect, lost in scenarios():
            capital = gambler(outcomes(effect + lost, lost)(rng, experiments // 5, n))
            powers.append(float((capital >= 2 / ALPHA).mean()))
        _print_powers(name, powers)


def _print_powers(name: str, powers: Sequence[float]) -> None:
    sizes = np.array([n for n, _, _ in scenarios()])
    cells = [np.mean(powers), *(np.mean(np.array(powers)[sizes == n]) for n in SIZES)]
    print(f"| {name} | " + " | ".join(f"{100 * c:.1f}" for c in cells) + " |")


def coverage(experiments: int, rng: np.random.Generator) -> None:
    """Coverage of the 95% intervals, and their width beside the t interval's."""
    print(
        "\n## Wilson interval for right-or-wrong rewards: exact coverage in percent over means 0.01 to 0.99\n"
    )
    print("| examples | mean | smallest |\n|---|---|---|")
    for n in SIZES:
        ends = [interval([1.0] * k + [0.0] * (n - k), 0.0, 1.0) for k in range(n + 1)]
        lows, highs = np.array([e.low for e in ends]), np.array([e.high for e in ends])
        means = np.linspace(0.01, 0.99, 197)
        inside = (lows <= means[:, None]) & (means[:, None] <= highs)
        covered = (inside * stats.binom.pmf(np.arange(n + 1), n, means[:, None])).sum(1)
        print(f"| {n} | {100 * covered.mean():.1f} | {100 * covered.min():.1f} |")
    print("\n## Confidence sequence for the mean difference: misses in percent within 500 looks\n")
    print("| differences | any look | last look | t, any look | t, last look |\n|---|---|---|---|---|")
    for name, sampler in NULLS.items():
        differences = sampler(rng, experiments, 500)
        top = np.maximum(e_values(differences), e_values(-differences)) >= 2 / ALPHA
        p = t_test_p_values(differences)[:, 3:]
        t_misses = (p <= ALPHA / 2) | (p >= 1 - ALPHA / 2) & (p < 1)
        cells = [top.any(1), top[:, -1], t_misses.any(1), t_misses[:, -1]]
        print(f"| {name} | " + " | ".join(share(int(c.sum()), experiments) for c in cells) + " |")
    _widths(rng)


def _widths(rng: np.random.Generator) -> None:
    print("\n## Width of the confidence sequence over the width of the t interval (mean of 20 samples)\n")
    sizes = (*SIZES, 5000, 20000)
    samplers = {
        "0/1, 40% of the examples differ": NULLS["0/1, 40% of the examples differ"],
        "graded (Beta)": draw_graded_differences,
    }
    print("| differences | " + " | ".join(f"n = {n:,}" for n in sizes) + " |\n|---|" + "---|" * len(sizes))
    for name, sampler in samplers.items():
        cells = []
        for n in sizes:
            ratios = []
            for sample in sampler(rng, 20, n):
                low, high = confidence_sequence(sample, -1.0, 1.0, ALPHA)
                half = stats.t.ppf(1 - ALPHA / 2, n - 1) * sample.std(ddof=1) / np.sqrt(n)
                ratios.append((high - low) / (2 * half))
            cells.append(f"{np.mean(ratios):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description="Error rates, power and coverage of the gate.")
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    false_promotions(given.experiments, rng)
    power(given.experiments, rng)
    examples_for_power()
    mixtures(given.experiments, rng)
    coverage(given.experiments, rng)


if __name__ == "__main__":
    main()
