"""The label that an answer names, and whether the answer consists of the label or has it inside a sentence.

whet cannot tell what a sentence says about a label: "not refund" mentions it just as "refund, please" does. So an answer is
certain only where the label stands alone. A label inside a sentence counts too, and is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from whet._util.words import JOINT, Mention, fold, mentions, trim
from whet.replies.alternatives import marks_nothing
from whet.replies.marked import last_marks, marked_results

_FIELD = regex.compile(r"[:\uff1a]")
_FIELD_END = regex.compile(r"[,;/|\uff0c\uff1b\u3001}]|\s{2,}|\.\s")
"""The signs that may end a field's value before the name of the next field on the line."""
_QUOTES = frozenset("\"'`*_“”‘’„«»‹›「」『』【】《》")
_SMALL_WORD = regex.compile(r"(?<!\w)\p{Ll}(?=\s+\w)")
_BEFORE_OPTION = frozenset("([*_ ")
_BEGINNINGS = frozenset("\n:\uff1a>{")
_OPTION = regex.compile(r"[.):*_]{1,4}\s|\s-\s")
_BRACKETED = regex.compile(r"\[\[([^\[\]\n]{1,60})\]\]")
"""The mark around a verdict that many judges are asked for."""
_SEVERAL = "\x00"
"""In the place of a label, where there are several: no label holds a NUL character."""
_POINT_ZERO = regex.compile(r"(?<=\A-?[0-9]{1,9})\.0{1,9}\Z")
_ENDING_SIGNS = "+#-"
_SIGNS = str.maketrans({"\u266f": "#", "\u207a": "+", "\u207b": "-", "\u2795": "+", "\u2796": "-"})
"""Signs at the end of a label as models and typesetting write them, as a keyboard has them."""
_BETWEEN_LETTERS = regex.compile(r"(?<=\p{L}) (?=\p{L})")


@dataclass(frozen=True, slots=True)
class LabelReading:
    """The label that an answer names. `alone`: it is the whole answer, a line of it, what follows a colon, or what stands in a
    tag; else a sentence mentions it."""

    label: str
    alone: bool


def read_label(text: str, labels: Mapping[str, str]) -> LabelReading | None:
    """The label that an answer names, by itself or by its word (the verbalizer); None where it names none, or several.

    A label that stands alone comes first: as the answer, on its last line, on the only line that is one, in a box or tag. Else
    the only label counts that is mentioned as a word of its own: in the whole answer, in quotes or bold, as an option
    (`C. A girl`), on the last line. In scripts without blanks between words it may stand anywhere. Parts of a label may be
    joined in another way (`not spam` for not_spam), and a label that is one capital letter is no small word in a sentence.
    Fields beside each other that hold different labels (`Priority: high, confidence: low`) name several. Where the labels are the
    numbers of a scale, 3/5 and 3.0 are 3.

    >>> labels = {"refund": "refund", "other": "other"}
    >>> read_label("**Refund**.", labels), read_label("It is not a refund.", labels)
    (LabelReading(label='refund', alone=True), LabelReading(label='refund', alone=False))
    """
    forms = _forms(labels)
    text = _with_plain_signs(text, forms)
    folded = _without_scale(fold(text), forms)
    alone = _alone(folded, forms)
    if alone == _SEVERAL:
        return None
    if alone is not None:
        return LabelReading(alone, True)
    mentioned = _find_mentioned_label(_without_scale(text, forms), labels, forms)
    return None if mentioned is None else LabelReading(mentioned, False)


def find_label(text: str, labels: Mapping[str, str]) -> str | None:
    """The label that an answer names; None where it names none, or several.

    >>> find_label("The sentiment is Positive.", {"positive": "great", "negative": "bad"})
    'positive'
    """
    reading = read_label(text, labels)
    return None if reading is None else reading.label


def _without_scale(folded: str, forms: Mapping[str, str]) -> str:
    """A text with 3 in the place of 3/5, where the labels are all whole numbers from 0 or 1 to 5: the best one says the scale."""
    if "/" not in folded:
        return folded
    numbers = sorted(int(form) for form in forms if form.isdecimal() and form.isascii() and len(form) < 4)
    most = numbers[-1] if numbers else 0
    if len(numbers) < len(forms) or most < 4 or numbers not in ([*range(most + 1)], [*range(1, most + 1)]):
        return folded
    return str(regex.sub(rf"(?<![0-9/.,])([0-9]{{1,3}})\s?/\s?{most}(?![0-9/]|[.,][0-9])", r"\1", folded))


def _forms(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels by their folded names and words."""
    return _fold_names(tuple(labels.items()))


@lru_cache(maxsize=64)
def _fold_names(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The labels by their folded names and words: the same ones are looked for in every answer."""
    forms: dict[str, str] = {}
    for label, word in labels:
        for form in (label, word):
            forms.setdefault(fold(form.translate(_SIGNS)).strip(), label)
    return forms


def _with_plain_signs(text: str, forms: Mapping[str, str]) -> str:
    """A text with C# in the place of C\u266f and, where A+ is a label, A+ in the place of A +."""
    plain = text.translate(_SIGNS)
    if not any(sign in plain for sign in _ENDING_SIGNS):
        return plain
    for form in forms:
        body = form.rstrip(_ENDING_SIGNS)
        if body and body != form and body in forms:
            sign = regex.escape(form[len(body) :])
            spaced = rf"(?i)((?<!\w){regex.escape(body)})[ \u00a0]({sign})(?![{_ENDING_SIGNS}]|[ \t]*\w)"
            plain = str(regex.sub(spaced, r"\1\2", plain))
    return plain


def _alone(folded: str, forms: Mapping[str, str]) -> str | None:
    """The label that stands alone; `_SEVERAL` where fields, marks or lines beside each other hold different ones, and where the
    answer's mark is empty."""
    lines = [line for line in folded.splitlines() if line.strip()]
    if marks_nothing(folded) or _names_several(folded, lines, forms):
        return _SEVERAL
    whole = _match_label(folded, forms) or (_match_label(lines[-1], forms) if lines else None)
    if whole is not None:
        return whole
    pieces = [*marked_results(folded), *_BRACKETED.findall(folded)]
    tagged = {_match_label(piece, forms) for piece in pieces} - {None}
    if len(tagged) == 1:
        return tagged.pop()
    fields = [_match_label(_FIELD.split(line)[-1], forms) for line in lines if _FIELD.search(line)]
    if fields and _FIELD.search(lines[-1]) and fields[-1] is not None:
        return _SEVERAL if _is_record(lines, fields, forms) else fields[-1]
    named = {*(_match_label(line, forms) for line in lines), *fields} - {None}
    named = named or {_match_label(value, forms) for line in lines for value in _inner_fields(line)} - {None}
    return named.pop() if len(named) == 1 else None


def _names_several(folded: str, lines: Sequence[str], forms: Mapping[str, str]) -> bool:
    """Whether marks beside each other hold different labels, or the answer is nothing else than lines with different labels."""
    marked = {_match_label(mark.content, forms) for mark in last_marks(folded)} - {None}
    named = [_match_label(line, forms) for line in lines]
    return len(marked) > 1 or (None not in named and len({*named}) > 1 and named[-1] not in named[:-1])


def _inner_fields(line: str) -> list[str]:
    """The values of the fields of a line before its last one (`label: spam, reason: ...`): what stands between a colon and what
    ends it, where only the name of the next field follows."""
    parts = [_FIELD_END.split(part.strip()) for part in _FIELD.split(line)[1:-1]]
    return [part[0] for part in parts if len(part) == 2]


def _is_record(lines: Sequence[str], fields: Sequence[str | None], forms: Mapping[str, str]) -> bool:
    """Whether a label on the last line is one of several things that are said of the input: another field of that line holds
    another label, or all lines are fields with labels and only the last one says what it says."""
    before = [_match_label(_FIELD_END.split(part)[0], forms) for part in _FIELD.split(lines[-1])[1:-1]]
    if {*before} - {None, fields[-1]}:
        return True
    return 1 < len(fields) == len(lines) and None not in fields and fields[-1] not in fields[:-1]


def _match_label(text: str, forms: Mapping[str, str]) -> str | None:
    """The label that a text is, punctuation and markup around it aside, and however its parts are joined."""
    stripped = text.strip()
    if stripped in forms:
        return forms[stripped]
    inner = trim(stripped)
    if inner[:1].isdecimal() and stripped[stripped.index(inner) - 1 : stripped.index(inner)] == ",":
        return None
    for place, key in enumerate(_KEYS):
        wanted = key(inner)
        same = [form for form in forms if _form_key(place, form) == wanted]
        if len({forms[form] for form in same}) == 1:
            return forms[same[0]]
        if same:
            longest = max((form for form in same if form in stripped), key=len, default=None)
            return None if longest is None else forms[longest]
    return None


def _join(text: str) -> str:
    """A text with its parts joined by single blanks."""
    return str(JOINT.sub(" ", "/".join(part.strip() for part in trim(text).split("/"))))


_KEYS: Sequence[Callable[[str], str]] = (
    trim,
    lambda text: trim(text).removeprefix("+"),
    lambda text: _POINT_ZERO.sub("", trim(text)),
    lambda text: trim(text).rstrip("%\u00b0 "),
    _join,
    lambda text: _BETWEEN_LETTERS.sub("", _join(text)),
)
"""The normal forms by which two texts name the same label. The first form that finds a label decides."""


@lru_cache(maxsize=2048)
def _form_key(place: int, form: str) -> str:
    """A key of a label: the same labels are looked for in every line of every answer."""
    return _KEYS[place](form)


def _without_small_words(text: str, names: Collection[str]) -> str:
    """A text in which no small letter before another word can be taken for a label that is its capital: "a dog" mentions no A."""
    capitals = {name for name in names if len(name) == 1 and name.isupper()}
    if not capitals:
        return text

    def hide_small_letter(match: regex.Match[str]) -> str:
        return "\ue000" if match.group().upper() in capitals else match.group()

    return str(_SMALL_WORD.sub(hide_small_letter, text))


def _begins_part(text: str, end: int) -> bool:
    """Whether what stands at `end` begins a line, a field, a tag or bold text, brackets and markup before it aside."""
    start = end
    while start and text[start - 1] in _BEFORE_OPTION:
        start -= 1
    return start == 0 or text[start - 1] in _BEGINNINGS or "**" in text[start:end]


def _find_mentioned_label(text: str, labels: Mapping[str, str], forms: Mapping[str, str]) -> str | None:
    folded = fold(_without_small_words(text, {name for pair in labels.items() for name in pair}))
    counts = Counter(_join(form) for form in forms)
    joined = [form for form in forms if counts[_join(form)] == 1]
    mentioned = mentions(folded, forms, joined)
    last = folded.rstrip().rfind("\n") + 1
    quoted = [m for m in mentioned if _is_quoted(folded, m)]
    options = [m for m in mentioned if _is_option(folded, m) and not (len(quoted) > 1 and m in quoted)]
    for part in (mentioned, quoted, options, [m for m in mentioned if m.start >= last]):
        names = {forms[mention.name] for mention in part}
        if len(names) == 1:
            return names.pop()
    return None


def count_everyday_labels(labels: Mapping[str, str], rows: Sequence[tuple[str, str]]) -> dict[str, int]:
    """In how many rows, each an input and its label, the input says another label in passing: an everyday word of the language
    that the task is about, such as the label I. An input that names all labels (as options, say) counts for none of them.

    >>> count_everyday_labels({"I": "I", "II": "II"}, [("I think it failed.", "II"), ("A dog barks.", "II")])
    {'I': 1}
    """
    forms = _forms(labels)
    names = {name for pair in labels.items() for name in pair}
    counts = Counter[str]()
    for text, target in rows:
        folded = fold(_without_small_words(text, names))
        mentioned = {
            forms[m.name]
            for m in mentions(folded, forms)
            if not (_is_quoted(folded, m) or _is_option(folded, m))
        }
        if len(mentioned) < len(labels):
            counts.update(mentioned - {target})
    return {label: counts[label] for label in labels if counts[label]}


def _is_quoted(folded: str, mention: Mention) -> bool:
    return {folded[max(0, mention.start - 1)], folded[mention.end : mention.end + 1]} <= _QUOTES


def _is_option(folded: str, mention: Mention) -> bool:
    return _begins_part(folded, mention.start) and _OPTION.match(folded, mention.end) is not None
