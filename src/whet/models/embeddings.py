"""Embeddings: vectors of texts whose closeness hints at a common meaning. They group texts; they prove nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError

ENCODER = "embedded/encoder"
NONE = "none"


def embedder(address: str) -> Callable[[Sequence[str]], Awaitable[NDArray[np.float64]]] | None:
    """The embedding of that address, a coroutine function from texts to unit vectors, shape (texts, 384); None for `none`.

    `embedded/encoder` is the one there is; it reads English best. Raises UsageError for another address, or where the extra
    `embedded` is not installed.
    """
    if address == NONE:
        return None
    if address != ENCODER:
        raise UsageError(f'There is no embedding "{address}". Write {ENCODER}, or {NONE}.')
    try:
        from whet.models.embedded.encoder import EncoderModel
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{ENCODER} needs {error.name}. Install it with: pip install 'whet[embedded]'"
        ) from error
    model = EncoderModel()

    async def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(model.embed(texts), dtype=np.float64)

    return embed
