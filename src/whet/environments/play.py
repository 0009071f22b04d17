"""Play episodes: the one loop behind every multi-turn evaluation and every multi-turn training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.environments.episodes import (
    FREE,
    Actor,
    ActorAction,
    ActorObservation,
    Episode,
    Trajectory,
    Turn,
    WorldStep,
)
from whet.run import Run
from whet.types import Message, Usage


async def play(run: Run, actor: Actor, episodes: Sequence[Episode], sample: int = 0) -> list[Trajectory]:
    """One trajectory per episode, in order. All episodes move together, turn by turn.

    So an actor that is a network answers all of them in one batch. For an actor that is slow on its own account,
    play each episode in a branch of `run.map`. `sample` numbers independent attempts at the same episodes. Raises
    ValueError for an episode without turns.
    """
    if any(episode.turns < 1 for episode in episodes):
        raise ValueError("an episode has 1 or more turns")
    games = [_Game(episode) for episode in episodes]
    for number in range(max((e.turns for e in episodes), default=0)):
        live = [g for g in games if not g.over(number)]
        if not live:
            break
        actions = await actor.act(run, [g.observation() for g in live], sample)
        spoken = [(g, s) for g, s in zip(live, actions, strict=True) if s.error is None]
        steps = await run.map(lambda branch, pair: pair[0].episode.step(branch, pair[1].text), spoken)
        answers = iter(steps)
        for game, words in zip(live, actions, strict=True):
            game.add(words, WorldStep(error=words.error) if words.error is not None else next(answers))
    return [game.trajectory() for game in games]


@dataclass
class _Game:
    """An episode on its way."""

    episode: Episode
    turns: list[Turn] = field(default_factory=list)
    step: WorldStep | None = None
    usage: Usage = FREE
    notes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.conversation: list[Message] = list(self.episode.opening)

    def over(self, number: int) -> bool:
        """Whether it ended, or may not speak in the turn with this number."""
        last = self.step
        ended = last is not None and (last.done or last.error is not None)
        return ended or number >= self.episode.turns

    def observation(self) -> ActorObservation:
        """The actor's view."""
        messages = tuple(self.conversation)
        if not self.turns:
            return ActorObservation.first(messages)
        return ActorObservation(messages, messages[-1:], self.turns[-1].action.record)

    def add(self, action: ActorAction, step: WorldStep) -> None:
        """Write down one exchange."""
        observation = self.conversation[-1].content
        self.turns.append(Turn(observation, action, step.reward, step.call))
        self.conversation += [Message("assistant", action.text), Message("user", step.observation)]
        self.usage = self.usage + action.usage + step.usage
        for name, value in step.notes.items():
            self.notes[name] += value  # type: ignore[assignment]
        self.step = step

    def trajectory(self) -> Trajectory:
        """The outcome."""
        last = self.step or WorldStep()
        error = last.error
        return Trajectory(
            opening=tuple(self.episode.opening),
            turns=tuple(self.turns),
            end="error" if error is not None else "done" if last.done else "turns",
            answer=last.answer,
            last=last.observation,
            usage=self.usage,
            error=error,
            notes=dict(self.notes),
        )
