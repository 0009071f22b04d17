"""Diversity by determinant in a population (DvD): worlds with and without traps, at equal evaluations.

    python benchmarks/diverse_population.py [--seeds 20] [--generations 30]

Simulated; no language model. A genome has 15 bits, and 30 rows in three groups look at five bits each. In `plain` a row earns the
share of its group's bits that are set. In `trap` it earns 1 with all five bits, and otherwise .8 less .2 for each set bit: what
rises from step to step leads away from the optimum (deceptive traps, Goldberg 1987). Rows of a group differ by a
little noise of their own. Twelve members; two parents by roulette, uniform crossover, each bit flips with probability 1/15;
survivors out of parents and children by fitness (`none`), with half of the weight on the determinant (`half`), with the bandit
over both (`bandit`), or with half of the weight on the mean distance to those chosen (`distance`). The mean over seeds of the
best fitness, and its difference to `none` with a 95% interval over seeds. Half a minute on one core.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.search.diversity import Survival
from whet.search.population import Individual, draw_parents, fittest
from whet.stats.rates import student_quantile
from whet.types import Score

GROUPS, BITS, ROWS, MEMBERS = 3, 5, 10, 12
Genome = tuple[int, ...]


def rewards_of(world: str, genome: Genome) -> list[float]:
    """The reward of each row."""
    rewards = []
    for group in range(GROUPS):
        ones = sum(genome[group * BITS : (group + 1) * BITS])
        value = ones / BITS if world == "plain" else (1.0 if ones == BITS else 0.8 - 0.2 * ones)
        for row in range(ROWS):
            noise = random.Random(f"{group} {row} {genome}").uniform(-0.05, 0.05)
            rewards.append(min(1.0, max(0.0, value + noise)))
    return rewards


def member_of(world: str, genome: Genome) -> Individual[Genome]:
    """A graded member."""
    rewards = rewards_of(world, genome)
    score = Score(fmean(rewards), len(rewards), rewards={str(i): r for i, r in enumerate(rewards)})
    prompt = Prompt.parse("".join(map(str, genome)))
    return Individual(Candidate(prompt, score=score), genome, score.mean)


def distant_members(members: Sequence[Individual[Genome]], k: int) -> list[Individual[Genome]]:
    """The k members, one at a time, by fitness and the mean distance to those chosen, half and half, both standardised."""
    order = fittest(members, len(members))
    table = np.array(
        [list((one.candidate.score.rewards or {}).values()) for one in order if one.candidate.score]
    )
    chosen = [0]
    while len(chosen) < min(k, len(order)):
        left = [i for i in range(len(order)) if i not in chosen]
        far = np.array([np.sqrt(((table[i] - table[chosen]) ** 2).mean(axis=1)).mean() for i in left])
        fit = np.array([order[i].fitness for i in left])
        value = sum((x - x.mean()) / (x.std() or 1.0) for x in (fit, far))
        chosen.append(left[int(np.argmax(value))])
    return [order[i] for i in chosen]


def evolve(world: str, arm: str, seed: int, generations: int) -> float:
    """The best fitness after some generations."""
    run: Any = MemoryRun(seed=seed)
    rng, survival = run.rng, Survival("none" if arm == "distance" else arm, 1.0)  # type: ignore[arg-type]
    made = {tuple(rng.randrange(2) for _ in range(GROUPS * BITS)) for _ in range(MEMBERS)}
    population = [member_of(world, genome) for genome in sorted(made)]
    best = max(one.fitness for one in population)
    for _ in range(generations):
        children: dict[Any, Individual[Genome]] = {}
        for _ in range(MEMBERS):
            first, second = draw_parents(rng, population, 2, "roulette", 0.0)
            pairs = zip(first.genome, second.genome, strict=True)
            genome = tuple(rng.choice(pair) ^ (rng.random() < 1 / (GROUPS * BITS)) for pair in pairs)
            children[genome] = member_of(world, genome)
        known = {one.genome for one in population}
        new = [one for genome, one in children.items() if genome not in known]
        if arm == "distance":
            population = distant_members([*population, *new], MEMBERS)
        else:
            population = survival.choose(run, population, new, MEMBERS)
        best = max(best, *(one.fitness for one in population))
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--generations", type=int, default=30)
    args = parser.parse_args()
    print("| world and arm | best fitness | difference to none |")
    print("|---|---|---|")
    for world in ("trap", "plain"):
        plain: list[float] = []
        for arm in ("none", "half", "bandit", "distance"):
            found = [evolve(world, arm, seed, args.generations) for seed in range(args.seeds)]
            plain = plain or found
            gaps = [a - b for a, b in zip(found, plain, strict=True)]
            half = student_quantile(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
            shown = (
                ""
                if arm == "none"
                else f"{fmean(gaps):+.3f} [{fmean(gaps) - half:+.3f}, {fmean(gaps) + half:+.3f}]"
            )
            print(f"| {world}, {arm} | {fmean(found):.3f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
