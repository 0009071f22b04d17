"""The mechanics of training as settings of every method, and the one helper that applies them.

A method samples groups of texts, has them rewarded, and hands both over; which advantage, loss, curriculum, temperature
and hints that means is the user's choice (`--set advantage=rloo`), not the method's business. See docs/training.md.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rl import advantages as estimators
from whet.rl import curricula, erpo, guided_rollouts, losses
from whet.rl.credit_assignment import Groups, Reward, at_turns, divergences, token_advantages, total
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.training_settings import Talking, Training
from whet.run import Run
from whet.types import JSON, Example

__all__ = ["Groups", "Talking", "Trainer", "Training", "token_advantages"]


class Trainer:
    """A writer with the settings of its training. What must survive a resume lies in `writer.notes["mechanics"]`.

    `examples`: those that a curriculum chooses from. `scale`: lowest and highest of the rewards that it is given. In
    `config` here, `right` is a reward on that scale. Raises UsageError for settings that contradict each other.
    """

    def __init__(
        self,
        writer: PolicyModel,
        config: Training,
        examples: Sequence[Example] = (),
        scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        config.check()
        low, high = scale
        self.config = replace(config, right=low + config.right * (high - low))
        self.writer, self.examples = writer, list(examples)
        self._features = [curricula.pcl_features(e.user_text) for e in self.examples]
        writer.notes["mechanics"] = {
            "visits": {},
            "counts": {},
            "values": [0.0] * curricula.FEATURES,
        }

    @property
    def _notes(self) -> dict[str, Any]:
        """The notes as they are now: a resume replaces them."""
        notes: dict[str, Any] = self.writer.notes["mechanics"]
        return notes

    async def sample(
        self,
        run: Run,
        conversations: Sequence[Conversation],
        *,
        keys: Sequence[str] = (),
        n: int | None = None,
        greedy: bool = False,
        stop: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> list[list[Sample]]:
        """A group of texts for each conversation, as a recorded effect: (conversations, n or `group`).

        `keys` name the questions behind the conversations, for erpo's temperatures; `greedy` texts have none. The seed
        is the run's.
        """
        config = self.config
        heat = [self.temperature(key) for key in keys] or [config.temperature] * len(conversations)
        heat = [0.0] * len(conversations) if greedy else heat
        seed = run.rng.getrandbits(63)

        async def draw() -> JSON:
            groups = self.writer.sample(
                conversations,
                config.group if n is None else n,
                temperature=heat,
                max_tokens=max_tokens or config.max_tokens,
                seed=seed,
                stop=stop,
                top_p=config.top_p,
            )
            return [[sample.to_json() for sample in group] for group in groups]

        drawn: Any = await run.effect("sample", draw)
        return [[Sample.from_json(value) for value in group] for group in drawn]

    async def converse(
        self,
        run: Run,
        samples: Sequence[Sample],
        replies: Sequence[Conversation],
        *,
        stop: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> list[Sample]:
        """The next turn of each sample, as a recorded effect; see `Writer.converse`."""
        config = self.config
        seed = run.rng.getrandbits(63)

        async def draw() -> JSON:
            longer = self.writer.converse(
                samples,
                replies,
                temperature=[sample.temperature for sample in samples],
                max_tokens=max_tokens or config.max_tokens,
                seed=seed,
                stop=stop,
                top_p=config.top_p,
            )
            return [sample.to_json() for sample in longer]

        records: Any = await run.effect("converse", draw)
        return [Sample.from_json(value) for value in records]

    def temperature(self, key: str) -> float:
        """Sampling temperature of a question: the same for all, unless `residual=erpo`."""
        if self.config.residual != "erpo":
            return self.config.temperature
        visits = int(self._notes["visits"].get(key, 0))
        return erpo.erpo_temperature(self.config.temperature, visits, hottest=self.config.hottest)

    def choose(self, rng: random.Random, k: int) -> list[Example]:
        """`k` training examples by the curriculum; all when there are no more."""
        if self.config.curriculum == "mopps":
            counts = [tuple(self._notes["counts"].get(e.id, curricula.PRIOR)) for e in self.examples]
            places = curricula.mopps(rng, counts, k)
        elif self.config.curriculum == "pcl":
            values = [curricula.pcl_value(self._notes["values"], x) for x in self._features]
            places = curricula.pcl(rng, values, k)
        else:
            places = curricula.uniform(rng, len(self.examples), k)
        return [self.examples[i] for i in places]

    async def grade(
        self, run: Run, env: Environment, prompts: Sequence[Prompt], examples: Sequence[Example]
    ) -> list[float]:
        """Mean reward of each prompt over the examples; equal prompts run once. The curriculum records the rewards."""
        distinct = list({prompt.id: prompt for prompt in prompts}.values())
        if self.config.curriculum == "uniform":
            means = [score.mean for score in await env.score(run, distinct, examples)]
        else:
            rows = await run.map(lambda branch, prompt: env.evaluate(branch, prompt, examples), distinct)
            rewards = np.array([[rollout.reward for rollout in row] for row in rows])
            low, high = env.reward.low, env.reward.high
            self.observe(examples, ((rewards - low) / (high - low)).mean(0).tolist(), len(distinct))
            means = rewards.mean(1).tolist()
        by_id = {prompt.id: mean for prompt, mean in zip(distinct, means, strict=True)}
        return [by_id[prompt.id] for prompt in prompts]

    def observe(self, chosen: Sequence[Example], rates: Sequence[float], attempts: int) -> None:
        """Tell the curriculum what happened: the share of `attempts` at each chosen example that succeeded, 0 to 1."""
        if self.config.curriculum == "mopps":
            counts = self._notes["counts"]
            for example, rate in zip(chosen, rates, strict=True):
                old = tuple(counts.get(example.id, curricula.PRIOR))
                counts[example.id] = list(curricula.mopps_update(old, rate, attempts, self.config.decay))
        elif self.config.curriculum == "pcl":
            features = [curricula.pcl_features(e.user_text) for e in chosen]
            self._notes["values"] = curricula.pcl_update(self._notes["values"], features, rates)

    async def baseline(
        self,
        run: Run,
        conversations: Sequence[Conversation],
        judge: Callable[[Run, Sequence[int], Groups], Awaitable[Sequence[Sequence[float]]]],
    ) -> list[float]:
        """Rewards of the greedy text of each conversation, for `learn`; none unless `advantage=remax`."""
        if not self.config.greedy:
            return []
        groups = await self.sample(run, conversations, n=1, greedy=True)
        return [reward for (reward,) in await judge(run, range(len(groups)), groups)]

    async def guide(
        self,
        run: Run,
        questions: Sequence[tuple[Conversation, str]],
        groups: Groups,
        rewards: Sequence[Sequence[float]],
        judge: Callable[[Run, Sequence[int], Groups], Awaitable[Sequence[Sequence[float]]]],
    ) -> tuple[Groups, list[list[float]], list[bool]]:
        """Groups, rewards and marks for `learn`, after what is hopeless was asked again with its hint.

        `asked` are the conversations of the groups with their hints; `judge(run, places, groups)` rewards the groups of
        a second attempt, which stand for those at `places`. Nothing happens without `hints=guide`.
        """
        again = self.hopeless(rewards)
        if not again:
            return groups, [list(group) for group in rewards], []
        hinted = [guided_rollouts.with_hint(*questions[i]) for i in again]
        second = await self.sample(run, hinted, n=len(groups[0]))
        plain = [conversation for conversation, _ in questions]
        return self.guided(groups, rewards, plain, again, (second, await judge(run, again, second)))

    def hopeless(self, rewards: Sequence[Sequence[float]]) -> list[int]:
        """Positions of the groups that `hints=guide` asks again with a hint; none without it."""
        return guided_rollouts.needs_hint(self._accuracies(rewards)) if self.config.hints == "guide" else []

    def guided(
        self,
        groups: Groups,
        rewards: Sequence[Sequence[float]],
        conversations: Sequence[Conversation],
        again: Sequence[int],
        second: tuple[Groups, Sequence[Sequence[float]]],
    ) -> tuple[list[list[Sample]], list[list[float]], list[bool]]:
        """Groups, rewards and marks for `learn` after the groups at `again` were asked a second time with a hint.

        `second` are those groups and rewards. One that neither failed nor succeeded throughout takes the place of the
        first one, as an answer to the conversation without the hint.
        """
        kept, paid = [list(group) for group in groups], [list(group) for group in rewards]
        marks = [False] * len(kept)
        for i in guided_rollouts.worth_training(self._accuracies(second[1])):
            place, group = again[i], second[0][i]
            kept[place] = self.writer.rebased(group, [conversations[place]] * len(group))
            paid[place], marks[place] = list(second[1][i]), True
        return kept, paid, marks

    def _accuracies(self, rewards: Sequence[Sequence[float]]) -> list[float]:
        return [sum(r >= self.config.right for r in group) / len(group) for group in rewards]

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

    def learn(
        self,
        groups: Groups,
        rewards: Sequence[Sequence[Reward]],
        *,
        keys: Sequence[str] = (),
        greedy: Sequence[float] = (),
        hinted: Sequence[bool] = (),
    ) -> dict[str, float]:
        """One update from groups of samples and their rewards; figures of `Writer.update` and of the rewards, none without
        groups.

        A reward is one number for a text, or one for each of its tokens. `keys` name the questions (erpo), `greedy` are
        the rewards of the greedy texts (remax), `hinted` marks the groups that `Writer.rebased` made.
        """
        if not groups:
            return {}
        totals = [[total(reward) for reward in group] for group in rewards]
        if self.config.residual == "erpo":
            visits = self._notes["visits"]
            for key, group in zip(keys, totals, strict=True):
                visits[key] = erpo.erpo_visits(int(visits.get(key, 0)), group, self.config.right)
        all_rewards = [reward for group in totals for reward in group]
        summary = {
            "reward": sum(all_rewards) / max(1, len(all_rewards)),
            "equal_groups": sum(estimators.equal(group) for group in totals) / max(1, len(totals)),
        }
        if self.config.loss == "dpo":
            return {**self._prefer(groups, totals), **summary}
        flat = [sample for group in groups for sample in group]
        gaps = divergences(self.config, self.writer, flat)
        if any(gaps):
            summary["kl"] = sum(map(sum, gaps)) / max(1, sum(map(len, gaps)))
        advantages, returns = token_advantages(self.config, self.writer, groups, rewards, greedy, gaps)
        marks = [mark for mark, group in zip(hinted, groups, strict=False) for _ in group]
        figures = self.writer.update(flat, advantages, self.config.update(), returns=returns, hinted=marks)
        return {**figures, **summary}

    def _prefer(self, groups: Groups, rewards: Sequence[Sequence[float]]) -> dict[str, float]:
        """One update on the filtered pairs of each group; its figures, and the number of `pairs`."""
        pairs = [
            (group[pair.chosen], group[pair.rejected])
            for group, paid in zip(groups, rewards, strict=True)
            for pair in losses.filtered_pairs(
                paid, [len(sample.tokens) for sample in group], margin=self.config.margin
            )
        ]
        return {
            "kl": 0.0,
            **self.writer.prefer(pairs, self.config.kl, self.config.update()),
            "pairs": len(pairs),
        }
