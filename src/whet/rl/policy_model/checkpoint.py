"""Checkpoints of a writer: one safetensors blob for a resume, one folder for use elsewhere. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from whet.errors import UsageError
from whet.rl.policy_model.settings import LoraSettings
from whet.types import JSON

FORMAT = "whet-writer/1"
WEIGHTS_FILE, CARD_FILE = "adapter.safetensors", "writer.json"

Tensors = dict[str, Tensor]


def pack(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Tensors and JSON facts as one safetensors blob; equal contents in equal order give equal bytes."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return bytes_of(kept, metadata={"json": json.dumps(facts)})


def unpack(blob: bytes) -> tuple[Tensors, dict[str, Any]]:
    """What `pack` put together. Raises UsageError for anything else."""
    try:
        tensors = tensors_of(blob)
        length = struct.unpack("<Q", blob[:8])[0]
        facts: dict[str, Any] = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["json"])
    except (SafetensorError, struct.error, KeyError, ValueError) as error:
        raise UsageError(f"this is not the checkpoint of a writer: {error}") from error
    return tensors, facts


def check_base(what: str, facts: Mapping[str, Any], address: str, fingerprint: str) -> None:
    """Raise UsageError when a checkpoint was trained on another base model; both hashes are named."""
    if facts.get("base") != fingerprint:
        raise UsageError(
            f"{what} was trained on {facts.get('address')} with hash {facts.get('base')}; {address} has hash "
            f"{fingerprint}. Adapters fit only the very weights that they were trained on."
        )


def check_shapes(into: Mapping[str, Tensor], stored: Mapping[str, Tensor], part: str) -> Tensors:
    """The tensors called `PART.NAME` by NAME, if they are those of `into`. Raises UsageError when one differs."""
    tensors = {
        name[len(part) + 1 :]: tensor for name, tensor in stored.items() if name.startswith(f"{part}.")
    }
    wrong = sorted(tensors.keys() ^ into.keys()) or [
        name for name, tensor in into.items() if tensor.shape != tensors[name].shape
    ]
    if wrong:
        raise UsageError(
            f"the checkpoint's {part} do not fit this writer: {len(wrong)} of {len(into)} differ, {wrong[0]} for "
            "example. Open it with the rank and targets that it was trained with."
        )
    return tensors


def fill(into: Mapping[str, Tensor], stored: Mapping[str, Tensor], part: str) -> None:
    """Copy the tensors called `PART.NAME` into those called NAME. Raises UsageError when names or shapes differ."""
    tensors = check_shapes(into, stored, part)
    for name, tensor in into.items():
        tensor.data.copy_(tensors[name])


def write_folder(folder: Path, blob: bytes, card: Mapping[str, JSON]) -> str:
    """Write the weights and their card; the SHA-256 of the weights. Raises OSError as the disk does."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(blob).hexdigest()
    (folder / WEIGHTS_FILE).write_bytes(blob)
    text = json.dumps({"format": FORMAT, "sha256": digest, **card}, indent=2, ensure_ascii=False)
    (folder / CARD_FILE).write_text(text + "\n", "utf-8")
    return digest


def read_folder(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Card and weights of a checkpoint folder. Raises UsageError when it is damaged or of another format."""
    try:
        card: dict[str, Any] = json.loads((folder / CARD_FILE).read_text("utf-8"))
        blob = (folder / WEIGHTS_FILE).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is not the checkpoint of a writer: {error}") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise UsageError(f"{folder / CARD_FILE} is not of the format {FORMAT}.")
    digest = hashlib.sha256(blob).hexdigest()
    if card.get("sha256") != digest:
        raise UsageError(
            f"{folder / WEIGHTS_FILE} has hash {digest}, its card says {card.get('sha256')}: the file is not the "
            "one that was exported."
        )
    return card, blob


def settings_of(card: Mapping[str, Any]) -> LoraSettings:
    """The LoRA settings that a card names. Raises UsageError when it names none."""
    try:
        return LoraSettings(**{f.name: card["lora"][f.name] for f in dataclasses.fields(LoraSettings)})
    except (KeyError, TypeError) as error:
        raise UsageError(f"{CARD_FILE} does not say which weights were trained: {error}") from error


def check_settings(folder: Path, card: Mapping[str, Any], requested: LoraSettings | None) -> LoraSettings:
    """The LoRA settings of a checkpoint. Raises UsageError when others are asked for."""
    trained = settings_of(card)
    if requested not in (None, trained):
        raise UsageError(
            f"{folder} was trained with rank {trained.rank}, alpha {trained.alpha:g} and targets {trained.targets}; "
            f"it cannot go on with {requested}. Add --set rank={trained.rank} --set alpha={trained.alpha:g}."
        )
    return trained
