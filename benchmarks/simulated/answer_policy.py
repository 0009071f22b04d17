"""A simulated policy that answers rows itself, for training with prompts as help: some kinds of rows it never solves.

The policy is right on a row of kind k with the probability sigmoid(b_k), and under a prompt that holds the hint of that kind
with sigmoid(v_k). b (the bare context) and v (the context with the hint) are weights of their own: what is learned in one context
changes nothing in the other. As a writer it adds a hint at random, or with `reads` that of a failure that it is shown. With a
`spread` rows of one kind differ: that of a row is added to the logit, between plus and minus the spread.
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
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import Sample
from whet.rl.policy_model.optimizer import Update
from whet.rl.prompt_front import ONLY
from whet.types import Completion, Example, Message, Request, Usage

START = Prompt.parse("<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}")
HINT = re.compile(r"Hint (\d+)\.")
KIND = re.compile(r"kind(\d+)")
CLASSES = 16  # rows of so many degrees of difficulty, in an order that mixes them
NEVER, WITH_HINT = -12.0, 0.4


@dataclass(frozen=True)
class Silent:
    """A frozen task model that is never right."""

    address = "scripted/silent"
    simulated = local = can_generate = True
    can_score = False

    async def generate(self, request: Request) -> list[Completion]:
        return [Completion("?", usage=Usage(1, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


def environment(first: Sequence[float], rows: int = 12) -> Environment:
    """`rows` training rows and four validation rows of each kind; `first` has as many numbers as there are kinds."""
    examples = [
        Example(f"k{k}-{i}", {"input": f"kind{k} row {i}"}, "yes", {}, f"kind{k} row {i}")
        for i in range(rows + 4)
        for k in range(len(first))
    ]
    model: Any = Silent()
    cut = rows * len(first)
    return Environment(model, ExactMatch(), tuple(examples[:cut]), tuple(examples[cut:]))


@dataclass
class Body:
    """How much fits into the policy."""

    limit: int = 10_000

    @property
    def weights(self) -> Body:
        return self


@dataclass
class AnswerPolicy:
    """See the module. `first`: b at the beginning, by kind."""

    first: Sequence[float]
    reads: bool = True
    spread: float = 0.0
    with_hint: float = WITH_HINT
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})
    body: Body = field(default_factory=Body)

    def __post_init__(self) -> None:
        self.b = np.array(self.first, dtype=float)
        self.v = np.maximum(self.b, self.with_hint)
        self._contexts: list[tuple[int, bool, int]] = []

    def _context(self, text: str) -> tuple[int, bool, int]:
        prompt, _, row = text.rpartition("kind")
        kind = int(row.split()[0])
        return kind, str(kind) in HINT.findall(prompt), int(row.split()[-1])

    def chance(self, kind: int, hinted: bool, row: int = 0) -> float:
        """The probability of a right answer to the row of a number."""
        easier = self.spread * ((7 * row) % CLASSES - (CLASSES - 1) / 2) / (CLASSES / 2)
        return float(1 / (1 + np.exp(-(self.v if hinted else self.b)[kind] - easier)))

    def sample(
        self, conversations: Sequence[Sequence[Message]], n: int = 1, *, temperature: float = 1.0,
        seed: int = 0, **how: Any,
    ) -> list[list[Sample]]:  # fmt: skip
        rng = random.Random(seed)
        return [[self._say(c[-1].content, rng, temperature) for _ in range(n)] for c in conversations]

    def _say(self, text: str, rng: random.Random, temperature: float) -> Sample:
        if text.endswith(ONLY):
            failed = [int(kind) for kind in KIND.findall(text)]
            kind = rng.choice(failed) if self.reads and failed else rng.randrange(len(self.b))
            hints = sorted({int(k) for k in HINT.findall(text.partition("</INSTRUCTION>")[0])} | {kind})
            said = " ".join(["Answer.", *(f"Hint {k}." for k in hints)])
            return Sample(said, (-1,), (0,), (0.0,), (True,), True)
        self._contexts.append(self._context(text))
        p = self.chance(*self._contexts[-1])
        right = rng.random() < p if temperature else p > 0.5
        at = (len(self._contexts) - 1,)
        logprob = float(np.log(p if right else 1 - p))
        return Sample("yes" if right else "no", at, (int(right),), (logprob,), (True,), True)

    def sample_turn(self, samples: Sequence[Sample], replies: Any, **how: Any) -> list[Sample]:
        return []

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        chances = [self.chance(*self._contexts[s.prompt[0]]) for s in samples]
        return [[float(np.log(p if s.tokens[0] else 1 - p))] for s, p in zip(samples, chances, strict=True)]

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        flat = [float(a[0]) if isinstance(a, Sequence) else float(a) for a in advantages]
        b, v = self.b.copy(), self.v.copy()
        for sample, advantage in zip(samples, flat, strict=True):
            kind, hinted, row = self._contexts[sample.prompt[0]]
            step = (
                settings.lr * advantage * (sample.tokens[0] - self.chance(kind, hinted, row)) / len(samples)
            )
            (v if hinted else b)[kind] += step
        self.b, self.v = b, v
        return {"loss": 0.0}

    def save(self) -> bytes:
        return json.dumps([self.b.tolist(), self.v.tolist(), self.notes]).encode()

    def load(self, blob: bytes) -> None:
        b, v, self.notes = json.loads(blob)
        self.b, self.v = np.array(b), np.array(v)
