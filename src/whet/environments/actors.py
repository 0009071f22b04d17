"""The frozen task model as a speaker in episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.environments.episodes import ActorAction, ActorObservation
from whet.run import Run
from whet.types import Request


@dataclass(frozen=True)
class TaskModel:
    """The frozen task model as an actor: each answer is one call, recorded by the run.

    `temperature` (0 = greedy), `max_tokens` (None: its own bound), `stop` and `schema` as in a request.
    """

    temperature: float = 0.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    calls: int = 1

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """Ask once for each conversation, all at the same time."""

        async def ask(branch: Run, one: ActorObservation) -> ActorAction:
            request = Request(
                one.messages,
                self.temperature,
                self.max_tokens,
                stop=self.stop,
                schema=self.schema,
                sample=sample,
            )
            answer = (await branch.generate("task", request))[0]
            return ActorAction(answer.text, answer.usage, answer.error, cut=answer.finish == "length")

        return await run.map(ask, observations)
