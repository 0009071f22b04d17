"""Exceptions of the three distributions: their root, and what an app can meet. `whet.errors` has those of runs besides.

A message says what happened, which value, and what to do.

WhetError
└── UsageError            input that cannot be used; nothing was paid (exit code 2)
    └── EditRejected      an edit would change text outside the fence or the set of slots
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

C = TypeVar("C")
_PARAMETER = re.compile("\x00([a-z_.]+)(?:=([^\x00]*))?\x00")
_ENDED = re.compile(r"(?<=[^\s./\\][.?!])\.(?=\s|$)")
"""The period of a sentence whose last word, such as the name of a file or what somebody wrote, ends as a sentence does."""


def parameter(name: str, value: object = None) -> str:
    """A parameter, and its value where one is shown, inside the message of an error: each face spells it as its users do."""
    return f"\x00{name}\x00" if value is None else f"\x00{name}={value}\x00"


_FACES = re.compile("\x00\x01([^\x00]*)\x01([^\x00]*)\x00")


def task_setting(python: str, folder: str) -> str:
    """A setting of a task inside the message of an error: as Python programs give it, and as a task folder says it."""
    return f"\x00\x01{python}\x01{folder}\x00"


Spell: TypeAlias = Callable[[str, str | None], str]
_SPELL: ContextVar[Spell | None] = ContextVar("spell", default=None)


@contextmanager
def spelling(spell: Spell) -> Iterator[None]:
    """Meanwhile the text of every error names parameters as `spell` writes name and value, settings as in a task folder."""
    token = _SPELL.set(spell)
    try:
        yield
    finally:
        _SPELL.reset(token)


class WhetError(Exception):
    """Root of every error that whet raises on purpose. Its text names parameters as Python programs write them, or as the
    `spelling` that holds says, and no sentence of it ends twice."""

    exit_code = 1

    def __str__(self) -> str:
        if (spell := _SPELL.get()) is not None:
            return self.spell(spell)
        text = _FACES.sub(lambda match: match[1], super().__str__())
        text = _PARAMETER.sub(lambda match: match[1] if match[2] is None else f"{match[1]}={match[2]}", text)
        return _ENDED.sub("", text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def spell(self, spell: Spell) -> str:
        """The message for the command line: parameters as `spell` writes name and value, settings as in a task folder."""
        text = _FACES.sub(lambda match: match[2], super().__str__())
        return _ENDED.sub("", _PARAMETER.sub(lambda match: spell(match[1], match[2]), text))


class UsageError(WhetError):
    """Input that cannot be used. Raised before anything is paid or written."""

    exit_code = 2


class EditRejected(UsageError):
    """An edit would change text outside the fence, lose or invent a slot, or leave a region empty."""


def named_fields(cls: type[C]) -> type[C]:
    """A dataclass whose constructor refuses an unknown keyword by a TypeError that names the nearest field."""
    build = cls.__init__

    @functools.wraps(build)
    def init(self: object, *args: object, **keywords: Any) -> None:
        try:
            build(self, *args, **keywords)
        except TypeError as error:
            known = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
            unknown = next((name for name in keywords if name not in known), None)
            if unknown is None:
                raise
            start = unknown.removeprefix("max_")
            nearest = next((f' Did you mean "{name}"?' for name in known if name.startswith(start)), None)
            hint = nearest or did_you_mean(unknown, known)
            raise TypeError(f'{cls.__name__} has no field "{unknown}".{hint}') from error

    cls.__init__ = init  # type: ignore[method-assign]
    return cls


def near_word(word: object, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the nearest known word, or '' where none is near."""
    import difflib  # a message that nobody may ever see

    known = sorted(known)
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(str(word), known, n=1)
    close = close or difflib.get_close_matches(str(word).casefold(), folded, n=1)
    return f' Did you mean "{folded.get(close[0], close[0])}"?' if close else ""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the nearest known word, or the list of known words, or ''."""
    known = sorted(known)
    return near_word(word, known) or (f" Known: {', '.join(known)}." if known else "")
