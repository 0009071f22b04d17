"""MultiPrompter on simulated pieces: what taking turns with few pieces each, and the critic, add.

    python benchmarks/turn_taking.py --seeds 20

A prompt needs one right piece of each of three lists of eight. All arms draw as many chains, each scored on as many rows.
Prints the true worth of the greedy prompt, from the world's law, and differences to the first arm paired by seed with Student's
intervals.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
from benchmarks.simulated.piece_writer import START, Menu, PieceWorld, PieceWriter
from scipy import stats

from whet.methods.multiprompter import Config, multiprompter
from whet.testing.runs import MeteredRun

STEPS = 20
BASE: dict[str, Any] = {"steps": STEPS, "prompters": 3, "group": 16, "examples": 2, "kl": 0.0, "checks": 0,
                        "rewrites": 1, "advantage": "dr_grpo"}  # fmt: skip
ARMS: Mapping[str, tuple[Menu, Mapping[str, Any]]] = {
    "own lists, critic": ("divided", {"lr": 15.0}),
    "own lists, shared": ("divided", {"lr": 15.0, "credit": "shared"}),
    "all lists for each, critic": ("all", {"lr": 15.0}),
    "all lists for each, shared": ("all", {"lr": 15.0, "credit": "shared"}),
    "one writer of all three": ("whole", {"lr": 15.0, "prompters": 1, "credit": "shared"}),
}


def arm(name: str, seed: int) -> float:
    """The true worth of the greedy prompt that an arm ends with."""
    world, (menu, settings) = PieceWorld(seed), ARMS[name]
    policy: Any = PieceWriter(world, menu)
    env = world.environment()
    asyncio.run(
        multiprompter(
            MeteredRun({"task": env.model}, seed), env, policy, START, Config(**{**BASE, **settings})
        )
    )
    pieces = [policy.menus[turn][int(policy.chances(turn).argmax())] for turn in range(len(policy.menus))]
    return world.worth(" ".join(pieces))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    figures = {name: np.array([arm(name, seed) for seed in seeds]) for name in ARMS}
    first = next(iter(figures.values()))
    for name, values in figures.items():
        gap = first - values
        half = stats.t.ppf(0.975, options.seeds - 1) * gap.std(ddof=1) / options.seeds**0.5
        low, high = gap.mean() - half, gap.mean() + half
        print(f"{name:30} {values.mean():.3f}   first - it: {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
