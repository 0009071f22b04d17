"""The front of several objectives: what no other candidate is better than, as far as paired rows can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from whet.environments.environment import Environment
from whet.rewards import Objective, Objectives
from whet.search.archive import Candidate
from whet.search.minibatch import answered_rollouts
from whet.stats import Goal, difference_interval
from whet.types import Rollout

REWARD = "reward"
"""The only objective of a task that names none."""
Vectors = Mapping[str, Mapping[str, float]]
"""The value of each objective on each row, by the row's id."""


def aims_of(env: Environment, baseline: Sequence[Rollout]) -> Objectives:
    """The objectives of a task, measured by the rollouts of its first prompt where nothing else is known; of a task without
    any, its reward."""
    reward = env.reward
    if isinstance(reward, Objectives):
        return reward if reward.baseline else reward.calibrate(baseline)
    only = Objective(Goal(REWARD, maximise=True, width=reward.high - reward.low), part=0, low=reward.low)
    aims = Objectives([(1.0, reward)], items=(only,), own=True)
    return replace(aims, baseline=aims.means(baseline))


def vectors_of(env: Environment, rollouts: Sequence[Rollout]) -> Vectors:
    """The values of each objective by row, of the rollouts that say something about the prompt."""
    if isinstance(env.reward, Objectives):
        return {r.example_id: env.reward.values(r) for r in answered_rollouts(rollouts)}
    return {r.example_id: {REWARD: r.reward} for r in answered_rollouts(rollouts)}


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of one candidate over another on an objective, where more is better: the mean with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass
class Front:
    """Candidates with their values on each row and objective; the first of equal ids stays.

    One candidate *dominates* another if, on the rows that both have, the interval of the paired difference shows it to be
    better on one objective, and on every other it is not shown to be worse, nor worse on average by more than the objective
    tolerates. What may be chance removes nobody. Where dominance is not `tested`, the means of these rows decide: better on one
    objective, and worse on none.
    """

    objectives: Sequence[Objective]
    members: dict[str, Candidate] = field(default_factory=dict)
    vectors: dict[str, Vectors] = field(default_factory=dict)
    tested: bool = True

    def add(self, candidate: Candidate, vectors: Vectors) -> None:
        """Take in a candidate; rows that it had already stay as they were."""
        self.members.setdefault(candidate.id, candidate)
        self.vectors[candidate.id] = {**vectors, **self.vectors.get(candidate.id, {})}

    def mean(self, member: str, name: str) -> float:
        """Mean of an objective over the rows of a candidate; not a number where it has none."""
        rows = self.vectors[member].values()
        return fmean(row[name] for row in rows) if rows else math.nan

    def gains(self, one: str, other: str) -> dict[str, Gain]:
        """The gains of `one` over `other`, by objective, on the rows that both have; empty if there are none."""
        first, second = self.vectors[one], self.vectors[other]
        rows = [row for row in first if row in second]
        gains: dict[str, Gain] = {}
        for item in self.objectives if rows else ():
            sign = 1.0 if item.goal.maximise else -1.0
            differences = [sign * (first[row][item.name] - second[row][item.name]) for row in rows]
            mean = fmean(differences)
            exact = item.goal.exact or not self.tested
            low, high = (mean, mean) if exact else difference_interval(differences)
            most = item.goal.width or math.inf
            gains[item.name] = Gain(mean, max(low, -most), min(high, most))
        return gains

    def dominates(self, one: str, other: str) -> bool:
        """Whether `one` is shown to be better on an objective, and costs nothing on the others."""
        gains = self.gains(one, other)
        if not self.tested:
            means = [gain.mean for gain in gains.values()]
            return bool(means) and min(means) >= 0 and max(means) > 0
        tolerated = {i.name: i.goal.tolerance_at(self.mean(other, i.name)) for i in self.objectives if gains}
        costs = any(gain.high < 0 or gain.mean < -tolerated[name] for name, gain in gains.items())
        return not costs and any(gain.low > 0 for gain in gains.values())

    def front(self) -> list[Candidate]:
        """The candidates that no other dominates, in the order in which they came."""
        free = [
            member
            for member in self.members
            if not any(self.dominates(o, member) for o in self.members if o != member)
        ]
        return [self.members[one] for one in free or self.members]

    def best(self, name: str) -> Candidate:
        """The candidate of the front with the best mean of an objective; of equals the older one."""
        sign = next(1.0 if i.goal.maximise else -1.0 for i in self.objectives if i.name == name)
        return max(self.front(), key=lambda candidate: sign * self.mean(candidate.id, name))

    def leaders(self) -> dict[tuple[str, str], list[str]]:
        """The candidates that are best on each row and objective, by row and objective, among those of the front."""
        front = [candidate.id for candidate in self.front()]
        leaders: dict[tuple[str, str], list[str]] = {}
        for row in dict.fromkeys(row for one in front for row in self.vectors[one]):
            for item in self.objectives:
                sign = 1.0 if item.goal.maximise else -1.0
                values = {o: sign * self.vectors[o][row][item.name] for o in front if row in self.vectors[o]}
                leaders[row, item.name] = [o for o, value in values.items() if value >= max(values.values())]
        return leaders

    def nearest(self, one: str, others: Sequence[str]) -> str:
        """The member of `others` (at least one) with the values nearest to those of `one`, on the rows that both have: by
        Euclid, each objective divided by its range over all of them. Those without a row in common come last."""
        gains = {other: self.gains(one, other) for other in others}
        means = {other: {name: gain.mean for name, gain in gained.items()} for other, gained in gains.items()}
        widths = {
            item.name: max((abs(m[item.name]) for m in means.values() if m), default=0.0) or 1.0
            for item in self.objectives
        }

        def distance(other: str) -> float:
            mean = means[other]
            return math.hypot(*(mean[name] / widths[name] for name in mean)) if mean else math.inf

        return min(others, key=distance)

    def spread(self, members: Sequence[str]) -> dict[str, float]:
        """The distance of each member from its neighbours: the crowding distance of NSGA-II (Deb et al. 2002), with the means
        of their own rows. Infinite at the ends of an objective."""
        spread = dict.fromkeys(members, 0.0)
        for item in self.objectives:
            order = sorted(members, key=lambda member: self.mean(member, item.name))
            values = [self.mean(member, item.name) for member in order]
            width = (values[-1] - values[0]) or 1.0 if values else 1.0
            for place, member in enumerate(order):
                inner = 0 < place < len(order) - 1
                spread[member] += (values[place + 1] - values[place - 1]) / width if inner else math.inf
        return spread
