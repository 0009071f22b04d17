"""A task in which no single prompt is best: what an input needs can be seen in the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.types import Completion, Example, Request, Scores, content_hash

START = "<!-- whet:begin -->\nPlease sort. Mind the tone.\n<!-- whet:end -->\n{{input}} {{mask}}"
WORDS = "true,false"
WIDTH = 24


class TwoKinds:
    """Scores labels. Inputs `KIND LABEL NUMBER` are of two kinds, day and night.

    An input of the day is answered rightly (by 1 nat) where the labels' words are the task's own, one of the night where
    they are true and false; else wrongly. A demonstration of the same kind in the prompt adds 0.5 nats to the right
    label, the phrase `Mind the tone` takes 0.1 away. `asked` counts inputs that were scored.
    """

    address, simulated, local, can_generate, can_score = "test/two-kinds", True, True, False, True

    def __init__(self) -> None:
        self.asked = 0
        self.embedded = 0

    def embed(self, texts: Sequence[str]) -> Tensor:
        """The kind in the first entry, the rest noise that depends on the text."""
        self.embedded += len(texts)
        rows = []
        for text in texts:
            seed = int(content_hash(text)[:8], 16)
            row = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
            row[0] = 3.0 if "day" in text.split() else -3.0 if "night" in text.split() else 0.0
            rows.append(row)
        return torch.stack(rows)

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """See the class."""
        self.asked += len(prompts) * len(inputs)
        found = np.zeros((len(prompts), len(inputs), len(continuations[0])))
        for p, prompt in enumerate(prompts):
            for e, values in enumerate(inputs):
                found[p, e] = self._logprobs(prompt.region_text(), values["input"], continuations[e])
        return Scores(found, np.ones(found.shape[1:], dtype=np.int64))

    @staticmethod
    def _logprobs(text: str, shown: str, words: Sequence[str]) -> list[float]:
        kind, label, _ = shown.split()
        sure = 1.0 if (words[0] == "true") == (kind == "night") else -1.0
        sure += 0.5 * any(line.startswith(kind) for line in text.splitlines())
        sure -= 0.1 * ("Mind the tone" in text)
        own = ("yes", "no").index(label)
        return [sure if i == own else -sure for i in range(2)]

    async def generate(self, request: Request) -> list[Completion]:
        """Refuse."""
        raise UsageError("test/two-kinds only scores.")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def close(self) -> None:
        return None


def rows(n: int, first: int = 0) -> tuple[Example, ...]:
    """`n` inputs numbered from `first`, kinds and labels by turns."""
    texts = [f"{('day', 'night')[i % 2]} {('yes', 'no')[i // 2 % 2]} {i}" for i in range(first, first + n)]
    return tuple(Example(f"row-{t.split()[2]}", {"input": t}, t.split()[1], text=t) for t in texts)


def two_kinds(model: Any = None, train: int = 80, validation: int = 40) -> Environment:
    """The task; its own words for the labels are yes and no."""
    labels = {"yes": "yes", "no": "no"}
    return Environment(
        model or TwoKinds(), ExactMatch(), rows(train), rows(validation, 1000), labels, scores=True
    )
