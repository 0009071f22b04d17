"""The right answers of a task whose targets are labels, and which of them a model takes for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from whet.environments.environment import Environment
from whet.rewards.choose import find_labels
from whet.rewards.targets import targets_of
from whet.search.minibatch import answered_rollouts, shorten
from whet.types import Example, Rollout

T = TypeVar("T")

CONFUSIONS = 8
_ANSWER = 40


def right_answers(env: Environment) -> list[str]:
    """The right answers of a task as a model must write them, where its targets are labels: few, and each wanted again and
    again; else none."""
    if env.labels:
        return list(env.labels.values())
    targets = [row.target for row in env.train]
    return find_labels(targets) if targets and all(isinstance(target, str) for target in targets) else []


def by_label(rows: Sequence[Example]) -> list[Example]:
    """The rows with their targets by turns: the first row of each target, then the second of each."""
    return by_turns(rows, lambda row: str(row.target))


def by_turns(items: Sequence[T], group_of: Callable[[T], str]) -> list[T]:
    """The items of several groups by turns: the first of each group, in the order in which groups begin, then the second of each.

    >>> by_turns(["a1", "a2", "b1", "c1", "b2"], lambda item: item[0])
    ['a1', 'b1', 'c1', 'a2', 'b2']
    """
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)
    return [item for turn in zip_longest(*groups.values()) for item in turn if item is not None]


def count_confusions(rows: Mapping[str, Example], rollouts: Sequence[Rollout], high: float) -> list[str]:
    """What was wanted and what was answered instead, with how often, a line each, the most frequent first."""
    counts = Counter(
        (targets_of(rows[r.example_id])[0].strip(), shorten(" ".join(r.output.split()), _ANSWER))
        for r in answered_rollouts(rollouts)
        if r.reward < high and r.example_id in rows and rows[r.example_id].target is not None
    )
    return [
        f"- wanted {wanted}, answered {answer or 'nothing'}: {n} {'time' if n == 1 else 'times'}"
        for (wanted, answer), n in counts.most_common(CONFUSIONS)
    ]
