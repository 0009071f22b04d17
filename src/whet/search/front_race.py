"""A race for the front of several objectives: a challenger answers block after block of rows while no incumbent beats it.

Intensification, as MO-SMAC (Blot et al., LION 2016) and MO-CAPO (arXiv:2605.18869) do it: incumbents are the prompts that no
other dominates, and only who may be one of them is worth more rows. Dominance is by means of the rows that two have in common.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.front import Front, Vectors
from whet.search.racing import Track
from whet.types import Example, Rollout


@dataclass
class FrontRace(Track):
    """Prompts with what they answered."""

    front: Front = field(default_factory=lambda: Front((), tested=False))
    """The values of all prompts."""
    measure: Callable[[Sequence[Rollout]], Vectors] = lambda rollouts: {}
    """Turns rollouts into values."""
    keep: int = 10
    """The number of prompts that stay."""
    drops: bool = True
    """Whether a challenger drops out when it is beaten; otherwise it answers all rows that all incumbents answered."""
    incumbents: list[str] = field(default_factory=list)
    """Prompts that no other incumbent dominates."""
    others: list[str] = field(default_factory=list)
    """Prompts that an incumbent dominates."""
    answered: dict[str, set[int]] = field(default_factory=dict)
    """The blocks that a prompt answered, by number."""

    def remember(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> None:
        """Take in what a prompt answered, and its values."""
        super().remember(prompt, rollouts)
        self.front.add(Candidate(prompt), self.measure(rollouts))

    async def open(self, run: Run, prompts: Sequence[Prompt]) -> None:
        """The first population: all answer one block, and whom no other dominates is an incumbent."""
        await self._answer_block(run, prompts, run.rng.choice(self._blocks))
        self._settle([prompt.id for prompt in prompts if self.answered.get(prompt.id)])
        self._prune(run.rng)

    async def challenge(self, run: Run, prompts: Sequence[Prompt]) -> None:
        """Challengers answer the blocks that all incumbents answered, in an order of this race, side by side.

        One leaves as soon as the incumbent that is nearest in the values dominates it. Those that answered all join the
        incumbents, and whom then another one dominates leaves them. For each challenger an incumbent with the fewest blocks
        answers one more.
        """
        common = sorted(set.intersection(*(self.answered[incumbent] for incumbent in self.incumbents)))
        standing = list({prompt.id: prompt for prompt in prompts if prompt.id not in self.answered}.values())
        entered = [prompt.id for prompt in standing]
        for block in run.rng.sample(common, len(common)):
            await self._answer_block(run, standing, block)
            standing = [
                p for p in standing if block in self.answered.get(p.id, ()) and not self._is_beaten(p.id)
            ]
        joined = {prompt.id for prompt in standing}
        self.others += [one for one in entered if one not in joined and one in self.front.members]
        self._settle([one for one in entered if one in joined])
        for _ in entered:
            await self.extend(run)
        self._settle([])
        self._prune(run.rng)

    def parents(self, rng: random.Random) -> tuple[str, str]:
        """Two different prompts, each the winner of a tournament of two; the only one twice."""
        pool = [*self.incumbents, *self.others]
        first = self._tournament(rng, pool)
        rest = [one for one in pool if one != first]
        return first, self._tournament(rng, rest) if rest else first

    def rank(self) -> list[Candidate]:
        """The incumbents, those first that stand furthest apart from the others in the values."""
        spread = self.front.spread(self.incumbents)
        return [self.front.members[one] for one in sorted(self.incumbents, key=lambda one: -spread[one])]

    @property
    def _blocks(self) -> range:
        return range(max(1, len(self.rows) // self.block))

    async def _answer_block(self, run: Run, prompts: Sequence[Prompt], block: int) -> None:
        """Let prompts answer a block. One that is paid for in part is no block of theirs."""
        rows: Sequence[Example] = self.rows[block * self.block : (block + 1) * self.block]
        taken = await self.answer(run, prompts, rows)
        for prompt in prompts if len(taken) == len(rows) else ():
            if self.front.vectors.get(prompt.id):
                self.answered.setdefault(prompt.id, set()).add(block)

    def _is_beaten(self, challenger: str) -> bool:
        """Whether the incumbent that is nearest to a challenger in the values dominates it."""
        if not self.drops:
            return False
        nearest = self.front.nearest(challenger, self.incumbents)
        return self.front.dominates(nearest, challenger)

    def _settle(self, joining: Sequence[str]) -> None:
        """Incumbents are those of them and of who joins that no other dominates; all, where each is dominated."""
        pool = [*self.incumbents, *joining]
        free = [
            one for one in pool if not any(self.front.dominates(o, one) for o in pool if o != one)
        ] or pool
        self.incumbents, self.others = free, [*self.others, *(one for one in pool if one not in free)]

    async def extend(self, run: Run) -> None:
        """One of the incumbents with the fewest blocks answers one more: one that another has answered, else a new one."""
        least = min(len(self.answered[incumbent]) for incumbent in self.incumbents)
        one = run.rng.choice(
            [incumbent for incumbent in self.incumbents if len(self.answered[incumbent]) == least]
        )
        union = set().union(*(self.answered[other] for other in self.incumbents))
        missing = sorted(union - self.answered[one]) or sorted(set(self._blocks) - union)
        if missing and self.affords(1):
            await self._answer_block(run, [self.front.members[one].prompt], run.rng.choice(missing))

    def _prune(self, rng: random.Random) -> None:
        """No more than `keep` prompts stay: of the others leave those with the fewest blocks, then incumbents in a crowd."""
        while len(self.incumbents) + len(self.others) > max(1, self.keep):
            pool = self.others or self.incumbents
            worth: Mapping[str, float] = (
                {one: len(self.answered.get(one, ())) for one in pool}
                if self.others
                else self.front.spread(pool)
            )
            least = min(worth.values())
            pool.remove(rng.choice([one for one in pool if worth[one] == least]))

    def _tournament(self, rng: random.Random, pool: Sequence[str]) -> str:
        """The better one of two prompts: an incumbent; of two incumbents the one less in a crowd; of two others who dominates."""
        pair = rng.sample(pool, min(2, len(pool)))
        held = [one for one in pair if one in self.incumbents] or pair
        if len(held) < 2:
            return held[0]
        if held[0] in self.incumbents:
            spread = self.front.spread(self.incumbents)
            worth = [spread[one] for one in held]
        else:
            worth = [float(self.front.dominates(*order)) for order in (held, held[::-1])]
        return rng.choice(held) if worth[0] == worth[1] else held[worth.index(max(worth))]
