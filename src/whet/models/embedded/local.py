"""The parts that both embedded models share: the interface to the engine, the tokenizer, and the shape of a scoring call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.models.embedded.masked_body import PolicyBody
from whet.models.embedded.weights import tokenizer
from whet.models.model_workers import ModelWorkers
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores

MASK_SLOT = "mask"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Continuations:
    """The continuations of a call: the distinct ones and, for every input, which of them it asks for.

    ``distinct``: D texts.  ``index``: int64 (E, L), a position in ``distinct``.
    """

    distinct: tuple[str, ...]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, inputs: Sequence[Mapping[str, str]], continuations: Sequence[Sequence[str]]) -> Continuations:
        """Check and number the continuations. Raises UsageError: not one list per input, lists of unequal length, or an empty
        continuation."""
        if len(inputs) != len(continuations):
            raise UsageError(
                f"{len(inputs)} inputs, {len(continuations)} lists of continuations; give one list per input."
            )
        if len({len(row) for row in continuations}) > 1:
            raise UsageError("Every input needs the same number of continuations.")
        place: dict[str, int] = {}
        index = [[place.setdefault(text, len(place)) for text in row] for row in continuations]
        if any(not text.strip() for text in place):
            raise UsageError(
                "An empty continuation cannot be scored; give every label a word (`verbalizer:`)."
            )
        shape = (len(inputs), len(continuations[0]) if continuations else 0)
        return cls(tuple(place), np.array(index, dtype=np.int64).reshape(shape))


class EmbeddedModel:
    """Base of the embedded models; a subclass computes scores in :meth:`compute`, one call at a time. `workers`: who computes
    them instead."""

    simulated = False
    local = True
    can_generate = False
    can_score = True
    workers: ModelWorkers | None = None

    def __init__(self, name: str) -> None:
        self.address = f"embedded/{name}"
        self.tokenizer: Any = tokenizer()
        self._lock = Lock()

    async def generate(self, request: Request) -> list[Completion]:
        """Always raises UsageError: these models compare given answers and write none."""
        raise UsageError(
            f"{self.address} cannot generate text: it scores given answers. Name a model that generates."
        )

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities (P, E, L) of the continuations; computed in a worker thread. Raises UsageError: the continuations do
        not fit the inputs, or the prompt cannot be used with this model."""
        wanted = Continuations.of(inputs, continuations)
        tokens = np.array([self.count_tokens(text) for text in wanted.distinct], dtype=np.int64)
        if not prompts or wanted.index.size == 0:
            return Scores(
                np.zeros((len(prompts), *wanted.index.shape)), np.zeros(wanted.index.shape, dtype=np.int64)
            )
        if self.workers is not None:
            return await self.workers.score(prompts, inputs, continuations, whole=True)
        logprobs = await asyncio.to_thread(self._compute, self.compute, prompts, inputs, wanted)
        return Scores(logprobs, tokens[wanted.index])

    def _compute(self, compute: Callable[..., NDArray[np.float64]], *work: object) -> NDArray[np.float64]:
        with self._lock:
            return compute(*work)

    def compute(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities, float64 (P, E, L)."""
        raise NotImplementedError

    async def score_pairs(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> NDArray[np.float64]:
        """Score as `score` does, each input under the prompt at its own position only: log-probabilities (N, L), one batch.
        Raises UsageError: not as many prompts as inputs, or as `score`."""
        if len(prompts) != len(inputs):
            raise UsageError(f"{len(prompts)} prompts, {len(inputs)} inputs; give one prompt per input.")
        wanted = Continuations.of(inputs, continuations)
        if wanted.index.size == 0:
            return np.zeros(wanted.index.shape)
        return await asyncio.to_thread(self._compute, self.compute_pairs, prompts, inputs, wanted)

    def compute_pairs(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities, float64 (N, L)."""
        raise NotImplementedError

    def policy_body(self) -> PolicyBody:
        """The frozen body on which a token-level policy (rlprompt) stands."""
        return PolicyBody()

    def count_tokens(self, text: str) -> int:
        """Word pieces of ``text``, without special tokens."""
        return len(self.encode([text])[0])

    async def close(self) -> None:
        """End the workers, if there are any."""
        if self.workers is not None:
            await self.workers.close()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token numbers of each text; the names of special tokens in a text are ordinary text."""
        plain = [defuse_mask_tokens(text).encode("utf-8", "replace").decode() for text in texts]
        return [encoded.ids for encoded in self.tokenizer.encode_batch(plain, add_special_tokens=False)]


def defuse_mask_tokens(text: str) -> str:
    """The text with ``[MASK]`` and its like taken apart, so that an input cannot place a special token."""
    if "[" in text:
        for special in SPECIALS:
            text = text.replace(special, f"[ {special[1:-1]} ]")
    return text
