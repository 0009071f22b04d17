"""The sealed test split: every opening is written down, and the count is part of each result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from whet.errors import StorageError
from whet.types import Example, content_hash


def test_hash(examples: Sequence[Example]) -> str:
    """Content hash of a test split, 16 hex digits."""
    return content_hash(sorted(e.id for e in examples))[:16]


def count_opening(ledger: Path, split: str, run: str) -> int:
    """Append one opening durably and return how many different runs have opened this split so far."""
    try:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with open(ledger, "ab") as file:
            file.write(orjson.dumps({"test": split, "run": run}) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        runs = set()
        for line in ledger.read_bytes().splitlines():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:  # a torn line of a killed process
                continue
            if row.get("test") == split:
                runs.add(row.get("run"))
        return len(runs)
    except OSError as error:
        raise StorageError(
            f"{ledger}: the opening of the test split could not be written: {error}."
        ) from error
