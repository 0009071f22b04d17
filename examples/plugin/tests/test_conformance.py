"""The public conformance suites judge what this package brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from whet_example_plugin.guess import Guess
from whet_example_plugin.sentences import METHOD

from whet import Example, Message, Method
from whet.environments import World
from whet.testing import EnvironmentConformance, MethodConformance, ModelConformance, RewardConformance
from whet.types import Request


class TestSentences(MethodConformance):
    settings: ClassVar[Mapping[str, Any]] = {
        "sentences": "Work carefully.|Guess.|Look for evidence.",
        "examples": 12,
    }

    def load(self) -> Method:
        return METHOD


class TestGuesser(ModelConformance):
    address = "guesser/plain"
    sampled = False

    def request(self, number: int = 0) -> Request:
        text = f"Guess a whole number from {12345678 + number} to 99999999."
        return Request((Message("user", text),), max_tokens=16)


class TestBrief(RewardConformance):
    reward: ClassVar[Any] = {"brief": {"words": 2}}


class TestGuess(EnvironmentConformance):
    answers = ("1", "4", "7", "seven")

    def world(self) -> World:
        return Guess(turns=5, highest=7)

    def examples(self) -> list[Example]:
        return [Example(f"game-{i}", {"input": f"game {i}"}, i + 1, {"id": f"game-{i}"}) for i in range(7)]

    def bad_example(self) -> Example:
        return Example("high", {"input": "game"}, 8, {"id": "high"})
