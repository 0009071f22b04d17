"""Texts of genes: sentences of twelve families of eight; those of one family help and those of four hinder. And a writer.

The writer adds a gene of some family to the text that it is shown, or to both together, or takes one out. It has one probability
for each family and change, so that it learns from any parents which kind of change is worth making. A row is solved where a text
has genes enough for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.environments.worlds import Scripted
from tests.rl.scribe import Body

from whet.environments.environment import Environment
from whet.models.scripted import shuffle
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import Sample
from whet.rl.policy_model.optimizer import Update
from whet.types import Example, Message, Request

FAMILIES, SIZE, HINDERING, ROWS = 12, 8, 4, 20
GENE = re.compile(r"g(\d+)\b")


def start(genes: Sequence[int] = ()) -> Prompt:
    """A text with these genes."""
    return Prompt.parse(f"<!-- whet:begin -->\n{write_genes(set(genes))}\n<!-- whet:end -->\n{{{{input}}}}")


def write_genes(genes: set[int]) -> str:
    """Genes as a text."""
    return " ".join(["Answer.", *(f"g{gene}" for gene in sorted(genes))])


def genes_in(text: str) -> set[int]:
    """The genes of a text."""
    return {int(gene) for gene in GENE.findall(text)}


def families(seed: int) -> list[int]:
    """The families in the order of this world: the one that helps, those that hinder, and the others."""
    return shuffle(list(range(FAMILIES)), seed, "families")


def good_genes(seed: int) -> list[int]:
    """The genes that help."""
    return [families(seed)[0] * SIZE + i for i in range(SIZE)]


def worth(seed: int, text: str) -> float:
    """The share of rows that a text solves, from 0.1 without genes to 0.9 with all that help and none that hinder."""
    good, *others = families(seed)
    own = [gene // SIZE for gene in genes_in(text)]
    hinders = sum(family in others[:HINDERING] for family in own)
    return min(1.0, max(0.0, 0.1 + 0.1 * own.count(good) - 0.1 * hinders))


def gene_world(seed: int) -> Environment:
    """Rows of even difficulty."""

    def answer(request: Request) -> str:
        text, _, number = request.messages[-1].content.rpartition("row ")
        return "yes" if (int(number) % ROWS + 0.5) / ROWS < worth(seed, text) else "no"

    rows = tuple(Example(f"r{n}", {"input": f"row {n}"}, "yes", {}, f"row {n}") for n in range(2 * ROWS))
    model: Any = Scripted(answer)
    return Environment(model, ExactMatch(), rows[:ROWS], rows[ROWS:])


@dataclass
class GeneWriter:
    """A softmax over changes: to add a gene of a family, or to take one out."""

    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})
    body: Body = field(default_factory=Body)
    logits: list[float] = field(default_factory=lambda: [0.0] * (2 * FAMILIES))

    def probabilities(self) -> np.ndarray[Any, Any]:
        """Of the changes."""
        weights = np.exp(np.array(self.logits) - max(self.logits))
        found: np.ndarray[Any, Any] = weights / weights.sum()
        return found

    def sample(
        self, conversations: Sequence[Sequence[Message]], n: int = 1, *, temperature: float = 1.0, seed: int = 0, **how: Any
    ) -> list[list[Sample]]:  # fmt: skip
        rng, chances = np.random.default_rng(seed), self.probabilities()
        groups = []
        for conversation in conversations:
            shown = genes_in(conversation[-1].content)
            group = []
            for change in rng.choice(len(chances), n, p=chances):
                family = range(int(change) % FAMILIES * SIZE, (int(change) % FAMILIES + 1) * SIZE)
                if change < FAMILIES:
                    text = write_genes(shown | {int(rng.choice(family))})
                else:
                    own = sorted(shown & set(family))
                    text = write_genes(shown - {int(rng.choice(own))} if own else shown)
                logprob = float(np.log(chances[change]))
                group.append(Sample(text, (0,), (int(change),), (logprob,), (True,), True))
            groups.append(group)
        return groups

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        before, total = self.probabilities(), np.array(self.logits)
        for sample, advantage in zip(samples, advantages, strict=True):
            value = float(advantage[0]) if isinstance(advantage, Sequence) else float(advantage)
            step = -before
            step[sample.tokens[0]] += 1.0
            total = total + settings.lr * value * step / len(samples)
        self.logits = total.tolist()
        return {"loss": 0.0}

    def save(self) -> bytes:
        return json.dumps([self.logits, self.notes]).encode()

    def load(self, blob: bytes) -> None:
        self.logits, self.notes = json.loads(blob)
