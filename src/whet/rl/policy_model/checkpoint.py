"""The checkpoint folder of a policy: trained weights as safetensors, and a card that says of which model. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.errors import UsageError, parameter
from whet.rl.policy_model.backbone import LoraSettings
from whet.types import JSON

FORMAT = "whet-policy/1"
WEIGHTS_FILE, CARD_FILE = "adapter.safetensors", "policy.json"


def check_base(what: str, facts: Mapping[str, object], address: str, fingerprint: str) -> None:
    """Raise UsageError when a checkpoint was trained on another base model; both hashes are named."""
    if facts.get("base") != fingerprint:
        raise UsageError(
            f"{what} was trained on {facts.get('address')} with hash {facts.get('base')}; {address} has hash "
            f"{fingerprint}. Adapters fit only the very weights that they were trained on."
        )


def write_checkpoint(folder: Path, blob: bytes, card: Mapping[str, JSON]) -> str:
    """Write the weights and their card; the SHA-256 of the weights. Raises OSError as the disk does."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(blob).hexdigest()
    (folder / WEIGHTS_FILE).write_bytes(blob)
    text = json.dumps({"format": FORMAT, "sha256": digest, **card}, indent=2, ensure_ascii=False)
    (folder / CARD_FILE).write_text(text + "\n", "utf-8")
    return digest


def read_checkpoint(folder: Path) -> tuple[dict[str, object], bytes]:
    """Card and weights of a checkpoint folder. Raises UsageError when it is damaged or of another format."""
    try:
        card: dict[str, object] = json.loads((folder / CARD_FILE).read_text("utf-8"))
        blob = (folder / WEIGHTS_FILE).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is not the checkpoint of a policy: {error}") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise UsageError(f"{folder / CARD_FILE} is not of the format {FORMAT}.")
    digest = hashlib.sha256(blob).hexdigest()
    if card.get("sha256") != digest:
        raise UsageError(
            f"{folder / WEIGHTS_FILE} has hash {digest}, its card says {card.get('sha256')}: the file is not the "
            "one that was exported."
        )
    return card, blob


def check_settings(folder: Path, card: Mapping[str, Any], requested: LoraSettings | None) -> LoraSettings:
    """The LoRA settings of a checkpoint. Raises UsageError when its card names none, or others are asked for."""
    try:
        trained = LoraSettings(**{f.name: card["lora"][f.name] for f in dataclasses.fields(LoraSettings)})
    except (KeyError, TypeError) as error:
        raise UsageError(f"{CARD_FILE} does not say which weights were trained: {error}") from error
    if requested not in (None, trained):
        raise UsageError(
            f"{folder} was trained with rank {trained.rank} and alpha {trained.alpha:g}; "
            f"it cannot go on with {requested}. Add {parameter('config.rank', trained.rank)} "
            f"{parameter('config.alpha', f'{trained.alpha:g}')}."
        )
    return trained
