"""Critiques that say no more than which answer was given and which one was wanted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from whet.rewards.targets import targets_of
from whet.types import Example, Rollout

_ANSWER, _TARGET = "\0answer\0", "\0target\0"


def say_the_same(wrong: Sequence[tuple[Example, Rollout]]) -> bool:
    """Whether the critiques of wrong answers, two at least, name the right answers and are the same but for these and the
    answers. Beside the two answers they teach nothing about a single row.

    >>> rows = [Example(str(n), {}, target) for n, target in enumerate(["red", "blue"])]
    >>> said = ["Wanted red, got 4.", "Wanted blue, got 7."]
    >>> answers = [Rollout("p", row.id, text[-2], 0.0, critique=text) for row, text in zip(rows, said)]
    >>> say_the_same(list(zip(rows, answers)))
    True
    """
    forms = [_form(example, rollout) for example, rollout in wrong]
    return len(forms) > 1 and len(set(forms)) == 1 and _TARGET in forms[0]


def without_repeats(pairs: Sequence[tuple[Example, Rollout]]) -> list[tuple[Example, Rollout]]:
    """Rows with their rollouts, where all critiques `say_the_same` only the first one with its critique."""
    criticised = [pair for pair in pairs if pair[1].critique]
    if not say_the_same(criticised):
        return list(pairs)
    later = {row.id for row, _ in criticised[1:]}
    return [
        (row, replace(one, critique=None, addressed={}) if row.id in later else one) for row, one in pairs
    ]


def holds_words(text: str, words: str) -> bool:
    """Whether a text holds these words as they are, not as a part of other words."""
    return _whole(words).search(text) is not None


def _form(example: Example, rollout: Rollout) -> str:
    """A critique with marks in the place of the right answers and of the answer; empty without any."""
    if not rollout.critique or example.target is None:
        return ""
    marks = dict.fromkeys((text.strip() for text in targets_of(example)), _TARGET)
    marks.setdefault(rollout.output.strip(), _ANSWER)
    text = rollout.critique
    for words in sorted(filter(None, marks), key=len, reverse=True):
        for written in (json.dumps(words, ensure_ascii=False)[1:-1], words):
            text = _whole(written).sub(lambda match, mark=marks[words]: mark, text)  # type: ignore[misc]
    return " ".join(text.split())


def _whole(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(words)}(?!\w)")
