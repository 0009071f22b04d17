"""The arguments of public functions: one line refuses a value whose type is not that of the signature."""

from __future__ import annotations

import dataclasses
import errno
import functools
import inspect
import os
import tempfile
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whet._util.storable import LARGEST
from whet.errors import UsageError, did_you_mean, parameter
from whet_client.storable import show_value

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
_TYPE_NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number (64 bits)",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    Mapping: "a dict",
    Sequence: "a list",
    Callable: "a function",
}


_EXAMPLES = {"budget": "whet.Budget(calls=500)"}
_OTHER_NAMES: Mapping[str, Collection[str]] = {
    "lm": ("model", "models", "llm", "task_lm", "task_model", "language_model"),
    "optimizer_lm": ("optimizer_model", "prompt_model", "reflection_lm", "optimizer"),
    "judge_lm": ("judge", "judge_model"),
    "base_url": ("api_base", "endpoint"),
    "reward": ("metric", "scorer", "evaluator"),
    "data": ("dataset", "examples", "trainset", "rows"),
    "budget": (
        *(
            "limits",
            "calls",
            "tokens",
            "seconds",
            "cost",
            "cost_usd",
            "task_calls",
            "optimizer_calls",
            "judge_calls",
        ),
        *(
            "max_calls",
            "max_tokens",
            "max_seconds",
            "max_cost",
            "max_task_calls",
            "max_optimizer_calls",
            "max_judge_calls",
        ),
    ),
}
_MODEL_OPTIONS = (
    "temperature",
    "top_p",
    "key_variable",
    "headers",
    "extra_body",
    "reasoning_effort",
    "stream",
    "timeout",
    "price",
    "device",
    "batch_size",
)


def check_arguments(function: F) -> F:
    """The function with a check of its arguments. None stands for the default of a parameter that has one.

    Raises UsageError for an unknown keyword (with the nearest known one) and for a value of another type.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            bound = _bind_checked(function, args, kwargs)
            return await function(*bound.args, **bound.kwargs)

        return typing.cast(F, call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = _bind_checked(function, args, kwargs)
        return function(*bound.args, **bound.kwargs)

    return typing.cast(F, call)


def describe_keywords(
    *groups: type[Any], defaults: type[Any] | None = None, **others: object
) -> Callable[[F], F]:
    """Show the keywords of a function with `**keywords: Unpack[...]` in its signature and its docstring.

    `groups` are the TypedDicts that the unpacked TypedDict inherits from. Each of them documents its keywords once, and `help`
    shows this text for every function that takes it. `defaults` is a dataclass with the default of each keyword; a keyword
    that is no field of it shows the default that `others` has for it, or None. A keyword that several groups have, because one
    inherits from another, is shown once.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {field.name: field for field in dataclasses.fields(defaults)} if defaults else {}
        for name, annotation in _declared_in(groups):
            written = getattr(annotation, "__forward_arg__", annotation)
            default = _default_of(known[name]) if name in known else others.get(name)
            own.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=written)
            )
        texts = [inspect.getdoc(function), *map(inspect.getdoc, groups)]
        function.__doc__ = "\n\n".join(text for text in texts if text)
        function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        function.__keywords__ = groups  # type: ignore[attr-defined]
        return function

    return decorate


def _declared_in(groups: Sequence[type[Any]]) -> Iterator[tuple[str, Any]]:
    """Each keyword of TypedDicts with its type once: beside those of the group that declares it, not of those that inherit it."""
    for group in groups:
        kinds = group.__annotations__
        bases = [other.__annotations__ for other in groups if other.__annotations__.keys() < kinds.keys()]
        yield from ((name, kind) for name, kind in kinds.items() if not any(name in base for base in bases))


def _default_of(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else None


def select_keywords(group: type[K], keywords: Mapping[str, object]) -> K:
    """The keywords of one TypedDict among those of a call."""
    return typing.cast(
        K, {name: keywords[name] for name in group.__annotations__ if keywords.get(name) is not None}
    )


@functools.cache
def _declaration_of(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    hints = typing.get_type_hints(function)
    for group in getattr(function, "__keywords__", ()):
        hints |= typing.get_type_hints(group)
    return inspect.signature(function), hints


def _bind_checked(
    function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    signature, hints = _declaration_of(function)
    for name in kwargs:
        if name not in signature.parameters:
            raise UsageError(f'There is no option "{name}".{_suggest_name(name, signature.parameters)}')
    bound = signature.bind(*args, **kwargs)
    for name, value in list(bound.arguments.items()):
        hint = Any if name == "task" else hints.get(name, Any)  # a task is many things: `task_of` says which
        if value is None and signature.parameters[name].default is not inspect.Parameter.empty:
            bound.arguments[name] = signature.parameters[name].default
        elif (wrong := _find_fault(hint, value)) is not None:
            example = _EXAMPLES.get(name)
            remedy = f" Write {name}={example}." if example else ""
            raise UsageError(f"{parameter(name)} must be {_name_types(hint)}; {wrong}.{remedy}")
    return bound


def _suggest_name(name: str, known: Collection[str]) -> str:
    """A suggestion for an unknown name: the option that other tools call so, or the nearest known name."""
    if name in _MODEL_OPTIONS and "lm" in known:
        return f' It belongs to a model: lm={{"address": "provider/name", "{name}": ...}}.'
    meant = next((own for own, others in _OTHER_NAMES.items() if name in others and own in known), None)
    example = f" Write {meant}={_EXAMPLES[meant]}." if meant in _EXAMPLES else ""
    return did_you_mean(name, known) if meant is None else f' Did you mean "{meant}"?{example}'


def _find_fault(hint: object, value: object) -> str | None:
    """Why a value does not fit a type hint; None if it fits."""
    if not _accepts(hint, value):
        return f"this is {show_value(value)}"
    for kind in _kinds(hint):
        inner = typing.get_args(kind)
        if (
            typing.get_origin(kind) is Sequence
            and isinstance(value, Collection)
            and not isinstance(value, str | Path)
        ):
            entry = next((item for item in value if not _accepts(inner[0], item)), None)
            if any(not _accepts(inner[0], item) for item in value):
                return f"an entry must be {_name_types(inner[0])}, and one is {show_value(entry)}"
    return None


def _kinds(hint: object) -> tuple[Any, ...]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _accepts(hint: object, value: object) -> bool:
    return any(_is_instance(kind, value) for kind in _kinds(hint))


def _is_instance(kind: object, value: object) -> bool:
    kind = typing.get_origin(kind) or kind
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Sequence:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if kind is Callable:
        return callable(value)
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)


def _name_types(hint: object) -> str:
    kinds = [typing.get_origin(kind) or kind for kind in _kinds(hint)]
    words = [_TYPE_NAMES.get(kind) or f"a whet.{kind.__name__}" for kind in kinds if kind is not type(None)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def check_path(what: str, value: str | Path | None) -> None:
    """Raise UsageError for a value that cannot name a file or a folder; `what` names the value in the message."""
    if value is None:
        return
    if not isinstance(value, str | Path):
        raise UsageError(f"{what} must be a text or a path; this is {show_value(value)}.")
    reason = ""
    if not str(value).strip():
        reason = "it is empty"
    try:
        os.lstat(value)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as error:
        reason = reason or (error.strerror or str(error))
    except ValueError:
        reason = "it holds a character that no file name has"
    if reason:
        raise UsageError(f"{what} must name a file or folder; this is {show_value(str(value))}: {reason}.")


def write_fault(folder: Path) -> str | None:
    """Why a folder cannot be made or written to; None if it can."""
    first = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not first.is_dir():
        return f"{first} is a file"
    try:
        if not os.access(first, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied")
        Path(tempfile.mkdtemp(dir=first)).rmdir()
    except OSError as error:
        return f"{first} cannot be written: {error.strerror}"
    return None
