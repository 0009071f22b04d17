"""The reward that compares JSON by its fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from whet._util.words import fold
from whet.errors import UsageError
from whet.replies import read_json_float, without_thought
from whet.replies.blocks import blocks_in
from whet.replies.marked import without_literal_marks
from whet.rewards.json_alignment import MISSING, Alignment, fields
from whet.rewards.numbers import are_close, number_of, parse_number
from whet.rewards.reward import TARGET
from whet.rewards.targets import quote_target, show_target
from whet.run import Run
from whet.types import Completion, Example, Reward

_MOST_TRIES, _MOST_NAMED, _DEEPEST = 200, 5, 100
_KINDS: dict[type, str] = {
    str: "a text", bool: "a truth value", int: "a number", float: "a number", list: "a list", dict: "an object",
    type(None): "null",
}  # fmt: skip


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_float=read_json_float, parse_constant=_refuse_constant)


def json_in(text: str, wanted: Callable[[object], bool] = lambda _: True) -> list[object]:
    """The JSON objects and lists in an answer that a strict parser accepts, the most trustworthy first: the whole answer, the
    last of its fenced blocks, the last of those in its prose. `wanted` ones come before others: `[1]` after an object is
    likely a reference.

    >>> json_in('Here: {"a": 1}, as you wished.')
    [{'a': 1}]
    >>> json_in('{"a": 1}, see [1]', holds_object)
    [{'a': 1}, [1]]
    """
    answer = _answer_of(text)
    wholes = [
        value for piece in (answer, *reversed(blocks_in(answer))) if (value := _load_json(piece)) is not None
    ]
    return sorted(wholes or list(_in_prose(answer))[::-1], key=lambda value: not wanted(value))


def holds_object(value: object) -> bool:
    """Whether a value is an object, or a list with one in it."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )


def _load_json(text: str) -> object:
    try:
        value = json.loads(text, parse_float=read_json_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) and not _is_deep(value) else None


def _answer_of(text: str) -> str:
    """An answer without its thought, and where it is no JSON, without the marks around XML's literal text."""
    answer = without_thought(text)
    return answer if _load_json(answer) is not None else without_literal_marks(answer)


def _load_scalar(text: str) -> list[object]:
    """The number, truth value or null that an answer, or the last of its fenced blocks, is as JSON, in a list; else nothing."""
    answer = _answer_of(text)
    for piece in (answer, *reversed(blocks_in(answer))):
        try:
            value = json.loads(piece, parse_float=read_json_float, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict | list | str):
            return [value]
    return []


def _is_deep(value: object) -> bool:
    """Whether objects and lists are nested more than 100 deep."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _in_prose(text: str) -> Iterator[object]:
    at = 0
    for _ in range(_MOST_TRIES):
        starts = [place for bracket in "{[" if (place := text.find(bracket, at)) >= 0]
        if not starts:
            return
        at = min(starts)
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            if not _is_deep(value):
                yield value


def is_equal(value: object, target: object, strict: bool = False) -> bool:
    """Whether a value of an answer is that of the target: numbers as numbers (also one in a text, where the target is a
    number by its type), texts without case and outer spaces unless `strict`."""
    wanted = number_of(target)
    if wanted is not None:
        number = parse_number(value) if isinstance(value, str) and not strict else number_of(value)
        return number is not None and are_close(number, wanted)
    if isinstance(target, str):
        if strict or not isinstance(value, str | int | float) or isinstance(value, bool):
            return bool(value == target)
        return fold(show_target(value)).strip() == fold(target).strip()
    return type(value) is type(target) and bool(value == target)


def is_same_json(value: object, target: object) -> bool:
    """Whether two JSON values have the same fields with equal values, as the reward json compares them.

    >>> is_same_json({"name": "Ann", "age": "3"}, {"age": 3, "name": "ann"})
    True
    """
    values, wanted = fields(value), fields(target)
    return values.keys() == wanted.keys() and all(is_equal(values[name], wanted[name]) for name in wanted)


@dataclass(frozen=True)
class JsonFields:
    """1 when the JSON in the answer has the fields of the target with their values, else 0; with `partial`, the share of the
    fields of both that agree. Items of lists are paired in their order so that as few fields as possible differ.

    The order of keys is free, numbers are compared as numbers, texts without case and outer spaces unless `strict`. The JSON
    may be the whole answer, stand in a fenced block, or in prose; `bare` takes an answer that is nothing else only. With
    `extra`, fields that the target does not have are allowed. A target that is a list of objects holds accepted answers; an
    answer that is a list is compared with all of them, as one list, too.
    """

    partial: bool = False
    strict: bool = False
    extra: bool = False
    bare: bool = False
    name: str = "json"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that is no JSON."""
        if not self._targets(example):
            raise UsageError(
                f"the target {quote_target(show_target(example.target))} of {example.place} is no JSON. Correct the row, or "
                "compare texts with reward: exact_match."
            )

    def _targets(self, example: Example) -> list[object]:
        """The accepted values: each object of a list, and the content of a text."""
        target = example.target
        if isinstance(target, list) and target and all(isinstance(one, dict | str) for one in target):
            read = [_load_json(one) if isinstance(one, str) else one for one in target]
            return read if all(one is not None for one in read) else [target]
        if isinstance(target, str):
            loaded = _load_json(target)
            return [] if loaded is None else [loaded]
        return [] if target is None else [target]

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        accepted = self._targets(example)
        objects = all(map(holds_object, accepted))
        likely = json_in(completion.text, holds_object if objects else lambda _: True)
        values = [_load_json(completion.text)] if self.bare else likely[:1]
        if not isinstance(example.target, dict | list | str):
            values = _load_scalar(completion.text)
        if not values or values[0] is None:
            return Reward(
                0.0, critique=f"The answer {quote_target(completion.text)} holds no JSON that can be parsed."
            )
        if isinstance(values[0], list) and isinstance(example.target, list) and accepted != [example.target]:
            accepted = [*accepted, accepted]
        results = [self._compare(values[0], target) for target in accepted]
        return max(results, key=lambda result: result.value) if results else Reward(0.0)

    def _compare(self, value: object, target: object) -> Reward:
        pairs = Alignment(self._is_right, self.extra).pairs(value, target)
        compared = sorted(pairs, key=lambda pair: pair[2] is MISSING)
        faults = [fault for pair in compared if (fault := self._fault(*pair))]
        if not faults:
            return Reward(1.0)
        share = 1.0 - len(faults) / len(compared) if self.partial else 0.0
        more = [f"{len(faults) - _MOST_NAMED} more fields differ."] if len(faults) > _MOST_NAMED else []
        return Reward(share, critique="\n".join([*faults[:_MOST_NAMED], *more]))

    def _is_right(self, value: object, target: object) -> bool:
        return is_equal(value, target, self.strict)

    def _fault(self, name: str, value: object, target: object) -> str:
        where = f"The field `{name}`" if name else "The JSON"
        if target is MISSING:
            return f"{where} must not be there."
        if value is MISSING:
            return f"{where} is missing; it should be {quote_target(show_target(target))}."
        if self._is_right(value, target):
            return ""
        shown, right = quote_target(show_target(value)), quote_target(show_target(target))
        if shown == right:
            shown, right = f"{shown} ({_KINDS[type(value)]})", f"{right} ({_KINDS[type(target)]})"
        return f"{where} is {shown}; it should be {right}."
