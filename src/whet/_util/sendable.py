"""Values of Python for another process, as JSON: what can be said in words, and nothing that runs when it is read.

Plain values, lists, mappings, paths, objects by their attributes, and functions and classes by the name under which the other
process imports them. Everything else is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

from whet._util.sources import import_function, importable_name

_PLAIN = (str, bool, int, float, type(None))


class Unsendable(ValueError):
    """A value that cannot be sent; the text says which."""


def to_sendable(value: Any) -> Any:
    """A value as JSON. Raises Unsendable.

    >>> to_sendable({"lm": "openai/a", "root": Path("runs"), "seeds": (1, 2)})
    {'map': [['lm', 'openai/a'], ['root', {'path': 'runs'}], ['seeds', {'tuple': [1, 2]}]]}
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, PurePath):
        return {"path": str(value)}
    if isinstance(value, list):
        return [to_sendable(one) for one in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return {"tuple": [to_sendable(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {
            "set": sorted((to_sendable(one) for one in value), key=repr),
            "frozen": isinstance(value, frozenset),
        }
    if isinstance(value, Mapping):
        return {"map": [[to_sendable(key), to_sendable(one)] for key, one in value.items()]}
    if isinstance(value, FunctionType | type):
        return {"import": _importable(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.init]
        held = {field.name: to_sendable(getattr(value, field.name)) for field in fields}
        return {"dataclass": _importable(type(value)), "fields": held}
    if type(value).__module__ != "builtins" and hasattr(value, "__dict__"):
        return {"object": _importable(type(value)), "held": to_sendable(vars(value))}
    raise Unsendable(f"a value of the type {type(value).__name__}")


def _importable(value: FunctionType | type) -> str:
    if value.__module__ == "__main__":
        raise Unsendable(f"{value.__qualname__}, which the program that runs defines itself")
    name = importable_name(value)
    if name is None:
        raise Unsendable(f"{value.__qualname__}, which no module holds under this name")
    return name


def from_sendable(value: Any) -> Any:
    """The value that `to_sendable` wrote."""
    if isinstance(value, list):
        return [from_sendable(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "path" in value:
        return Path(value["path"])
    if "tuple" in value:
        return tuple(from_sendable(one) for one in value["tuple"])
    if "set" in value:
        return (frozenset if value["frozen"] else set)(from_sendable(one) for one in value["set"])
    if "map" in value:
        return {from_sendable(key): from_sendable(one) for key, one in value["map"]}
    if "import" in value:
        return import_function(value["import"])
    if "object" in value:
        made = object.__new__(import_function(value["object"]))
        vars(made).update(from_sendable(value["held"]))
        return made
    fields = {name: from_sendable(one) for name, one in value["fields"].items()}
    return import_function(value["dataclass"])(**fields)
