"""Dates with the name of a month in languages that a task names, by the Unicode Common Locale Data Repository (package babel)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import cache
from typing import Any

import regex

from whet._util.words import fold
from whet.errors import UsageError

_WIDTHS, _CONTEXTS = ("wide", "abbreviated"), ("format", "stand-alone")
_FORMATS = ("full", "long", "medium")
_LITERAL = regex.compile(r"'([^']+)'|([^\x00-\x7f]+)")
_YEAR = regex.compile(r"(?<![0-9])[0-9]{4}(?![0-9])")
_DAY = regex.compile(r"(?<![0-9])[0-9]{1,2}(?![0-9])(?:\p{L}{1,2}(?!\p{L}))?")
_REST = regex.compile(r"[\s.,/\u2010-\u2015-]*")


class MonthNames:
    """The names of months in some languages, and the words that may stand beside them in a date: weekdays, and what the patterns
    of these languages hold ("de", "г.")."""

    def __init__(self, languages: tuple[str, ...]) -> None:
        self._months: dict[str, int] = {}
        words: set[str] = set()
        for locale in map(_locale_of, languages):
            for month, name in _names(locale.months):
                key = fold(name).strip(". ")
                if self._months.setdefault(key, month) != month:
                    raise UsageError(
                        f'the option language of date: "{name}" is another month in {locale} than in a language before it. Name '
                        "one of these languages."
                    )
            words |= {fold(name).strip(". ") for _, name in _names(locale.days)}
            patterns = [str(locale.date_formats[name].pattern) for name in _FORMATS]
            literals = [match[1] or match[2] for pattern in patterns for match in _LITERAL.finditer(pattern)]
            words |= {word for text in literals for word in fold(text).split()}
        self._month = _pattern(key for key in self._months if not key.isdecimal())
        self._words = _pattern(word.strip(".") for word in words)

    def read(self, folded: str) -> list[datetime.date]:
        """The date that a folded text is, from the name of its month, its day and its year of four digits, in whatever order;
        none where it holds anything else."""
        months = list(self._month.finditer(folded))
        if len(months) != 1:
            return []
        left = folded[: months[0].start()] + " " + folded[months[0].end() :]
        years, rest = _YEAR.findall(left), _YEAR.sub(" ", left)
        days, rest = _DAY.findall(rest), self._words.sub(" ", _DAY.sub(" ", rest))
        if len(years) != 1 or len(days) != 1 or not _REST.fullmatch(rest):
            return []
        day = "".join(c for c in days[0] if c.isdecimal())
        try:
            return [datetime.date(int(years[0]), self._months[months[0][1]], int(day))]
        except ValueError:
            return []


def _pattern(words: Iterator[str]) -> Any:
    """A pattern of whole words, the longest first, with their points."""
    names = "|".join(
        regex.escape(word) for word in sorted({word for word in words if word}, key=len, reverse=True)
    )
    return regex.compile(rf"(?<![\p{{L}}\p{{M}}])({names or '(?!)'})\.?(?![\p{{L}}\p{{M}}])")


def _names(tables: Any) -> Iterator[tuple[int, str]]:
    """The numbers and names of a locale's months or days, in each form that a date may have."""
    for context in _CONTEXTS:
        for width in _WIDTHS:
            yield from ((number, str(name)) for number, name in tables[context][width].items())


def _locale_of(language: str) -> Any:
    """Babel's data for a language. Raises UsageError for an unknown language, and where babel is not installed."""
    try:
        from babel import Locale, UnknownLocaleError
    except ModuleNotFoundError:
        raise UsageError(
            "the option language of date needs babel. Install it with: pip install 'whet[dates]'"
        ) from None
    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise UsageError(
            f'the option language of date: there is no language "{language}" ({error}). Write codes such as de, fr or pt_BR.'
        ) from None


@cache
def month_names(languages: str) -> MonthNames | None:
    """The names of months of languages that stand in a text, divided by commas or blanks; None where none stand in it."""
    codes = tuple(dict.fromkeys(code for code in regex.split(r"[\s,]+", languages) if code))
    return MonthNames(codes) if codes else None
