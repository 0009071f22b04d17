"""What an answer marks as its result: the last box of LaTeX, else what stands in tags."""

from __future__ import annotations

import regex

_BOX = regex.compile(r"\\boxed\s*+(\{(?:[^{}]++|(?1))*+\})")
_TAG = regex.compile(r"<([A-Za-z][\w-]*+)>\s*+([^<>]*+)</\1>")
_WORDING = regex.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*+\{([^{}]*+)\}")


def last_box(text: str) -> str | None:
    """The content of the last `\\boxed{...}` of a text as it stands; None where there is none.

    >>> last_box("\\\\boxed{5}? No, \\\\boxed{7 \\\\text{cm}}"), last_box("7")
    ('7 \\\\text{cm}', None)
    """
    boxes = _BOX.findall(text) if "\\boxed" in text else []
    return str(boxes[-1][1:-1]) if boxes else None


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
