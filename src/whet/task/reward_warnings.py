"""Warnings before anything is paid about unexpected rewards of a task's targets."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from whet._util.words import fold
from whet.errors import quantity
from whet.rewards import RewardFunction, Weighted
from whet.rewards.dates import Date, time_of_day
from whet.rewards.item_list import ItemList
from whet.rewards.text import Contains, targets_of
from whet.rewards.verifiers.sql import Sql
from whet.types import Example

_MOST_DIFFERENT = 300
_QUOTED = regex.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*")
_BRACKETS = regex.compile(r"\((?:[^()]++|(?R))*\)")
_ORDER = regex.compile(r"(?i)\border\s+by\b")
_ONE_ROW = regex.compile(r"(?i)\blimit\s+1\s*;?\s*\Z")


def reward_warnings(reward: RewardFunction, rows: Sequence[Example]) -> list[str]:
    """The warnings on a reward, or on the parts of a sum, beside the rows of all splits."""
    parts = [part for _, part in reward.parts] if isinstance(reward, Weighted) else [reward]
    return [
        warning
        for part in parts
        for warning in (
            *_targets_inside_others(part, rows),
            *_order_left_aside(part, rows),
            *_empty_lists(part, rows),
            *_times_left_aside(part, rows),
        )
    ]


def _targets_inside_others(reward: RewardFunction, rows: Sequence[Example]) -> list[str]:
    """The warning that `contains` finds one target of the task in another: the answer "female" holds "male"."""
    if not isinstance(reward, Contains) or reward.text is not None or reward.strict or reward.words:
        return []
    targets = {fold(text).strip(): text for row in rows for text in targets_of(row) if text.strip()}
    if len(targets) > _MOST_DIFFERENT:
        return []
    pairs = [
        (target, other)
        for target in targets
        for other in targets
        if target != other and reward.is_inside(other, target)
    ]
    if not pairs:
        return []
    one, other = (targets[name] for name in pairs[0])
    more = f", and so for {quantity(len(pairs) - 1, 'other pair')} of targets" if len(pairs) > 1 else ""
    return [
        f'The answer "{other}" counts as right where the target is "{one}", because contains finds a target inside of longer '
        f"words too{more}. If targets must stand as words of their own: reward: {{contains: {{words: true}}}}."
    ]


def _order_left_aside(reward: RewardFunction, rows: Sequence[Example]) -> list[str]:
    """A warning that target queries order their rows, and the reward does not compare the order."""
    if not isinstance(reward, Sql) or reward.ordered:
        return []
    sorting = [row for row in rows if any(map(_puts_in_order, targets_of(row)))]
    if not sorting:
        return []
    return [
        f"{quantity(len(sorting), 'target')}, such as that of {sorting[0].place}, put rows in order (ORDER BY), and the order "
        "of rows does not count. If it should: reward: {sql: {ordered: true}}."
    ]


def _puts_in_order(query: str) -> bool:
    """Whether a query puts several rows in order, in no part of it that stands in brackets."""
    outer = _BRACKETS.sub(" ", _QUOTED.sub(" ", query))
    return _ORDER.search(outer) is not None and _ONE_ROW.search(outer) is None


def _times_left_aside(reward: RewardFunction, rows: Sequence[Example]) -> list[str]:
    """A warning that targets hold a time, and the reward compares only days."""
    timed = (
        [row for row in rows if any(map(time_of_day, targets_of(row)))] if isinstance(reward, Date) else []
    )
    if not timed:
        return []
    return [
        f"{quantity(len(timed), 'target')}, such as that of {timed[0].place}, hold a time of the day, which the reward date "
        "leaves aside. If it should count, compare texts: reward: exact_match."
    ]


def _empty_lists(reward: RewardFunction, rows: Sequence[Example]) -> list[str]:
    """A warning that for an empty target list only an empty list is right, and no word for none."""
    if not isinstance(reward, ItemList):
        return []
    empty = [
        row
        for row in rows
        if row.target == [] or (isinstance(row.target, str) and row.target.strip() == "[]")
    ]
    if not empty:
        return []
    return [
        f"Of {quantity(len(rows), 'target')}, {len(empty)}, such as that of {empty[0].place}, are an empty list: there only the "
        "answer [] is right, and no word for none. Let the prompt ask for [], or write a word as the target."
    ]
