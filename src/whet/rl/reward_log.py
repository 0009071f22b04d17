"""The rewards of prompts on rows: noted during a search, or read from the journals of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.instructions.neighbours import normal
from whet.prompt import Prompt
from whet.rewards import JUDGE, TARGET_SCORE
from whet.run import Run
from whet.search.minibatch import answered_rollouts
from whet.types import Completion, Example, Request, Rollout, Score, mean_score

Array = NDArray[np.float64]
PRIOR = 2.0
"""Rows that the mean over all prompts counts for in the mean of one."""


@dataclass
class RewardLog:
    """The rewards of prompts on rows: the prompts by id, and the reward by (prompt id, row id). If there are several, the
    first counts."""

    prompts: dict[str, Prompt] = field(default_factory=dict)
    rewards: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, prompt: Prompt, rollout: Rollout) -> None:
        """Note a rollout; one on which the provider failed says nothing."""
        if answered_rollouts([rollout]):
            self.prompts.setdefault(prompt.id, prompt)
            self.rewards.setdefault((prompt.id, rollout.example_id), rollout.reward)

    def table(self, prompts: Sequence[Prompt], rows: Sequence[Example]) -> Array:
        """Rewards of shape (rows, prompts); NaN where none is known."""
        return np.array(
            [[self.rewards.get((p.id, row.id), np.nan) for p in prompts] for row in rows], np.float64
        ).reshape(len(rows), len(prompts))

    def compares(self, row: Example) -> bool:
        """Whether rewards of two prompts are known on a row."""
        return sum((prompt, row.id) in self.rewards for prompt in self.prompts) > 1

    def pool(self, first: Prompt, rows: Sequence[Example], features: Array, most: int) -> list[Prompt]:
        """`first` and the prompts that together earn the most where each row gets its best one, `most` at most; chosen in turn.

        What a prompt earns on a row is taken from the rows that are alike by their features (rows, width), and from its mean.
        """
        prompts = list({first.id: first, **self.prompts}.values())
        table = self.table(prompts, rows)
        unit = normal(features - features.mean(axis=0))
        alike = np.maximum(unit @ unit.T, 0.0)
        seen = alike @ np.nan_to_num(table) + PRIOR * mean_rewards(table)
        filled = seen / (alike @ ~np.isnan(table) + PRIOR)
        chosen = [0]
        while len(chosen) < min(most, len(prompts)):
            best = filled[:, chosen].max(axis=1, keepdims=True)
            gains = np.maximum(filled, best).sum(axis=0) + 1e-6 * filled.sum(axis=0)
            gains[chosen] = -np.inf
            chosen.append(int(np.argmax(gains)))
        return [prompts[place] for place in chosen]


def mean_rewards(table: Array) -> Array:
    """The mean reward of each prompt (P,) of a table (rows, P) with gaps, drawn to the mean of all by `PRIOR` rows."""
    known = ~np.isnan(table)
    total = float(np.where(known, table, 0.0).sum() / max(1, known.sum()))
    means: Array = (np.where(known, table, 0.0).sum(axis=0) + PRIOR * total) / (known.sum(axis=0) + PRIOR)
    return means


@dataclass(frozen=True)
class LoggedEnvironment(Environment):
    """A task that notes each rollout in `notes`."""

    notes: RewardLog = field(default_factory=RewardLog)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt; labels are asked for row by row, so that the reward of each row is known."""
        if not self.scores:
            return await super().score(run, prompts, examples)
        return [mean_score(await self.evaluate(run, prompt, examples)) for prompt in prompts]

    async def _grade(
        self, run: Run, prompt: Prompt, example: Example, completion: Completion, sample: int = 0
    ) -> Rollout:
        rollout = await super()._grade(run, prompt, example, completion, sample)
        self.notes.add(prompt, rollout)
        return rollout


async def fill_rewards(
    run: Run, env: Environment, notes: RewardLog, prompts: Sequence[Prompt], rows: Sequence[Example]
) -> None:
    """Measure the prompts on those of the rows on which the log has no reward of them."""

    async def measure(branch: Run, prompt: Prompt) -> list[Rollout]:
        unknown = [row for row in rows if (prompt.id, row.id) not in notes.rewards]
        return await env.evaluate(branch, prompt, unknown) if unknown else []

    for prompt, rollouts in zip(prompts, await run.map(measure, prompts), strict=True):
        for rollout in rollouts:
            notes.add(prompt, rollout)


def check_runs(env: Environment, names: Sequence[str]) -> None:
    """Raises UsageError for a folder without a run, and where answers that a journal holds cannot be graded without a call."""
    for name in names:
        if not (Path(name) / "journal.sqlite").is_file():
            raise UsageError(
                f"oirl: runs names {name}, in which there is no run. Give folders of finished runs (see `whet runs`)."
            )
    if env.scores or env.supports_batching:
        raise UsageError(
            "oirl: runs needs answers that were asked for one by one; this model answers in batches. Leave runs out."
        )
    if {JUDGE, TARGET_SCORE} & env.reward.needs:
        raise UsageError(
            f"oirl: runs needs a reward that asks no model; {env.reward.name} does. Leave runs out."
        )


async def read_runs(
    run: Run, env: Environment, notes: RewardLog, start: Prompt, names: Sequence[str]
) -> None:
    """Grade what finished runs answered on training rows. Raises UsageError where they hold no such answer."""

    def ask(prompt: Prompt) -> list[Request]:
        return [env.request(prompt, row) for row in env.train] if prompt.slots == start.slots else []

    for name in names:
        for prompt, answers in await run.recall_answers(name, ask):

            async def grade(
                branch: Run, place: int, prompt: Prompt = prompt, answers: Any = answers
            ) -> Rollout:
                answer = env.generation.answer(answers[place])
                return await env.grade_answer(branch, prompt, env.train[place], answer)

            for rollout in await run.map(grade, sorted(answers)):
                notes.add(prompt, rollout)
    if not notes.rewards:
        raise UsageError(
            f"oirl: {', '.join(names)} hold no answer to a training row of this task by this model. Give runs of the same rows, "
            "model and temperature."
        )
