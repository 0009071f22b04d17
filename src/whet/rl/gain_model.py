"""A model of what texts gain, learned from pairs: which of two texts about the same question gained more (Bradley-Terry).

    P(a gained more than b) = sigmoid(w . (h_a - h_b))      h: the frozen reference policy's state behind question and text
    w <- w + rate x mean of sigmoid(-w . (h_+ - h_-)) (h_+ - h_-) over the pairs of different gains of a question, a few passes

The reward model of Retroformer (arXiv:2308.02151; there a second language model with a scalar head). Before it learns from new
pairs it predicts them, so its accuracy is that on pairs that it has not seen; it is believed only where that is above chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from whet.rl.score_book import NoteKeeper
from whet.types import Message

Conversation = Sequence[Message]
NOTE = "gain model"
RATE, PASSES = 4.0, 4
LEAST = 20


class StateReader(NoteKeeper, Protocol):
    """A policy that reads conversations."""

    def read_states(self, conversations: Sequence[Conversation]) -> list[list[float]]:
        """Its frozen reference's state behind each conversation, with a norm of 1."""


@dataclass
class GainModel:
    """The weights and the count of right predictions, in the notes of the policy, where a resume finds them."""

    policy: StateReader

    def __post_init__(self) -> None:
        self.policy.notes[NOTE] = {"weights": [], "pairs": 0, "right": 0}

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.policy.notes[NOTE]  # type: ignore[assignment]
        return state

    @property
    def accuracy(self) -> float:
        """The share of pairs that were predicted right before they were learned from; 0.5 without any."""
        pairs = self._state["pairs"]
        return float(self._state["right"] / pairs) if pairs else 0.5

    @property
    def is_believed(self) -> bool:
        """Whether the accuracy on at least `LEAST` unseen pairs is above chance by two standard errors."""
        pairs = self._state["pairs"]
        return bool(pairs >= LEAST and self.accuracy - 0.5 > 1 / math.sqrt(pairs))

    def rewards(self, question: Conversation, texts: Sequence[str]) -> list[float]:
        """w . h of each text: only differences between texts about one question mean anything."""
        states = self._read(question, texts)
        weights = np.array(self._state["weights"] or np.zeros(states.shape[1]))
        return [float(value) for value in states @ weights]

    def learn(self, question: Conversation, texts: Sequence[str], gains: Sequence[float]) -> None:
        """Predict, then learn, which of the texts gained more."""
        pairs = [
            (i, j) if gains[i] > gains[j] else (j, i)
            for i, j in combinations(range(len(texts)), 2)
            if gains[i] != gains[j]
        ]
        pairs = [(i, j) for i, j in pairs if texts[i] != texts[j]]
        if not pairs:
            return
        states = self._read(question, texts)
        better = states[[i for i, _ in pairs]] - states[[j for _, j in pairs]]
        weights = np.array(self._state["weights"] or np.zeros(states.shape[1]))
        margins = better @ weights
        self._state["pairs"] += len(pairs)
        self._state["right"] += float((margins > 0).sum() + 0.5 * (margins == 0).sum())
        for _ in range(PASSES):
            doubt = 1 / (1 + np.exp(np.clip(better @ weights, -50, 50)))
            weights = weights + RATE * doubt @ better / len(pairs)
        self._state["weights"] = weights.tolist()

    def _read(self, question: Conversation, texts: Sequence[str]) -> Any:
        conversations = [[*question, Message("assistant", text)] for text in texts]
        return np.array(self.policy.read_states(conversations))
