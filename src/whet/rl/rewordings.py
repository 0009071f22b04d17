"""Rewordings of requests by a trained policy: what they earn, and the system in which each request is reworded first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.score_book import TrainedCandidates, written_text
from whet.rl.training import Trainer
from whet.rl.written_prompts import AskingReworded, reword
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import SearchPlan
from whet.types import JSON, Example, Rollout

Question: TypeAlias = Callable[[Example], Conversation]
"""The request to the policy that rewords the input of an example."""
Reading: TypeAlias = Callable[[Example, Sample], str | None]
"""The rewording in what the policy wrote; None where there is none."""


@dataclass(frozen=True)
class RewriterTraining:
    """The training of a rewriter, in which the system of its weights is validated now and then, beside the frozen model alone."""

    policy: PolicyModel
    plan: SearchPlan
    archive: Archive
    systems: TrainedCandidates

    @classmethod
    async def begin(
        cls,
        run: Run,
        policy: PolicyModel,
        start: Prompt,
        plan: SearchPlan,
        operator: str,
        steps: int,
        checks: int,
    ) -> RewriterTraining:
        """Measure the frozen model alone. `operator` names the training, `checks` is how often a system is validated at most."""
        archive = Archive()
        await archive.validate(run, plan.env, [Candidate(start)])
        checks = min(steps, checks, plan.validations - 1)
        return cls(policy, plan, archive, TrainedCandidates(policy, start, operator, steps, checks))

    async def train(
        self,
        run: Run,
        step: Callable[[Run, int], Awaitable[Mapping[str, JSON]]],
        system: Callable[[Environment], Environment],
    ) -> Candidate:
        """The best of the start and of the systems on the way. `step` updates the weights and gives the figures of the step,
        `system` is an environment in which they reword every request."""

        async def body(run: Run, number: int) -> None:
            run.log("step", {"step": number, **await step(run, number)})
            if self.systems.due(number):
                digest = await run.keep(self.policy)
                await self.systems.validate(run, self.archive, system(self.plan.env), digest)

        await run.train(self.systems.steps, body, self.policy)
        return self.systems.recall(self.archive)


def request_of(example: Example) -> str:
    """The request of an example: its input, or the last of its values."""
    return list(example.values.values())[-1]


def read_rewording(example: Example, sample: Sample) -> str | None:
    """The whole text, without a thought before it and marks around it."""
    return written_text(sample)


async def try_rewordings(
    run: Run, env: Environment, start: Prompt, batch: Sequence[Example], texts: Sequence[Sequence[str | None]]
) -> list[list[Rollout | None]]:
    """The rollouts of the rewordings of each example, graded by the request as it was, in the shape of `texts`; None, at no cost,
    where there is no text."""
    asking = as_environment_type(env, AskingReworded)
    reworded = [
        reword(example, text)
        for example, group in zip(batch, texts, strict=True)
        for text in group
        if text is not None
    ]
    rollouts = iter(await asking.evaluate(run, start, reworded))
    return [[None if text is None else next(rollouts) for text in group] for group in texts]


@dataclass(frozen=True)
class GreedyRewording:
    """The policy, greedy, as a writer of rewordings; a request stays as it was where nothing of use was written."""

    trainer: Trainer
    question: Question
    read: Reading = read_rewording

    async def write(
        self, run: Run, prompt: Prompt, examples: Sequence[Example]
    ) -> list[tuple[Prompt, Example]]:
        """Each example reworded."""
        groups = await self.trainer.sample(run, [self.question(e) for e in examples], n=1, greedy=True)
        pairs = zip(examples, groups, strict=True)
        texts = [(example, self.read(example, sample)) for example, (sample,) in pairs]
        return [(prompt, example if text is None else reword(example, text)) for example, text in texts]


def check_one_turn(env: Environment, method: str) -> None:
    """Raises UsageError for a task of several turns."""
    if type(env) is not Environment:
        raise UsageError(f"{method} rewords one request with one answer; this task is made of several turns.")
