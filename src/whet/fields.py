"""Frozen dataclasses whose fields are options in a task file: rewards and environments, built in or from a package."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from whet.errors import UsageError, did_you_mean

_WORDS = {bool: "true or false", float: "a finite number", int: "a whole number", str: "a text (in quotes)"}


@dataclass(frozen=True, slots=True)
class Kind:
    """What an option takes: a type, and whether it must be there."""

    type: type[Any]
    required: bool

    @property
    def words(self) -> str:
        """The type as a message names it."""
        return _WORDS.get(self.type, f"of the type {self.type.__name__}")

    def takes(self, value: Any) -> bool:
        """Whether a value is of the type; a whole number is a number, true and false are none."""
        if isinstance(value, bool):
            return self.type is bool
        if self.type is float:
            return isinstance(value, int | float) and math.isfinite(value)
        return isinstance(value, self.type)


def options_of(cls: type[Any], fixed: Collection[str]) -> dict[str, Kind]:
    """Options that a task file may set for a dataclass, by name: its fields but the `fixed` ones."""
    hints = typing.get_type_hints(cls)
    kinds = {}
    for field in dataclasses.fields(cls):
        if field.name in fixed or not field.init:
            continue
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        kinds[field.name] = Kind(typing.get_origin(hint) or hint, required)
    return kinds


def check_options(
    cls: type[Any], options: Mapping[str, Any], fixed: Collection[str], kind: str, name: str
) -> None:
    """Refuse options that the dataclass of a reward or an environment (`kind`) called `name` cannot take.

    Raises UsageError for an unknown key (with the nearest known one), a value of the wrong type, a missing option.
    """
    known = options_of(cls, fixed)
    for key, value in options.items():
        if key not in known:
            remedy = did_you_mean(key, known) or " It takes none."
            raise UsageError(f'the {kind} {name} has no option "{key}".{remedy}')
        if not known[key].takes(value):
            raise UsageError(f"the option {key} of {name} must be {known[key].words}; this is {value!r}.")
    for key, option in known.items():
        if option.required and key not in options:
            raise UsageError(
                f"the {kind} {name} needs the option `{key}`. Write {kind}: {{{name}: {{{key}: ...}}}}."
            )
