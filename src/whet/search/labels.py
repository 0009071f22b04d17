"""The right answers of a task whose targets are labels, and which of them a model takes for which.

Targets are labels where they are a closed set: where a fresh row hardly ever has an answer that no row had. The probability that
it has one is estimated by the share of the rows whose target no other row has (Good, The population frequencies of species and
the estimation of population parameters, Biometrika 40, 1953, after Turing), and bounded by Wilson's interval of that share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from whet.environments.environment import Environment
from whet.rewards.choose import LONGEST_LABEL, MOST_LABELS, count_names
from whet.rewards.targets import targets_of
from whet.search.minibatch import answered_rollouts, shorten
from whet.stats.rates import wilson
from whet.types import Example, Rollout

T = TypeVar("T")

CONFUSIONS = 8
MOST_UNSEEN, MOST_UNSEEN_AT_WORST, CONFIDENCE = 0.1, 1 / 3, 0.95
"""Of a closed set: the probability that a fresh row has an answer that no row had is estimated to be smaller than the first, and
is smaller than the second with this confidence: six rows of two labels suffice."""
_ANSWER = 40


@dataclass(frozen=True)
class RightAnswers:
    """Right answers that are wanted again and again; whether they are `closed`, so that fresh rows want no others."""

    values: tuple[str, ...] = ()
    closed: bool = False

    @property
    def complete(self) -> list[str]:
        """All right answers of the task; none where fresh rows may want others."""
        return list(self.values) if self.closed else []


def right_answers(env: Environment) -> RightAnswers:
    """The right answers of a task as a model must write them."""
    if env.labels:
        return RightAnswers(tuple(env.labels.values()), closed=True)
    targets = [row.target for row in env.train]
    texts = [target for target in targets if isinstance(target, str)]
    return find_answers(texts) if len(texts) == len(targets) else RightAnswers()


def find_answers(targets: Sequence[str]) -> RightAnswers:
    """The answers that short targets want: all of them, sorted, where they are a closed set; else those that more than one row
    wants, the most frequent first."""
    counts = count_names(targets)
    if not counts or max(map(len, counts)) > LONGEST_LABEL:
        return RightAnswers()
    single = sum(number == 1 for number in counts.values())
    unseen, most = single / len(targets), wilson(single, len(targets), 2 * CONFIDENCE - 1)[1]
    if 2 <= len(counts) <= MOST_LABELS and unseen < MOST_UNSEEN and most <= MOST_UNSEEN_AT_WORST:
        return RightAnswers(tuple(sorted(counts)), closed=True)
    again = [answer for answer, number in counts.most_common(MOST_LABELS) if number > 1]
    return RightAnswers(tuple(again))


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
    """The wanted answer and the given answer of each kind of mistake, with its number, a line each, the most frequent first;
    in the last line how many are left, so that the lines count every wrong answer."""
    counts = Counter(
        (targets_of(rows[r.example_id])[0].strip(), shorten(" ".join(r.output.split()), _ANSWER))
        for r in answered_rollouts(rollouts)
        if r.reward < high and r.example_id in rows and rows[r.example_id].target is not None
    )
    most = counts.most_common(CONFUSIONS)
    lines = [
        f"- wanted {wanted}, answered {answer or 'nothing'}: {_times(n)}" for (wanted, answer), n in most
    ]
    rest = counts.total() - sum(n for _, n in most)
    return [*lines, f"- other wrong answers: {_times(rest)}"] if rest else lines


def say_one_sided(outputs: Mapping[str, int], targets: Mapping[str, int], answers: int) -> str:
    """Name the label that half of the answers or more are, with its number, if it is wanted half as often at most; empty if there
    is none. `outputs` and `targets` count the answers by the label given and by the label wanted.

    >>> say_one_sided({"yes": 9, "no": 1}, {"yes": 4, "no": 6}, 10)
    'The model answered "yes" 9 times, and it was wanted 4 times.'
    >>> say_one_sided({"yes": 6, "no": 4}, {"yes": 4, "no": 6}, 10)
    ''
    """
    label, often = max(outputs.items(), key=lambda one: one[1], default=("", 0))
    if not often or 2 * often < answers or often < 2 * targets.get(label, 0):
        return ""
    return f'The model answered "{label}" {_times(often)}, and it was wanted {_times(targets.get(label, 0))}.'


def _times(number: int) -> str:
    return f"{number} {'time' if number == 1 else 'times'}"
