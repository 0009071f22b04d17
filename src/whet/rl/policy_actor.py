"""A writer as an actor: it speaks in the episodes of a world, and what it says is recorded."""

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
    """A writer that answers all conversations of a turn in one batch; the batch is one recorded effect.

    `record` of an answer is the sample of the whole conversation as JSON: tokens of others are marked as not its own.
    All chance comes from the run's generator, so that a resumed run draws what it would have drawn. `temperature` 0
    is greedy; a tuple has one for each of the conversations that begin together. `stop` ends a turn. `calls`: task calls
    that a turn counts as, where the writer stands in for the task model.
    """

    writer: PolicyModel
    temperature: float | tuple[float, ...] = 0.0
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
        """The next turn of each conversation as a record, with the temperature (`heat`) of the conversation; None
        where there is no room. A greedy sample is a sample at temperature 1, so it does not tell that itself."""
        how: Any = {"max_tokens": self.max_tokens, "seed": seed, "stop": self.stop, "top_p": self.top_p}
        records: list[Any] = [h.record for h in observations]
        new = [i for i, record in enumerate(records) if record is None]
        hot = self.temperature if isinstance(self.temperature, tuple) else (self.temperature,) * len(new)
        heat = {i: record["heat"] for i, record in enumerate(records) if record is not None}
        heat |= dict(zip(new, hot, strict=bool(new)))
        before = {i: Sample.from_json(r) for i, r in enumerate(records) if r is not None}
        going = {i: sample for i, sample in before.items() if self._fits(sample, observations[i])}
        opened = self.writer.sample(
            [observations[i].messages for i in new], temperature=[heat[i] for i in new], **how
        )
        continued = self.writer.converse(
            list(going.values()),
            [observations[i].news for i in going],
            temperature=[heat[i] for i in going],
            **how,
        )
        written = dict(zip(going, continued, strict=True)) | dict(
            zip(new, (one for (one,) in opened), strict=True)
        )
        return [
            {**written[i].to_json(), "heat": heat[i]} if i in written else None
            for i in range(len(observations))
        ]

    def _fits(self, before: Sample, observation: ActorObservation) -> bool:
        """Whether the conversation leaves room for another turn."""
        length = len(before.prompt) + len(before.tokens) + len(self.writer.read(observation.news))
        return length + self.max_tokens <= self.writer.body.weights.limit


def spoken(trajectories: Sequence[Trajectory]) -> list[Sample]:
    """The text of a policy in each episode, as one sample of the whole conversation."""
    records: list[Any] = [
        [t.action.record for t in played.turns if t.action.record] for played in trajectories
    ]
    return [Sample.from_json(turns[-1]) for turns in records]
