"""JSON schemas of the answers that a model is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from whet.types import JSON


def closed_object(**properties: JSON) -> dict[str, JSON]:
    """An object with exactly these properties, as strict structured output wants it.

    >>> closed_object(demands={"type": "boolean"})["required"]
    ['demands']
    """
    names: list[JSON] = list(properties)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def array(items: Mapping[str, JSON]) -> dict[str, JSON]:
    """A list of such items."""
    return {"type": "array", "items": dict(items)}
