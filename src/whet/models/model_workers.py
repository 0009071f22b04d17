"""Copies of a local model in worker processes on this machine, or in actors of a Ray cluster.

The run keeps the tokenizer, the journal and the limits, and sends whole calls. The workers of a call compute its batches in
turns, and each batch holds the rows that it holds in one process: the numbers are the same to the last bit. A worker that dies
costs the batches that it had in hand, which another one computes again (`whet._util.workers.elsewhere`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from whet._util.workers import Job, Work
from whet._util.workers.automatic import has_memory_for, is_ray
from whet._util.workers.elsewhere import Elsewhere
from whet._util.workers.pool import Processes, count_processors, share_threads
from whet._util.workers.ray_pool import ModelCopies, RayWorkers
from whet._util.workers.sent_files import SentFiles, describe_files, measure_files
from whet._util.workers.surroundings import find_version
from whet.errors import ProviderError, UsageError, parameter, quantity
from whet.models.model_files import measure_weights
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores, Usage

_CALLS = "whet.models.model_calls"
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
_CHARACTERS = 16_384
"""Characters of the texts of a scoring call from which on a second worker has a batch to compute."""
_log = logging.getLogger("whet.models")


@dataclass(frozen=True)
class WorkerChoice:
    """The place where the local models of a run compute. `engine`, `workers` and `share` as in `make_executor`; `gpus`: the
    part of a GPU that a copy takes; None: a whole one where there are any."""

    engine: str | None
    workers: int | None
    gpus: float | None
    share: int = 1


_CHOICE: ContextVar[WorkerChoice | None] = ContextVar("choice", default=None)


@contextmanager
def models_in_workers(choice: WorkerChoice | None) -> Iterator[None]:
    """Until it ends, the local models that are opened answer in workers. None: in this process."""
    token = _CHOICE.set(choice)
    try:
        yield
    finally:
        _CHOICE.reset(token)


def open_workers(address: str, place: str | None = None) -> ModelWorkers | None:
    """The workers of a model that is opened now; None: it answers in this process. `place`: the folder or file of its weights,
    where it has one that is not a part of a package."""
    choice = _CHOICE.get()
    return None if choice is None else ModelWorkers(address, place, choice)


class ModelWorkers:
    """The copies of one model, and their number `copies`. They start when the run prepares, or with the first call."""

    def __init__(self, address: str, place: str | None, choice: WorkerChoice) -> None:
        self.address, self.copies = address, 1
        self._place, self._choice = place, choice
        self._executor: Elsewhere | None = None
        self._starting = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()

    async def prepare(self, say: Callable[[str], None] = _log.info) -> None:
        """Start the copies, and let each of them read the weights. `say` gets a message with their number.

        Raises UsageError where a worker cannot read them, or has other packages than this process.
        """
        async with self._starting:
            if self._executor is not None:
                return
            workers = await self._on_ray(say) if is_ray(self._choice.engine) else self._on_this_machine(say)
            executor = Elsewhere(workers)
            try:
                await executor.prepare(lambda: [self._make_check()])
                self.copies = workers.count
                await _gather([self._send(executor, "ready", {}) for _ in range(self.copies)])
            except BaseException:
                await executor.close()
                raise
            self._executor = executor
        say(f"{self.address} answers in {quantity(self.copies, 'worker')}")

    @property
    def sent(self) -> int:
        """Bytes that each machine of a Ray cluster gets which has no copy of the weights; 0 where nothing is sent."""
        return measure_files(self._place) if self._place is not None and is_ray(self._choice.engine) else 0

    async def _on_ray(self, say: Callable[[str], None]) -> RayWorkers:
        choice, place, files = self._choice, self._place, None
        assert choice.engine is not None
        if place is not None:
            files = SentFiles(place, await asyncio.to_thread(describe_files, place))
        return RayWorkers(
            choice.engine, choice.workers, 0, choice.share, say, ModelCopies(choice.gpus, files)
        )

    def _on_this_machine(self, say: Callable[[str], None]) -> Processes:
        choice = self._choice
        wanted = choice.workers or max(1, count_processors() // choice.share)
        places = list_gpu_places(choice.gpus)
        if places:
            count = min(wanted, len(places))
            return Processes(count, places=places[:count])
        size = 0 if self._place is None else measure_weights(self._place)
        count = next((n for n in range(wanted, 1, -1) if has_memory_for(n * size)), 1)
        if count < wanted:
            say(
                f"warning: {self.address} answers in {quantity(count, 'worker')} and not in {wanted}: its weights take "
                f"{size / 2**30:.1f} GiB in each, and whet fills half of the memory at most"
            )
        environment = share_threads(count_processors(), count)
        if choice.gpus == 0:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return Processes(count, places=[environment] * count)

    def _make_check(self) -> Work:
        versions = {name: version for name in _PACKAGES if (version := find_version(name)) is not None}
        return Work(f"{_CALLS}:load_check", {"address": self.address, "versions": versions})

    async def generate(self, requests: Sequence[Request], size: int) -> list[list[Completion]]:
        """See `BatchModel.generate_batch`; at most `size` sequences at once."""
        await self.prepare()
        batches = math.ceil(sum(request.n for request in requests) / size)
        values = [asdict(request) for request in requests]
        parts = await self._share("generate", batches, {"requests": values, "size": size})
        groups = [[[_read_completion(one) for one in group] for group in part] for part in parts]
        return [
            [next(one for one in same if one is not None) for same in zip(*of_request, strict=True)]
            for of_request in zip(*groups, strict=True)
        ]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
        *,
        whole: bool = False,
    ) -> Scores:
        """See `LanguageModel.score`. `whole`: one worker computes all of it."""
        await self.prepare()
        arguments = {
            "prompts": [[asdict(message) for message in prompt.messages] for prompt in prompts],
            "inputs": [dict(values) for values in inputs],
            "continuations": [list(texts) for texts in continuations],
        }
        rows = sum(len(text) for values in inputs for text in values.values())
        length = len(prompts) * rows + len(inputs) * sum(len(prompt.text) for prompt in prompts)
        parts = await self._share("score", 1 if whole else math.ceil(length / _CHARACTERS), arguments)
        shape = len(prompts), len(inputs), len(continuations[0]) if continuations else 0
        logprobs = np.full(shape, np.nan)
        for values, _ in parts:
            own = np.array(values, dtype=np.float64).reshape(shape)
            logprobs = np.where(np.isnan(logprobs), own, logprobs)
        return Scores(logprobs, np.array(parts[0][1], dtype=np.int64).reshape(shape[1:]))

    async def _share(self, call: str, batches: int, arguments: Mapping[str, Any]) -> list[Any]:
        """The values of a call from as many workers as it has batches. A call under way continues when nobody waits for it any
        more: ending it would end the worker with its weights."""
        assert self._executor is not None
        parts = max(1, min(self.copies, batches))
        sent = [
            asyncio.ensure_future(self._send(self._executor, call, {**arguments, "part": [at, parts]}))
            for at in range(parts)
        ]
        for task in sent:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        return await asyncio.shield(_gather(sent))

    async def _send(self, executor: Elsewhere, call: str, arguments: Mapping[str, Any]) -> Any:
        """The value of one call, or of one part of it, from a worker. Raises the error that the model raised there."""
        work = Work(
            f"{_CALLS}:load_call", {"address": self.address, "call": call, "arguments": json.dumps(arguments)}
        )
        outcome = await executor.run(
            Job(
                _refuse_here,
                lambda: work,
                math.inf,
                f"the model {self.address}",
                partial(_refuse, self.address),
            )
        )
        if "error" not in outcome:
            return outcome["value"]
        if "fatal" in outcome:
            raise ProviderError(outcome["error"], retryable=outcome["retryable"], fatal=outcome["fatal"])
        raise UsageError(outcome["error"])

    async def close(self) -> None:
        """End all copies. Calling it twice is harmless."""
        executor, self._executor = self._executor, None
        calls = list(self._calls)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        if executor is not None:
            await executor.close()


async def _gather(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The results of several calls, once all of them have ended, even if one of them fails."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _read_completion(value: Mapping[str, Any] | None) -> Completion | None:
    """The reply of a worker; None if another worker wrote it."""
    if value is None:
        return None
    return Completion(**{**value, "usage": Usage(**value["usage"]), "steps": tuple(value["steps"])})


async def _refuse_here() -> NoReturn:
    raise AssertionError("a model with workers computes nothing in the run")


def _refuse(address: str) -> UsageError:
    return UsageError(f"{address}: a worker has not answered.")


def list_gpu_places(gpus: float | None) -> list[dict[str, str]]:
    """The environment variables that assign a worker its GPU, for each copy that fits on the GPUs of this machine, one GPU
    after the other; empty where copies compute on the processor. Raises UsageError where GPUs are wanted and there are none."""
    if gpus == 0:
        return []
    count = _count_gpus()
    if count == 0:
        if gpus is None:
            return []
        raise UsageError(
            f"{parameter('worker_gpus', gpus)}: torch finds no GPU on this machine. Leave it out, or set it to 0."
        )
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = named or [str(number) for number in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": name} for _ in range(int(1 / (gpus or 1.0))) for name in names]


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def local_place(name: str) -> str | None:
    """The absolute path of a model in a folder or a file of this machine; None for the name of one on the hub."""
    path = Path(name)
    return str(path.absolute()) if path.exists() else None
