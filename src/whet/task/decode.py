"""Values of a task file as msgspec types, refused at their file and line in the words of `Node`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect as types

from whet._util.storable import LARGEST
from whet.errors import near_word
from whet.task.tree import Node

T = TypeVar("T")

_NUMBERS = (types.IntType, types.FloatType, types.BoolType)


def decode(node: Node, kind: type[T], what: str) -> T:
    """The value of a node as a msgspec type; `what` is how messages call it.

    A text is read as it was written: `yes`, `2024` and `true` are texts where the type says so, and `1e6` is a whole number.
    Raises UsageError for the first value that the type does not take, and for an unknown or a missing key.
    """
    value = _value_of(node, _info_of(cast("Any", kind)), what)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        node.refuse(f"{what} cannot be used: {error}.")


def decode_field(node: Node, struct: type[msgspec.Struct], name: str, what: str = "") -> Any:
    """The value of a node as the field `name` of a struct. Raises UsageError as `decode` does."""
    field = _fields(struct)[name]
    return _value_of(node, field.type, what or f"`{name}`")


def field_names(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The keys of a struct, as a file spells them."""
    return tuple(_fields(struct))


def set_fields(entry: msgspec.Struct) -> dict[str, Any]:
    """The fields of a struct that a file set, by name."""
    return {key: value for key, value in msgspec.structs.asdict(entry).items() if value is not msgspec.UNSET}


@cache
def _info_of(kind: Any) -> types.Type:
    """The description of a type by msgspec, which takes milliseconds to make."""
    return types.type_info(kind)


@cache
def _fields(struct: type[msgspec.Struct]) -> Mapping[str, types.Field]:
    info = _info_of(struct)
    assert isinstance(info, types.StructType)
    return {field.encode_name: field for field in info.fields}


def _value_of(node: Node, info: types.Type, what: str) -> object:
    """The value as `msgspec.convert` takes it."""
    info, hints = _without_metadata(info)
    match info:
        case types.StructType():
            return _keys_of(node, info, what)
        case types.UnionType(types=members) if node.value is None and any(
            isinstance(member, types.NoneType) for member in members
        ):
            return None
        case types.UnionType():
            return _value_of(node, _choose_member(node, info), what)
        case types.DictType(value_type=inner):
            keys = node.mapping(what)
            return {key: _value_of(item, inner, f"{what}: {key}") for key, item in keys.items()}
        case types.ListType(item_type=inner):
            items = node.sequence(what, hints.get("example", "a list such as [a, b]"))
            return [_value_of(item, inner, what) for item in items]
        case types.LiteralType(values=values):
            known = [str(value) for value in values]
            word = node.text(what, f"one of {', '.join(known)}")
            if word not in known:
                node.refuse(f'{what} is one of {", ".join(known)}; this is "{word}".{near_word(word, known)}')
            return word
        case types.BoolType():
            if not isinstance(node.value, bool):
                node.refuse(f"{what} must be true or false; this is {node.kind()}.")
            return node.value
        case types.IntType(ge=low, le=high):
            return node.integer(what, 0 if low is None else low, LARGEST if high is None else high)
        case types.FloatType():
            return _number(node, info, what)
        case types.StrType():
            return node.text(what, hints.get("example", "a text"))
        case _:
            return node.plain()


def _keys_of(node: Node, info: types.StructType, what: str) -> dict[str, object]:
    keys = node.mapping(what, [field.encode_name for field in info.fields])
    label = what.strip("`")
    for field in info.fields:
        if field.required and field.encode_name not in keys:
            _, hints = _without_metadata(field.type)
            remedy = f" Give {hints['meaning']}." if "meaning" in hints else ""
            node.refuse(f"{what} has no `{field.encode_name}`.{remedy}")
    known = {field.encode_name: field.type for field in info.fields}
    return {key: _value_of(item, known[key], f"{label}: {key}") for key, item in keys.items()}


def _number(node: Node, info: types.FloatType, what: str) -> float:
    low = info.ge if info.gt is None else info.gt
    value = node.number(what, *(() if low is None else (low,)), above=info.gt is not None)
    high = info.le if info.lt is None else info.lt
    if high is not None and (value > high or (value == high and info.lt is not None)):
        least = (
            f"above {low:g}"
            if info.gt is not None
            else f"at least {low:g}"
            if low is not None
            else "a number"
        )
        most = f"below {high:g}" if info.lt is not None else f"at most {high:g}"
        node.refuse(f"{what} must be {least} and {most}; this is {value:g}.")
    return value


def _choose_member(node: Node, union: types.UnionType) -> types.Type:
    """The member of a union that a value of this kind is meant as."""
    members = [member for member in union.types if not isinstance(member, types.NoneType)]
    plain = [_without_metadata(member)[0] for member in members]
    wanted: tuple[type[types.Type], ...]
    if isinstance(node.value, dict):
        wanted = (types.StructType, types.DictType)
    elif isinstance(node.value, list):
        wanted = (types.ListType,)
    elif isinstance(node.value, bool | int | float):
        wanted = (*_NUMBERS, types.StrType, types.LiteralType)
    else:
        wanted = (types.StrType, types.LiteralType)
    return next(
        (m for w in wanted for m, p in zip(members, plain, strict=True) if isinstance(p, w)), members[0]
    )


def _without_metadata(info: types.Type) -> tuple[types.Type, Mapping[str, Any]]:
    if isinstance(info, types.Metadata):
        return info.type, info.extra or {}
    return info, {}
