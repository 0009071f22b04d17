"""How the local server misbehaves, and the ledger of what reached it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from whet.errors import UsageError


@dataclass(frozen=True)
class Faults:
    """Probabilities (0 to 1, together at most 1) that a request meets a fault, and how the server behaves."""

    error_500: float = 0.0
    rate_429: float = 0.0
    malformed: float = 0.0
    truncated: float = 0.0
    empty: float = 0.0
    refusal: float = 0.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        chances = [getattr(self, f.name) for f in fields(self)]
        if any(c < 0 for c in chances) or sum(chances) > 1:
            raise UsageError(f"Faults are probabilities from 0 to 1 that sum to at most 1, found {chances}.")

    def draw(self, chance: random.Random) -> str | None:
        """Name of the fault that a request meets, or None."""
        at = chance.random()
        for field in fields(self):
            at -= getattr(self, field.name)
            if at < 0:
                return field.name
        return None


@dataclass(frozen=True)
class ServerBehaviour:
    """How the server behaves besides its faults.

    `latency`: seconds before each answer. `retry_after`: seconds that a 429 asks for. `most_in_flight`: above
    it a request gets a 429; 0 means no bound. `api_key`: what a request must carry; a wrong one is echoed in
    the 401. `reject`: features (response_format, seed, n, ...) that are refused with a 400 naming them.
    """

    latency: float = 0.0
    retry_after: float = 0.1
    most_in_flight: int = 0
    api_key: str = ""
    reject: tuple[str, ...] = ()
    seed: int = 0


@dataclass
class RequestLedger:
    """Append-only list of requests, in memory and, given a path, one JSON line each in a file."""

    path: Path | None = None

    def __post_init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._file = self.path.open("a", encoding="utf-8") if self.path is not None else None

    def add(self, entry: dict[str, Any]) -> None:
        """Append one request and flush it to the operating system."""
        self.entries.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        if self._file is not None:
            self._file.close()
