"""Rewards that compare the answer with the target as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import regex
from numpy.typing import NDArray

from whet._util.words import compose, fold, mentions, split_words, without_punctuation
from whet.errors import UsageError
from whet.rewards.composite import Weighted
from whet.rewards.numbers import are_close, is_same_number, number_of, numbers_in, with_plain_numbers
from whet.rewards.patterns import REWARD_TIMEOUT, compile_pattern, is_in_every_text, match_within
from whet.rewards.reward import TARGET, RewardFunction
from whet.rewards.targets import accepted_answers, quote_target, show_target, state_correction, targets_of
from whet.run import Run
from whet.types import Completion, Example, Reward

__all__ = ["F1", "Contains", "ExactMatch", "Regex", "equals_no_text", "f1_score", "normalise", "targets_of"]

_ARTICLES = re.compile(r"(?<!\S)(?:a|an|the)(?!\S)")
_INNER_ARTICLES = re.compile(r"(?<!\S)(?:a|an|the)(?=\s+\S)")
_THOUSANDS = re.compile(r"(?<![0-9.,'])[0-9]{1,3}(?:(?:,[0-9]{3})+|(?:'[0-9]{3})+)(?![0-9,'])")
_DIGITS = re.compile(r"-?[0-9]+(?:[.,][0-9]+)*(?:e[-+]?[0-9]+)?")
_NOT_LONGER = (
    r"(?![0-9]|[.,](?!0{1,2}(?![0-9]))[0-9]|e[-+]?[0-9]|\^[-+]?[0-9]|\*\*[-+]?[0-9]|[ ][0-9]+/[0-9]"
    r"|[ _'\u00a0\u202f][0-9]{3}(?!\w)|\s?[x\u00d7\u22c5\u00b7*]\s?10(?:\^|\*\*))"
)
"""The characters that may not follow the digits, so that these are no part of a longer number; 5.00 is 5."""
_NO_SIGN = r"(?<!(?<![\w.,)])-\p{Sc}?)"
"""Before digits without a minus sign: the 5 of -5 and of -$5; a hyphen behind a letter or a digit is no sign."""
_NO_POWER = r"(?<![0-9](?:e|\^|\*\*)[-+]?)"
"""Before digits that are no exponent."""
_DASH = re.compile(r"(?<=[0-9])(?: - | ?[\u2014\u2015] ?)(?=[0-9])")
"""A dash between two numbers, which is a hyphen there."""
_BARE_POINT = re.compile(r"(?<![\w.,:)])\.(?=[0-9])")
"""The decimal point of a number without a digit before it, such as .05."""
_ARABIC = {0x66B: ".", 0x66C: ","}
"""The decimal point and the comma of thousands of Arabic digits."""
_BETWEEN_DIGITS = regex.compile(r"(?<=[0-9])\p{P}+(?=[0-9])")
_SPACED_SIGN = re.compile(r"(?<=[0-9])\s(?=[%\u2030\u00b0])")
"""The blank before a percent or degree sign, which some languages write."""
_KEPT = regex.compile(
    r"""
    (?<=[0-9])[.:,'"-](?=[0-9])          # 3.5, 3:30, 1,5, 5'10 and 10-20 are not 35, 330, 15, 510 and 1020
    | (?<=[0-9]e)-(?=[0-9])             # 1e-5 is not 1e5
    | (?<![\w.)])-(?=\p{Sc}?\p{N})       # -5 is not 5, -$5 is not $5
    | (?<![\w.)])-(?=\p{L}(?!\w))        # -x is not x
    | (?<=\w)-(?!\w)                    # B- is not B
    | !(?==)                            # a != b is not a = b
    | [#%&@/\\§\u2030\u2031]            # C# is not C, 5% is not 5
    """,
    regex.VERBOSE,
)
"""Punctuation that says something."""
INSIDE = "inside_a_word"
"""The part of a rollout that is 1 where the answer holds its target only inside of longer words, as it holds no in know."""
_MARKDOWN = "*_"
"""Marks of Markdown, unless the target has them too."""
_HIDDEN = {sign: chr(0xE000 + k) for k, sign in enumerate(".:,-'\"!#%&@/\\§\u2030\u2031*_")}
"""Characters that stand for kept punctuation while the rest is removed."""
_SHOWN = {ord(hidden): sign for sign, hidden in _HIDDEN.items()}


def _without_commas(folded: str) -> str:
    """Folded text with 1,234 and 1'234 as 1234."""
    return _THOUSANDS.sub(lambda match: re.sub("[,']", "", match.group()), folded)


def _plain_digits(text: str) -> str:
    """Folded text with its numbers as a keyboard writes them: without commas of thousands, and 0.5 for .5."""
    return _BARE_POINT.sub("0.", _without_commas(with_plain_numbers(fold(text))))


def _whole_number(number: str) -> str:
    """A pattern for a number that is no part of a longer one, of a fraction or of a power; in 3/5/2024 each part counts."""
    digits = re.escape(number)
    over = rf"(?<![0-9][ ]?/[ ]?){digits}[ ]?/[ ]?[0-9]++(?![ ]?/[ ]?[0-9])"
    under = rf"(?<=(?<![0-9/])[0-9]+[ ]?/[ ]?){digits}(?![ ]?/[ ]?[0-9])"
    sign = r"(?<![\w.,)])" if number.startswith("-") else _NO_SIGN
    return rf"(?!{over}|{under}){sign}{_NO_POWER}(?<![0-9])(?<![0-9][.,]){digits}{_NOT_LONGER}"


def normalise(text: str, kept: str = "", *, any_article: bool = False) -> str:
    """Folded case and forms, no punctuation of any script, no articles, single spaces (SQuAD evaluation, Rajpurkar et al. 2016).

    Unlike there, what tells answers apart stays: signs such as + and %, the point and the sign of a number, the dash between
    two numbers, marks of Markdown that are `kept`, an article at the end (Vitamin A) unless `any_article`, and a text of which
    nothing would be left. Characters of scripts without blanks stand alone, so that
    blanks between them make no difference.

    >>> normalise("The  Cat, sat!"), normalise("今天，很好。"), normalise("C++."), normalise("A")
    ('cat sat', '今 天 很 好', 'c++', 'a')
    """
    folded = fold(text)
    numbers = _without_commas(folded.translate(_ARABIC))
    plain = _SPACED_SIGN.sub("", _DASH.sub("-", _BARE_POINT.sub("0.", numbers)))
    plain = _KEPT.sub(lambda match: _HIDDEN[match.group()], plain)
    for mark in kept:
        plain = plain.replace(mark, _HIDDEN[mark])
    words = without_punctuation(_BETWEEN_DIGITS.sub(" ", plain)).translate(_SHOWN)
    bare = _ARTICLES.sub(" ", words)
    forms = (bare if any_article or not bare.strip() else _INNER_ARTICLES.sub(" ", words), words, folded)
    return next((form for form in (" ".join(split_words(form)) for form in forms) if form), "")


def _normal_forms(answer: str, target: str, *, any_article: bool = False) -> tuple[str, str]:
    kept = "".join(mark for mark in _MARKDOWN if mark in target)
    return normalise(answer, kept, any_article=any_article), normalise(target, kept, any_article=any_article)


def f1_score(answer: str, target: str) -> float:
    """Token-level F1 in [0, 1] of normalised texts (SQuAD); in scripts without blanks a token is a character. Two empty texts
    agree fully.

    >>> round(f1_score("the black cat", "a black dog"), 3)
    0.5
    """
    words, wanted = (form.split() for form in _normal_forms(answer, target, any_article=True))
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class ExactMatch:
    """1 when the answer equals an accepted target, else 0. By default case, outer spaces and the forms that Unicode has for
    one character are ignored; `normalise: true` also ignores punctuation and articles, `strict: true` ignores nothing.

    A target that is a number by its type is compared as a number where the answer is wholly one; a target that is a text,
    such as the id 007, never is.
    """

    strict: bool = False
    normalise: bool = False
    name: str = "exact_match"
    low: float = 0.0
    high: float = 1.0
    part_names: ClassVar[frozenset[str]] = frozenset()
    needs: frozenset[str] = frozenset({TARGET})

    def _equal(self, answer: str, target: object) -> bool:
        wanted = show_target(target)
        if self.strict:
            return answer == wanted
        same = is_same_number(answer, target)
        if same is not None:
            return same
        if self.normalise:
            form, sought = _normal_forms(answer, wanted)
            return form == sought
        return fold(answer).strip() == fold(wanted).strip()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if any(self._equal(completion.text, target) for target in accepted_answers(example)):
            return Reward(1.0)
        wanted = targets_of(example)[0]
        return Reward(0.0, critique=state_correction(completion.text, wanted))

    def from_labels(self, probs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        right: NDArray[np.float64] = (probs.argmax(-1) == targets).astype(np.float64)
        return right


@dataclass(frozen=True)
class F1:
    """Best token F1 over the accepted targets, in [0, 1]; 0 or 1 where the target is a number and the answer wholly one."""

    name: str = "f1"
    low: float = 0.0
    high: float = 1.0
    part_names: ClassVar[frozenset[str]] = frozenset()
    needs: frozenset[str] = frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        value = max(_overlap(completion.text, target) for target in accepted_answers(example))
        if value == 1.0:
            return Reward(1.0)
        wanted = targets_of(example)[0]
        return Reward(value, critique=state_correction(completion.text, wanted))


def _overlap(answer: str, target: object) -> float:
    same = is_same_number(answer, target)
    return f1_score(answer, show_target(target)) if same is None else float(same)


@dataclass(frozen=True)
class Contains:
    """1 when the answer contains an accepted target (or `text`), ignoring case unless `strict`. A target that is a number by
    its type is contained where a number of the answer equals it: 18 is not in 180. Digits that are a text, as those of a CSV
    file are, are no part of longer or negative ones either, unless `strict`. An empty target is contained in an empty answer
    only.

    A target counts inside of a longer word too, for many languages put endings to words; with `words`, only where it stands as
    words of its own. Part: `inside_a_word`, 1 where it stands nowhere so.
    """

    text: str | None = None
    strict: bool = False
    words: bool = False
    name: str = "contains"
    low: float = 0.0
    high: float = 1.0
    part_names: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.text == "":
            raise UsageError(
                "the option text of contains is empty, and every answer contains that. Write a text."
            )
        if self.strict and self.words:
            raise UsageError(
                "contains has strict, which takes any piece of an answer, and words, which takes words alone. Leave one out."
            )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.text is not None else frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        wanted = [self.text] if self.text is not None else accepted_answers(example)
        finds = [self._find(completion.text, target) for target in wanted]
        if True in finds:
            return Reward(1.0)
        shown = quote_target(show_target(wanted[0]))
        inside = {INSIDE: 1.0} if None in finds else {}
        if inside and self.words:
            return Reward(0.0, inside, f"The answer contains {shown} only inside of a longer word.")
        return (
            Reward(1.0, inside) if inside else Reward(0.0, critique=f"The answer does not contain {shown}.")
        )

    def is_inside(self, answer: str, target: str) -> bool:
        """Whether an answer holds a target only inside of longer words."""
        return self._find(answer, target) is None

    def _find(self, answer: str, target: object) -> bool | None:
        """Whether an answer holds a target; None: only inside of longer words."""
        number = number_of(target)
        if number is not None:
            return any(are_close(one, number) for one in numbers_in(answer))
        text = show_target(target)
        if not text.strip():
            return not answer.strip()
        if self.strict:
            return text in answer
        number_sought = _plain_digits(text)
        if _DIGITS.fullmatch(number_sought) is not None:
            return regex.search(_whole_number(number_sought), _plain_digits(answer)) is not None
        sought, folded = _without_commas(fold(text)), _without_commas(fold(answer))
        if sought not in folded:
            return False
        return True if mentions(folded, [sought.strip()]) else None


@dataclass(frozen=True)
class Regex:
    """1 when `pattern` is found in the answer. With a target, the first group that took part (or the whole match) of the
    last match must equal it, ignoring case and outer spaces: the usual "last number" extraction. A match of nothing but blanks
    is none where there is another one."""

    pattern: str
    name: str = "regex"
    low: float = 0.0
    high: float = 1.0
    part_names: ClassVar[frozenset[str]] = frozenset()
    needs: frozenset[str] = frozenset()
    timeout: float = field(default=REWARD_TIMEOUT, init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            compile_pattern(self.pattern)
        except re.error as error:
            raise UsageError(
                f"the pattern {self.pattern!r} is not a regular expression: {error}. Correct it."
            ) from error

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without a target where every answer has the pattern."""
        if example.target is None and is_in_every_text(self.pattern):
            raise UsageError(
                f"{example.place} has no target, and the pattern {self.pattern!r} is found in every answer, because it can match "
                "nothing. Write a pattern that needs a character, or ^ and $ around it."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        answer = await match_within(
            lambda most: self._extract(completion.text, most), self.timeout, self.pattern, example
        )
        if answer is None:
            return Reward(0.0, critique=f"The answer does not have the form {self.pattern!r}.")
        if example.target is None:
            return Reward(1.0)
        if any(_is_equal(answer, target) for target in accepted_answers(example)):
            return Reward(1.0)
        return Reward(
            0.0,
            critique=f"The answer says {quote_target(answer)}; it should be {quote_target(targets_of(example)[0])}.",
        )

    def _extract(self, text: str, most: float) -> str | None:
        """The first group that took part, or the whole, of the last match; None without a match."""
        last = None
        for match in compile_pattern(self.pattern).finditer(compose(text), timeout=most):
            if last is None or match.group().strip() or not last.group().strip():
                last = match
        if last is None:
            return None
        groups = last.groups()
        return next((group for group in groups if group is not None), "") if groups else str(last.group())


def equals_no_text(reward: RewardFunction, target: object) -> bool:
    """Whether a reward, or a part of it, compares texts, and the target is one that no answer equals: a text without any
    letter or sign, an empty list, an object."""
    if isinstance(reward, Weighted):
        return any(equals_no_text(part, target) for _, part in reward.parts)
    compares = isinstance(reward, ExactMatch | F1) or (isinstance(reward, Contains) and reward.text is None)
    return compares and (
        target == [] or isinstance(target, Mapping) or (isinstance(target, str) and not target.strip())
    )


def _is_equal(answer: str, target: object) -> bool:
    same = is_same_number(answer, target)
    return fold(answer).strip() == fold(show_target(target)).strip() if same is None else same
