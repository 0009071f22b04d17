"""Who may speak in an episode: the frozen task model, alone or with somebody who advises it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.environments.episodes import Actor, ActorAction, ActorObservation, Conversation
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
            return ActorAction(answer.text, answer.usage, answer.error)

        return await run.map(ask, observations)


@dataclass(frozen=True)
class Advised:
    """Somebody writes a text for each conversation (a hint, a rewrite), then the task model answers with it.

    `ask` makes what the adviser reads from the conversation, `attach` what the task model reads from the
    conversation and the advice. `record` of an answer is that of the advice.
    """

    adviser: Actor
    model: Actor
    ask: Callable[[Conversation], Conversation]
    attach: Callable[[Conversation, str], Conversation]

    @property
    def calls(self) -> int:
        """Those of the adviser and of the model together."""
        return self.adviser.calls + self.model.calls

    async def act(
        self, run: Run, observations: Sequence[ActorObservation], sample: int = 0
    ) -> list[ActorAction]:
        """One answer of the task model to each conversation; one that could not be advised on is an error."""
        questions = [ActorObservation.first(self.ask(h.messages)) for h in observations]
        advice = await self.adviser.act(run, questions, sample)
        good = [(h, a) for h, a in zip(observations, advice, strict=True) if a.error is None]
        advised = [ActorObservation.first(self.attach(h.messages, a.text)) for h, a in good]
        answers = iter(await self.model.act(run, advised, sample))
        return [a if a.error is not None else replace(next(answers), record=a.record) for a in advice]
