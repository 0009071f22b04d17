"""The size of a local model in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FROM_HALF = 2
"""The size of a model in float32, as a multiple of its file in half precision."""


def measure_weights(place: str) -> int:
    """Bytes that the weights in a folder take in memory as float32; 0 where nobody knows."""
    files = list(Path(place).glob("*.safetensors"))
    try:
        config: dict[str, Any] = json.loads(Path(place, "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return 0
    half = str(config.get("dtype") or config.get("torch_dtype") or "") in ("bfloat16", "float16")
    return sum(path.stat().st_size for path in files) * (_FROM_HALF if half else 1)
