"""Small worlds and actors for tests: deterministic, labelled as what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from whet.environments import ActorAction, ActorObservation, Conversation, WorldStep
from whet.environments.environment import Environment
from whet.models.language_model import LanguageModel
from whet.rewards.text import ExactMatch
from whet.run import Run
from whet.types import Completion, Example, Message, Request, Usage


class Scripted:
    """A task model that is a plain function of the request: a stand-in for a frozen model."""

    address, simulated, local, can_generate, can_score = "test/function", True, True, True, False

    def __init__(self, answer: Callable[[Request], str]) -> None:
        self.answer, self.asked = answer, 0

    async def generate(self, request: Request) -> list[Completion]:
        self.asked += 1
        return [Completion(self.answer(request), usage=Usage(3, 2))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


class Lines:
    """An actor that says given lines: `script(conversation)` is its next text; a text of `!` is a failure."""

    calls = 1

    def __init__(self, script: Callable[[Conversation], str]) -> None:
        self.script = script
        self.batches: list[int] = []
        self.heard: list[ActorObservation] = []

    async def act(self, run: Run, heard: Sequence[ActorObservation], sample: int = 0) -> list[ActorAction]:
        self.batches.append(len(heard))
        self.heard += heard
        texts = [self.script(h.messages) for h in heard]
        return [
            ActorAction("", error="provider: out of order")
            if t == "!"
            else ActorAction(t, Usage(1, 1), record=t)
            for t in texts
        ]


class Counting:
    """An episode that counts to `goal`: a text that is the next number earns 1, any other 0; the last one ends it."""

    def __init__(self, goal: int, turns: int) -> None:
        self.opening: Conversation = (Message("user", "Count from 1."),)
        self.turns, self.goal, self.at = turns, goal, 0

    async def step(self, run: Run, text: str) -> WorldStep:
        right = text == str(self.at + 1)
        self.at += right
        done = self.at == self.goal
        return WorldStep(
            f"You are at {self.at}.",
            float(right),
            done,
            str(self.at) if done else None,
            notes={"right": right},
        )


def examples(n: int, target: str = "yes") -> tuple[Example, ...]:
    """`n` questions with a target."""
    return tuple(
        Example(f"e{i}", {"input": f"question {i}"}, target, {"id": f"e{i}"}, f"question {i}")
        for i in range(n)
    )


@dataclass
class Small:
    """An environment over a function, with few examples."""

    model: Scripted
    env: Environment


def small(answer: Callable[[Request], str], n: int = 6, target: str = "yes") -> Small:
    """Questions graded by exact match, answered by a function."""
    model = Scripted(answer)
    rows = examples(n, target)
    as_model: LanguageModel = model  # type: ignore[assignment]
    return Small(model, Environment(as_model, ExactMatch(), rows[: n // 2], rows[n // 2 :]))


def seeded(seed: int) -> Example:
    """An example of a game."""
    row = {"id": f"episode-{seed}", "input": f"episode {seed}", "seed": seed}
    return Example(f"episode-{seed}", {"input": f"episode {seed}"}, None, row, f"episode {seed}")


def with_train(env: Environment, rows: Sequence[Example]) -> Environment:
    """The environment with these rows for training and validation."""
    return replace(env, train=tuple(rows), validation=tuple(rows))
