"""Fifty experiments on one set of test rows: what each policy for alpha finds, and how much of it is false. SIMULATED answers.

    python benchmarks/many_openings.py [--times 5000] [--seed 0]      # two minutes on one core; it needs scipy

A prompt is right on 60% of the rows. An experiment is a new prompt whose answers differ on some rows: one in five is better by
.1 on average (wins 13%, losses 3%), the others are no better (8% and 8%). Each is tested against the prompt by the exact
McNemar test at half of its level, as whet does. Policies, at alpha .05:

- strict: `whet.stats.opening_alpha`, the default;
- fdr: `whet.stats.discovery_alpha` (LORD++);
- fresh rows: each experiment is the first opening of rows of its own, under the strict schedule;
- no ledger: each experiment is tested at alpha, on the same rows.

Worlds: the assumption of the proof first, then what teams do.

- independent: each experiment draws rows of its own, and the levels fall as if they were the same;
- same rows: all experiments share the rows and the prompt's answers;
- clusters: ideas come in five variants each, which agree on 80% of the rows;
- duplicates: each idea is tested five times with the same answers;
- next baseline: a promoted prompt is the baseline of the experiments after it;
- after near misses: every second experiment is a variant of the idea with the largest difference so far, promoted or not;
- nothing is better: the same rows, and no experiment is better;
- near misses of nothing: as after near misses, and no experiment is better.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from whet.stats import discovery_alpha, opening_alpha

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
ALPHA, RIGHT, BETTER, EXPERIMENTS = 0.05, 0.6, 0.2, 50
REAL, NULL = (0.13, 0.03), (0.08, 0.08)
"""Shares of all rows that a prompt wins and loses."""
MOST_RIGHT = 0.8
"""Beyond this no experiment gains .1 any more."""
VARIANTS, AGREE = 5, 0.8
POLICIES = ("strict", "fdr", "fresh rows", "no ledger")
WORLDS = (
    *("independent", "same rows", "clusters", "duplicates", "next baseline", "after near misses"),
    *("nothing is better", "near misses of nothing"),
)
WEIGHTS = np.array([discovery_alpha(1.0, []) * 2 / number**1.6 for number in range(1, EXPERIMENTS + 2)])
"""The sequence of LORD++: its first level is half of the first weight, and the others fall by the power 1.6."""


@dataclass
class Idea:
    """One experiment in every repetition: the draws that decide on its answers, and whether it is better."""

    draws: Floats
    better: Flags

    def variant(self, rng: np.random.Generator, agree: float) -> Idea:
        """An idea that agrees with this one on a share of the rows."""
        kept = rng.random(self.draws.shape) < agree
        return Idea(np.where(kept, self.draws, rng.random(self.draws.shape)), self.better)

    def where(self, chosen: Flags, other: Idea) -> Idea:
        """This idea in the chosen repetitions, the other one elsewhere."""
        return Idea(
            np.where(chosen[:, None], self.draws, other.draws), np.where(chosen, self.better, other.better)
        )


def new_idea(rng: np.random.Generator, times: int, rows: int, better: float) -> Idea:
    """An idea that has nothing to do with earlier ones."""
    return Idea(rng.random((times, rows)), rng.random(times) < better)


def answers(idea: Idea, base: Flags, right: Floats) -> Flags:
    """What the idea gets right, where the prompt in use gets `base` right, on a share `right` of all inputs."""
    wins, losses = (np.where(idea.better, REAL[i], NULL[i]) for i in (0, 1))
    won = ~base & (idea.draws < (wins / (1 - right))[:, None])
    lost = base & (idea.draws < (losses / right)[:, None])
    return (base | won) & ~lost


def levels(policy: str, promoted: Flags, number: int) -> Floats:
    """The level of the opening `number` in every repetition, after these promotions."""
    times = len(promoted)
    if policy != "fdr":
        level = {"strict": opening_alpha(ALPHA, number), "fresh rows": opening_alpha(ALPHA, 1)}
        return np.full(times, level.get(policy, ALPHA))
    before, lags = promoted[:, : number - 1], WEIGHTS[: number - 1][::-1]
    first = before & (before.cumsum(1) == 1)
    made: Floats = ALPHA * (WEIGHTS[number - 1] / 2 + before @ lags - first @ lags / 2)
    assert np.isclose(made[0], discovery_alpha(ALPHA, list(promoted[0, : number - 1])))
    return made


def next_idea(
    world: str,
    number: int,
    rng: np.random.Generator,
    size: tuple[int, int],
    last: Idea | None,
    best: Idea | None,
) -> Idea:
    """The experiment `number`, from 1, of a world."""
    fresh = new_idea(rng, *size, 0.0 if "nothing" in world else BETTER)
    if last is None or best is None:
        return fresh
    if world in ("clusters", "duplicates") and (number - 1) % VARIANTS:
        return last.variant(rng, AGREE if world == "clusters" else 1.0)
    if "near misses" in world and number % 2 == 0:
        return best.variant(rng, AGREE)
    return fresh


def simulate(world: str, policy: str, rows: int, times: int, seed: int) -> tuple[Flags, Flags]:
    """Which experiments were promoted, and which were better: both of the shape (times, EXPERIMENTS)."""
    rng = np.random.default_rng([seed, rows, WORLDS.index(world)])
    size = times, rows
    base, right = rng.random(size) < RIGHT, np.full(times, RIGHT)
    promoted, better = (np.zeros((times, EXPERIMENTS), bool) for _ in range(2))
    last = best = None
    largest = np.full(times, -np.inf)
    for number in range(1, EXPERIMENTS + 1):
        idea = next_idea(world, number, rng, size, last, best)
        if world == "independent" or policy == "fresh rows":
            base = rng.random(size) < right[:, None]
        if world == "next baseline":
            idea.better &= right <= MOST_RIGHT
        found = answers(idea, base, right)
        wins, losses = (found & ~base).sum(1), (base & ~found).sum(1)
        p = stats.binom.sf(wins - 1, wins + losses, 0.5)
        yes = p <= levels(policy, promoted, number) / 2
        promoted[:, number - 1], better[:, number - 1] = yes, idea.better
        gain = (wins - losses).astype(np.float64)
        best = idea if best is None else idea.where(gain > largest, best)
        largest, last = np.maximum(largest, gain), idea
        if world == "next baseline":
            base = np.where(yes[:, None], found, base)
            right = np.where(yes & idea.better, right + REAL[0] - REAL[1], right)
    return promoted, better


def percent(values: Floats) -> str:
    """A mean in percent with its 95% interval."""
    mean, error = 100 * float(values.mean()), 196 * float(values.std()) / len(values) ** 0.5
    return f"{mean:.1f} ({max(0.0, mean - error):.1f} to {mean + error:.1f})"


def found(promoted: Flags, better: Flags, experiments: int) -> str:
    """The share of the better prompts among the first experiments that was promoted, in percent."""
    hits, there = (promoted & better)[:, :experiments].sum(), better[:, :experiments].sum()
    return f"{100 * hits / max(1, there):.1f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print("| rows, experiments | strict | fdr | fresh rows |\n|---|---|---|---|")
    for rows in (100, 200, 500):
        made = {p: simulate("same rows", p, rows, chosen.times, chosen.seed) for p in POLICIES[:3]}
        for experiments in (1, 10, EXPERIMENTS):
            cells = " | ".join(found(*made[p], experiments) for p in POLICIES[:3])
            print(f"| {rows} rows, {experiments} | {cells} |")
    print(
        "\n| world, policy | any false, % | false of all promotions, % | better ones found, % | promotions |"
    )
    print("|---|---|---|---|---|")
    for world in WORLDS:
        for policy in POLICIES:
            if (policy == "fresh rows") and world != "same rows":
                continue
            promoted, better = simulate(world, policy, 200, chosen.times, chosen.seed)
            false, all_ = (promoted & ~better).sum(1), promoted.sum(1)
            share = false / np.maximum(1, all_)
            cells = f"{percent((false > 0).astype(float))} | {percent(share)} | {found(promoted, better, EXPERIMENTS)}"
            print(f"| {world}, {policy} | {cells} | {all_.mean():.1f} |", flush=True)


if __name__ == "__main__":
    main()
