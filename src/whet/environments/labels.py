"""Which label an answer names, and whether it says so by itself or inside a sentence.

What a sentence says of a label, whet cannot know: "not refund" mentions it as "refund, please" does. So an answer counts for
certain only where the label stands alone; a label inside a sentence counts too, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import regex

from whet._util.words import bare, fold, mentions

_FIELD = regex.compile(r"[:\uff1a]")
_TAGGED = regex.compile(r"<([a-z][\w-]*)>\s*+([^<>]*+)</\1>|\\boxed\{([^{}]*+)\}")
_QUOTES = frozenset("\"'`*_“”‘’„«»‹›「」『』【】《》")
_SIGNS = ("-", "\u2212", ".", ",")


@dataclass(frozen=True, slots=True)
class LabelReading:
    """The label that an answer names. `alone`: it is the whole answer, a line of it, what follows a colon, or what stands in a
    tag; else a sentence mentions it."""

    label: str
    alone: bool


def read_label(text: str, labels: Mapping[str, str]) -> LabelReading | None:
    """The label that an answer names, by itself or by its word (the verbalizer); None where it names none, or several.

    A label that stands alone comes first: as the answer, on its last line, on the only line that is one, in a tag. Else the only
    label counts that is mentioned as a word of its own: in the whole answer, in quotes or bold, on the last line. In scripts
    without blanks between words it may stand anywhere.

    >>> labels = {"refund": "refund", "other": "other"}
    >>> read_label("**Refund**.", labels), read_label("It is not a refund.", labels)
    (LabelReading(label='refund', alone=True), LabelReading(label='refund', alone=False))
    """
    folded, forms = fold(text), _forms(labels)
    alone = _alone(folded, forms)
    if alone is not None:
        return LabelReading(alone, True)
    mentioned = _find_mentioned_label(folded, forms)
    return None if mentioned is None else LabelReading(mentioned, False)


def find_label(text: str, labels: Mapping[str, str]) -> str | None:
    """The label that an answer names; None where it names none, or several.

    >>> find_label("The sentiment is Positive.", {"positive": "great", "negative": "bad"})
    'positive'
    """
    reading = read_label(text, labels)
    return None if reading is None else reading.label


def _forms(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels by their folded names and words."""
    forms: dict[str, str] = {}
    for label, word in labels.items():
        for form in (label, word):
            forms.setdefault(fold(form).strip(), label)
    return forms


def _alone(folded: str, forms: Mapping[str, str]) -> str | None:
    lines = [line for line in folded.splitlines() if line.strip()]
    whole = _match_label(folded, forms) or (_match_label(lines[-1], forms) if lines else None)
    if whole is not None:
        return whole
    tagged = {_match_label(match[2] or match[3] or "", forms) for match in _TAGGED.finditer(folded)} - {None}
    if len(tagged) == 1:
        return tagged.pop()
    fields = [_match_label(_FIELD.split(line)[-1], forms) for line in lines if _FIELD.search(line)]
    if fields and _FIELD.search(lines[-1]) and fields[-1] is not None:
        return fields[-1]
    named = {*(_match_label(line, forms) for line in lines), *fields} - {None}
    return named.pop() if len(named) == 1 else None


def _match_label(text: str, forms: Mapping[str, str]) -> str | None:
    """The label that a text is, punctuation and markup around it aside."""
    stripped = text.strip()
    if stripped in forms:
        return forms[stripped]
    inner = bare(stripped)
    if inner[:1].isdecimal() and stripped[stripped.index(inner) - 1 : stripped.index(inner)] in _SIGNS:
        return None
    same = {label for form, label in forms.items() if inner and bare(form) == inner}
    exact = [form for form in forms if form in stripped and bare(form) == inner]
    longest = max(exact, key=len, default=None)
    return same.pop() if len(same) == 1 else None if longest is None else forms[longest]


def _find_mentioned_label(folded: str, forms: Mapping[str, str]) -> str | None:
    mentioned = mentions(folded, forms)
    last = folded.rstrip().rfind("\n") + 1
    quoted = [m for m in mentioned if {folded[max(0, m.start - 1)], folded[m.end : m.end + 1]} <= _QUOTES]
    for part in (mentioned, quoted, [m for m in mentioned if m.start >= last]):
        names = {forms[mention.name] for mention in part}
        if len(names) == 1:
            return names.pop()
    return None
