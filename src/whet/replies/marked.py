"""What an answer marks as its result: the last box of LaTeX, else what stands in tags."""

from __future__ import annotations

import regex

_BARE = r"(?=[-+\u2212]?\.?\p{Nd}|\\\p{L}|\p{L}\s{0,9}(?:[$.,;:!?)*]|\\[)\]]|\Z))"
"""What a box without braces may hold: a number, a command of LaTeX, a letter alone; \\boxed in prose holds nothing."""
_BOX = regex.compile(
    r"\\(?:boxed|fbox)(?:\s*+(\{(?:[^{}]++|(?1))*+\})"
    rf"|(?:\s++|(?!\p{{L}})){_BARE}((?:(?1)|\\(?![)\]])|[.,](?=\p{{Nd}})|[^\s{{}}$\\.,;:!?*`\u3002])++))"
)
_LISTED = regex.compile(r"[\s$]{0,20}[,;][\s$]{0,20}")
_TAG = regex.compile(r"<([A-Za-z][\w-]*+)>\s*+([^<>]*+)</\1>")
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
    """What stands in braces, or, without them, what follows up to a blank: the last digit of 42 is in the box too."""
    return str(box[2] if box[1] is None else box[1][1:-1])


def marked_results(text: str) -> list[str]:
    """The content of the last `\\boxed{...}` of an answer, without LaTeX's marks of words; where there is none, the content of
    each pair of tags that holds no other.

    >>> marked_results("\\\\boxed{5}? No, \\\\boxed{\\\\text{7}}, as 3 + 4."), marked_results("<answer>7</answer> of 8")
    (['7'], ['7'])
    """
    box = last_box(text)
    if box is not None:
        return [_WORDING.sub(r"\1", box).strip()]
    return [match[2].strip() for match in _TAG.finditer(text)] if "</" in text else []
