"""A language model of any address as the writer of attacks: `opro` with it in the role of the optimizer.

Campaigns are plain generators without an event loop; the model is called from a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from whet.engine.model_client import MAX_ATTEMPTS, delay
from whet.errors import ProviderError
from whet.models.addresses import resolve
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores

SETTINGS: Mapping[str, Any] = {
    "steps": 3,
    "samples": 4,
    "memory": 6,
    "exemplars": 0,
    "examples": 1,
    "longest": 2000,
}
"""`opro` with a model that costs something to ask: 12 texts from each letter, then another letter."""


class Outside:
    """A model that is called by code without an event loop: its `generate` returns only when the answer is there.

    `calls` counts the requests. What is worth another attempt gets it, as in a run; an endpoint that keeps failing raises
    ProviderError, which ends the campaign.
    """

    can_generate = True
    can_score = False

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.address, self.simulated, self.local = model.address, model.simulated, model.local
        self.calls = 0
        self._jitter = random.Random(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def generate(self, request: Request) -> list[Completion]:
        """What the model answers."""
        self.calls += 1
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: Request) -> list[Completion]:
        attempt = 1
        while True:
            try:
                return await self.model.generate(request)
            except ProviderError as error:
                if not error.retryable or error.fatal or attempt == MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(delay(attempt, error.retry_after, self._jitter))
                attempt += 1

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """What the model says."""
        return await self.model.score(prompts, inputs, continuations)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as the model counts them."""
        return self.model.count_tokens(text)

    async def close(self) -> None:
        """Release the model and end the thread."""
        self.end()

    def end(self) -> None:
        """As `close`, without an event loop. Calling it twice is harmless."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self.model.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def outside(address: str, base_url: str | None = None) -> Outside:
    """The model at an address, to be given to `by_method` as the writer. Raises UsageError for one that cannot be used."""
    return Outside(resolve(address, base_url=base_url))
