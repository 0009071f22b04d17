"""A simulated prompter and contexts of hidden rules, for methods that train a model to write prompts for many contexts.

A context names a few topics. Each topic needs one sentence, the same in every context, which nobody says. The frozen model is
right on a row about a topic with a high probability if the prompt holds its sentence; each sentence that no topic of the context
needs costs something. The prompter is a distribution over sets of sentences with three kinds of weights: one for each sentence,
one for each pair of topic and sentence (what it has learned), and one for how much it trusts experience that it is shown.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.environments.environment import Environment
from whet.methods.prompting_policies import CONTEXT, TRIED
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import Sample
from whet.rl.policy_model.optimizer import Update
from whet.types import Completion, Example, Message, Request, Usage

START = Prompt.parse("<!-- whet:begin -->\nDo it.\n<!-- whet:end -->\n{{input}}")
TOPIC = re.compile(r"topic(\d+)")
SENTENCE = re.compile(r"Rule (\d+)\.")
STATED, UNSTATED, HARM = 0.95, 0.05, 0.05


@dataclass(frozen=True)
class RuleWorld:
    """`topics` topics, `each` of them in a context; sentence `needs[j]` is the one that topic j needs."""

    seed: int
    topics: int = 12
    each: int = 3

    @property
    def needs(self) -> list[int]:
        """The sentence that each topic needs."""
        return random.Random(f"needs|{self.seed}").sample(range(self.topics), self.topics)

    def contexts(self, n: int) -> list[tuple[int, ...]]:
        """`n` different contexts: sets of topics."""
        rng, drawn = random.Random(f"contexts|{self.seed}"), dict[tuple[int, ...], None]()
        while len(drawn) < n:
            drawn[tuple(sorted(rng.sample(range(self.topics), self.each)))] = None
        return list(drawn)

    def rows(self, contexts: Sequence[tuple[int, ...]], each: int) -> tuple[Example, ...]:
        """`each` rows for each topic of each context."""
        return tuple(
            Example(
                f"{name}-{topic}-{i}",
                {"input": f"topic{topic} {i}"},
                "yes",
                {"context": name},
                f"topic{topic} {i} of {name}",
            )
            for context in contexts
            for name in [" ".join(f"topic{topic}" for topic in context)]
            for topic in context
            for i in range(each)
        )

    def worth(self, text: str, context: Sequence[int]) -> float:
        """The probability that the frozen model is right in a context under a text, the mean over its topics."""
        stated = {int(k) for k in SENTENCE.findall(text)}
        needed = {self.needs[topic] for topic in context}
        harm = HARM * len(stated - needed)
        return sum(max(0.0, (STATED if self.needs[t] in stated else UNSTATED) - harm) for t in context) / len(
            context
        )

    def environment(self, train: Sequence[Example], validation: Sequence[Example]) -> Environment:
        """The task over rows."""
        model: Any = Executor(self)
        return Environment(model, ExactMatch(), tuple(train), tuple(validation))


@dataclass
class Executor:
    """The frozen model: right with the probability that the prompt earns on the row's topic."""

    world: RuleWorld
    address = "scripted/rules"
    simulated = local = can_generate = True
    can_score = False
    asked: int = 0

    async def generate(self, request: Request) -> list[Completion]:
        self.asked += 1
        text = request.messages[-1].content
        prompt, _, row = text.rpartition("\n")
        topic, context = int(TOPIC.findall(row)[0]), [int(t) for t in TOPIC.findall(row)[1:]]
        stated = {int(k) for k in SENTENCE.findall(prompt)}
        needed = {self.world.needs[t] for t in context}
        right = (STATED if self.world.needs[topic] in stated else UNSTATED) - HARM * len(stated - needed)
        said = "yes" if chance(self.world.seed, prompt, row) < right else "no"
        return [Completion(said, usage=Usage(1, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


@dataclass
class RulePrompter:
    """A prompter that includes sentence k with the probability sigmoid(b_k + W_k . topics + u h_k), h_k being the mean reward of
    the shown texts that hold the sentence less that of those that do not. b, W and u learn."""

    topics: int
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})
    trust: float = 4.0

    def __post_init__(self) -> None:
        self.b, self.w, self.u = (
            np.full(self.topics, -1.5),
            np.zeros((self.topics, self.topics)),
            self.trust,
        )
        self._read: list[tuple[Any, Any]] = []

    def _features(self, conversation: Sequence[Message]) -> tuple[Any, Any]:
        known, _, tried = conversation[-1].content.partition(TRIED)
        x, h = np.zeros(self.topics), np.zeros(self.topics)
        for topic in TOPIC.findall(known.partition(CONTEXT)[2]):
            x[int(topic)] = 1.0
        shown = [
            (float(r), {int(k) for k in SENTENCE.findall(text)})
            for r, text in re.findall(r"Reward: ([\d.]+)\n(.*)", tried)
        ]
        for k in range(self.topics):
            held, lacked = [r for r, s in shown if k in s], [r for r, s in shown if k not in s]
            h[k] = float(np.mean(held) - np.mean(lacked)) if held and lacked else 0.0
        return x, h

    def _chances(self, x: Any, h: Any) -> Any:
        return 1 / (1 + np.exp(-(self.b + self.w @ x + self.u * h)))

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        n: int = 1,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        **how: Any,
    ) -> list[list[Sample]]:
        rng, groups = np.random.default_rng(seed), []
        for conversation in conversations:
            self._read.append(self._features(conversation))
            p = self._chances(*self._read[-1])
            draws = rng.random((n, self.topics)) < p if temperature else np.repeat((p > 0.5)[None], n, axis=0)
            groups.append([self._sample(bits, p) for bits in draws])
        return groups

    def _sample(self, bits: Any, p: Any) -> Sample:
        text = " ".join(f"Rule {k}." for k in np.flatnonzero(bits)) or "Do."
        logprobs = np.log(np.where(bits, p, 1 - p))
        tokens = tuple(int(bit) for bit in bits)
        return Sample(
            text, (len(self._read) - 1,), tokens, tuple(map(float, logprobs)), (True,) * len(tokens), True
        )

    def _ascend(self, steps: Sequence[tuple[Any, Any, Any, float]], lr: float) -> None:
        """A gradient step on the mean of weight x log probability of bits."""
        gb, gw, gu = np.zeros_like(self.b), np.zeros_like(self.w), 0.0
        for x, h, bits, weight in steps:
            off = weight * (bits - self._chances(x, h)) / len(steps)
            gb, gw, gu = gb + off, gw + np.outer(off, x), gu + float(off @ h)
        self.b, self.w, self.u = self.b + lr * gb, self.w + lr * gw, self.u + lr * gu

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        flat = [float(a[0]) if isinstance(a, Sequence) else float(a) for a in advantages]
        self._ascend(
            [(*self._read[s.prompt[0]], np.array(s.tokens), a) for s, a in zip(samples, flat, strict=True)],
            settings.lr,
        )
        return {"loss": 0.0}

    def imitate(self, pairs: Sequence[tuple[Sequence[Message], str]], settings: Update) -> dict[str, float]:
        steps = []
        for conversation, text in pairs:
            bits = np.zeros(self.topics)
            bits[[int(k) for k in SENTENCE.findall(text)]] = 1.0
            steps.append((*self._features(conversation), bits, 1.0))
        self._ascend(steps, settings.lr)
        return {"loss": 0.0}

    def save(self) -> bytes:
        return json.dumps([self.b.tolist(), self.w.tolist(), self.u, self.notes]).encode()

    def load(self, blob: bytes) -> None:
        b, w, self.u, self.notes = json.loads(blob)
        self.b, self.w = np.array(b), np.array(w)
