"""Checks of a checklist that a program makes: each says what is wrong with an answer, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import regex

from whet._util.words import bare, compose, fold, split_words, unify
from whet.rewards.patterns import compile_pattern, is_in_every_text

_LIST_MARK = re.compile(r"^[ \t]*+(?:[-*+][ \t]++)?+(?:\d{1,3}[.)]|\[[ xX]\])(?=[ \t])", re.MULTILINE)
_CHARACTER = regex.compile(r"\X")
_BLOCK = re.compile(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", re.DOTALL)


@dataclass(frozen=True)
class Check:
    """A named check with its argument. Raises ValueError when the argument is not of its kind."""

    kind: str
    argument: Any = True

    def __post_init__(self) -> None:
        takes, _ = CHECKS[self.kind]
        if not takes(self.argument):
            raise ValueError(f"the check {self.kind} takes {_TAKES[takes]}; this is {self.argument!r}")

    @property
    def is_pattern(self) -> bool:
        """Whether the argument is a regular expression, which may take for ever."""
        return CHECKS[self.kind][0] is _pattern

    def fault(self, answer: str, most: float | None = None) -> str:
        """The fault of an answer as a sentence, or ''. Raises TimeoutError for a pattern that took `most` processor seconds
        (None: as long as it takes)."""
        if self.is_pattern:
            return CHECKS[self.kind][1](answer, self.argument, most)
        return CHECKS[self.kind][1](answer, self.argument)


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _pattern(value: Any) -> bool:
    try:
        if not _text(value) or not compile_pattern(value):
            return False
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    if is_in_every_text(value):
        raise ValueError(f"{value!r} is found in every answer, because it can match nothing")
    return True


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _nothing(value: object) -> bool:
    return value is True


def _names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_text(v) for v in value)


_TAKES: Mapping[Callable[[object], bool], str] = {
    _text: "a text",
    _pattern: "a regular expression",
    _count: "a whole number, 0 or more",
    _nothing: "no argument (write it alone, or `true`)",
    _names: "a list of texts",
}


def _holds(answer: str, text: str) -> bool:
    """Whether an answer holds a text in any Unicode form, also where a line breaks between its words."""
    sought, folded = fold(text), fold(answer)
    return sought in folded or (" " in sought and sought in " ".join(folded.split()))


def _contains(answer: str, wanted: str) -> str:
    return "" if _holds(answer, wanted) else f'The answer must contain "{wanted}".'


def _lacks(answer: str, banned: str) -> str:
    return f'The answer must not contain "{banned}".' if _holds(answer, banned) else ""


def _regex(answer: str, pattern: str, most: float | None) -> str:
    match = compile_pattern(pattern).search(compose(answer), timeout=most)
    return "" if match else f"The answer must have the form `{pattern}`."


def _no_regex(answer: str, pattern: str, most: float | None) -> str:
    match = compile_pattern(pattern).search(compose(answer), timeout=most)
    return f"The answer must not have the form `{pattern}`; found {match.group()[:80]!r}." if match else ""


def _starts_with(answer: str, wanted: str) -> str:
    begins = unify(answer).lstrip().startswith(unify(wanted))
    return "" if begins else f'The answer must begin with "{wanted}".'


def _ends_with(answer: str, wanted: str) -> str:
    return "" if unify(answer).rstrip().endswith(unify(wanted)) else f'The answer must end with "{wanted}".'


def _most(unit: str, count: Callable[[str], int]) -> Callable[[str, int], str]:
    def check(answer: str, most: int) -> str:
        n = count(answer)
        return f"The answer must have at most {most} {unit}; found {n}." if n > most else ""

    return check


def _least(unit: str, count: Callable[[str], int]) -> Callable[[str, int], str]:
    def check(answer: str, least: int) -> str:
        n = count(answer)
        return f"The answer must have at least {least} {unit}; found {n}." if n < least else ""

    return check


def _words(answer: str) -> int:
    """Pieces between blanks, and each character of a script without blanks; punctuation alone and a list's mark are none."""
    return sum(1 for unit in split_words(_LIST_MARK.sub("", answer)) if bare(unit))


def _characters(answer: str) -> int:
    """The characters as a reader sees them (UAX #29): a letter with its accents, an emoji of several parts."""
    return sum(1 for _ in _CHARACTER.finditer(answer))


def _lines(answer: str) -> int:
    return sum(bool(line.strip()) for line in answer.splitlines())


def _refuse_constant(name: str) -> object:
    raise ValueError(f"JSON has no {name}")


def _json(answer: str, keys: list[str] | bool) -> str:
    """The fault of an answer that is no JSON, also as one fenced block, or no object with all `keys`."""
    wanted = keys if isinstance(keys, list) else []
    block = _BLOCK.fullmatch(answer)
    try:
        value = json.loads(block.group(1) if block else answer, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return f"The answer must be {'a JSON object' if wanted else 'JSON'}; it cannot be parsed: {error}."
    names = {compose(key) for key in value} if isinstance(value, dict) else set()
    missing = [key for key in wanted if compose(key) not in names]
    return f"The JSON object must have the key {', '.join(f'`{k}`' for k in missing)}." if missing else ""


CHECKS: Mapping[str, tuple[Callable[[object], bool], Callable[..., str]]] = {
    "contains": (_text, _contains),
    "lacks": (_text, _lacks),
    "regex": (_pattern, _regex),
    "no_regex": (_pattern, _no_regex),
    "starts_with": (_text, _starts_with),
    "ends_with": (_text, _ends_with),
    "max_words": (_count, _most("words", _words)),
    "min_words": (_count, _least("words", _words)),
    "max_chars": (_count, _most("characters", _characters)),
    "min_chars": (_count, _least("characters", _characters)),
    "max_lines": (_count, _most("lines", _lines)),
    "min_lines": (_count, _least("lines", _lines)),
    "json": (_nothing, _json),
    "json_keys": (_names, _json),
}
