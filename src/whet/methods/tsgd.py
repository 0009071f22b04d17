"""TSGD-M: textual gradients with momentum; the prompt that is edited next is drawn among all past ones by their running means.

Ding, Hong, Shi, Wang, Lin, Yin, Liu, Wang, Chen: Scaling Textual Gradients via Sampling-Based Momentum. 2025. arXiv:2506.00400.
Of the paper the abstract and the beginning could be read, and how AdalFlow describes its version of it.

    H <- {start}
    for round in 1..rounds:
        draw a minibatch
        `window` prompts of H, drawn without replacement with weights exp(mean / temperature) (Gumbel top-k), answer it
        parent <- that of them with the best mean of all rows that it answered so far
        child <- the parent edited against its errors on the minibatch (the textual gradient)
        the child answers the minibatch and enters H
    return the best of H

Differences from the paper, as far as it could be read:
1. Criticism and edit are one call. TextGrad, one of the programs that the paper puts its draw into, makes two of them.
2. The mean is that of rewards as shares of their range, over the distinct rows that a prompt answered. Nobody answers a
   row twice.
3. Temperature, window and minibatch are ours: the paper's could not be read. A decay by age and the variant that mixes past
   prompts token by token are left out.
4. `parent` names the control: the last prompt, the one with the best mean, or any. Each of them alone answers the minibatch.
5. The result is chosen on validation examples among the start and the leaders by mean less half a range over the root of the
   rows, so that a prompt with few lucky rows does not lead.
6. A minibatch without errors leads to no child. A child that was tried before, or copies 32 characters in a row from an input,
   is not measured.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
8. Within a limit on calls rounds are cut to what it pays. Where the optimizer's calls are the narrower limit, minibatches grow.

Run it:  whet optimize TASK --method tsgd --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, infinite_batches, mistakes, next_rows, show_rollout
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "tsgd",
    "TSGD-M: textual gradients from past prompts, drawn by their means",
    version=1,
    rank=68,
    when="edits against errors often make things worse, and few rows are seen at a time",
    paper="Ding et al., 2025",
    arxiv="2506.00400",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of TSGD-M."""

    rounds: NonNegativeInt = 40
    """Rounds, one child in each (T)."""
    minibatch: PositiveInt = 8
    """Training examples of a round; more if a limit leaves calls."""
    parent: Literal["draw", "best", "last", "uniform"] = "draw"
    """The past prompt that is edited: the best of those drawn by their means, the prompt with the best mean, the last prompt,
    or a random prompt."""
    window: PositiveInt = 3
    """Past prompts that are drawn in a round and answer its minibatch (K)."""
    temperature: PositiveFloat = 0.1
    """The lead of a mean, as a share of the reward's range, with which a prompt is drawn e times as often."""
    errors: PositiveInt = 4
    """Errors shown to the critic at once."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def tsgd(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Textual gradients with momentum; see the module."""
    plan = share_out(run, env, config.rounds, finalists=config.finalists)
    archive, history = Archive(), PastPrompts(env)
    run.note_rounds(within(config, plan)[0], config.rounds)
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    for candidate in (Candidate(start), *(first.candidate for first in firsts)):
        history.add(candidate)
    (rounds, size), rows = within(config, plan), infinite_batches(run.rng, env.train)
    for number in range(rounds):
        batch = next_rows(rows, size)
        drawn = history.draw(run, config)
        await history.answer(run, [one.prompt for one in drawn], batch)
        parent = max(drawn, key=lambda one: history.mean(one.id))
        editor = GradientStep(env, policy.adapt(), start, config.errors, number)
        for prompt in await editor.edit(run, parent.prompt, batch, history.rollouts[parent.id]):
            if prompt in archive or prompt.id in history.members:
                continue
            await history.answer(run, [prompt], batch)
            score = mean_score(list(history.rollouts[prompt.id].values()))
            child = Candidate(prompt, (parent.id,), f"round {number + 1}", score)
            archive.add(run, child)
            history.add(child)
        await validate_leader(run, plan, archive, history.rank()[0])
    return await validate_finalists(run, plan, archive, history.rank())


@dataclass
class PastPrompts:
    """All past prompts, the oldest first, with what they answered."""

    env: Environment
    members: dict[str, Candidate] = field(default_factory=dict)
    rollouts: dict[str, dict[str, Rollout]] = field(default_factory=dict)

    def add(self, candidate: Candidate) -> None:
        """Take in a prompt."""
        self.members[candidate.id] = candidate
        self.rollouts.setdefault(candidate.id, {})

    async def answer(self, run: Run, prompts: Sequence[Prompt], rows: Sequence[Example]) -> None:
        """Let prompts answer some rows, but for those that they answered before."""
        known = [self.rollouts.get(prompt.id, {}) for prompt in prompts]
        jobs = [
            (p, [row for row in rows if row.id not in old]) for p, old in zip(prompts, known, strict=True)
        ]
        outcomes = await run.map(lambda branch, job: self.env.evaluate(branch, *job), jobs)
        for prompt, old, rollouts in zip(prompts, known, outcomes, strict=True):
            self.rollouts[prompt.id] = {**old, **{rollout.example_id: rollout for rollout in rollouts}}

    def mean(self, name: str) -> float:
        """The mean reward of a prompt as a share of the range; the middle of it where it answered nothing."""
        low, width = self.env.reward.low, (self.env.reward.high - self.env.reward.low) or 1.0
        rewards = [r.reward for r in answered_rollouts(list(self.rollouts[name].values()))]
        return (fmean(rewards) - low) / width if rewards else 0.5

    def draw(self, run: Run, config: Config) -> list[Candidate]:
        """The prompts that answer the next minibatch, of which the parent is the best."""
        members = list(self.members.values())
        if config.parent == "last":
            return members[-1:]
        if config.parent == "uniform":
            return [run.rng.choice(members)]
        if config.parent == "best":
            return [max(members, key=lambda one: self.mean(one.id))]
        keys = {
            one.id: self.mean(one.id) / config.temperature - math.log(max(LEAST, run.rng.expovariate(1.0)))
            for one in members
        }
        return sorted(members, key=lambda one: -keys[one.id])[: config.window]

    def rank(self) -> list[Candidate]:
        """The prompts by their mean less what few rows may owe to luck, the best first."""

        def bound(one: Candidate) -> float:
            return self.mean(one.id) - 0.5 / math.sqrt(max(1, len(self.rollouts[one.id])))

        return sorted(self.members.values(), key=bound, reverse=True)


@dataclass(frozen=True)
class GradientStep:
    """The step of one round: an edit against errors."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    errors: int
    sample: int

    async def edit(
        self, run: Run, parent: Prompt, batch: Sequence[Example], known: dict[str, Rollout]
    ) -> list[Prompt]:
        """The prompt edited against its errors; none without an error, or without a text of use."""
        wrong = mistakes([known[row.id] for row in batch], self.env.reward.high)[: self.errors]
        if not wrong:
            return []
        rows, text = {row.id: row for row in batch}, text_in(self.start, parent)
        shown = [show_rollout(rows[error.example_id], error) for error in wrong]
        about = f"{PURPOSE}\n\n{show_instruction(self.env.description, self.start, text, INSTRUCTION)}"
        question = "\n\n".join([about, FAILED, *shown, EDIT])
        made = await self.policy.rewrite(run, self.start, question, sample=self.sample, text=text)
        return [
            one
            for one in made
            if not copied_input(text_in(self.start, one), self.env.train, self.start.source)
        ]


def within(config: Config, plan: SearchPlan) -> tuple[int, int]:
    """Rounds that the plan pays for, and the rows of a minibatch: more, where the optimizer's calls are the narrower limit."""
    per_round = (config.window if config.parent == "draw" else 1) + 1
    size = min(config.minibatch, len(plan.env.train))
    rounds = plan.payable(config.rounds, per_round * size)
    if plan.asks is not None:
        rounds = min(rounds, plan.asks)
    if rounds and plan.rollouts is not None:
        size = min(len(plan.env.train), max(size, plan.rollouts // (per_round * rounds)))
    return rounds, size


LEAST = 1e-300
"""Less than any draw: its logarithm is finite."""
PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The instruction now:"
FAILED = "With this instruction the model failed on these inputs:"
EDIT = (
    "Find the fault of the instruction that made the model fail here: what it leaves out, says wrongly or says too vaguely. "
    "Write the instruction anew without this fault. Keep what works. Write rules that hold for all inputs of this kind. Do not "
    "copy the inputs above."
)
