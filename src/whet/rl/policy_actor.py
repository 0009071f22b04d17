"""A policy as the actor in the episodes of an environment; its turns are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.environments.episodes import ActorAction, ActorObservation, Trajectory
from whet.rl.policy_model import PolicyModel, Sample
from whet.run import Run
from whet.types import JSON


@dataclass(frozen=True)
class PolicyActor:
    """A policy that answers all conversations of a turn in one batch; the batch is one recorded effect.

    `record` of an answer is the sample of the whole conversation as JSON: tokens of others are marked as not its own.
    All chance comes from the run's generator, so that a resumed run draws what it would have drawn. `temperature` 0
    is greedy. `stop` ends a turn. `calls`: task calls that a turn counts as, where the policy stands in for the task
    model.
    """

    policy: PolicyModel
    temperature: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    calls: int = 0

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """One turn in each conversation; where no room is left for a turn, an error."""
        seed = run.rng.getrandbits(63)

        async def compute() -> JSON:
            return self._write(observations, seed)

        role = "task" if self.calls else None
        records: Any = await run.effect("sample", compute, role=role, calls=self.calls * len(observations))
        return [
            ActorAction("", error="policy: the conversation is too long")
            if r is None
            else ActorAction(r["text"], record=r)
            for r in records
        ]

    def _write(self, observations: Sequence[ActorObservation], seed: int) -> list[JSON]:
        """The next turn of each conversation as a record; None where there is no room."""
        how: Any = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
            "stop": self.stop,
            "top_p": self.top_p,
        }
        new = [i for i, o in enumerate(observations) if o.record is None]
        records: list[Any] = [o.record for o in observations]
        before = {i: Sample.from_json(record) for i, record in enumerate(records) if record is not None}
        going = {i: sample for i, sample in before.items() if self._fits(sample, observations[i])}
        opened = self.policy.sample([observations[i].messages for i in new], **how)
        continued = self.policy.sample_turn(
            list(going.values()), [observations[i].news for i in going], **how
        )
        written = dict(zip(going, continued, strict=True))
        written |= {i: sample for i, (sample,) in zip(new, opened, strict=True)}
        return [written[i].to_json() if i in written else None for i in range(len(observations))]

    def _fits(self, before: Sample, observation: ActorObservation) -> bool:
        """Whether the conversation leaves room for another turn."""
        length = len(before.prompt) + len(before.tokens) + len(self.policy.read(observation.news))
        return length + self.max_tokens <= self.policy.body.weights.limit


def samples_of(trajectories: Sequence[Trajectory]) -> list[Sample]:
    """The text of a policy in each episode, as one sample of the whole conversation."""
    records: list[Any] = [
        [turn.action.record for turn in trajectory.turns if turn.action.record] for trajectory in trajectories
    ]
    return [Sample.from_json(turns[-1]) for turns in records]
