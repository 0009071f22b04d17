"""A race: prompts answer one block of examples after another, and who is shown to be beaten by enough others is dropped.

The test is whet's own for repeated looks (`whet.stats.EProcess`, a betting test): the chance that it ever calls a prompt beaten
by one that is no better is at most alpha, however many blocks there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Run
from whet.search.minibatch import answered_rollouts
from whet.stats import EProcess
from whet.types import Example, Rollout


@dataclass(frozen=True)
class Racer:
    """A prompt in a race; its `handicap` is taken from each of its rewards, as a share of their range."""

    prompt: Prompt
    handicap: float = 0.0


@dataclass(frozen=True)
class Ranked:
    """A prompt after a race: its mean reward over the rows that it answered in it, and their number; its fitness is that mean as
    a share of the range, less the handicap."""

    racer: Racer
    mean: float
    rows: int
    fitness: float


@dataclass
class Track:
    """The rows of all races, in blocks, and what each prompt earned on them: nobody answers a row twice.

    `left` rollouts can be paid for; None without a limit.
    """

    env: Environment
    rows: Sequence[Example]
    block: int
    left: int | None = None
    rewards: dict[str, dict[str, float]] = field(default_factory=dict)

    def affords(self, new: int) -> bool:
        """Whether so many new prompts can answer a block."""
        return self.left is None or self.left >= new * min(self.block, len(self.rows))

    async def answer(self, run: Run, entered: Sequence[Prompt], block: Sequence[Example]) -> list[Example]:
        """Let prompts answer the rows of a block that they have not answered, as many as can be paid for. Returns these rows."""
        prompts = {prompt.id: prompt for prompt in entered}
        taken: list[Example] = []
        for row in block:
            cost = sum(row.id not in self.rewards.get(name, {}) for name in prompts)
            if self.left is not None:
                if cost > self.left:
                    break
                self.left -= cost
            taken.append(row)
        jobs = [(p, [r for r in taken if r.id not in self.rewards.get(n, {})]) for n, p in prompts.items()]
        outcomes = await run.map(lambda branch, job: self.env.evaluate(branch, *job), jobs)
        for (prompt, _), rollouts in zip(jobs, outcomes, strict=True):
            self.remember(prompt, answered_rollouts(rollouts))
        return taken

    def remember(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> None:
        """Take in what a prompt answered."""
        self.rewards.setdefault(prompt.id, {}).update({r.example_id: r.reward for r in rollouts})


@dataclass
class RaceTrack(Track):
    """A track on which whoever is shown to be beaten by enough others at `alpha` is dropped; with `alpha` of 0 nobody is."""

    alpha: float = 0.2

    async def race(self, run: Run, racers: Sequence[Racer], keep: int) -> list[Ranked]:
        """The `keep` best of some prompts, the best first: of those left when no more than `keep` are, or the rows end.

        The blocks come in an order of their own in each race. Whoever is beaten by at least `keep` others is dropped. Prompts
        that answered nothing, because nothing is left, are not among the best.
        """
        order, alive = run.rng.sample(list(self.rows), len(self.rows)), list(racers)
        seen: list[Example] = []
        for first in range(0, len(order), self.block):
            block = order[first : first + self.block]
            answered_rows = await self.answer(run, [racer.prompt for racer in alive], block)
            seen += answered_rows
            if self.alpha > 0 and len(alive) > keep:
                standing = [r for r in alive if sum(self.beats(other, r) for other in alive) < keep]
                alive = standing if len(standing) >= keep else self._rank_racers(alive, seen, keep)
            if (len(alive) <= keep < len(racers)) or len(answered_rows) < len(block):
                break
        ranked = [self.rank(racer, seen) for racer in self._rank_racers(alive, seen, keep)]
        return [one for one in ranked if one.rows]

    def beats(self, one: Racer, other: Racer) -> bool:
        """Whether one prompt is shown to be better than another on the rows that both answered, handicaps counted."""
        first, second = (self.rewards.get(racer.prompt.id, {}) for racer in (one, other))
        rows = [row for row in first if row in second]
        if one.prompt.id == other.prompt.id or not rows:
            return False
        width, behind = self._width, one.handicap - other.handicap
        gaps = [((first[row] - second[row]) / width - behind) / (1.0 + abs(behind)) for row in rows]
        return sum(gaps) > 0 and EProcess().update(gaps).e_value >= 1.0 / self.alpha

    def rank(self, racer: Racer, seen: Sequence[Example] = ()) -> Ranked:
        """A racer with its mean reward on the rows `seen`, or, if it answered none of these, on all rows that it answered."""
        known = self.rewards.get(racer.prompt.id, {})
        rewards = [known[row.id] for row in seen if row.id in known] or list(known.values())
        mean = fmean(rewards) if rewards else self.env.reward.low
        fitness = (mean - self.env.reward.low) / self._width - racer.handicap
        return Ranked(racer, mean, len(rewards), fitness)

    @property
    def _width(self) -> float:
        return (self.env.reward.high - self.env.reward.low) or 1.0

    def _rank_racers(self, racers: Sequence[Racer], seen: Sequence[Example], keep: int) -> list[Racer]:
        return sorted(racers, key=lambda racer: -self.rank(racer, seen).fitness)[:keep]
