"""A token policy that reads the input and writes a prompt for it, and the task in which it does so.

RLPrompt (Deng et al., EMNLP 2022, arXiv:2205.12548) has one for text style transfer, which starts behind the source sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.best_samples import best_of_parts
from whet.rl.blob import read_blob
from whet.rl.token_policy import TokenPolicy
from whet.run import Run, convert_record
from whet.search.edits import replace_region
from whet.types import JSON, Example, Message


@dataclass
class PromptForInput:
    """A policy at work: each row is answered under its greedy prompt for it. A `PromptChooser` of `whet.rl.prompt_router`."""

    policy: TokenPolicy
    start: Prompt

    def save(self) -> bytes:
        """The policy, with the start prompt in its notes."""
        self.policy.notes["start"] = [message.as_list() for message in self.start.messages]
        return self.policy.save()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        self.policy.load(blob)
        self.start = start_in(blob)

    async def route(self, run: Run, examples: Sequence[Example]) -> list[Prompt]:
        """The prompt for each row; the start where the greedy words cannot stand in it. Recorded."""

        async def write() -> JSON:
            return [list[JSON](self.policy.greedy(example.user_text)) for example in examples]

        record = await run.effect("write", write) if examples else []
        texts = map(self.policy.text, convert_record(record, list[list[int]]))
        return [replace_region(self.start, text) or self.start for text in texts]


def start_in(blob: bytes) -> Prompt:
    """The start prompt in what `PromptForInput.save` returned. Raises UsageError for anything else."""
    notes = read_blob(blob, "a token policy")[0]["notes"]
    if "start" not in notes:
        raise UsageError(
            "this is not a checkpoint of a policy that reads the input: it holds no start prompt."
        )
    return Prompt(tuple(Message(*message) for message in notes["start"]))


async def reward_each(
    run: Run,
    env: Environment,
    start: Prompt,
    texts: Sequence[str],
    rows: Sequence[Example],
    samples: int = 1,
    parts: int = 1,
) -> list[float]:
    """The reward of each text on its own row; with several samples, the mean of the best of each part.

    A text that the prompt refuses earns the lowest reward and costs nothing.
    """
    prompts = [replace_region(start, text) for text in texts]
    pairs = [(prompt, row) for prompt, row in zip(prompts, rows, strict=True) if prompt is not None]

    async def one(branch: Run, pair: tuple[Prompt, Example]) -> float:
        answers = [(await env.evaluate(branch, pair[0], [pair[1]], sample))[0] for sample in range(samples)]
        return best_of_parts([rollout.reward for rollout in answers], parts)

    if env.scores or samples > 1:
        earned = iter(await run.map(one, pairs))
    else:
        earned = iter([rollout.reward for rollout in await env.rollouts(run, pairs)])
    return [env.reward.low if prompt is None else next(earned) for prompt in prompts]


def compare_within_inputs(rewards: Sequence[float], sources: Sequence[str]) -> list[float]:
    """The z-score of each reward among those of the same input, by the population's standard deviation plus 1e-4.

    >>> [round(z) for z in compare_within_inputs([0.0, 1.0, 7.0, 7.0], ["a", "a", "b", "b"])]
    [-1, 1, 0, 0]
    """
    z = np.zeros(len(rewards))
    for text in dict.fromkeys(sources):
        here = [i for i, one in enumerate(sources) if one == text]
        mine = np.asarray([rewards[i] for i in here])
        z[here] = (mine - mine.mean()) / (mine.std() + 1e-4)
    return [float(one) for one in z]
