"""The reward that asks a model of the CLIP kind how well a picture fits a text."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import io
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.rewards.asking import RewardOptions
from whet.rewards.program import RewardFailed
from whet.run import Run
from whet.types import Completion, Example, Reward
from whet_client.media import content_bytes, marks_of

SCALE = 2.5
"""By what CLIPScore multiplies a cosine (Hessel and others, EMNLP 2021, arXiv 2104.08718)."""
INSTALL = "pip install 'whet[images]'"


@dataclass(frozen=True)
class Clip:
    """CLIPScore of the picture in the answer: 2.5 times the cosine of its embedding and that of a text, between 0 and 1.

    The text is the input of the row, or its column `text`. `model` is a folder or hub name of a model with text and image
    embeddings, such as CLIP or SigLIP. Part: `cosine`.
    """

    model: str
    text: str = ""
    name: str = "clip"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without the text."""
        if not self._text_of(example).strip():
            raise UsageError(
                f"{example.place} has no text to hold against the picture in {self.text or 'its input'!r}."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        pictures = [data for mark in marks_of(completion.text) if (data := content_bytes(mark)) is not None]
        if not pictures:
            raise RewardFailed("the answer holds no picture that can be read")

        async def measure() -> Any:
            return await asyncio.to_thread(_cosine, self.model, self._text_of(example), pictures[0])

        cosine: Any = await run.effect("reward", measure, [example.id, completion.text])
        if not math.isfinite(cosine):
            raise RewardFailed(f"the model {self.model} gives no finite similarity")
        return Reward(min(1.0, SCALE * max(0.0, cosine)), {"cosine": cosine})

    def _text_of(self, example: Example) -> str:
        return str(example.row.get(self.text) or "") if self.text else example.user_text


def _cosine(model: str, text: str, picture: bytes) -> float:
    """The cosine of the embeddings of a text and of a picture."""
    import torch

    opening = importlib.import_module("PIL.Image")

    weights, processor = _load(model)
    with opening.open(io.BytesIO(picture)) as image:
        inputs = processor(
            text=[text], images=[image.convert("RGB")], return_tensors="pt", padding=True, truncation=True
        )
    with torch.inference_mode():
        embeddings = weights(**inputs)
    return float(torch.nn.functional.cosine_similarity(embeddings.text_embeds, embeddings.image_embeds)[0])


@cache
def _load(model: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoProcessor

    processors: Any = AutoProcessor
    return AutoModel.from_pretrained(model).eval(), processors.from_pretrained(model, use_fast=False)


def build_clip(options: RewardOptions) -> Clip:
    """`reward: {clip: {model: PATH, text: COLUMN}}`. Raises UsageError with the place, and where a package is missing."""
    options.only("model", "text")
    model, text = options.values.get("model"), options.values.get("text", "")
    if not isinstance(model, str) or not model or not isinstance(text, str):
        options.refuse("write reward: {clip: {model: PATH}} with the folder or the hub name of a CLIP model.")
    missing = [name for name in ("torch", "transformers", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        options.refuse(f"{' and '.join(missing)} cannot be imported. Install what it takes: {INSTALL}")
    place = options.folder / model
    return Clip(str(place) if place.is_dir() else str(Path(model)) if Path(model).is_dir() else model, text)
