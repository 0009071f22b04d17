"""Rewards of prompts for a model that writes, as in the text style transfer of RLPrompt: the best of several samples of an input,
and a comparison of prompts input by input.

Deng et al., EMNLP 2022, arXiv:2205.12548, section 3.3 and the published code:

    r(z, s) <- mean over `parts` parts of the samples of the highest reward in the part        ("bootstrap"; there 4 parts of 32)
    R(z)    <- mean over inputs s of (r(z, s) - mean of r(., s)) / (std of r(., s) + 1e-4)    over the prompts z of a step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError, parameter
from whet.prompt import Prompt
from whet.rl.score_book import NoteKeeper
from whet.run import Run
from whet.types import Example, Score, mean_score

NOTE = "by input"


@dataclass(frozen=True)
class BestOfSamples(Environment):
    """An environment whose score of a prompt draws `samples` answers to each input; see the module. The rewards of each input are
    kept in the notes of the learner by prompt, where `by_input` finds them after a resume too."""

    samples: int = 1
    parts: int = 1
    keeper: NoteKeeper | None = None

    @property
    def calls(self) -> int:
        """Calls of the task model that a prompt takes for one input."""
        return self.samples

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean over the inputs of the reward of each prompt."""
        plain = as_environment_type(self, Environment)
        pairs = [(prompt, example) for prompt in prompts for example in examples]
        draws = [await plain.rollouts(run, pairs, sample) for sample in range(self.samples)]
        best = [
            replace(one[0], reward=best_of_parts([rollout.reward for rollout in one], self.parts))
            for one in zip(*draws, strict=True)
        ]
        size, scores = len(examples), []
        for i, prompt in enumerate(prompts):
            mine = best[i * size : (i + 1) * size]
            if self.keeper is not None:
                notes: Any = self.keeper.notes.setdefault(NOTE, {})
                notes[prompt.id] = [rollout.reward for rollout in mine]
            scores.append(mean_score(mine))
        return scores


def best_of_parts(rewards: Sequence[float], parts: int) -> float:
    """The mean of the highest rewards of `parts` consecutive parts, as equal as can be; of all rewards if there are fewer.

    >>> best_of_parts([0.0, 1.0, 0.5, 0.25], 2)
    0.75
    """
    cut = np.array_split(np.asarray(rewards, dtype=float), min(parts, len(rewards)))
    return fmean(float(part.max()) for part in cut)


def compare_by_input(rewards: Sequence[Sequence[float]]) -> list[float]:
    """For each prompt the mean over inputs of its z-score among the prompts: rewards (prompts, inputs) to (prompts,).

    The population's standard deviation; an input on which all prompts earn the same says nothing.

    >>> compare_by_input([[0.0, 5.0], [1.0, 5.0]])
    [-0.4999000199960008, 0.4999000199960008]
    """
    table = np.asarray(rewards, dtype=float)
    z = (table - table.mean(axis=0)) / (table.std(axis=0) + 1e-4)
    return [float(value) for value in z.mean(axis=1)]


def check_samples(env: Environment, samples: int, parts: int) -> None:
    """Raises UsageError where samples would be the same answer, where labels are scored, and for more parts than samples."""
    if samples == 1 and parts == 1:
        return
    if env.scores:
        raise UsageError("samples= is for a model that writes; this task scores labels.")
    if parts > samples:
        raise UsageError(f"parts={parts} of samples={samples}: a part needs a sample.")
    if env.generation.temperature == 0:
        raise UsageError(
            f"samples={samples} of a greedy model are one answer. Raise the task model's temperature, or use "
            f"{parameter('config.samples', '1')}."
        )


def with_samples(env: Environment, samples: int, parts: int, keeper: NoteKeeper) -> BestOfSamples:
    """The environment whose scores are those of the best samples. Raises UsageError for a task of several turns."""
    if type(env) is not Environment:
        raise UsageError("samples of one question with one answer; this task is made of several turns.")
    return as_environment_type(env, BestOfSamples, samples=samples, parts=parts, keeper=keeper)
