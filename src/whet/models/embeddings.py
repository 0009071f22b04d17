"""Embeddings: vectors of texts whose closeness hints at a common meaning. They group texts; they prove nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whet.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from whet.models.openai import OpenAIModel

ENCODER = "embedded/encoder"
ENDPOINT = "openai/"
NONE = "none"
Embedder: TypeAlias = Callable[[Sequence[str]], Awaitable[NDArray[np.float64]]]

_log = logging.getLogger("whet.models")
_BATCH, _ATTEMPTS, _LONGEST_WAIT = 128, 4, 20.0


def embedder(address: str) -> Embedder | None:
    """The embedding of that address, a coroutine function from texts to vectors, shape (texts, width); None for `none`.

    `embedded/encoder` (width 384, reads English best) runs in this process. `openai/NAME` asks `/embeddings` of the endpoint at
    OPENAI_BASE_URL with OPENAI_API_KEY, 128 texts a call; what it costs stands in no budget, for an embedding costs a
    thousandth of a completion. Raises UsageError for another address, a missing key, or where the extra `embedded` is not
    installed; calling it raises ProviderError when the endpoint has not answered in four attempts.
    """
    if address == NONE:
        return None
    if address.startswith(ENDPOINT) and len(address) > len(ENDPOINT):
        from whet.models.openai import OpenAIModel

        model = OpenAIModel(address.removeprefix(ENDPOINT))

        async def embed_there(texts: Sequence[str]) -> NDArray[np.float64]:
            try:
                batches = [texts[n : n + _BATCH] for n in range(0, len(texts), _BATCH)]
                vectors = [vector for batch in batches for vector in await _persistent(model, batch)]
            finally:
                await model.close()
            return np.asarray(vectors, dtype=np.float64)

        return embed_there
    if address != ENCODER:
        raise UsageError(f'There is no embedding "{address}". Write {ENCODER}, openai/NAME, or {NONE}.')
    try:
        from whet.models.embedded.encoder import EncoderModel
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{ENCODER} needs {error.name}. Install it with: pip install 'whet[embedded]'"
        ) from error
    encoder = EncoderModel()

    async def embed_here(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(encoder.embed(texts), dtype=np.float64)

    return embed_here


async def _persistent(model: OpenAIModel, texts: Sequence[str]) -> list[list[float]]:
    for attempt in range(_ATTEMPTS - 1):
        try:
            return await model.embed(texts)
        except ProviderError as error:
            if not error.retryable:
                raise
            wait = 2.0**attempt if error.retry_after is None else error.retry_after
            _log.warning("%s; asked again", error)
            await asyncio.sleep(min(wait, _LONGEST_WAIT))
    return await model.embed(texts)
