"""The parts that the integrations share: rows and splits of other libraries' objects, names of prompts, values as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from whet.types import content_hash

TEST_SHARE = 0.3
"""The share of the training rows that is kept as the sealed test beside validation rows; without them the split is that of any
task."""
SECRET = ("api_key", "headers", "extra_headers")
"""Attributes of the objects of others that no identity of a run holds."""


def name_prompts(owned: Iterable[str]) -> dict[str, str]:
    """A name of a prompt for each name that the other library uses."""
    names: dict[str, str] = {}
    for own in owned:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", own).strip("_")
        name = name if name[:1].isalpha() else f"prompt_{name}"
        while name in names.values():
            name += "_"
        names[own] = name
    return names


def sealed_splits(
    train: list[dict[str, object]],
    validation: Sequence[dict[str, object]] | None,
    test: Sequence[dict[str, Any]] | None,
) -> object:
    """The data of a task: what was not handed over is cut from the training rows, by their inputs."""
    splits = {} if test is None else {"test": list(test)}
    if validation is not None:
        splits["validation"] = list(validation)
    if splits and "test" not in splits:
        inputs = sorted({content_hash(row["input"]) for row in train})
        sealed = set(inputs[: round(TEST_SHARE * len(inputs))])
        splits["test"] = [row for row in train if content_hash(row["input"]) in sealed]
        train = [row for row in train if content_hash(row["input"]) not in sealed]
    return {"train": train, **splits} if splits else train


def as_json_value(value: object) -> object:
    """A value as JSON values; a value without a form in JSON becomes its text."""
    return json.loads(json.dumps(value, default=str))


def single(fields: Any) -> str:
    """The text of the only field; empty where there are others, or none."""
    values = [*fields.values()]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else ""
