"""Repairs of a prompt for one row: what a verifier said of the answer is the critique, until it accepts one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from whet.environments.environment import Environment
from whet.instructions.guard import secrets
from whet.prompt import Prompt
from whet.rl.language import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.copies import objectionable
from whet.search.edits import text_in
from whet.search.minibatch import mistakes, show_rollout
from whet.types import Example, Rollout, mean_score

Shown: TypeAlias = Literal["counterexample", "verdict", "other"]
"""The verifier's text that a model reads: that of the row, the reward alone, or that of another row."""


@dataclass(frozen=True)
class MeasuredPrompt:
    """A prompt with its rollouts on the rows of the comparison."""

    candidate: Candidate
    rows: Sequence[Example]
    rollouts: Sequence[Rollout]

    @classmethod
    async def measure(
        cls, run: Run, env: Environment, candidate: Candidate, rows: Sequence[Example]
    ) -> MeasuredPrompt:
        """The candidate with its score on the rows."""
        rollouts = await env.evaluate(run, candidate.prompt, rows)
        return cls(replace(candidate, score=mean_score(rollouts)), rows, rollouts)

    def find_rejected(self, high: float, tried: set[str]) -> list[int]:
        """Places of the rows whose answers were graded below `high`, without those that were `tried`."""
        wrong = {rollout.example_id for rollout in mistakes(self.rollouts, high)} - tried
        return [at for at, row in enumerate(self.rows) if row.id in wrong]


@dataclass(frozen=True)
class Repaired:
    """The prompt that came farthest on a row, the reward of its answer there, and the attempts that it took."""

    prompt: Prompt
    rollout: Rollout
    attempts: int = 0

    @property
    def reward(self) -> float:
        """The verifier's reward."""
        return self.rollout.reward


@dataclass(frozen=True)
class PromptRepair:
    """Repairs of a prompt for one row."""

    env: Environment
    start: Prompt
    attempts: int
    shown: Shown = "counterexample"

    async def search(
        self,
        run: Run,
        policy: LanguagePolicy,
        leader: MeasuredPrompt,
        place: int,
        other: Rollout,
        sample: int,
    ) -> Repaired:
        """Repair until the verifier accepts the answer, or the attempts end."""
        row, best, rewards = (
            leader.rows[place],
            Repaired(leader.candidate.prompt, leader.rollouts[place]),
            list[float](),
        )
        for attempt in range(self.attempts):
            text = text_in(self.start, best.prompt)
            question = self.question(row, best, other, rewards)
            new = await policy.rewrite(run, self.start, question, 1, sample=sample + attempt, text=text)
            if not new or objectionable(secrets, [row], text, text_in(self.start, new[0])):
                continue
            (rollout,) = await self.env.evaluate(run, new[0], [row])
            rewards.append(rollout.reward)
            if rollout.reward >= best.reward:
                best = Repaired(new[0], rollout)
            if rollout.reward >= self.env.reward.high:
                break
        return replace(best, attempts=len(rewards))

    def question(self, row: Example, best: Repaired, other: Rollout, rewards: Sequence[float]) -> str:
        """The question to the model: the prompt, the row with its answer, what the verifier said, what earlier repairs earned."""
        shown = best.rollout
        if self.shown != "counterexample":
            seen = other.critique if self.shown == "other" else None
            shown = replace(shown, critique=seen, addressed={})
        head = show_instruction(self.env.description, self.start, text_in(self.start, best.prompt))
        earned = ", ".join(f"{reward:.2f}" for reward in rewards)
        trail = [f"{EARNED} {earned}"] if rewards else []
        return "\n\n".join([head, REJECTED, show_rollout(row, shown), *trail, REQUEST])


REJECTED = "With this instruction a verifier rejected the answer to this input:"
EARNED = "Rewards of earlier repairs of the instruction on this input:"
REQUEST = (
    "Say to yourself which rule the answer broke. Then repair the instruction so that the answers to all inputs of this kind "
    "keep that rule; keep all else that is in it. State the rule in general, and do not copy the input."
)
