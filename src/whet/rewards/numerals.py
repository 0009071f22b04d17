"""Words behind a number that multiply it in some language (million, Mrd., лакх), by the Unicode Common Locale Data Repository.

The package babel has them as patterns of short numbers, one for each power of ten (`0 million`). Without babel none are known.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import regex

from whet._util.words import fold

_SHORTEST_LONG_FORM, _SHORTEST, _LANGUAGES = 4, 2, 5
_SMALLEST = 3
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")
_ZEROS = regex.compile("0+")


def powers_of(word: str) -> frozenset[int]:
    """The powers of ten by which a word multiplies the number before it, in whatever language; empty where it is no such word, or
    babel is not installed.

    Short forms count where five languages or more have them, because others are units or words too (`mi`, `mm`, `min`).
    """
    return _powers().get(fold(word), frozenset())


@cache
def _powers() -> Mapping[str, frozenset[int]]:
    reader = _reader_of_locales()
    if reader is None:
        return {}
    powers: dict[str, set[int]] = defaultdict(set)
    languages: dict[str, set[str]] = defaultdict(set)
    for name in reader.locale_identifiers():
        formats = reader.load(name, merge_inherited=False).get("compact_decimal_formats", {})
        for word, power, is_long in _words_of(formats):
            powers[word].add(power)
            language = name.partition("_")[0]
            languages[word].add(
                f"{language} long" if is_long and len(word) >= _SHORTEST_LONG_FORM else language
            )
    return {
        word: frozenset(powers[word])
        for word, names in languages.items()
        if len(word) >= _SHORTEST
        and (len(names) >= _LANGUAGES or any(name.endswith(" long") for name in names))
    }


def _reader_of_locales() -> Any:
    """A copy of babel's reader of locales, with a cache of its own: without what a locale inherits its data are small, and the
    reader that all share would keep them in the place of the whole. None without babel."""
    if importlib.util.find_spec("babel") is None:
        return None
    spec = importlib.util.find_spec("babel.localedata")
    if spec is None or spec.loader is None:
        return None
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    return reader


def _words_of(formats: Mapping[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """The words of a locale's patterns, each with its power of ten, and whether they are those of its long form."""
    for width, plurals in formats.items():
        for patterns in plurals.values() if isinstance(plurals, Mapping) else ():
            for size, pattern in patterns.items():
                text = str(getattr(pattern, "pattern", pattern))
                zeros = _ZEROS.search(text)
                power = len(str(size)) - (len(zeros.group()) if zeros is not None else 0)
                if zeros is not None and power >= _SMALLEST:
                    yield from ((fold(word), power, width == "long") for word in _WORD.findall(text))
