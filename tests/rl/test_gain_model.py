"""The model of gains: it ranks, it is judged on pairs that it has not seen, and it is not believed where it guesses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from whet.rl.gain_model import LEAST, GainModel
from whet.types import Message

QUESTION = [Message("user", "why?")]
TEXTS = [f"text {i}" for i in range(8)]


class Reader:
    """States are fixed random directions, one for each text; `asked` counts how often they were read."""

    def __init__(self) -> None:
        self.notes: dict[str, object] = {}
        rng = np.random.default_rng(0)
        self.states = {text: rng.normal(size=16) for text in TEXTS}

    def read_states(self, conversations: Sequence[Any]) -> list[list[float]]:
        rows = [self.states[one[-1].content] for one in conversations]
        assert all(one[:-1] == QUESTION and one[-1].role == "assistant" for one in conversations)
        return [(row / np.linalg.norm(row)).tolist() for row in rows]


def taught(gain: Any, steps: int = 30) -> GainModel:
    model, rng = GainModel(Reader()), random.Random(0)
    for _ in range(steps):
        texts = rng.sample(TEXTS, 4)
        model.learn(QUESTION, texts, [gain(text, rng) for text in texts])
    return model


def test_it_ranks_texts_as_they_gained() -> None:
    model = taught(lambda text, rng: float(text.split()[1]))
    rewards = model.rewards(QUESTION, TEXTS)
    assert rewards == sorted(rewards) and model.accuracy > 0.8 and model.is_believed


def test_it_is_not_believed_where_gains_are_chance() -> None:
    model = taught(lambda text, rng: rng.random(), 60)
    assert abs(model.accuracy - 0.5) < 0.1 and not model.is_believed


def test_it_is_not_believed_before_it_has_seen_enough() -> None:
    model = taught(lambda text, rng: float(text.split()[1]), 2)
    assert model.policy.notes["gain model"]["pairs"] == 12 < LEAST and not model.is_believed  # type: ignore[index]


def test_its_first_step_by_hand() -> None:
    """Weights of nothing: all pairs are even, each pair counts half, and the step is the mean difference of the states."""
    model = GainModel(Reader())
    model.learn(QUESTION, TEXTS[:2], [0.0, 1.0])
    first, second = (
        np.array(row)
        for row in model.policy.read_states([[*QUESTION, Message("assistant", t)] for t in TEXTS[:2]])
    )
    weights, difference = np.zeros(16), second - first
    for _ in range(4):
        weights = weights + 4.0 * difference / (1 + np.exp(difference @ weights))
    assert model.accuracy == 0.5
    assert model.policy.notes["gain model"]["weights"] == pytest.approx(weights.tolist())  # type: ignore[index]


def test_equal_gains_and_equal_texts_teach_nothing() -> None:
    model = GainModel(Reader())
    model.learn(QUESTION, TEXTS[:3], [0.5, 0.5, 0.5])
    model.learn(QUESTION, [TEXTS[0], TEXTS[0]], [0.0, 1.0])
    assert model.policy.notes["gain model"] == {"weights": [], "pairs": 0, "right": 0}
    assert model.rewards(QUESTION, TEXTS[:2]) == [0.0, 0.0]
