"""`images/hf/PATH`: text-to-image pipelines of diffusers in this process, from a local folder or a hub name.

The answer to a request is a mark of the picture, as that of a model behind an endpoint is (`whet.models.images`).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import io
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from whet._util.media import keep_painted
from whet.errors import ProviderError, UsageError
from whet.models.huggingface_load import describe_failure, is_hub_name, without_progress_bars
from whet.models.language_model import AnswersOnly
from whet.types import Completion, Request, Usage, content_hash

INSTALL = "pip install 'whet[images]'"
DEFAULT_BATCH_SIZE = 4
_PACKAGES = {"torch": "torch", "transformers": "transformers", "diffusers": "diffusers", "PIL": "pillow"}
_OURS = ("prompt", "generator", "output_type", "return_dict", "num_images_per_prompt")
"""Arguments of a pipeline that whet sets itself."""


class DiffusionModel(AnswersOnly):
    """A pipeline of diffusers as a model that answers: the texts of a request's messages in, the mark of a picture out.

    The noise of each picture is seeded by its whole request (messages, seed, sample): the same request gives the same picture,
    whichever requests share its batch, beyond rounding. `parameters` are arguments of its call (steps, guidance, size).
    Temperature and bounds on tokens do not apply. A picture that the pipeline's safety checker hides is a failed rollout.
    """

    simulated = False
    local = True
    paints = True

    def __init__(
        self, address: str, pipeline: Any, parameters: Mapping[str, Any], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> None:
        self.address = address
        self.identity: Mapping[str, object] = {"extra_body": dict(parameters)} if parameters else {}
        self._pipeline, self._parameters, self._batch_size = pipeline, parameters, batch_size
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="whet-diffusion")

    async def generate(self, request: Request) -> list[Completion]:
        """`request.n` pictures. Raises ProviderError as `generate_batch` does."""
        return (await self.generate_batch([request]))[0]

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The pictures of each request, painted `batch_size` at a time.

        Raises ProviderError when the device has not enough memory, and where the pipeline refuses its parameters.
        """
        tasks = [
            (_text_of(request), _seed(request, copy)) for request in requests for copy in range(request.n)
        ]
        loop = asyncio.get_running_loop()
        answers: list[Completion] = []
        for start in range(0, len(tasks), self._batch_size):
            batch = tasks[start : start + self._batch_size]
            files = await loop.run_in_executor(self._pool, self._paint, batch)
            answers += [self._answer(text, file) for (text, _), file in zip(batch, files, strict=True)]
        rest = iter(answers)
        return [[next(rest) for _ in range(request.n)] for request in requests]

    def _paint(self, batch: Sequence[tuple[str, int]]) -> list[bytes | None]:
        """A PNG for each text and seed; None where the pipeline hides the picture."""
        import torch

        generators = [torch.Generator("cpu").manual_seed(seed) for _, seed in batch]
        try:
            painted = self._pipeline(
                prompt=[text for text, _ in batch],
                generator=generators,
                output_type="pil",
                **self._parameters,
            )
        except torch.cuda.OutOfMemoryError as error:
            raise ProviderError(
                f"{self.address}: out of memory. Lower the option batch_size, or height and width in extra_body.",
                fatal=True,
            ) from error
        except (TypeError, ValueError) as error:
            raise ProviderError(
                f"{self.address}: the pipeline refuses the call: {describe_failure(error)}", fatal=True
            ) from error
        hidden = getattr(painted, "nsfw_content_detected", None) or [False] * len(batch)
        return [
            None if hides else _to_png(image) for image, hides in zip(painted.images, hidden, strict=True)
        ]

    def _answer(self, text: str, file: bytes | None) -> Completion:
        usage = Usage(self.count_tokens(text), pictures=1, estimated=True)
        if file is None:
            return Completion("", "content_filter", usage, "model: the safety checker hid the picture")
        return Completion(str(keep_painted(file)), usage=usage)

    async def close(self) -> None:
        """Stop the computing thread after its present batch. Calling it twice is harmless."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def load(
    name: str,
    *,
    device: str | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    extra_body: Mapping[str, Any] | None = None,
) -> DiffusionModel:
    """The pipeline in a local folder or of a hub name, float32 on a CPU and bfloat16 elsewhere.

    `device`: cpu, cuda, cuda:1, mps; None takes CUDA where there is one. `batch_size`: pictures painted together, 1 or more.
    `extra_body`: arguments of the pipeline's call. Only safetensors are read and no code of the model's author is run. Raises
    UsageError where a package is missing, and for what cannot be loaded or paints from something other than a text.
    """
    address = f"images/hf/{name}"
    if batch_size < 1:
        raise UsageError(f"{address}: batch_size must be 1 or more, found {batch_size}.")
    missing = [package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UsageError(
            f"{address} needs {' and '.join(missing)}, not installed here. Install with: {INSTALL}."
        )
    if not os.path.isdir(name) and not is_hub_name(name):
        raise UsageError(
            f"{address} cannot be loaded: there is no folder {name}, and a hub name is OWNER/NAME."
        )
    pipeline = _load_pipeline(address, name, device)
    check_pipeline(address, pipeline, extra_body or {})
    return DiffusionModel(address, pipeline, extra_body or {}, batch_size)


def _load_pipeline(address: str, name: str, device: str | None) -> Any:
    import torch

    diffusers: Any = importlib.import_module("diffusers")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    diffusers.utils.logging.disable_progress_bar()
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    try:
        with without_progress_bars():
            pipeline = diffusers.DiffusionPipeline.from_pretrained(
                name, dtype=dtype, use_safetensors=True, trust_remote_code=False
            ).to(device)
    except (OSError, ValueError, ImportError, RuntimeError, AttributeError) as error:
        raise UsageError(f"{address} cannot be loaded on {device}: {describe_failure(error)}") from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def check_pipeline(address: str, pipeline: Any, parameters: Mapping[str, Any]) -> None:
    """Raises UsageError for a pipeline that needs more than a text, and for a parameter that it does not take or whet sets."""
    known = inspect.signature(pipeline.__call__).parameters
    kind = type(pipeline).__name__
    needed = [
        name
        for name, one in known.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    if "prompt" not in known or any(name != "prompt" and name not in parameters for name in needed):
        wanted = ", ".join(needed) or "no text"
        raise UsageError(f"{address} is a {kind}, which paints from {wanted}: whet gives it a text.")
    for name in parameters:
        if name in _OURS:
            raise UsageError(f"{address}: extra_body: {name} is set by whet. Leave it out.")
        if name not in known:
            own = ", ".join(one for one in known if one not in (*_OURS, "kwargs"))
            raise UsageError(f"{address}: extra_body: {kind} takes no {name}. It takes: {own}.")


def _text_of(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages)


def _seed(request: Request, copy: int) -> int:
    """Seed of one picture, from everything that determines it."""
    return int(content_hash([_text_of(request), request.seed, request.sample, copy])[:15], 16)


def _to_png(image: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()
