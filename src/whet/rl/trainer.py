"""Sampling and updates of a policy by the settings of its training. See docs/training.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.rl import advantages as estimators
from whet.rl.credit_assignment import Groups, Reward, at_turns, group_advantages, token_advantages, total
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.training import Training
from whet.run import Run
from whet.types import JSON


class Trainer:
    """A policy with the settings of its training."""

    def __init__(self, policy: PolicyModel, config: Training) -> None:
        self.policy, self.config = policy, config

    async def sample(
        self, run: Run, conversations: Sequence[Conversation], *, n: int | None = None, greedy: bool = False
    ) -> list[list[Sample]]:
        """A group of texts for each conversation, as a recorded effect: (conversations, n or `group`).

        The seed is the run's.
        """
        config = self.config
        seed = run.rng.getrandbits(63)

        async def draw() -> JSON:
            groups = self.policy.sample(
                conversations,
                config.group if n is None else n,
                temperature=0.0 if greedy else config.temperature,
                max_tokens=config.max_tokens,
                seed=seed,
                top_p=config.top_p,
            )
            return [[sample.to_json() for sample in group] for group in groups]

        drawn: Any = await run.effect("sample", draw)
        return [[Sample.from_json(value) for value in group] for group in drawn]

    def credited(
        self,
        samples: Sequence[Sample],
        rewards: Sequence[float],
        turns: Sequence[Sequence[float]],
    ) -> list[Reward]:
        """Rewards for `learn`: those of whole conversations, with `credit=turn` those of their `turns` in their places."""
        if not self.config.by_turn:
            return list(rewards)
        return [at_turns(sample, row) for sample, row in zip(samples, turns, strict=True)]

    def learn(self, groups: Groups, rewards: Sequence[Sequence[Reward]]) -> dict[str, float]:
        """One update from groups of samples and their rewards, one number for a text or one for each of its tokens;
        figures of `PolicyModel.update` and of the rewards, none without groups."""
        if not groups:
            return {}
        totals = [[total(reward) for reward in group] for group in rewards]
        samples = [sample for group in groups for sample in group]
        summary = {
            "reward": sum(map(sum, totals)) / max(1, len(samples)),
            "equal_groups": sum(estimators.equal(group) for group in totals) / len(totals),
        }
        update = self.config.update()
        if self.config.advantage != "gae":
            advantages = group_advantages(self.config, groups, rewards)
            return {**self.policy.update(samples, advantages, update), **summary}
        flat = [reward for group in rewards for reward in group]
        advantages, returns, divergence = token_advantages(self.config, self.policy, samples, flat)
        summary |= {"kl": divergence} if self.config.kl else {}
        return {**self.policy.update(samples, advantages, update, returns=returns), **summary}
