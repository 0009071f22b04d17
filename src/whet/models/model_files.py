"""The requirements of a local model on a machine: its files, their sizes, and packages. Also the differences of another
machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeAlias

ModelFiles: TypeAlias = dict[str, str]
"""Size and digest of each file of a model, by its path in the folder."""

_SUFFIXES = (".json", ".safetensors", ".gguf", ".model", ".txt", ".jinja")
_MIB = 1024 * 1024
_FROM_HALF = 2
"""The size of a model in float32, as a multiple of its file in half precision."""


def describe_files(place: str) -> ModelFiles:
    """The fingerprint of a model's files in a folder, or of one GGUF file; empty where there is none.

    Of a file of more than two MiB the first and the last MiB are read: the head of a file with weights names all tensors.
    """
    root = Path(place)
    paths = [root] if root.is_file() else sorted(path for path in root.glob("*") if path.suffix in _SUFFIXES)
    return {path.name: f"{path.stat().st_size}:{_digest(path)}" for path in paths if path.is_file()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(_MIB)
        file.seek(max(file.tell(), path.stat().st_size - _MIB))
        return hashlib.sha256(head + file.read(_MIB)).hexdigest()[:16]


def measure_weights(place: str) -> int:
    """Bytes that the weights in a folder take in memory as float32; 0 where nobody knows."""
    files = list(Path(place).glob("*.safetensors"))
    try:
        config: dict[str, Any] = json.loads(Path(place, "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return 0
    half = str(config.get("dtype") or config.get("torch_dtype") or "") in ("bfloat16", "float16")
    return sum(path.stat().st_size for path in files) * (_FROM_HALF if half else 1)
