"""Rewards that compare the answer with the target as text."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.rewards.reward import TARGET
from whet.run import Run
from whet.types import Completion, Example, Reward

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces (SQuAD evaluation, Rajpurkar et al. 2016).

    >>> normalise("The  Cat, sat!")
    'cat sat'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def targets_of(example: Example) -> list[str]:
    """Accepted answers, at least one: the target itself, or each of a list of them; other values as JSON
    text.
    """
    target = example.target
    options = target if isinstance(target, list) and target else [target]
    return [t if isinstance(t, str) else json.dumps(t, ensure_ascii=False) for t in options]


def f1_score(answer: str, target: str) -> float:
    """Token-level F1 in [0, 1] of normalised texts (SQuAD). Two empty texts agree fully.

    >>> round(f1_score("the black cat", "a black dog"), 3)
    0.5
    """
    words, wanted = normalise(answer).split(), normalise(target).split()
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _quote(text: str) -> str:
    text = text.strip()
    return json.dumps(text if len(text) <= 200 else text[:200] + "…", ensure_ascii=False)


@dataclass(frozen=True)
class ExactMatch:
    """1 when the answer equals an accepted target, else 0. By default case and outer spaces are ignored;
    `normalise: true` also ignores punctuation and articles, `strict: true` ignores nothing."""

    strict: bool = False
    normalise: bool = False
    name: str = "exact_match"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def _form(self, text: str) -> str:
        if self.strict:
            return text
        return normalise(text) if self.normalise else text.strip().casefold()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        wanted = targets_of(example)
        if self._form(completion.text) in {self._form(t) for t in wanted}:
            return Reward(1.0)
        return Reward(0.0, critique=f"The answer {_quote(completion.text)} should be {_quote(wanted[0])}.")

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        right: NDArray[np.float64] = (probs.argmax(-1) == targets).astype(np.float64)
        return right


@dataclass(frozen=True)
class F1:
    """Best token F1 over the accepted targets, in [0, 1]."""

    name: str = "f1"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        wanted = targets_of(example)
        value = max(f1_score(completion.text, t) for t in wanted)
        if value == 1.0:
            return Reward(1.0)
        return Reward(value, critique=f"The answer {_quote(completion.text)} should be {_quote(wanted[0])}.")


@dataclass(frozen=True)
class Contains:
    """1 when the answer contains an accepted target (or `text`), ignoring case unless `strict`."""

    text: str | None = None
    strict: bool = False
    name: str = "contains"
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.text == "":
            raise UsageError(
                "the option text of contains is empty, and every answer contains that. Write a text."
            )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.text is not None else frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        wanted = [self.text] if self.text is not None else targets_of(example)
        answer = completion.text if self.strict else completion.text.casefold()
        if any((t if self.strict else t.casefold()) in answer for t in wanted):
            return Reward(1.0)
        return Reward(0.0, critique=f"The answer does not contain {_quote(wanted[0])}.")


@dataclass(frozen=True)
class Regex:
    """1 when `pattern` is found in the answer. With a target, the first group (or the whole match) of the
    last match must equal it, ignoring case and outer spaces: the usual "last number" extraction."""

    pattern: str
    name: str = "regex"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageError(
                f"the pattern {self.pattern!r} is not a regular expression: {error}. Correct it."
            ) from error

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        matches = list(re.finditer(self.pattern, completion.text))
        if not matches:
            return Reward(0.0, critique=f"The answer does not have the form {self.pattern!r}.")
        if example.target is None:
            return Reward(1.0)
        last = matches[-1]
        answer = (last.group(1) if last.re.groups else last.group(0)) or ""
        wanted = targets_of(example)
        if answer.strip().casefold() in {t.strip().casefold() for t in wanted}:
            return Reward(1.0)
        return Reward(0.0, critique=f"The answer says {_quote(answer)}; it should be {_quote(wanted[0])}.")
