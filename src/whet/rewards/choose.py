"""The reward that fits a column of targets."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import regex

from whet._util.words import count_words, fold, writes_without_blanks
from whet.rewards.dates import date_of, readings, time_of_day
from whet.rewards.item_list import SEPARATORS, split_items
from whet.rewards.multiples import multiply_signs
from whet.rewards.numbers import is_amount, number_of, parse_number, words_behind
from whet.rewards.numerals import powers_of
from whet.rewards.targets import show_target
from whet.rewards.text import normalise
from whet.rewards.verifiers.math_places import is_formula, shows_formula

MOST_LABELS, ROWS_PER_LABEL, LONGEST_LABEL = 20, 3, 40
MOST_NUMBERS = 5
"""Different numbers up to which they are labels, such as the grades from 1 to 5; more of them are figures."""
SHORT_TARGET = 5
"""Words of a target up to which the whole answer must be equal to it."""
_SHORT_SHARE = 0.9
_SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}")
_LEADING_ZERO = regex.compile(r"-?0[0-9]+")


@dataclass(frozen=True)
class RewardChoice:
    """A reward by its name and options, and the rule that chose it, in words. `labels` are those of a column of labels."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    labels: tuple[str, ...] = ()

    @property
    def spec(self) -> Any:
        """The contents of `reward:` in task.yaml."""
        return {self.name: dict(self.options)} if self.options else self.name


def choose_reward(targets: Sequence[object], labels: Sequence[str] | None = None) -> RewardChoice:
    """The reward for targets as they stand in the rows (at least one, none of them missing).

    `labels`: those that the task has; None: a rule decides whether the targets are labels. A list counts as several accepted
    answers, unless its items come from a small set, as the labels of a text that has several.

    >>> choose_reward(["$1,200.00", "85", "7.5"]).spec
    {'number': {'last': True}}
    >>> choose_reward(['{"team": "billing"}', '{"team": "login"}']).name
    'json'
    """
    several = _list_choice(targets) if not labels else None
    if several is not None:
        return several
    chosen = tuple(find_labels(targets) if labels is None else labels)
    if chosen:
        return RewardChoice("exact_match", reason="exact_match, because there are labels", labels=chosen)
    if all(_is_json(target) for target in targets):
        return RewardChoice("json", reason="json (field by field), because every target is a JSON object")
    answers = [
        one for target in targets for one in (target if isinstance(target, list) and target else [target])
    ]
    choice = _date_choice(answers) or _number_choice(answers)
    if choice is None:
        texts = [show_target(answer) for answer in answers]
        choice = _formula_choice(texts, _text_choice(texts))
    if not any(isinstance(target, list) and len(target) > 1 for target in targets):
        return choice
    one = f"{choice.reason}; a list holds accepted answers, of which one is enough (reward: list wants all of them)"
    return replace(choice, reason=one)


def find_labels(targets: Sequence[object]) -> list[str]:
    """The different targets, sorted, where they can be labels: few, short, each of them often; else none."""
    counts = count_names(targets)
    return sorted(counts) if counts and are_few(counts, len(targets)) else []


def count_names(targets: Sequence[object]) -> Counter[str]:
    """Count the different targets if targets may be names: texts, or few numbers, with no two that differ only in case; else
    nothing."""
    if not all(isinstance(t, str | bool | int) and str(t).strip() for t in targets):
        return Counter()
    counts = Counter(json.dumps(t) if isinstance(t, bool) else str(t) for t in targets)
    numbers = len(counts) > MOST_NUMBERS and all(_is_number(text) for text in counts)
    return Counter() if numbers or len({fold(c).strip() for c in counts}) < len(counts) else counts


def why_no_labels(targets: Sequence[object]) -> str:
    """Why targets of which some repeat, all of them short, are no labels by themselves; empty where they look like none, and
    the bare count where the rule takes them."""
    texts = [str(t) for t in targets if isinstance(t, str | bool | int) and str(t).strip()]
    counts = Counter(texts)
    if (
        len(texts) < len(targets)
        or not 2 <= len(counts) <= len(texts) / 2
        or max(map(len, counts)) > LONGEST_LABEL
    ):
        return ""
    how_many = f"{len(counts)} different targets in {len(texts)} rows"
    if len(counts) > MOST_LABELS:
        return f"{how_many} are more than the {MOST_LABELS} that become labels by themselves"
    if len(counts) > len(texts) / ROWS_PER_LABEL:
        return f"{how_many} are too many: targets become labels by themselves with {ROWS_PER_LABEL} rows or more for each"
    if len(counts) > MOST_NUMBERS and all(map(_is_number, counts)):
        return f"{how_many} are numbers, of which up to {MOST_NUMBERS} become labels by themselves"
    return how_many if find_labels(targets) else f"some of {how_many} differ in case only"


def are_few(counts: Mapping[str, int], rows: int) -> bool:
    """Whether values can be labels: few, short, and each of them often."""
    return (
        2 <= len(counts) <= min(MOST_LABELS, rows / ROWS_PER_LABEL) and max(map(len, counts)) <= LONGEST_LABEL
    )


def _is_json(target: object) -> bool:
    if isinstance(target, list):
        return bool(target) and all(isinstance(one, dict) for one in target)
    if isinstance(target, str) and target.lstrip().startswith("{"):
        try:
            return isinstance(json.loads(target), dict)
        except (ValueError, RecursionError):
            return False
    return isinstance(target, dict)


def _is_number(target: object) -> bool:
    if not isinstance(target, str):
        return number_of(target) is not None
    return not _LEADING_ZERO.fullmatch(target.strip()) and _plain_number(target) is not None


def _plain_number(text: str, decimal: str = "") -> Decimal | None:
    """The number that a text is as the reward `number` reads it: with a sign that multiplies it ($1.5M), or in brackets where
    these are those of accounts."""
    amount = is_amount(text, sure=True)
    return parse_number(
        multiply_signs(text.replace("(", "").replace(")", "") if amount else text, None, ""), decimal
    )


def _multiple_of(text: str) -> str:
    """The word of a text that is a number and one word that multiplies it in some language (1.5 million); else ''."""
    pairs = list(words_behind(text)) if len(text) <= LONGEST_LABEL else []
    word = pairs[0][1] if len(pairs) == 1 else ""
    alone = word and _plain_number(fold(text).replace(word, " ").strip(" .")) is not None
    return word if alone and powers_of(word) else ""


def _number_choice(answers: Sequence[Any]) -> RewardChoice | None:
    words = {
        word
        for answer in answers
        if isinstance(answer, str) and not _is_number(answer) and (word := _multiple_of(answer))
    }
    if not all(_is_number(answer) or (words and _multiple_of(str(answer))) for answer in answers):
        return None
    if words:
        return _multiples_choice(answers, words)
    texts = [answer.strip() for answer in answers if isinstance(answer, str)]
    commas = [
        text for text in texts if not is_amount(text) and _plain_number(text) != _plain_number(text, ",")
    ]
    sure = [text for text in texts if _decimal_sign(text) == ","]
    options: dict[str, object] = {"last": True}
    if sure and not any(_decimal_sign(text) == "." for text in texts):
        options["decimal"] = ","
    why = "the last number of the answer, because every target is a number"
    if "decimal" in options:
        why += " (with a decimal comma)"
    elif commas:
        why += f" ({commas[0]} is read as {_plain_number(commas[0])}; decimal: ',' reads it the other way)"
    negative = next((text for text in texts if is_amount(text, sure=True)), None)
    if negative is not None:
        why += f" ({negative} is read as {-(_plain_number(negative) or 0)}, as accountants write it)"
    return RewardChoice("number", options, why)


def _multiples_choice(answers: Sequence[Any], words: set[str]) -> RewardChoice:
    """The reward for numbers of which some have a word behind them that multiplies them; where it is another power of ten in
    another language, the comparison of texts, and how to say which."""
    powers = {word: sorted(powers_of(word)) for word in sorted(words)}
    shown = next(str(answer) for answer in answers if not _is_number(answer))
    unsure = next((word for word, some in powers.items() if len(some) > 1), None)
    if unsure is None:
        factors: dict[str, object] = {word: 10 ** some[0] for word, some in powers.items()}
        named = ", ".join(f"{word}: {factor}" for word, factor in factors.items())
        why = f"the last number of the answer, because every target is a number, some with a word that multiplies it ({named})"
        return RewardChoice("number", {"last": True, "multiples": factors}, why)
    either = " or ".join(str(10**power) for power in powers[unsure])
    why = (
        f"exact_match, because targets such as {shown} are numbers with a word that multiplies them, and {unsure} is {either}; "
        f"better is reward: {{number: {{last: true, multiples: {{{unsure}: {10 ** powers[unsure][0]}}}}}}}"
    )
    return _exact_match([show_target(answer) for answer in answers], why)


def _decimal_sign(text: str) -> str:
    """The decimal sign of a number that can be read in one way only; '' where there is none, or two ways."""
    one, other = _plain_number(text, "."), _plain_number(text, ",")
    if one is None or one != other or one == one.to_integral_value() or not {",", "."} & set(text):
        return ""
    return "," if text.rfind(",") > text.rfind(".") else "."


def _date_choice(answers: Sequence[object]) -> RewardChoice | None:
    if any(isinstance(answer, int | float) or _is_plain_digits(answer) for answer in answers):
        return None
    either: list[str] = []
    for answer in answers:
        days = [date_of(answer)] if date_of(answer) is not None else readings(str(answer))
        if not days:
            return None
        either += [str(answer)] if len(days) > 1 else []
    timed = next((text for text in map(str, answers) if time_of_day(text)), None)
    if timed is not None:
        why = (
            f"exact_match, because targets such as {timed} hold a time; to compare the days alone: "
            "reward: {date: {last: true}}"
        )
        return _exact_match([str(answer) for answer in answers], why)
    if not either:
        return RewardChoice(
            "date", {"last": True}, "the last date of the answer, because every target is a date"
        )
    firsts = [first for first in ("day", "month") if _fits(answers, first)]
    if len(firsts) == 1:
        why = f"the last date of the answer, because every target is a date, with the {firsts[0]} first"
        return RewardChoice("date", {"last": True, "first": firsts[0]}, why)
    why = (
        f"exact_match, because targets such as {either[0]} may be two dates; if you know which, write "
        "reward: {date: {first: day}} or {date: {first: month}}"
    )
    return _exact_match([str(answer) for answer in answers], why)


def _fits(answers: Sequence[object], first: str) -> bool:
    """Whether no date contradicts that order of day and month."""
    other = "month" if first == "day" else "day"
    return not any(
        (one := readings(str(answer), first)) == readings(str(answer), other)
        and _contradicts(str(answer), first, one)
        for answer in answers
        if date_of(answer) is None
    )


def _contradicts(text: str, first: str, days: Sequence[Any]) -> bool:
    """Whether a date that can be read in one way only is written in the other order of day and month."""
    numbers = [int(group) for group in regex.findall(r"[0-9]+", text)[:2]]
    if len(numbers) < 2 or not days or numbers[0] > 31 or numbers[0] == numbers[1]:
        return False
    day, month = days[0].day, days[0].month
    return numbers == ([month, day] if first == "day" else [day, month])


def _is_plain_digits(answer: object) -> bool:
    return isinstance(answer, str) and answer.strip().isdecimal()


def _list_choice(targets: Sequence[Any]) -> RewardChoice | None:
    """The reward of lists for targets whose items come from a small set, some with several of them."""
    if all(isinstance(target, list) for target in targets):
        items = [item for target in targets for item in target]
        if items and all(isinstance(item, Mapping | list) for item in items):
            what = "objects" if isinstance(items[0], Mapping) else "lists"
            return RewardChoice(
                "list", reason=f"list (F1 of the items), because every target is a list of {what}"
            )
        return _of_items([[show_target(item) for item in target] for target in targets], "", targets)
    if not all(isinstance(target, str) and target.strip() for target in targets):
        return None
    if all(target.lstrip().startswith("[") for target in targets):
        lists = [_loaded_list(target) for target in targets]
        return (
            None
            if None in lists
            else RewardChoice("list", reason="list (F1 of the items), because every target is a list")
        )
    for separator in SEPARATORS[1:]:
        if any(separator in target for target in targets):
            return _of_items([split_items(target, separator) for target in targets], separator, targets)
    return None


def _loaded_list(text: str) -> list[object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _of_items(
    lists: Sequence[Sequence[str]], separator: str, targets: Sequence[object]
) -> RewardChoice | None:
    counts = Counter(item for items in lists for item in dict.fromkeys(items))
    several = sum(len(items) > 1 for items in lists)
    different = len({show_target(target) for target in targets})
    if several < 2 or not are_few(counts, len(targets)) or (separator and len(counts) >= different):
        return None
    why = f"list (F1 of the items), because targets are made of {len(counts)} different items"
    if not separator:
        return RewardChoice("list", reason=f"{why}; lists of accepted answers need exact_match")
    return RewardChoice("list", {"separator": separator}, why)


def _formula_choice(texts: Sequence[str], otherwise: RewardChoice) -> RewardChoice:
    """math_equal where every target is read as a formula, and at least half of those that are no numbers show it; else
    `otherwise`."""
    others = [text for text in texts if not _is_number(text)]
    shown = [text for text in others if shows_formula(text)]
    if not shown or 2 * len(shown) < len(others) or not all(map(is_formula, texts)):
        return otherwise
    why = f"every target is a formula, such as {shown[0]}, and not all are numbers"
    if importlib.util.find_spec("sympy") is None:
        remedy = (
            f"{otherwise.reason}. math_equal would be better, because {why}: pip install 'whet[verifiers]'"
        )
        return replace(otherwise, reason=remedy)
    return RewardChoice("math_equal", reason=f"math_equal (equal as mathematics), because {why}")


def _text_choice(texts: Sequence[str]) -> RewardChoice:
    short = sum(_is_short(text) for text in texts)
    if short >= _SHORT_SHARE * len(texts):
        return _exact_match(texts, f"exact_match, because targets have at most {SHORT_TARGET} words")
    return RewardChoice(
        "f1", reason=f"f1 (shared words), because targets have more than {SHORT_TARGET} words"
    )


def _exact_match(texts: Sequence[str], why: str) -> RewardChoice:
    """exact_match, without punctuation and articles where these tell no targets apart and are no target; (100) may be -100."""
    folded = {fold(text).strip() for text in texts}
    forms = {normalise(text) for text in folded}
    has_meaning = any(normalise(f"{text} x") == "x" or is_amount(text) for text in folded)
    if len(forms) == len(folded) and not has_meaning:
        return RewardChoice("exact_match", {"normalise": True}, why)
    return RewardChoice(
        "exact_match",
        reason=f"{why}; punctuation and articles count, because they are or tell apart some of the targets",
    )


def _is_short(text: str) -> bool:
    """Whether a text is an answer of a few words; one that ends as a sentence of a script without blanks does is none."""
    stripped = text.strip()
    if writes_without_blanks(stripped) and _SENTENCE_END.search(stripped[-1:]):
        return False
    return count_words(stripped) <= SHORT_TARGET
