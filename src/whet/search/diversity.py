"""Diversity of a population by a determinant, and a bandit over its weight (DvD).

Parker-Holder, Pacchiano, Choromanski, Roberts: Effective Diversity in Population Based Reinforcement Learning. NeurIPS 2020.
arXiv:2002.00632, section 3 and the published code (jparkerholder/DvD_ES).

    Div(P) = det K,   K_ij = exp(-|b_i - b_j|^2 / d)      b: behaviour of member i, d numbers (RBF kernel, gamma = 1 / d)
    chosen by  (1 - lambda) x reward + lambda x Div,  each standardised
    lambda in {0, 1/2} by Thompson sampling: Beta(1 + successes, 1 + failures) over the last 50 generations

The behaviour of a prompt is its reward on each row that the population is graded on, as a share of the range of the reward. Two
members that behave alike make the determinant 0, however far the others are apart: a mean of distances does not see that.

Differences from the paper: members are chosen out of parents and children, one after the other by what each adds to
log det K (greedily, as for determinantal point processes: Chen, Zhang, Zhou 2018, arXiv:1709.05135); there the weights of a fixed
number of policies move along the joint gradient. The fittest member always stays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.run import Run
from whet.search.population import Individual, fittest

G = TypeVar("G")
Diversity = Literal["none", "half", "bandit"]
Numbers = NDArray[np.float64]
LAMBDAS = (0.0, 0.5)
WINDOW, RECENT = 50, 5
"""Generations that a bandit remembers, and those whose best reward has to be beaten; so many first choices are even."""
NOISE = 1e-6
"""On the diagonal of the kernel, so that its logarithm is finite where two members behave alike."""


def behaviour_kernel(behaviours: Sequence[Sequence[float]]) -> Numbers:
    """K_ij = exp(-|b_i - b_j|^2 / d) of behaviours (n, d).

    >>> behaviour_kernel([[0.0, 1.0], [0.0, 1.0]]).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    table = np.asarray(behaviours, dtype=np.float64)
    gaps = ((table[:, None, :] - table[None, :, :]) ** 2).mean(axis=2)
    return np.asarray(np.exp(-gaps))


def population_diversity(members: Sequence[Individual[G]], span: float = 1.0) -> float:
    """det K in [0, 1] of the members' rewards by row: 0 where two behave alike, 1 for one member. `span`: range of the reward."""
    table = _behaviours(members, span)
    return 0.0 if table is None else max(0.0, float(np.linalg.det(behaviour_kernel(table))))


def diverse_members(
    members: Sequence[Individual[G]], k: int, weight: float, span: float = 1.0
) -> list[Individual[G]]:
    """k members, the fittest first, then one at a time that with the highest (1 - weight) z(fitness) + weight z(gain), where gain
    is what it adds to log det K of those chosen; z is over the members that are left. `span`: range of the reward.

    With `weight` 0, and where no row was answered under every member, they are the k fittest.
    """
    order = fittest(members, len(members))
    table = _behaviours(order, span)
    if weight == 0 or table is None or len(order) <= k:
        return order[:k]
    kernel = behaviour_kernel(table) + NOISE * np.eye(len(order))
    fitness = np.array([member.fitness for member in order])
    chosen = [0]
    while len(chosen) < k:
        left = [i for i in range(len(order)) if i not in chosen]
        inner = np.linalg.inv(kernel[np.ix_(chosen, chosen)])
        across = kernel[np.ix_(left, chosen)]
        added = kernel[left, left] - ((across @ inner) * across).sum(
            axis=1
        )  # det of the larger kernel over that of the smaller
        gains = np.log(added.clip(NOISE))
        value = (1 - weight) * _standard(fitness[left]) + weight * _standard(gains)
        chosen.append(left[int(value.argmax())])
    return [order[i] for i in chosen]


def _behaviours(members: Sequence[Individual[G]], span: float) -> list[list[float]] | None:
    """The rewards of each member on the rows that all of them answered; None where there are none."""
    scores = [member.candidate.score for member in members]
    rewards = [{} if score is None or score.rewards is None else score.rewards for score in scores]
    rows = sorted(set.intersection(*map(set, rewards))) if rewards else []
    return [[reward[row] / span for row in rows] for reward in rewards] if rows else None


def _standard(values: Numbers) -> Numbers:
    spread = values.std()
    return np.asarray((values - values.mean()) / spread if spread > 1e-12 else np.zeros_like(values))


@dataclass
class DiversityBandit:
    """The bandit that chooses the weight of diversity in a generation. A success is a best reward above the best of the
    `RECENT` generations before; a tie counts one half."""

    arms: Sequence[float] = LAMBDAS
    choices: list[int] = field(default_factory=list)
    best: list[float] = field(default_factory=list)

    def choose(self, rng: random.Random) -> float:
        """The weight for the next generation: even at first, then by Thompson sampling."""
        if len(self.choices) < RECENT:
            arm = rng.randrange(len(self.arms))
        else:
            draws = [rng.betavariate(*self.posterior(i)) for i in range(len(self.arms))]
            arm = max(range(len(draws)), key=lambda i: draws[i])
        self.choices.append(arm)
        return self.arms[arm]

    def observe(self, best: float) -> None:
        """The best reward of the generation that the last weight shaped; before the first choice, that of the start."""
        self.best.append(best)

    def posterior(self, arm: int) -> tuple[float, float]:
        """The two parameters of an arm's Beta distribution."""
        successes = failures = 1.0
        for i in list(range(RECENT, len(self.best)))[-WINDOW:]:
            if self.choices[i - 1] == arm:
                before = max(self.best[i - RECENT : i])
                success = 0.5 if math.isclose(self.best[i], before) else float(self.best[i] > before)
                successes, failures = successes + success, failures + 1 - success
        return successes, failures


@dataclass
class Survival:
    """The rule of survival in a generation: fitness alone (`none`), the weight one half on diversity, or a bandit's weight."""

    rule: Diversity
    span: float
    bandit: DiversityBandit = field(default_factory=DiversityBandit)

    def choose(
        self, run: Run, population: Sequence[Individual[G]], children: Sequence[Individual[G]], k: int
    ) -> list[Individual[G]]:
        """k of the parents and children; the weight and the determinant are logged. The bandit learns from the best child."""
        pool = [*population, *children]
        if self.rule == "none":
            return fittest(pool, k)
        self.bandit.observe(max((one.fitness for one in children), default=-math.inf))
        weight = LAMBDAS[-1] if self.rule == "half" else self.bandit.choose(run.rng)
        survivors = diverse_members(pool, k, weight, self.span)
        run.log("diversity", {"weight": weight, "determinant": population_diversity(survivors, self.span)})
        return survivors
