"""Tensors and JSON facts in one safetensors blob, and back. Nothing that is read can run code."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from whet.errors import UsageError

Parts = dict[str, dict[str, Tensor]]
"""Tensors by name, by part: the weights, the moments of an optimiser."""


def pack(parts: Parts, facts: Mapping[str, object]) -> bytes:
    """One blob, tensors named `PART/NAME`; equal contents in equal order give equal bytes."""
    flat = {
        f"{part}/{name}": tensor.detach().cpu().contiguous()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    return bytes_of(flat, metadata={"json": json.dumps(facts)})


def read_blob(blob: bytes, what: str) -> tuple[dict[str, Any], Parts]:
    """Facts and tensors of a blob. Raises UsageError naming `what` when it is damaged."""
    try:
        flat = tensors_of(blob)
        length = struct.unpack("<Q", blob[:8])[0]
        facts: dict[str, object] = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["json"])
    except (SafetensorError, struct.error, KeyError, ValueError) as error:
        raise UsageError(f"this is not a checkpoint of {what}: {error}") from error
    parts: Parts = {}
    for name, tensor in flat.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    return facts, parts


def copy_tensors(into: Parts, stored: Parts, what: str) -> None:
    """Copy the tensors of these parts into those of the same names, or nothing at all.

    Raises UsageError naming `what` when a part is missing, or has other names or shapes.
    """
    for part, tensors in into.items():
        known = stored.get(part, {})
        wrong = sorted(tensors.keys() ^ known.keys()) or [
            name for name, tensor in tensors.items() if tensor.shape != known[name].shape
        ]
        if wrong:
            raise UsageError(
                f"the checkpoint does not fit this {what}: {len(wrong)} of its {part} differ, {wrong[0]} for example. "
                "Use the model and the settings that it was trained with."
            )
    for part, tensors in into.items():
        for name, tensor in tensors.items():
            tensor.data.copy_(stored[part][name])
