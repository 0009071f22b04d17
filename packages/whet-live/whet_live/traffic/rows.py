"""Rows of traffic as records and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from whet_client.records import Feedback, Inference

CHUNK = 500
"""Values in one IN (...)."""

_T = TypeVar("_T")


def chunks(values: Iterable[_T]) -> Iterator[list[_T]]:
    """The values in lists of at most CHUNK."""
    items = list(values)
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def is_within(scope: list[str] | None, prompt: str) -> bool:
    """Whether a prompt is one of those that a sender may speak about; None stands for all."""
    return scope is None or prompt in scope


def inference_values(one: Inference) -> dict[str, Any]:
    """The columns of an inference that hold its own content."""
    values = {field.name: getattr(one, field.name) for field in fields(Inference)}
    return values | {"inputs": dict(one.inputs), "metadata": dict(one.metadata) or None}


_INFERENCE_OF = attrgetter(*(field.name for field in fields(Inference)))
_FEEDBACK_OF = attrgetter(*(field.name for field in fields(Feedback)))


def read_inference(row: object) -> Inference:
    """An inference from its row."""
    return Inference(*_whole(_INFERENCE_OF(row)))


def feedback_of_row(row: object) -> Feedback:
    """Feedback from its row."""
    return Feedback(*_whole(_FEEDBACK_OF(row)))


def _whole(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a row with an object in place of no metadata, which stands last."""
    return values if values[-1] is not None else (*values[:-1], {})
