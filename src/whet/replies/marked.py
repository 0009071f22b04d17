"""The marked result of an answer: the last LaTeX box, else the content of tags."""

from __future__ import annotations

from typing import NamedTuple

import regex

_BARE = r"(?=[-+\u2212]?\.?\p{Nd}|\\\p{L}|\p{L}\s{0,9}(?:[$.,;:!?)*]|\\[)\]]|\Z))"
"""The content of a box without braces: a number, a command of LaTeX, a letter alone; \boxed in prose holds nothing."""
_BOX = regex.compile(
    r"\\(?:boxed|fbox)(?:\s*+(\{(?:[^{}]++|(?1))*+\})"
    rf"|(?:\s++|(?!\p{{L}})){_BARE}((?:(?1)|\\(?![)\]])|[.,](?=\p{{Nd}})|[^\s{{}}$\\.,;:!?*`\u3002])++))"
)
_LISTED = regex.compile(r"[\s$]{0,20}[,;][\s$]{0,20}")
_CDATA = r"(?i:<!\[CDATA\[)((?:[^\]]|\](?!\]>))*+)\]\]>"
_TAG = regex.compile(rf"<([A-Za-z][\w-]*+)>\s*+(?:{_CDATA}\s*+|([^<>]*+))</\1>|{_CDATA}")
_LITERAL = regex.compile(_CDATA)
_EMPHASISED = regex.compile(r"(\*\*|\*|`)((?:(?!\1).)++)\1", regex.DOTALL)
_BESIDE = regex.compile(r"[\s$*_`]{0,9}[,;/|&]?[\s$*_`]{0,9}(?:\p{L}[\p{L}\p{M}]{0,19})?[\s$*_`]{0,9}")
"""The text between marks that belong together: a list separator or a single word."""
_WORDING = regex.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*+\{([^{}]*+)\}")


def last_box(text: str) -> str | None:
    """The content of the last `\\boxed{...}` of a text as it stands; None where there is none.

    >>> last_box("\\\\boxed{5}? No, \\\\boxed{7 \\\\text{cm}}"), last_box("7")
    ('7 \\\\text{cm}', None)
    """
    boxes = last_boxes(text)
    return boxes[-1] if boxes else None


def last_boxes(text: str) -> list[str]:
    """The contents of the last `\\boxed{...}` of a text and of those that stand before it with nothing but a comma between them,
    each once.

    >>> last_boxes("\\\\boxed{1}. So: $\\\\boxed{3}$, $\\\\boxed{5}$."), last_boxes("7")
    (['3', '5'], [])
    >>> last_boxes("So $\\\\boxed 42$."), last_boxes("\\\\boxed7."), last_boxes("\\\\boxed\\\\frac{1}{2}")
    (['42'], ['7'], ['\\\\frac{1}{2}'])
    """
    boxes = [*_BOX.finditer(text)] if "box" in text else []
    first = len(boxes) - 1
    while first > 0 and _LISTED.fullmatch(text, boxes[first - 1].end(), boxes[first].start()):
        first -= 1
    return [*dict.fromkeys(_content(box) for box in boxes[max(first, 0) :])]


def _content(box: regex.Match[str]) -> str:
    """The text in braces, or, without braces, the text up to a blank: the last digit of 42 is in the box too."""
    return str(box[2] if box[1] is None else box[1][1:-1])


def marked_results(text: str) -> list[str]:
    """The content of the last `\\boxed{...}` of an answer, without LaTeX's marks of words; where there is none, the content of
    each pair of tags that holds no other, and of each section of XML's literal text.

    >>> marked_results("\\\\boxed{5}? No, \\\\boxed{\\\\text{7}}, as 3 + 4."), marked_results("<answer>7</answer> of 8")
    (['7'], ['7'])
    >>> marked_results("**<answer>**7**</answer>**"), marked_results("<answer><![CDATA[a<b]]></answer>")
    (['7'], ['a<b'])
    """
    box = last_box(text)
    if box is not None:
        return [_WORDING.sub(r"\1", box).strip()]
    return [_within(match) for match in _TAG.finditer(text)] if _may_hold_tags(text) else []


def _may_hold_tags(text: str) -> bool:
    return "</" in text or "]]>" in text


def _within(pair: regex.Match[str]) -> str:
    """The text in a pair of tags or in a section of XML's literal text, without emphasis around all of it."""
    content = str(next(group for group in (pair[2], pair[3], pair[4]) if group is not None)).strip()
    emphasised = _EMPHASISED.fullmatch(content)
    return content if emphasised is None else str(emphasised[2]).strip()


def without_literal_marks(text: str) -> str:
    """A text with blanks in the place of the marks around XML's literal text (CDATA), so that all else keeps its place.

    >>> without_literal_marks('<a><![CDATA[{"n": [[1]]}]]></a>')
    '<a>         {"n": [[1]]}   </a>'
    """
    return str(_LITERAL.sub(lambda match: f"{' ' * 9}{match[1]}   ", text)) if "]]>" in text else text


class Mark(NamedTuple):
    """The text that an answer marks as its result, by a box or a pair of tags."""

    content: str
    start: int
    end: int


def last_marks(text: str) -> list[Mark]:
    """The last `\\boxed{...}` of an answer or, where there is none, its last pair of tags, and those of the same name that stand
    before it with nothing but a sign of a list or a single word between.

    >>> [mark.content for mark in last_marks("\\\\boxed{5}? No! \\\\boxed{7} or \\\\boxed{8}")]
    ['7', '8']
    >>> [mark.content for mark in last_marks("<sum>3</sum> <answer></answer> 5")]
    ['']
    """
    boxes = [*_BOX.finditer(text)] if "box" in text else []
    pairs = [] if boxes or not _may_hold_tags(text) else [*_TAG.finditer(text)]
    marks = [Mark(_WORDING.sub(r"\1", _content(box)).strip(), box.start(), box.end()) for box in boxes]
    marks += [Mark(_within(pair), pair.start(), pair.end()) for pair in pairs if pair[1] == pairs[-1][1]]
    first = len(marks) - 1
    while first > 0 and _BESIDE.fullmatch(text, marks[first - 1].end, marks[first].start):
        first -= 1
    return marks[max(first, 0) :]
