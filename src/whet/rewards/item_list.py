"""The reward that compares lists whose order does not count, such as several labels for one text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from whet._util.words import fold, trim
from whet.errors import UsageError
from whet.replies import list_items, read_json_float, without_thought
from whet.replies.alternatives import marks_nothing
from whet.replies.blocks import blocks_in
from whet.replies.marked import last_boxes, marked_results
from whet.rewards.fields_of_json import is_same_json, json_in
from whet.rewards.json_alignment import fields
from whet.rewards.numbers import are_close, number_of, parse_number
from whet.rewards.reward import TARGET
from whet.rewards.targets import quote_target, show_target
from whet.run import Run
from whet.types import Completion, Example, Reward

SEPARATORS = ("\n", ";", "|", ",")
"""The separators of items. The first one that the text holds counts; equivalent signs of other scripts count too."""
_LIKE = str.maketrans(
    {"\u061b": ";", "\u060c": ",", "\u3001": ",", "\uff0c": ",", "\uff1b": ";", "\uff5c": "|"}
)
_LEAD = regex.compile(r"\A[^\n]*?[:\uff1a][*_]{0,3}(?=[\s\p{Han}\p{Hiragana}\p{Katakana}\p{LB=SA}])")

_MOST_GROUPS = 4
"""Groups of three digits up to which pieces of an answer are tried as one number."""
_ENUMERATION = regex.compile(r"(?<!\S)\(?([0-9]{1,3})[.)]\s++")


def split_items(text: str, separator: str = "") -> list[str]:
    """The items of a list that is written as text: JSON, or divided by `separator` (else by lines, `;`, `|` or commas).

    >>> split_items("billing; login"), split_items('["a", "b"]'), split_items("退款、技术")
    (['billing', 'login'], ['a', 'b'], ['退款', '技术'])
    """
    if not separator and (listed := _load_list(text)) is not None:
        return [show_target(item) for item in listed]
    plain = text.strip() if separator else text.strip().translate(_LIKE)
    mark = separator or next((one for one in SEPARATORS if one in plain), ",")
    return [item.strip() for item in plain.split(mark) if item.strip()]


def _load_list(text: str) -> list[Any] | None:
    """The JSON list that a text is; None for anything else."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text, parse_float=read_json_float)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


@dataclass(frozen=True)
class ItemList:
    """F1 of the items that the answer lists and those of the target, in any order; with `exact`, 1 when they are the same and
    else 0.

    The target is a list, or a text that `separator` (by default lines, `;`, `|` or commas) divides. The answer is JSON, a list
    with a line for each item, or text divided in the same way. Case, outer punctuation and repetitions are ignored, and items
    that are numbers by their type are compared as numbers. Items that are objects are compared as the reward json compares them.
    What stands in the last `\\boxed{}`, in tags, or behind the label of a last line (`Answer: a, b`) is the list where that
    agrees more with the target than the whole answer. A comma within an item of the target divides nothing.
    """

    exact: bool = False
    separator: str = ""
    name: str = "list"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that is neither a list nor a text."""
        if not isinstance(example.target, list | str):
            raise UsageError(
                f"the target {show_target(example.target)} of {example.place} is no list. Write a list, or a text that "
                "the option separator divides."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        wanted = _different(self._wanted_items(example.target))
        if any(isinstance(target, Mapping) for target in wanted):
            return self._compare(_different(_objects_in(without_thought(completion.text))), wanted)
        graded = [self._compare(items, wanted) for items in self._readings(completion.text, wanted)]
        return max(graded, key=lambda one: one.value)

    def _readings(self, text: str, wanted: Sequence[object]) -> list[list[Any]]:
        """The different items of an answer, in each of the ways to read it, the likeliest first."""
        answer = without_thought(text)
        if marks_nothing(answer):
            return [[]]
        boxes = last_boxes(answer)
        marked = boxes if len(boxes) > 1 else marked_results(answer)
        last = _last_labelled_line(answer)
        texts = [answer, *(marked if len(marked) == 1 else []), *([last] if last else [])]
        readings = [self._items(one) for one in texts]
        if not self.separator:
            readings = [
                _split_last(_join_pieces(one, items, wanted), wanted)
                for one, items in zip(texts, readings, strict=True)
            ]
        plain = [split_items(answer)] if not self.separator and _LEAD.match(answer) else []
        return [_different(items) for items in (*readings, *plain, *([marked] if len(marked) > 1 else []))]

    def _compare(self, items: Sequence[Any], wanted: Sequence[Any]) -> Reward:
        """The reward of the different items of an answer beside those that are wanted."""
        right = [item for item in items if any(_is_item(item, target) for target in wanted)]
        missing = [target for target in wanted if not any(_is_item(item, target) for item in items)]
        wrong = [item for item in items if item not in right]
        if not missing and not wrong:
            return Reward(1.0)
        common = min(len(right), len(wanted) - len(missing))
        value = 0.0 if self.exact else 2.0 * common / (len(items) + len(wanted))
        faults = [
            f"{what}: {', '.join(quote_target(show_target(item)) for item in part[:5])}."
            for what, part in (("The answer lacks", missing), ("The answer has, and should not have", wrong))
            if part
        ]
        return Reward(value, critique=" ".join(faults))

    def _wanted_items(self, target: object) -> list[Any]:
        if isinstance(target, list):
            return list(target)
        listed = None if self.separator else _load_list(str(target))
        return list(split_items(str(target), self.separator)) if listed is None else listed

    def _items(self, answer: str) -> list[str]:
        lists = (
            []
            if self.separator
            else [one for one in map(_read_json_list, json_in(answer)) if one is not None]
        )
        if lists:
            return [show_target(item) for item in lists[0]]
        blocks = blocks_in(answer)
        answer = blocks[-1] if blocks else answer
        lines = list_items(answer)
        if len(lines) < 2 and not self.separator:
            lines = _enumerated_items(answer)
        return lines if len(lines) > 1 else split_items(_LEAD.sub("", answer), self.separator)


def _enumerated_items(text: str) -> list[str]:
    """The text after each number of a list on one line, such as "1. red 2. blue"; empty where no 2 follows a 1."""
    marks: list[regex.Match[str]] = []
    for mark in _ENUMERATION.finditer(text):
        if int(mark[1]) == len(marks) + 1:
            marks.append(mark)
    if len(marks) < 2:
        return []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [text[mark.end() : end].strip(" ,;|\n") for mark, end in zip(marks, ends, strict=True)]


def _last_labelled_line(answer: str) -> str:
    """The text after the label of the last line of an answer of several lines (`Answer: a, b`); '' where there is none."""
    lines = [line for line in answer.splitlines() if line.strip()]
    lead = _LEAD.match(lines[-1]) if len(lines) > 1 else None
    return lines[-1][lead.end() :] if lead is not None else ""


def _join_pieces(text: str, pieces: Sequence[str], wanted: Sequence[object]) -> list[str]:
    """The items of an answer with those joined again that its commas divided within an item of the target, such as `Paris,
    France`; the longest such items first."""
    most = max((show_target(target).count(",") for target in wanted), default=0) + 1
    if any(number_of(target) is not None for target in wanted):
        most = max(most, _MOST_GROUPS)
    joined: list[str] = []
    at = 0
    while at < len(pieces):
        for size in range(min(most, len(pieces) - at), 0, -1):
            runs = [mark.join(pieces[at : at + size]) for mark in (", ", ",")]
            run = next((run for run in runs if run in text and any(_is_item(run, t) for t in wanted)), None)
            if size == 1 or run is not None:
                joined.append(pieces[at] if run is None else run)
                at += size
                break
    return joined


def _split_last(items: Sequence[str], wanted: Sequence[object]) -> list[str]:
    """The items with the last one in two where one word joins them (`a, b and c`), and without the word before the last of three
    or more (`a, b, and c`); only where what it leads to is an item of the target, so that an item of several words stays one."""
    forms = {_form(target) for target in wanted}
    words = items[-1].split() if items else []
    if len(words) < 2 or _form(items[-1]) in forms:
        return list(items)
    for at in range(len(words) - 1):
        before, behind = " ".join(words[:at]), " ".join(words[at + 1 :])
        if _form(behind) in forms and (_form(before) in forms if before else len(items) > 2):
            return [*items[:-1], *([before] if before else []), behind]
    return list(items)


def _read_json_list(value: Any) -> list[Any] | None:
    """A JSON list, also as the only list of an object."""
    lists = [value] if isinstance(value, list) else [one for one in value.values() if isinstance(one, list)]
    return lists[0] if len(lists) == 1 else None


def _objects_in(answer: str) -> list[Any]:
    """The objects that an answer lists: those of a JSON list, also as the only list of an object; else each object in it."""
    values = json_in(answer)
    for value in values:
        listed = _read_json_list(value)
        if listed is not None and all(isinstance(item, Mapping) for item in listed):
            return listed
    return [value for value in values if isinstance(value, Mapping)]


def _form(item: object) -> str:
    """An item as it is compared: without case, and without what says nothing around it."""
    if isinstance(item, Mapping):
        return json.dumps({name: fold(show_target(v)).strip() for name, v in sorted(fields(item).items())})
    folded = fold(show_target(item)).strip()
    return trim(folded) or folded


def _different(items: Sequence[object]) -> list[Any]:
    return list({_form(item): item for item in items if show_target(item).strip()}.values())


def _is_item(item: object, target: object) -> bool:
    if isinstance(target, Mapping):
        return isinstance(item, Mapping) and is_same_json(item, target)
    wanted = number_of(target)
    number = None if wanted is None else parse_number(show_target(item))
    if wanted is not None and number is not None:
        return are_close(number, wanted)
    return _form(item) == _form(target)
