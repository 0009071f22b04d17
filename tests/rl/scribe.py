"""A stand-in for a writer: a softmax over given texts for each kind of question. It samples, learns, saves and loads.

For tests of what methods do around a writer; what writers do themselves is tested on networks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.rl.policy_model import Sample
from whet.rl.policy_model.optimizer import Update
from whet.types import Message

Conversation = Sequence[Message]


@dataclass
class Body:
    """What `Speaking` asks a writer about: how much fits."""

    limit: int = 10_000

    @property
    def weights(self) -> Body:
        return self


@dataclass
class Scribe:
    """Texts that `menu(conversation)` lists, by a softmax of logits that one policy-gradient step changes.

    The distribution is shared by all conversations with the same menu. `seen` holds every update: texts, advantages
    (one for each sample) and settings; `asked` every conversation.
    """

    menu: Callable[[Conversation], Sequence[str]]
    gain: float = 1.0
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})
    seen: list[tuple[list[str], list[float], Update]] = field(default_factory=list)
    asked: list[Conversation] = field(default_factory=list)
    divergence: float = 0.0
    body: Body = field(default_factory=Body)

    def __post_init__(self) -> None:
        self.logits: dict[str, list[float]] = {}
        self.anchors = 0

    def _table(self, menu: Sequence[str]) -> tuple[str, list[float]]:
        key = json.dumps(list(menu))
        return key, self.logits.setdefault(key, [0.0] * len(menu))

    def probabilities(self, menu: Sequence[str]) -> np.ndarray[Any, Any]:
        """Of the texts of a menu."""
        logits = np.array(self._table(menu)[1])
        weights = np.exp(logits - logits.max())
        found: np.ndarray[Any, Any] = weights / weights.sum()
        return found

    def sample(
        self,
        conversations: Sequence[Conversation],
        n: int = 1,
        *,
        temperature: Any = 1.0,
        seed: int = 0,
        **how: Any,
    ) -> list[list[Sample]]:
        rng = np.random.default_rng(seed)
        found = []
        for conversation in conversations:
            self.asked.append(conversation)
            menu = list(self.menu(conversation))
            chances = self.probabilities(menu)
            picks = rng.choice(len(menu), n, p=chances) if temperature else [int(chances.argmax())] * n
            found.append([self._sample(menu, int(i), float(chances[i])) for i in picks])
        return found

    def sample_turn(
        self, samples: Sequence[Sample], replies: Sequence[Conversation], **how: Any
    ) -> list[Sample]:
        assert not samples and not replies, "no conversation goes on"
        return []

    def _sample(self, menu: Sequence[str], i: int, chance: float) -> Sample:
        key = list(self.logits).index(json.dumps(list(menu)))
        return Sample(menu[i], (key,), (i,), (float(np.log(chance)),), (True,), True)

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        flat = [float(a[0]) if isinstance(a, Sequence) else float(a) for a in advantages]
        self.seen.append(([s.text for s in samples], flat, settings))
        keys = list(self.logits)
        before = {key: self.probabilities(json.loads(key)) for key in keys}
        for sample, advantage in zip(samples, flat, strict=True):
            key, i = keys[sample.prompt[0]], sample.tokens[0]
            step = -before[key]
            step[i] += 1.0
            scale = self.gain * settings.lr * advantage / len(samples)
            self.logits[key] = (np.array(self.logits[key]) + scale * step).tolist()
        return {"loss": 0.0, "kl": self.divergence, "entropy": 1.0}

    def imitate(self, pairs: Sequence[tuple[Conversation, str]], settings: Update) -> dict[str, float]:
        for conversation, text in pairs:
            menu = list(self.menu(conversation))
            if text in menu:
                self._table(menu)[1][menu.index(text)] += self.gain * settings.lr
        return {"loss": 0.0}

    def set_reference_policy(self) -> None:
        self.anchors += 1

    def save(self) -> bytes:
        return json.dumps({"logits": self.logits, "notes": self.notes}).encode()

    def load(self, blob: bytes) -> None:
        held = json.loads(blob)
        self.logits, self.notes = held["logits"], held["notes"]
