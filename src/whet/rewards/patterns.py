"""Regular expressions of a task: written as for Python's `re`, matched within a time limit and without holding the interpreter.

`re` keeps the interpreter's lock until a match is through, which may take years. `regex` matches without it. Three things mean
something else there and are written out: braces that are no repetition (there: approximate matching), brackets in a set (there:
classes such as `[:alpha:]`), and comments, in which neither counts. `\\w` also matches the marks of letters, as in Hindi.
Patterns are compared in Unicode's form NFC: whoever searches an answer puts it into that form with `compose` first.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import regex

from whet._util.user_code import OutOfTime, call_within
from whet._util.words import compose
from whet.errors import UsageError
from whet.rewards.program import REWARD_TIMEOUT
from whet.types import Example

__all__ = ["REWARD_TIMEOUT", "compile_pattern", "is_in_every_text", "match_within"]

T = TypeVar("T")

_PARTS = (
    r"\\N\{[^}]*(?:\}|\Z)|\\.|\(\?#[^)]*(?:\)|\Z)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z))"
    r"|\{(?:[0-9]+|[0-9]*,[0-9]*)\}|(?P<brace>\{)"
)
"""Matches the parts of a pattern. An unclosed part extends to the end, so that nothing is read twice; `re` takes no such
pattern."""
_PLAIN, _VERBOSE = (re.compile(f"{comment}{_PARTS}", re.DOTALL) for comment in ("", r"#[^\n]*|"))
_NO_LETTER = "\ue000"
_IN_SET = re.compile(r"\\.|(?<!^)\[", re.DOTALL)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The expression in Unicode's form NFC, with the meaning that `re` gives to it. Raises re.error for what `re` does not
    take."""
    pattern = compose(pattern)
    with warnings.catch_warnings():  # of what `[[` may mean some day: here it never will
        warnings.simplefilter("ignore", FutureWarning)
        parts = _VERBOSE if re.compile(pattern).flags & re.VERBOSE else _PLAIN
    try:
        return regex.compile(parts.sub(_same_in_both, pattern), regex.V0)
    except regex.error as error:
        raise re.error(str(error)) from error


def is_in_every_text(pattern: str) -> bool:
    """Whether an expression is found in every text, because it can match nothing at any place.

    >>> is_in_every_text("[0-9]*"), is_in_every_text("^[0-9]*$"), is_in_every_text("[0-9]+")
    (True, False, False)
    """
    compiled = compile_pattern(pattern)
    return all(compiled.search(text) is not None for text in ("", _NO_LETTER, f"{_NO_LETTER}\n{_NO_LETTER}"))


def _same_in_both(part: re.Match[str]) -> str:
    if part["brace"]:
        return r"\{"
    if part["set"]:
        return _IN_SET.sub(lambda m: r"\[" if m[0] == "[" else m[0], part["set"])
    return part[0]


_GIVEN_UP = 20.0
"""A search ends after so many times its limit, in seconds of all processors that this process uses."""


async def match_within(match: Callable[[float], T], seconds: float, pattern: str, example: Example) -> T:
    """The result of `match` for a pattern in an answer to the example. Raises UsageError where the search takes longer.

    `match` gets the processor seconds of this process after which a search that nobody waits for any more ends.
    """
    name = f"the pattern {pattern!r} for {example.place}"
    try:
        result: T = await call_within(lambda: match(_GIVEN_UP * seconds), seconds, name)
    except (OutOfTime, TimeoutError):
        raise UsageError(
            f"{name}: no match was found or ruled out within {seconds:g} s. A repetition inside of a repetition, such as (a+)+, "
            "can take years; write it so that a text can match in one way only. To allow more: `reward_timeout: SECONDS` in "
            "task.yaml, reward_timeout= in Python."
        ) from None
    return result
