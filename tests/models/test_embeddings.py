"""Embeddings of an endpoint: order, batches, retries and refusals, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from whet.errors import ProviderError, UsageError
from whet.models.embeddings import NONE, embedder


class Endpoint:
    """Answers `/v1/embeddings` with (length, number of vowels) of each text, in reverse order; `fails` answers first."""

    def __init__(self) -> None:
        self.fails: list[int] = []
        self.sizes: list[int] = []
        self.short = False

    async def embeddings(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        assert request.headers["Authorization"] == "Bearer k" and body["model"] == "small"
        if self.fails:
            return web.json_response(
                {"error": {"message": "no"}}, status=self.fails.pop(0), headers={"Retry-After": "0"}
            )
        self.sizes.append(len(body["input"]))
        rows = [
            {"index": n, "embedding": [len(text), sum(c in "aeiou" for c in text)]}
            for n, text in enumerate(body["input"])
        ]
        return web.json_response({"data": rows[::-1][self.short :]})


@pytest_asyncio.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    here = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/embeddings", here.embeddings)
    async with TestServer(app) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", str(server.make_url("/v1")))
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        yield here


async def test_vectors_come_in_the_order_of_the_texts_in_batches(endpoint: Endpoint) -> None:
    embed = embedder("openai/small")
    assert embed is not None
    texts = [f"{'a' * n}b" for n in range(200)]
    vectors = await embed(texts)
    assert endpoint.sizes == [128, 72]
    np.testing.assert_array_equal(vectors, [[n + 1, n] for n in range(200)])


async def test_a_busy_endpoint_is_asked_again_and_a_refusal_is_not(endpoint: Endpoint) -> None:
    embed = embedder("openai/small")
    assert embed is not None
    endpoint.fails = [503, 429]
    assert (await embed(["aa"])).tolist() == [[2.0, 2.0]]
    endpoint.fails = [401, 401]
    with pytest.raises(ProviderError, match="401"):
        await embed(["aa"])
    assert endpoint.fails == [401]


async def test_missing_vectors_are_an_error(endpoint: Endpoint) -> None:
    endpoint.short = True
    embed = embedder("openai/small")
    assert embed is not None
    with pytest.raises(ProviderError, match="no vectors of 2 texts"):
        await embed(["a", "b"])


def test_an_unknown_embedding_is_refused() -> None:
    assert embedder(NONE) is None
    with pytest.raises(UsageError, match='no embedding "openai/"'):
        embedder("openai/")
