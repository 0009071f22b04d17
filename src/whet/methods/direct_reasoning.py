"""Direct Reasoning Optimization: a model learns to reason so that the reference answer becomes likely to itself.

Direct Reasoning Optimization. 2025. arXiv:2506.13351. The reward R3: `whet.rl.reasoning_reward`.

    for step in 1..steps, for each of `inputs` rows x with the reference answer y:
        c_1..c_G ~ pi(. | start prompt, x), each cut behind `marker`: the reasoning without its answer
        l_ij <- log pi(y_j | x, c_i, y_<j)
        R3_i <- sum_j w_j l_ij,   w_j in proportion to std_i l_ij
    policy gradient on c_i, by groups, without the share `drop` of the groups whose R3 differs least
    sometimes: validate pi, greedy, under the start prompt
    the weights that validated best

It is for open answers with one good reference each, where no rule says which other answers are right. The task's reward is read
on validation rows alone.

The result is a system: trained weights that answer with the start prompt, which stays as it was.

Differences from the paper:
1. The weights of the tokens of the reference are our reading, and their discount is left out: see `whet.rl.reasoning_reward`.
2. The paper filters questions before and while it trains; here a share of the groups of each step is left out.
3. An answer without the marker counts as reasoning as a whole; no reward for its form.
4. The policy computes its own certainty as it is in the step; the paper may use an earlier state.
5. Low-rank adapters (`rank=0`: all weights), no supervised learning before. Within a limit on calls, steps are cut.

Run it:  whet optimize TASK --method direct_reasoning --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from whet._util.fields import NonNegativeInt, PositiveInt, Probability, TwoOrMore
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.answer_duels import without_reward
from whet.rl.answer_groups import answers
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.reasoning_reward import most_divided, r3
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Trainer, Training
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import JSON, Example

ENTRY = MethodEntry(
    "direct_reasoning",
    "Direct Reasoning Optimization: reasoning is rewarded by how likely it makes the reference answer",
    version=1,
    rank=237,
    when="the answering model may itself be trained, and each row has one good answer that no rule can check",
    paper="DRO, 2025",
    arxiv="2506.13351",
    needs=("policy",),
    trains="the model that answers (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of Direct Reasoning Optimization; the others are those of every training."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 30
    """Updates of the policy."""
    inputs: PositiveInt = 8
    """Training rows of a step."""
    group: TwoOrMore = 8
    """Reasonings to a row (G)."""
    marker: str = "</think>"
    """The end of the reasoning of an answer; the reference replaces the text that follows it."""
    drop: Probability = 0.25
    """Share of the groups of a step that are not learned from: those whose rewards differ least."""
    max_tokens: PositiveInt = 256
    """Bound on an answer, its reasoning included."""
    checks: NonNegativeInt = 4
    """Times that the weights are validated on the way."""


async def direct_reasoning(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient with the reward R3; see the module."""
    check(env, config)
    trainer, share = (
        Trainer(policy, config),
        share_out(run, answering(env, policy, config), config.checks, 1, writes=False),
    )
    inputs = min(config.inputs, len(env.train))
    steps = share.payable(config.steps, inputs * config.group)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "direct_reasoning", max(1, steps), checks)
    world = without_reward(env)
    policy.set_reference_policy()

    async def step(run: Run, number: int) -> None:
        rows = minibatch(run.rng, env.train, inputs)
        (played,) = await answers(run, world, trainer, [start], rows)
        rewards = await certainties(run, policy, played.samples, rows, config.marker)
        kept = most_divided(rewards, config.drop)
        figures = trainer.learn([played.samples[i] for i in kept], [rewards[i] for i in kept])
        run.log("step", {"step": number, "certainty": fmean(map(fmean, rewards)), **figures})
        if systems.due(number):
            digest = await run.keep(policy)
            await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(steps, step, policy)
    return systems.recall(archive)


async def certainties(
    run: Run, policy: PolicyModel, groups: Sequence[Sequence[Sample]], rows: Sequence[Example], marker: str
) -> list[list[float]]:
    """R3 of each reasoning of each group: (rows, G). Recorded."""

    async def measure() -> JSON:
        behind = [
            [policy.continue_with(sample, marker, str(row.target)) for sample in group]
            for group, row in zip(groups, rows, strict=True)
        ]
        logprobs = iter(policy.logprobs([sample for group in behind for sample in group]))
        return [list[JSON](r3([next(logprobs) for _ in group])) for group in behind]

    return convert_record(await run.effect("certainty", measure), list[list[float]])


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows, and for training rows without a reference answer."""
    refuse_selectors(config.rows, CHOSEN, "direct_reasoning draws rows uniformly.")
    bare = next((row.id for row in env.train if not str(row.target or "").strip()), None)
    if bare is not None:
        raise UsageError(f"direct_reasoning needs a target in every training row; row {bare} has none.")


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
