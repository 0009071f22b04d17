"""A population that evolves: how large it is, who breeds, who survives. What its members are made of, the method knows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from whet.environments.environment import Environment
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import LEAST_EXAMPLES, payable_asks, payable_rollouts
from whet.types import Example

G = TypeVar("G")
Parents = Literal["roulette", "tournament", "random"]
SEARCHED = 3 / 5
"""Share of the rollouts that a plan leaves beside validations."""


@dataclass(frozen=True)
class Individual(Generic[G]):
    """One of a population: a candidate, the genome that its prompt was made from, and its fitness on training rows."""

    candidate: Candidate
    genome: G
    fitness: float = float("-inf")


def population_size(run: Run, env: Environment, wanted: int, asks: float = 1.0, least: int = 3) -> int:
    """The number of members of a population: `wanted`, or the root of the number of prompts that a limit pays for, so that
    there are about as many generations. `asks`: calls of the optimizer model that one new prompt takes."""
    rollouts = payable_rollouts(run, env, writes=asks > 0)
    askable = payable_asks(run, env, rollouts)
    prompts = [wanted * wanted]
    if rollouts is not None:
        left = int(rollouts * SEARCHED)
        prompts.append(left // max(LEAST_EXAMPLES, math.isqrt(left)))
    if askable is not None and asks > 0:
        prompts.append(int(askable / asks))
    return min(wanted, max(least, math.isqrt(max(0, min(prompts)))))


async def grade_new(
    run: Run,
    env: Environment,
    archive: Archive,
    made: Sequence[Individual[G]],
    rows: Sequence[Example],
    signal: Sequence[str] = (),
) -> list[Individual[G]]:
    """The members whose prompts the archive does not hold, with their fitness; they enter it. Fitness is the mean reward on the
    rows, or the sum of the parts of the score that `signal` names."""
    new = {member.candidate.id: member for member in made if member.candidate.prompt not in archive}
    scores = await env.score(run, [member.candidate.prompt for member in new.values()], rows)
    members = []
    for member, score in zip(new.values(), scores, strict=True):
        candidate = replace(member.candidate, score=score)
        archive.add(run, candidate)
        fitness = sum(score.parts[name] for name in signal) if signal else score.mean
        members.append(replace(member, candidate=candidate, fitness=fitness))
    return members


def fittest(members: Sequence[Individual[G]], k: int) -> list[Individual[G]]:
    """The k fittest, the best first; of equals the shorter prompt, then the older member."""
    return sorted(members, key=lambda m: (-m.fitness, len(m.candidate.prompt.source)))[:k]


def roulette(rng: random.Random, members: Sequence[Individual[G]], k: int, low: float) -> list[Individual[G]]:
    """k members, each drawn in proportion to how far its fitness is above the lowest; evenly where none is above it."""
    weights = [member.fitness - low for member in members]
    return rng.choices(list(members), weights if max(weights) > 0 else None, k=k)


def tournament(rng: random.Random, members: Sequence[Individual[G]], size: int) -> Individual[G]:
    """The fittest of `size` members drawn with replacement."""
    return fittest(rng.choices(list(members), k=size), 1)[0]


def draw_parents(
    rng: random.Random, members: Sequence[Individual[G]], k: int, rule: Parents, low: float, size: int = 2
) -> list[Individual[G]]:
    """k parents by a rule; `size` is that of a tournament."""
    if rule == "roulette":
        return roulette(rng, members, k, low)
    return [tournament(rng, members, size if rule == "tournament" else 1) for _ in range(k)]


def one_to_one(
    parents: Sequence[Individual[G]], children: Sequence[Individual[G] | None]
) -> list[Individual[G]]:
    """Each parent, or its child where that is fitter."""
    pairs = zip(parents, children, strict=True)
    return [parent if child is None or child.fitness <= parent.fitness else child for parent, child in pairs]
