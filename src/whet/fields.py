"""Frozen dataclasses whose fields are options in a task file: rewards and environments, built in or from a package."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from whet.errors import UsageError, did_you_mean
from whet.storable import is_number, shown

_MOST = math.inf
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(
        ("batch", "beam", "buckets", "budget", "candidates", "chain", "clean", "edits"), (1, _MOST)
    ),
    **dict.fromkeys(
        ("epochs", "errors", "examples", "finalists", "gradients", "group", "hidden"), (1, _MOST)
    ),
    **dict.fromkeys(("k", "length", "longest", "max_tokens", "memory", "n", "patience", "pool"), (1, _MOST)),
    **dict.fromkeys(("principles", "problems", "programs", "prompts", "protegi.minibatch"), (1, _MOST)),
    **dict.fromkeys(("questions", "recent", "retries", "rewrites", "rollouts", "samples"), (1, _MOST)),
    **dict.fromkeys(
        (
            "successors",
            "tasks",
            "tokens",
            "top_k",
            "turns",
            "vocabulary",
            "looks",
            "proposals",
            "shown",
            "sets",
            "instructions",
            "trials",
            "full",
        ),
        (1, _MOST),
    ),
    **dict.fromkeys(("additions", "alpha", "c", "checks", "clip_high", "entropy", "exemplars"), (0, _MOST)),
    **dict.fromkeys(("format", "iterations", "keyword", "kl", "loops", "lr", "minibatch"), (0, _MOST)),
    **dict.fromkeys(
        ("paraphrases", "rank", "rounds", "scale", "shots", "steps", "target_kl", "merges"), (0, _MOST)
    ),
    **dict.fromkeys(("temperature", "warmup", "critic_lr", "replay"), (0, _MOST)),
    **dict.fromkeys(("bootstrap.k", "mipro.k", "simba.k", "draw"), (0, _MOST)),
    **dict.fromkeys(("gepa.minibatch", "mipro.minibatch", "simba.minibatch"), (1, _MOST)),
    **dict.fromkeys(("clip_low", "crossover", "top_p", "threshold", "trace"), (0, 1)),
}
"""Lowest and highest value of every number that a method of whet takes as a setting, by its name, or by METHOD.NAME."""
ABOVE = frozenset({"alpha", "target_kl", "top_p"})
"""Settings that the lowest value itself is refused for."""

T = TypeVar("T")

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
            return is_number(value)
        return (
            is_number(value) if self.type is int and isinstance(value, int) else isinstance(value, self.type)
        )


def check_bounds(config: Any, what: str = "") -> None:
    """Refuse a number of a method's config outside its bounds by a UsageError; `what` names the method.

    The settings of another package's method are its own business.
    """
    package, _, method = type(config).__module__.rpartition(".")
    if package.partition(".")[0] != "whet":
        return
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low, high = BOUNDS.get(f"{method}.{name}") or BOUNDS[name]
        usable = is_number(value)
        if usable and low <= value <= high and not (value == low and name in ABOVE):
            continue
        least = f"above {low:g}" if name in ABOVE else f"{low:g} or more"
        most = f" and at most {high:g}" if high < _MOST else ""
        finite = "" if usable else "below 2^63 and " if isinstance(value, int) else "finite and "
        raise UsageError(f"{what}{name} must be {finite}{least}{most}; this is {shown(value)}.")


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


def from_arguments(kind: type[T], arguments: Mapping[str, Any]) -> T:
    """A dataclass from those arguments of a public function (`locals()` at its beginning) that are called like its fields;
    None, or no such argument, is the field's default."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: arguments[name] for name in names if arguments.get(name) is not None})
