"""`hf/PATH`: transformers models in this process, from a local folder, a GGUF file or a hub name.

The kind (causal, sequence-to-sequence, masked) is read from the model's configuration. Requests that wait at
the same time are answered in one batch; an answer does not depend on the batch it was made in, beyond
rounding.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from whet.errors import ProviderError, UsageError
from whet.models.huggingface_generate import generate_batch
from whet.models.huggingface_load import Weights, load_weights
from whet.models.huggingface_score import score
from whet.models.model_workers import ModelWorkers, local_place, open_workers
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores

if TYPE_CHECKING:
    from whet.models.huggingface_words import TransformersBody, TransformersGradients

DEFAULT_BATCH_SIZE = 32
_GATHER_SECONDS = 0.002

_Waiting = tuple[Request, "asyncio.Future[list[Completion]]"]


def load(name: str, *, device: str | None = None, batch_size: int = DEFAULT_BATCH_SIZE) -> HuggingFaceModel:
    """The model in a local folder, in a GGUF file or of a hub name.

    `device`: cpu, cuda, cuda:1, mps; None takes CUDA where there is one. `batch_size`: sequences
    generated together, 1 or more. Raises UsageError when torch or transformers are missing or the model
    cannot be loaded.
    """
    if batch_size < 1:
        raise UsageError(f"hf/{name}: batch_size must be 1 or more, found {batch_size}.")
    place = local_place(name)
    workers = None if device is not None else open_workers(f"hf/{place or name}", place)
    weights = load_weights(name, device if workers is None else "cpu", reader=workers is not None)
    return HuggingFaceModel(f"hf/{name}", weights, batch_size, workers, partial(load_weights, name, None))


class HuggingFaceModel:
    """A transformers model behind the protocol `LanguageModel`.

    Sampling is seeded by the whole request (messages, temperature, seed, sample): the same request gives the
    same answer. A JSON schema is not enforced. One thread computes, so that the event loop stays free; with `workers`, these
    compute, and `read` gets the weights for what needs them in this process.
    """

    simulated = False
    local = True
    can_score = True

    def __init__(
        self,
        address: str,
        weights: Weights,
        batch_size: int,
        workers: ModelWorkers | None = None,
        read: Callable[[], Weights] | None = None,
    ) -> None:
        self.address = address
        self.can_generate = weights.kind != "masked"
        self.workers = workers
        self._weights, self._read = weights, read
        self._batch_size = batch_size
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="whet-hf")
        self._waiting: deque[_Waiting] = deque()
        self._servers: list[asyncio.Task[None]] = []
        self._idle = 0

    @property
    def weights(self) -> Weights:
        """The weights in this process. A model with workers reads them when they are first wanted."""
        if self._weights.model is None and self._read is not None:
            self._weights = self._read()
        return self._weights

    def around(self, weights: Weights) -> HuggingFaceModel:
        """A model with this one's address and settings on other weights, say those with a trained prefix."""
        return HuggingFaceModel(self.address, weights, self._batch_size)

    def word_gradients(self) -> TransformersGradients:
        """The change of this model's loss with the words of a prompt (for autoprompt)."""
        from whet.models.huggingface_words import MaskedTransformersGradients, TransformersGradients

        kind = MaskedTransformersGradients if self.weights.kind == "masked" else TransformersGradients
        return kind(self.weights)

    def policy_body(self) -> TransformersBody:
        """This model as the frozen body of a policy over words (rlprompt)."""
        from whet.models.huggingface_words import TransformersBody

        return TransformersBody(self.weights)

    def vocabulary(self, n: int) -> list[str]:
        """At most `n` words that are single tokens, in the order of these: what token prompts are made of."""
        from whet.models.huggingface_words import whole_words

        return list(whole_words(self._weights))[:n]

    async def generate(self, request: Request) -> list[Completion]:
        """`request.n` completions, made in one batch with the other requests that are waiting.

        Raises UsageError for a masked model and ProviderError when the device has not enough memory.
        """
        self._check_generates()
        loop = asyncio.get_running_loop()
        if any(server.get_loop() is not loop for server in self._servers):
            self._waiting.clear()
            self._servers, self._idle = [], 0
        self._servers = [server for server in self._servers if not server.done()]
        future: asyncio.Future[list[Completion]] = loop.create_future()
        self._waiting.append((request, future))
        if len(self._servers) < (1 if self.workers is None else self.workers.copies):
            self._servers.append(loop.create_task(self._serve()))
        return await future

    def _check_generates(self) -> None:
        if not self.can_generate:
            raise UsageError(
                f"{self.address} is a masked model: it scores labels at {{{{mask}}}} and cannot write. "
                "Give the task `labels:`, or use a causal or sequence-to-sequence model."
            )

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The completions of each request, computed together; as `generate` would give them, beyond rounding.

        Raises UsageError for a masked model and ProviderError when the device has not enough memory.
        """
        self._check_generates()
        try:
            return await self._compute(list(requests))
        except Exception as error:
            raise self.translate(error) from error

    async def _serve(self) -> None:
        self._idle += 1
        await asyncio.sleep(_GATHER_SECONDS)
        while self._waiting:
            share = -(-len(self._waiting) // self._idle)
            taken = [self._waiting.popleft() for _ in range(min(self._batch_size, share))]
            self._idle -= 1
            await self._answer([(request, future) for request, future in taken if not future.done()])
            self._idle += 1
        self._idle -= 1

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        try:
            answers = await self._compute([request for request, _ in batch])
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(self.translate(error))
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _compute(self, requests: list[Request]) -> list[list[Completion]]:
        if self.workers is not None:
            return await self.workers.generate(requests, self._batch_size)
        work = partial(generate_batch, self.weights, requests, self._batch_size)
        answers = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        return [[one for one in group if one is not None] for group in answers]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities of the continuations, shape (P, E, L); batched by length.

        Raises UsageError when a masked model's prompt has not exactly one `{{mask}}`, or the shapes differ,
        and ProviderError when the device has not enough memory.
        """
        if self.workers is not None:
            return await self.workers.score(prompts, inputs, continuations)
        loop = asyncio.get_running_loop()
        work = (self.weights, prompts, inputs, continuations)
        try:
            return await loop.run_in_executor(self._pool, score, *work)
        except Exception as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> Exception:
        """Lack of memory concerns every request of this size and says what to do; others are what they
        are.
        """
        if isinstance(error, self._weights.torch.cuda.OutOfMemoryError):
            return ProviderError(f"{self.address}: out of memory. Lower the option batch_size.", fatal=True)
        return error

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` by the model's own tokenizer, without special tokens."""
        return len(self._weights.encode(text))

    async def close(self) -> None:
        """Stop the computing thread after its present batch. Calling it twice is harmless."""
        for server in self._servers:
            server.cancel()
        self._servers, self._idle = [], 0
        if self.workers is not None:
            await self.workers.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
