"""The work of a worker for a local model: it reads the weights once and computes its share of the batches.

See `whet.models.model_workers` for the run's side. Requests and answers are JSON values; a number keeps all of its digits.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from whet._util.workers.sent_files import FILES_AT
from whet._util.workers.surroundings import find_version
from whet.errors import ProviderError, UsageError, WhetError
from whet.models.addresses import resolve
from whet.models.huggingface import HuggingFaceModel
from whet.models.huggingface_generate import generate_batch
from whet.models.huggingface_load import BatchPart
from whet.models.huggingface_score import score
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.types import Message, Request


def load_call(address: str, call: str, arguments: str) -> Callable[[], dict[str, Any]]:
    """The function that computes a call of the model at an address. It returns the `value`, or the `error` that the model
    raises. `arguments` is JSON."""
    return lambda: _answer(address, call, json.loads(arguments))


def _answer(address: str, call: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"value": _CALLS[call](_open_model(address), **arguments)}
    except ProviderError as error:
        return {"error": str(error), "retryable": error.retryable, "fatal": error.fatal}
    except WhetError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{address}: a worker cannot compute this: {type(error).__name__}: {error}"}


@cache
def _open_model(address: str) -> LanguageModel:
    """The model, from its files on this machine where they lie elsewhere than on that of the run."""
    place = os.environ.get(FILES_AT)
    return resolve(address if place is None else f"hf/{place}")


def _ready(model: LanguageModel) -> None:
    """Nothing: the model is there."""


def _generate(
    model: LanguageModel, requests: Sequence[Any], size: int, part: Sequence[int]
) -> list[list[object]]:
    assert isinstance(model, HuggingFaceModel)
    read = [_read_request(value) for value in requests]
    try:
        answers = generate_batch(model.weights, read, size, BatchPart(*part))
    except Exception as error:
        raise model.translate(error) from error
    return [[None if one is None else asdict(one) for one in group] for group in answers]


def _score(
    model: LanguageModel,
    prompts: Sequence[Any],
    inputs: Sequence[Mapping[str, str]],
    continuations: Sequence[Sequence[str]],
    part: Sequence[int],
) -> list[object]:
    read = [Prompt(_read_messages(messages)) for messages in prompts]
    if not isinstance(model, HuggingFaceModel):
        scores = asyncio.run(model.score(read, inputs, continuations))
        return [scores.logprobs.tolist(), scores.tokens.tolist()]
    try:
        scores = score(model.weights, read, inputs, continuations, BatchPart(*part))
    except Exception as error:
        raise model.translate(error) from error
    return [scores.logprobs.tolist(), scores.tokens.tolist()]


def _read_messages(values: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(**value) for value in values)


def _read_request(value: Mapping[str, Any]) -> Request:
    messages, stop = _read_messages(value["messages"]), tuple(value["stop"])
    return Request(**{**value, "messages": messages, "stop": stop})


_CALLS: Mapping[str, Callable[..., object]] = {"ready": _ready, "generate": _generate, "score": _score}


def load_check(address: str, versions: Mapping[str, str]) -> Callable[[], None]:
    """Raises UsageError where a worker has other packages than the run. What it returns does nothing."""
    for name, version in versions.items():
        own = find_version(name)
        if own != version:
            there = f"there is no package {name}" if own is None else f"{name} is {own}"
            raise UsageError(
                f"{address}: {there}, and the run has {name} {version}. Install the same version there."
            )
    return lambda: None
