"""Frozen dataclasses whose fields are options in a task file: rewards and environments, built in or from a package."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from whet._util.storable import is_number
from whet.errors import UsageError, did_you_mean
from whet_client.storable import show_value

PositiveInt: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
TwoOrMore: TypeAlias = Annotated[int, msgspec.Meta(ge=2)]
NonNegativeInt: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
PositiveFloat: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
NonNegativeFloat: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
RewardValue: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
PositiveProbability: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1)]

T = TypeVar("T")

_KINDS = {bool: "true or false", float: "number", int: "whole number", str: "text", type(None): "none"}

_WORDS = {bool: "true or false", float: "a finite number", int: "a whole number", str: "a text (in quotes)"}


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of an option, and whether a task file must set the option."""

    type: type[Any]
    required: bool

    @property
    def words(self) -> str:
        """The type as a message names it."""
        return _WORDS.get(self.type, f"of the type {self.type.__name__}")

    def takes(self, value: object) -> bool:
        """Whether a value is of the type; a whole number is a number, true and false are none."""
        if isinstance(value, bool):
            return self.type is bool
        if self.type is float:
            return is_number(value)
        return (
            is_number(value) if self.type is int and isinstance(value, int) else isinstance(value, self.type)
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of a config, as a page shows it: its type in words or its choices, its bounds, its default as it is written
    ("required" where there is none), and the text below it."""

    name: str
    kind: str
    choices: tuple[str, ...]
    bounds: str
    default: str
    meaning: str


def describe_settings(config: type[Any]) -> list[Setting]:
    """The fields of a dataclass, in order, those of its bases included."""
    notes, hints, bounds = dict(field_notes(config)), typing.get_type_hints(config), bounds_of(config)
    settings = []
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        kind = "" if choices else _kind_of(hint)
        texts = tuple(map(str, choices)), _range_of(bounds.get(field.name)), _default_of(field)
        settings.append(Setting(field.name, kind, *texts, notes.get(field.name, "")))
    return settings


def field_notes(owner: type[Any]) -> Iterator[tuple[str, str]]:
    """The texts under the fields of a class and of its bases, where their source can be read."""
    for base in reversed(owner.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(body, ast.ClassDef)
        for line, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                value = text.value if isinstance(text, ast.Expr) else None
                if isinstance(value, ast.Constant):
                    yield line.target.id, " ".join(str(value.value).split())


def _kind_of(hint: Any) -> str:
    """A type as a setting takes it, such as `whole number or none`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_kind_of, typing.get_args(hint)))
    if typing.get_origin(hint) is Callable:
        return "function"
    return _KINDS.get(hint) or inspect.formatannotation(hint)


def _range_of(bounds: msgspec.Meta | None) -> str:
    """The bounds of a number, such as `1 or more`."""
    if bounds is None:
        return ""
    least = f"{bounds.ge} or more" if bounds.gt is None else f"above {bounds.gt}"
    return least + ("" if bounds.le is None else f", at most {bounds.le}")


def _default_of(field: dataclasses.Field[Any]) -> str:
    """The default of a field as it is written."""
    if field.default is not dataclasses.MISSING:
        return stable_repr(field.default)
    made = field.default_factory
    return "required" if made is dataclasses.MISSING else repr(made())


def stable_repr(value: object) -> str:
    """A text as it is, another value by its repr; `...` where that holds an address, which differs between processes."""
    text = value if isinstance(value, str) else repr(value)
    return "..." if " at 0x" in text else text


def check_bounds(config: object, what: str = "") -> None:
    """Refuse a number of a config outside the bounds beside its field by a UsageError; `what` names the method."""
    for name, meta in bounds_of(type(config)).items():
        value = getattr(config, name)
        if value is None or isinstance(value, bool):
            continue
        low, high = (meta.ge if meta.gt is None else meta.gt), meta.le
        usable = is_number(value)
        if (
            usable
            and low <= value
            and not (value == low and meta.gt is not None)
            and (high is None or value <= high)
        ):
            continue
        least = f"{low:g} or more" if meta.gt is None else f"above {low:g}"
        most = "" if high is None else f" and at most {high:g}"
        finite = "" if usable else "below 2^63 and " if isinstance(value, int) else "finite and "
        raise UsageError(f"{what}{name} must be {finite}{least}{most}; this is {show_value(value)}.")


def bounds_of(cls: type[Any]) -> dict[str, msgspec.Meta]:
    """The bounds of a dataclass's numbers by field: the `msgspec.Meta` of an annotation such as `PositiveInt | None`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    known = {}
    for field in dataclasses.fields(cls):
        for hint in (hints[field.name], *typing.get_args(hints[field.name])):
            for meta in getattr(hint, "__metadata__", ()):
                if isinstance(meta, msgspec.Meta):
                    known[field.name] = meta
    return known


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
    cls: type[Any], options: Mapping[str, object], fixed: Collection[str], kind: str, name: str
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


def build_from(kind: type[T], keywords: Mapping[str, object]) -> T:
    """A dataclass from those keywords that are called like its fields. A keyword that is None or missing is the default."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: keywords[name] for name in names if keywords.get(name) is not None})
