"""Slots `{{name}}`: found and filled by one literal pass. Every other brace is ordinary text.

A name is what people call a column: characters of any script, `_`, and blanks, dots and dashes inside. Names that differ in
Unicode form or in blanks only (`Größe` composed or decomposed) are the same name.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from whet_client.errors import UsageError
from whet_client.storable import plain_number, show_value

_OUTSIDE = r"/:-@\[-^`{-\x9f\u2028\u2029"
"""The characters that stand in no name, with the ASCII characters before `/`. Patterns name what is outside of a name, and not
what is inside: that compiles in half a millisecond instead of seven, and every app that imports the client waits for it."""
_NAME = rf"[^\x00-.{_OUTSIDE}](?:[^\x00-\x1f!-,{_OUTSIDE}]{{0,200}}[^\x00-\-{_OUTSIDE}])?"
SLOT = re.compile(rf"\{{\{{[ \t]*+(?![0-9 .-]++[ \t]*+\}}\}})({_NAME})[ \t]*+\}}\}}")
"""A slot; the group is its name as it was written. Figures alone are no name."""
_FULL_NAME = re.compile(rf"(?![0-9 .-]+\Z){_NAME}")
_OTHER = re.compile(rf"[\x00-\x1f!-,{_OUTSIDE}]+")
_ADDRESS = re.compile(r"://|\bwww\.|[(\"'=]//", re.IGNORECASE)


def canonical_name(name: str) -> str:
    """The one spelling of a slot's or column's name: NFC, blanks of any kind as single spaces, none at its ends.

    >>> canonical_name(" Customer\\u00a0 text ") == "Customer text" and canonical_name("Gro\\u0308ße") == "Größe"
    True
    """
    if name.isascii() and name.isidentifier():
        return name
    return unicodedata.normalize("NFC", " ".join(name.split()))


def is_slot_name(name: str) -> bool:
    """Whether a slot can have this name.

    >>> [is_slot_name(name) for name in ("Customer text", "ticket.body", "質問", "7", "a|b")]
    [True, True, True, False, False]
    """
    return _FULL_NAME.fullmatch(canonical_name(name)) is not None


def name_slot(column: str, taken: Collection[str] = ()) -> str:
    """A slot's name for a column, not among those `taken`: its own where that is possible, else without what no slot may have.

    >>> name_slot("Price ($)"), name_slot("2024"), name_slot("Price", ["Price"])
    ('Price', 'column 2024', 'Price 2')
    """
    name = canonical_name(column)
    if not is_slot_name(name):
        name = canonical_name(_OTHER.sub(" ", name)).strip(" .-")[:200].rstrip(" -")
        name = name if is_slot_name(name) else f"column {name}".strip()
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name} {number}"
    return free


def slot_names(text: str) -> list[str]:
    """Names of the slots in a text, in order and as often as they stand there."""
    return [canonical_name(name) for name in SLOT.findall(text)]


def slots(text: str) -> frozenset[str]:
    """Names of the slots in a text.

    >>> sorted(slots('{{question}} {"a": {{ context }}} {{Customer text}} {{7*7}} {x}'))
    ['Customer text', 'context', 'question']
    """
    return frozenset(slot_names(text))


def slots_in_addresses(text: str) -> Counter[str]:
    """Count the occurrences of each slot inside addresses of the web, which would carry the slot's value away."""
    counts: Counter[str] = Counter()
    for match in SLOT.finditer(text):
        before = text[: match.start()]
        start = max((before.rfind(blank) for blank in " \t\r\n"), default=-1) + 1
        counts[canonical_name(match[1])] += _ADDRESS.search(SLOT.sub("", before[start:])) is not None
    return +counts


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace known slots by their values in a single pass; values are never scanned again.

    >>> fill("{{a}} {{b}} {{unknown}}", {"a": "{{b}}", "b": "2"})
    '{{b}} 2 {{unknown}}'
    """
    known = values if all(map(str.isascii, values)) else name_values(values)

    def value_of(match: re.Match[str]) -> str:
        name = canonical_name(match[1])
        return known[name] if name in known else values.get(match[1], match[0])

    return SLOT.sub(value_of, text)


def text_of_value(value: Any) -> str:
    """A value as what fills its slot: a text as it is, None as nothing, anything else as JSON. Raises TypeError or ValueError for
    what JSON has no form for.

    >>> text_of_value(["é", 1.0, None, True]), text_of_value(None)
    ('["é", 1.0, null, true]', '')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def checked_text(name: str, value: Any) -> str:
    """The same of the value for a slot. Raises UsageError that names the slot, also for NaN and infinity."""
    try:
        return text_of_value(plain_number(value))
    except (TypeError, ValueError, RecursionError):
        raise UsageError(
            f"The value of {{{{{name}}}}} must be a text, a finite number, True, False, None, or a list or dict of these; this "
            f"is {show_value(value)}."
        ) from None


def name_values(values: Mapping[str, str]) -> dict[str, str]:
    """The values under the canonical spelling of their names."""
    return {canonical_name(name): value for name, value in values.items()}


def repeated_name(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that would fill the same slot, if there are any."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(canonical_name(name), name)) != name:
            return other, name
    return None
