"""Targets that show how they were reached and mark their result: `#### 540` on the last line (GSM8K), or `\\\\boxed{}` (MATH).

A mark is no word of a language: it is what all rows have in common. A whole derivation compares with no answer, its result does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import regex

from whet._util.words import count_words
from whet.replies.marked import marked_results
from whet.rewards.choose import SHORT_TARGET

_MARKED_LINE = regex.compile(r"(?:\A|\n)[ \t]*([^\w\s]{2,12})[ \t]*([^\s][^\n]*?)\s*\Z")
BOX = "\\boxed{}"


@dataclass(frozen=True)
class WorkedAnswers:
    """The results of worked answers, one for each, and the mark that they stand behind."""

    results: list[str]
    mark: str


def split_worked_answers(targets: Sequence[object]) -> WorkedAnswers | None:
    """The results of targets that are texts and all mark their result in the same way; None where one of them does not, where a
    result is longer than a short answer, or where nothing stands before the results.

    >>> split_worked_answers(["3*3=9 times\\n#### 9", "2+2=4\\n#### 4"])
    WorkedAnswers(results=['9', '4'], mark='####')
    >>> split_worked_answers(["#### 9", "#### 4"]) is None
    True
    """
    texts = [target for target in targets if isinstance(target, str)]
    if not texts or len(texts) < len(targets):
        return None
    worked = _split_at_boxes(texts) or _split_at_mark(texts)
    if worked is None or any(count_words(result) > SHORT_TARGET for result in worked.results):
        return None
    longer = sum(
        count_words(text) > count_words(result) + 1
        for text, result in zip(texts, worked.results, strict=True)
    )
    return worked if 2 * longer > len(texts) else None


def _split_at_boxes(texts: Sequence[str]) -> WorkedAnswers | None:
    if not all("\\boxed" in text for text in texts):
        return None
    results = [marked_results(text) for text in texts]
    return (
        WorkedAnswers([result[0] for result in results], BOX)
        if all(result and result[0] for result in results)
        else None
    )


def _split_at_mark(texts: Sequence[str]) -> WorkedAnswers | None:
    lines = [_MARKED_LINE.search(text) for text in texts]
    marks = {line[1] for line in lines if line is not None}
    if None in lines or len(marks) != 1:
        return None
    return WorkedAnswers([line[2] for line in lines if line is not None], marks.pop())
