"""Roll-outs of a round of prompt learning: no example twice, and no answer paid twice that the model would give again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from whet.environments.environment import Environment
from whet.instructions.budget import LEAST
from whet.prompt import Prompt
from whet.run import Run
from whet.types import Example, Rollout

Hopeless = Callable[[Sequence[float]], bool]
"""Whether these rewards of a prompt show that it earns less than an earlier one."""


@dataclass(frozen=True)
class RoundBatch:
    """Training examples of a round. `new` are the ids of those that are paid for, and `fair` of them those drawn by chance.
    `known`: all answers are known, and read once more."""

    examples: Sequence[Example]
    new: Collection[str]
    fair: Collection[str]
    known: bool = False


@dataclass
class RoundExamples:
    """Draws the training examples of rounds from `draw`, which passes over all of them again and again. At temperature 0 the
    `answers` of a prompt are known once they were given; above, an example is answered anew in each round. `reread`: how many
    answers of a prompt were read once more."""

    env: Environment
    draw: Iterator[Example]
    answers: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    reread: dict[str, int] = field(default_factory=dict)

    def list_unanswered(self, prompt: Prompt) -> set[str]:
        """The ids of the examples to which no answer of a prompt is known."""
        return {row.id for row in self.env.train if (prompt.id, row.id) not in self.answers}

    def next_batch(
        self,
        prompt: Prompt,
        size: int,
        again: Sequence[str] = (),
        *,
        trial: bool = False,
        known: bool = False,
    ) -> RoundBatch:
        """A batch of so many examples: those named in `again`, then those that the prompt has not answered, then others, but not
        in a trial, in which nothing counts twice. `known`: those that the prompt has answered, which cost nothing, if there are
        more than were read once more already."""
        rows, unknown = {row.id: row for row in self.env.train}, self.list_unanswered(prompt)
        if known and len(rows) - len(unknown) > self.reread.get(prompt.id, 0):
            self.reread[prompt.id] = len(rows) - len(unknown)
            return RoundBatch([row for name, row in rows.items() if name not in unknown], (), (), known=True)
        chosen = dict.fromkeys(name for name in again if not trial or name in unknown)
        for wanted in (unknown,) if trial else (unknown, rows.keys()):
            left = wanted - chosen.keys()
            while left and len(chosen) < size:
                if (row := next(self.draw)).id in left:
                    left = left - {row.id}
                    chosen[row.id] = None
        new = unknown & chosen.keys()
        return RoundBatch([rows[name] for name in chosen], new, new - set(again))

    async def answer(
        self, run: Run, prompt: Prompt, batch: RoundBatch, sample: int, hopeless: Hopeless | None = None
    ) -> list[Rollout]:
        """The roll-outs of a batch in order; those that are known are not asked for. With `hopeless`, the first few come alone,
        and the others only where these leave hope."""
        new, fresh = [row for row in batch.examples if row.id in batch.new], dict[str, Rollout]()
        first = LEAST if hopeless and len(new) >= 2 * LEAST else len(new)
        for part in (new[:first], new[first:]):
            rewards = [one.reward for one in fresh.values() if one.answered]
            if part and not (rewards and hopeless and hopeless(rewards)):
                fresh |= {r.example_id: r for r in await self.env.evaluate(run, prompt, part, sample)}
        names = [row.id for row in batch.examples if row.id in fresh or row.id not in batch.new]
        known = [fresh.get(name) or self.answers[prompt.id, name] for name in names]
        if self.env.generation.temperature == 0:
            self.answers |= {
                (prompt.id, name): rollout for name, rollout in fresh.items() if rollout.answered
            }
        return known
