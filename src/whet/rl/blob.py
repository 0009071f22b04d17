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

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, by part: the weights, the moments of an optimiser."""


def pack(parts: Tensors, facts: Mapping[str, Any]) -> bytes:
    """One blob, tensors named `PART/NAME`; equal contents in equal order give equal bytes."""
    flat = {
        f"{part}/{name}": tensor.detach().cpu().contiguous()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    return bytes_of(flat, metadata={"json": json.dumps(facts)})


def unpack(blob: bytes, into: Tensors, what: str) -> dict[str, Any]:
    """Copy a blob's tensors into those of the same names and return its facts.

    Raises UsageError naming `what` when the blob is damaged, or its tensors have other names or shapes.
    """
    facts, flat = read(blob, what)
    wanted = {f"{part}/{name}": t for part, tensors in into.items() for name, t in tensors.items()}
    wrong = sorted(flat.keys() ^ wanted.keys()) or [n for n in wanted if wanted[n].shape != flat[n].shape]
    if wrong:
        raise UsageError(
            f"the checkpoint does not fit this {what}: {wrong[0]} differs. "
            "Use the model and the settings that it was trained with."
        )
    for name, tensor in wanted.items():
        tensor.data.copy_(flat[name])
    return facts


def read(blob: bytes, what: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Facts and tensors of a blob. Raises UsageError naming `what` when it is damaged."""
    try:
        flat = tensors_of(blob)
        length = struct.unpack("<Q", blob[:8])[0]
        facts: dict[str, Any] = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["json"])
    except (SafetensorError, struct.error, KeyError, ValueError) as error:
        raise UsageError(f"this is not a checkpoint of {what}: {error}") from error
    return facts, flat
