"""Which pairs to show people: how good the chosen prompt is after some choices. Prints a table of docs/experiments.md.

    python benchmarks/duels.py [--pools 24] [--seed 0]

Needs numpy only; takes about two minutes on one core. People and prompts are simulated: strengths are linear in
six-dimensional embeddings (standard deviation 2), and the stronger of two is preferred with the probability
sigmoid(difference). Regret is the strength of the best prompt minus that of the chosen one.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from whet.live.duels import Apohf, Duels, Pdo, Selector, Uniform

SETTINGS = ((5, (20, 60)), (10, (40, 120)), (40, (40, 120)))


def pool(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and strengths of n simulated prompts."""
    x = rng.normal(size=(n, 6))
    s = x @ rng.normal(size=6)
    return x, 2 * (s - s.mean()) / s.std()


def regrets(selector: Selector, strengths: np.ndarray, looks: tuple[int, ...], seed: int) -> list[float]:
    """Regret of the chosen prompt after each of these numbers of choices."""
    rng, duels, found = np.random.default_rng(seed), Duels(len(strengths)), []
    for number in range(1, looks[-1] + 1):
        first, second = selector.next_pair(duels, rng)
        chance = 1 / (1 + math.exp(strengths[second] - strengths[first]))
        duels.observe(first, second, float(rng.random() < chance))
        if number in looks:
            found.append(float(strengths.max() - strengths[selector.best(duels)]))
    return found


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
        rows: dict[str, list[list[float]]] = {"uniform": [], "pdo": [], "apohf": []}
        for k in range(given.pools):
            x, strengths = pool(n, np.random.default_rng([given.seed, n, k]))
            selectors = {"uniform": Uniform(), "pdo": Pdo(), "apohf": Apohf(x, steps=100, rate=0.01)}
            for name, selector in selectors.items():
                rows[name].append(regrets(selector, strengths, looks, 1000 + k))
        for name, values in rows.items():
            table = np.array(values)
            error = table.std(axis=0, ddof=1) / math.sqrt(len(table))
            cells = [
                f"{look} choices: {mean:.2f} ({e:.2f}), best {best:.0%}"
                for look, mean, e, best in zip(looks, table.mean(0), error, (table == 0).mean(0), strict=True)
            ]
            print(f"  {n:3} prompts  {name:8} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
