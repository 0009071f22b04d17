"""From feedback to complaints: comments and explanations as they are, corrections as what should be instead
of what.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.online.feedback import Feedback
from whet.search.critiques import Complaint, split
from whet.search.lexicon import imperative

MOST_UNITS = 20
_MOST_DIFFERENCES = 4
_LONGEST_QUOTE = 160
_ALIKE = 0.5
_CASE = "Mind upper and lower case"

_PRAISE = re.compile(
    r"\b(?:thanks?|thank you|perfect\w*|great|excellent|awesome|amazing|good (?:job|work|answer|one)|well done"
    r"|nice\w*|love|loved|lovely|helpful|brilliant|fantastic|wonderful|spot on|exactly (?:right|what)|correct"
    r"|works? (?:well|fine)|no complaints?|all good|super)\b"
    r"|^\W*(?:good|ok(?:ay)?|fine|yes|cool|👍|❤️|🙏|🎉)\W*$",
    re.IGNORECASE,
)
_BUT = re.compile(
    r"\b(?:but|however|although|though|except|too|missing|lacks?|wrong|incorrect|not|never|no longer|instead"
    r"|unless|only|still|should|would|could|wish|prefer|next time|more|less|fewer|without"
    r"|must|ha(?:s|ve) to|needs? to|required?|please|at least|at most|always)\b|n't\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a row of feedback gives: complaints, or the reason why it gives none."""

    row: Feedback
    complaints: tuple[Complaint, ...] = ()
    skipped: str = ""


def hear(row: Feedback) -> Heard:
    """The complaints of one row, at most 20.

    A comment is one, and an explanation of a bad or unknown verdict; praise is none. A correction says what
    should be instead of what. A bare rating or label says nothing about what to change.
    """
    texts: list[str] = []
    praise = False
    for text in (row.comment, row.explanation if row.liked is not True else None):
        if text and is_praise(text, row.liked):
            praise = True
        elif text:
            texts += [unit for unit in split(text) if not is_praise(unit, row.liked)]
    if row.corrected is not None and row.output is not None:
        texts += differences(row.output, row.corrected)
    found = tuple(Complaint(text, row.id) for text in list(dict.fromkeys(texts))[:MOST_UNITS])
    return Heard(row, found, "" if found else _why_none(row, praise))


def _why_none(row: Feedback, praise: bool) -> str:
    if praise or (row.liked is True and row.corrected is None):
        return "it is content with the answer"
    if row.corrected is not None and row.output is None:
        return "a correction says what to change only beside the answer that was given (`output`)"
    if row.corrected is not None:
        return "the correction equals the answer"
    if row.comment or row.explanation:
        return "its text demands nothing"
    return "a rating or label alone does not say what to change"


def is_praise(text: str, liked: bool | None) -> bool:
    """Whether a text only praises: no wish, no `but`, and no bad rating beside it."""
    if liked is False or imperative(text) or _BUT.search(text):
        return False
    return bool(_PRAISE.search(text))


def differences(output: str, corrected: str) -> list[str]:
    """What a correction demands, as sentences: at most 4 differences, or the whole when little is left as it
    was.

    >>> differences("The total is 5 USD.", "The total is 5 EUR.")
    ['Write "EUR" instead of "USD".']
    >>> differences("hello there", "Hello there")
    ['Mind upper and lower case: write "Hello" instead of "hello".']
    """
    before, after = _pieces(output), _pieces(corrected)
    if before == after:
        return []
    folded = [[piece.casefold() for piece in side] for side in (before, after)]
    matcher = difflib.SequenceMatcher(None, folded[0], folded[1], autojunk=False)
    found, untouched = [], True
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            found.append(_difference(before[a:b], after[c:d], before, a))
        else:
            pairs = list(zip(before[a:b], after[c:d], strict=True))[0 if untouched else 1 :]
            found += [f'{_CASE}: write "{_quote(n)}" instead of "{_quote(o)}".' for o, n in pairs if o != n]
        untouched = kind == "equal"
    if len(found) > _MOST_DIFFERENCES or matcher.ratio() < _ALIKE:
        return [_whole(output, corrected)]
    return found


def _pieces(text: str) -> list[str]:
    """Words with what is attached to them, and single punctuation marks at their end."""
    return re.findall(r"\w(?:[\w'’.,:/@%-]*\w)?|[^\w\s]", text)


def _difference(old: Sequence[str], new: Sequence[str], before: Sequence[str], at: int) -> str:
    was, now = _join(old), _join(new)
    if not old:
        place = f' after "{_join(before[max(0, at - 3) : at])}"' if at else " at the beginning"
        return f'The answer must also have "{now}"{place}.'
    if not new:
        return f'Leave out "{was}".'
    return f'Write "{now}" instead of "{was}".'


def _join(pieces: Sequence[str]) -> str:
    return _quote(re.sub(r" (?=[.,;:!?%)\]}])|(?<=[(\[{]) ", "", " ".join(pieces)))


def _whole(output: str, corrected: str) -> str:
    return f'The answer should be "{_quote(corrected)}" instead of "{_quote(output)}".'


def _quote(text: str) -> str:
    """A text on one line, cut, with its double quotes as single ones."""
    text = " ".join(text.split()).replace('"', "'")
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE].rstrip() + "…"
