"""A tiny body for token policies, and a model whose answers depend on the words of a prompt by a known law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.types import Completion, Example, Request, Scores

WIDTH = 32
START = "Sort it.\n<!-- whet:begin -->\nPlease sort.\n<!-- whet:end -->\n{{input}} {{mask}}"


class TinyBody:
    """A random network of width 32 over `size` made-up words; `asked` holds the shape of every call of `hidden`."""

    def __init__(self, size: int = 200) -> None:
        generator = torch.Generator().manual_seed(7)
        self.embeddings = torch.randn(size, WIDTH, generator=generator)
        self.mix = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
        self.places = torch.randn(8, WIDTH, generator=generator)
        self.asked: list[tuple[int, int]] = []
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.all = [f"w{letters[i // 676]}{letters[i // 26 % 26]}{letters[i % 26]}" for i in range(size)]

    def vocabulary(self, n: int) -> list[str]:
        if n > len(self.all):
            raise UsageError(f"There are {len(self.all)} words, {n} were asked for.")
        return self.all[:n]

    def ids(self, words: Sequence[str]) -> Tensor:
        if not set(words) <= set(self.all):
            raise UsageError("no such piece")
        return torch.tensor([self.all.index(word) for word in words], dtype=torch.long)

    def read(self, text: str) -> list[int]:
        """A piece for each word, whatever it is."""
        return [sum(word.rstrip("0123456789").encode()) % len(self.all) for word in text.split()]

    def hidden(self, pieces: Tensor) -> Tensor:
        self.asked.append((pieces.shape[0], pieces.shape[1]))
        state = self.places[pieces.shape[1]].expand(len(pieces), -1)
        for at in range(pieces.shape[1]):
            state = torch.tanh(state @ self.mix + self.embeddings[pieces[:, at]] + self.places[at])
        return state


class WordsModel:
    """Scores labels; the words of a prompt decide how sure it is of the right one.

    Word w at place t has the worth `worth[t, w]`, linear in the body's embeddings plus noise of its own; a prompt's
    strength is the mean worth of its words. An input of difficulty d is answered rightly when strength > d. The best prompt
    has the best word at each place. `asked` holds (prompts, inputs) of every scoring call.
    """

    address, simulated, local, can_generate, can_score = "test/words", True, True, False, True

    def __init__(self, body: TinyBody, length: int = 3) -> None:
        rng = np.random.default_rng(5)
        rows = body.embeddings.numpy()
        worth = rng.normal(size=(length, WIDTH)) @ rows.T / WIDTH**0.5
        self.worth = worth + 0.3 * rng.normal(size=worth.shape)
        self.body = body
        self.place = {word: i for i, word in enumerate(body.all)}
        self.asked: list[tuple[int, int]] = []

    @property
    def optimum(self) -> float:
        """Strength of the best prompt."""
        return float(self.worth.max(1).mean())

    def strength(self, text: str) -> float:
        """Mean worth of the words of a text; 0 for a text of other words."""
        words = [self.place[word] for word in text.split() if word in self.place]
        return float(np.mean([self.worth[t, w] for t, w in enumerate(words)])) if words else 0.0

    def policy_body(self) -> TinyBody:
        return self.body

    def vocabulary(self, n: int) -> list[str]:
        return self.body.all[:n]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        self.asked.append((len(prompts), len(inputs)))
        strength = np.array([self.strength(prompt.region_text()) for prompt in prompts])
        difficulty = np.array([float(values["input"].split()[1]) for values in inputs])
        truth = np.array([values["input"].split()[0] for values in inputs])
        sure = np.tanh(strength[:, None] - difficulty[None, :])[..., None]
        right = (np.array(continuations) == truth[:, None])[None]
        return Scores(
            np.where(right, sure, -sure), np.ones((len(inputs), len(continuations[0])), dtype=np.int64)
        )

    async def generate(self, request: Request) -> list[Completion]:
        raise UsageError("test/words only scores.")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def close(self) -> None:
        return None


@dataclass(frozen=True)
class World:
    """An environment, its model and its start."""

    env: Environment
    model: WordsModel
    start: Prompt


def words_world(size: int = 200, length: int = 3, train: int = 60, validation: int = 40) -> World:
    """Two labels, inputs `LABEL DIFFICULTY` with difficulties spread from 0 to twice the best prompt's half."""
    model = WordsModel(TinyBody(size), length)

    def rows(n: int, shift: float) -> tuple[Example, ...]:
        texts = [f"{('yes', 'no')[i % 2]} {model.optimum * (i + shift) / n:.4f}" for i in range(n)]
        return tuple(Example(f"{shift}-{i}", {"input": t}, t.split()[0], text=t) for i, t in enumerate(texts))

    labels = {"yes": "yes", "no": "no"}
    env = Environment(model, ExactMatch(), rows(train, 0.3), rows(validation, 0.7), labels, scores=True)
    return World(env, model, Prompt.parse(START))
