"""Which pairs to show people: how good the chosen prompt is after some choices. Prints a table of docs/figures.md.

    python benchmarks/duels.py [--pools 24] [--seed 0]

Needs numpy only; takes about two minutes on one core. People and prompts are simulated: strengths are linear in
six-dimensional embeddings (standard deviation 2), and the stronger of two is preferred with the probability
sigmoid(difference). Regret is the strength of the best prompt minus that of the chosen one.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from whet.stats.duels import Choice, copeland, double_thompson, wins_of

SETTINGS = ((5, (20, 60)), (10, (40, 120)), (40, (40, 120)))


def pool(n: int, rng: np.random.Generator) -> np.ndarray:
    """Strengths of n simulated prompts."""
    s = rng.normal(size=(n, 6)) @ rng.normal(size=6)
    return np.asarray(2 * (s - s.mean()) / s.std())


def uniform(wins: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Two prompts at random, to compare with."""
    first, second = rng.choice(len(wins), size=2, replace=False)
    return int(first), int(second)


SELECTORS = {"uniform": uniform, "double Thompson": double_thompson}


def simulate_choices(selector: str, strengths: np.ndarray, number: int, seed: int) -> list[Choice]:
    """Choices of simulated people between the pairs that a selector wants."""
    rng, choices = np.random.default_rng(seed), list[Choice]()
    wins = np.zeros((len(strengths), len(strengths)))
    for _ in range(number):
        first, second = SELECTORS[selector](wins, rng)
        chance = 1 / (1 + math.exp(strengths[second] - strengths[first]))
        choices.append((first, second, float(rng.random() < chance)))
        wins[first, second] += choices[-1][2]
        wins[second, first] += 1 - choices[-1][2]
    return choices


def regrets(selector: str, strengths: np.ndarray, looks: tuple[int, ...], seed: int) -> list[float]:
    """Regret of the chosen prompt after each of these numbers of choices."""
    choices = simulate_choices(selector, strengths, looks[-1], seed)
    best = [copeland(wins_of(range(len(strengths)), choices[:look]))[0] for look in looks]
    return [float(strengths.max() - strengths[one]) for one in best]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pools", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(
        "Simulated people and prompts: mean regret (standard error), and how often the best prompt is chosen"
    )
    for n, looks in SETTINGS:
        rows: dict[str, list[list[float]]] = {name: [] for name in SELECTORS}
        for k in range(given.pools):
            strengths = pool(n, np.random.default_rng([given.seed, n, k]))
            for name in SELECTORS:
                rows[name].append(regrets(name, strengths, looks, 1000 + k))
        for name, values in rows.items():
            table = np.array(values)
            error = table.std(axis=0, ddof=1) / math.sqrt(len(table))
            cells = [
                f"{look} choices: {mean:.2f} ({e:.2f}), best {best:.0%}"
                for look, mean, e, best in zip(looks, table.mean(0), error, (table == 0).mean(0), strict=True)
            ]
            print(f"  {n:3} prompts  {name:15} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
