"""Is there anything to gain? The headroom test of "Coin Flip" before a search, two repairs, and `whet advise`. SIMULATED rewards.

    python benchmarks/headroom.py [--tasks 1000] [--rows 30,100,200,400] [--candidates 15] [--seed 0]

After "Prompt Optimization Is a Coin Flip" (arXiv:2604.14585): rank some candidate prompts on a small set, and optimise only where
the best one is more than two points above the prompt as written. A simulated task has rows of mixed difficulty; the prompt as
written is right on .7 of them. In every second task all candidates are worth the same; in the others one of them is better by a
headroom drawn from .05 to .2. The rules, each of which says go or stop:

- raw: the best of the candidates is more than .02 above the start, on the same rows;
- fresh rows: that best one is promoted over the start by `whet.stats.decide` on as many fresh rows, alpha .05;
- variance: Cochran's Q of all candidates and the start on the same rows, at .05;
- advise: what `whet.advise` says of a task with so many test rows, which asks no candidate: the gain that its test can show.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import whet
from whet.stats import decide, interval
from whet.task import Task

Array = NDArray[np.float64]
START, MARGIN, ALPHA = 0.7, 0.02, 0.05


def rewards(rng: np.random.Generator, rows: int, gains: Array) -> Array:
    """Rewards of prompts with these gains, by prompt and row. The chance of a row is drawn from Beta(1.4, .6)."""
    easy = rng.beta(1.4, 0.6, rows)
    chances = easy[None, :] + gains[:, None] * (1 - easy)[None, :] / (1 - START)
    return (rng.random(chances.shape) < chances).astype(np.float64)


def cochran(table: Array) -> float:
    """The p-value of Cochran's Q: whether prompts (the first axis) differ on right-or-wrong rows (Biometrika 37:256, 1950)."""
    k, by_prompt, by_row = len(table), table.sum(1), table.sum(0)
    below = k * by_row.sum() - (by_row**2).sum()
    q = (k - 1) * (k * (by_prompt**2).sum() - by_prompt.sum() ** 2) / below if below else 0.0
    return float(stats.chi2.sf(q, k - 1))


def rules(rng: np.random.Generator, rows: int, gains: Array) -> dict[str, bool]:
    """What each rule says of one task; the first of the prompts is the start."""
    seen, fresh = rewards(rng, rows, gains), rewards(rng, rows, gains)
    best = 1 + int(seen[1:].mean(1).argmax())
    return {
        "raw": bool(seen[best].mean() - seen[0].mean() > MARGIN),
        "fresh rows": decide(fresh[0].tolist(), fresh[best].tolist(), 0.0, 1.0, ALPHA).promoted,
        "variance": cochran(seen) <= ALPHA,
    }


def advice_for(rows: int) -> str:
    """What `whet.advise` says of a task with so many test rows, whose model is right on about .7 of the inputs."""

    def data(first: int, count: int) -> list[dict[str, str]]:
        return [{"input": f"Row {n}", "target": "yes"} for n in range(first, first + count)]

    def model(messages: list[whet.Message]) -> str:
        return "yes" if int(messages[-1].content.split()[-1]) % 10 < 10 * START else "no"

    task = Task.of(
        "<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->",
        data={"train": data(0, 40), "validation": data(1000, 50), "test": data(2000, rows)},
        reward="exact_match",
    )
    gain = whet.advise(task, lm=model)["test"]["gain"]
    return f"{rows} rows show {gain['none_worse']:.3f}, or {gain['some_worse']:.3f} where one row of twenty gets worse"


def main() -> None:
    """Print the shares of go, and how often each rule is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rows", default="30,100,200,400")
    parser.add_argument("--candidates", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("WHET_STATE", tempfile.mkdtemp(prefix="headroom-"))
    cost: dict[str, Callable[[int], int]] = {
        "raw": lambda n: (options.candidates + 1) * n,
        "fresh rows": lambda n: (options.candidates + 3) * n,
        "variance": lambda n: (options.candidates + 1) * n,
    }
    print("| rows, rule | go without headroom | go with .05 to .1 | go with .1 to .2 | right | task calls |")
    print("|---|---|---|---|---|---|")
    sizes = [int(n) for n in options.rows.split(",")]
    for n in sizes:
        said: dict[str, dict[str, list[bool]]] = {
            name: {"none": [], "small": [], "large": []} for name in cost
        }
        for number in range(options.tasks):
            rng = np.random.default_rng([options.seed, n, number])
            headroom = rng.uniform(0.05, 0.2) if number % 2 else 0.0
            gains = np.zeros(options.candidates + 1)
            gains[1] = headroom
            kind = "none" if not headroom else "small" if headroom < 0.1 else "large"
            for name, go in rules(rng, n, gains).items():
                said[name][kind].append(go)
        for name, by_kind in said.items():
            right = by_kind["small"] + by_kind["large"] + [not go for go in by_kind["none"]]
            cells = [share(by_kind[kind]) for kind in ("none", "small", "large")]
            print(f"| {n}, {name} | {' | '.join(cells)} | {share(right)} | {cost[name](n):,} |", flush=True)
    print(
        "\nThe gain that a test can show by whet advise, without a call:", "; ".join(map(advice_for, sizes))
    )


def share(said: list[bool]) -> str:
    """A share with its 95% interval."""
    over = interval([float(go) for go in said], 0.0, 1.0)
    return f"{over.mean:.2f} [{over.low:.2f}, {over.high:.2f}]"


if __name__ == "__main__":
    main()
