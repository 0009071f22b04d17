"""The gate of several objectives: better on at least one, and not worse than its margin on every other, jointly at alpha.

The candidate is refused if *any* of these hypotheses stands: "it is better on no objective", and for every objective "it is
worse than the margin or the bounds allow". Each is tested at alpha/2, one-sided, and all must fall. Whichever of them is
true, it falls with a probability of at most alpha/2, and so does a wrong promotion (intersection-union test; Berger 1982,
Technometrics 24:295-300). No correction is needed among the demands that must all hold. "Better on at least one" has as many
chances as there are objectives, so its p-values are corrected by Holm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.errors import UsageError
from whet.stats.intervals import show_number
from whet.stats.multiplicity import holm
from whet.stats.paired import Array, enough_draws, p_value, paired_test

REWARD_MARGIN, METRIC_MARGIN = 0.05, 0.1
"""The tolerance if none is named: of the range's width for rewards, of the baseline's mean for metrics."""
_ROUNDING = 1e-9
"""A difference of this share comes of rounding."""
BETTER, NOT_WORSE, NOT_SHOWN, WORSE = "better", "not worse", "not shown", "worse"


def at_most_equal(value: float, level: float) -> bool:
    """Whether a value is at most a level, as people reckon: 115 is at most 1.15 times 100, which is a little less as a float.

    >>> at_most_equal(115, 1.15 * 100), at_most_equal(0.8 - 0.7, 0.1), at_most_equal(0.1001, 0.1)
    (True, True, False)
    """
    return value <= level or math.isclose(value, level, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


@dataclass(frozen=True, slots=True)
class Bound:
    """A mean that must not be passed: `value`, or `value` times the mean of the baseline (`relative`)."""

    at_most: bool
    value: float
    relative: bool

    def __str__(self) -> str:
        of = "x the baseline" if self.relative else ""
        return f"at {'most' if self.at_most else 'least'} {self.value:g}{of}"

    def level(self, baseline: float | None) -> float | None:
        """The mean that must not be passed; None where the baseline is not known."""
        if not self.relative:
            return self.value
        return None if baseline is None else self.value * baseline


@dataclass(frozen=True, slots=True)
class Goal:
    """The requirement for one objective.

    `width` is that of its range, None for a metric, which has none. `margin`: how much worse the mean may be, in its units.
    Without `margin` and `bounds` the usual margin holds. `exact`: it belongs to the prompt and is the same on every row, so
    that its difference is known, not estimated.
    """

    name: str
    maximise: bool
    width: float | None = None
    margin: float | None = None
    bounds: tuple[Bound, ...] = ()
    exact: bool = False

    @property
    def demands(self) -> tuple[str, ...]:
        """The condition, in words."""
        margin = () if self.allowed is None else (f"at most {self.allowed:g} worse",)
        return (*margin, *map(str, self.limits))

    @property
    def allowed(self) -> float | None:
        """The margin in units of the objective; None where only bounds say what is allowed."""
        if self.margin is None and not self.bounds and self.width is not None:
            return REWARD_MARGIN * self.width
        return self.margin

    def tolerance_at(self, baseline: float) -> float:
        """The allowed distance of another mean below this mean; 0 if there are only absolute bounds."""
        if self.allowed is not None:
            return self.allowed
        return min((abs(b.value - 1.0) * abs(baseline) for b in self.limits if b.relative), default=0.0)

    def holds(self, mean: float, baseline: float) -> bool:
        """Whether a mean meets what is demanded, next to that of the baseline."""
        worse = (baseline - mean) * (1 if self.maximise else -1)
        levels = [(bound.at_most, bound.level(baseline) or 0.0) for bound in self.limits]
        within = all(at_most_equal(*((mean, level) if most else (level, mean))) for most, level in levels)
        return within and (self.allowed is None or at_most_equal(worse, self.allowed))

    @property
    def limits(self) -> tuple[Bound, ...]:
        """The bounds; for a metric of which nothing is named, a tenth of the baseline's mean."""
        if self.bounds or self.margin is not None or self.width is not None:
            return self.bounds
        return (Bound(not self.maximise, 1 + METRIC_MARGIN * (-1 if self.maximise else 1), True),)


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """Means of both prompts, their difference with its interval at 1 - alpha, what had to hold, and whether it is shown.

    `p_better` is corrected by Holm, `p_bound` the largest of what had to hold; both need alpha/2. `verdict`: `better`,
    `not worse`, `not shown` (the rows do not show that the demands hold) or `worse` (they show that it is).
    """

    goal: str
    baseline: float
    best: float
    difference: float
    low: float
    high: float
    bound: str
    p_better: float
    p_bound: float
    verdict: str


@dataclass(frozen=True, slots=True)
class JointVerdict:
    """Whether the candidate may replace the baseline, one sentence why, and the verdict on each objective. `withheld`: answers
    that are missing would decide, so that there is no verdict."""

    promoted: bool
    reason: str
    objectives: Mapping[str, ObjectiveVerdict]
    withheld: bool = False


def decide_objectives(
    goals: Sequence[Goal],
    baseline: Mapping[str, Sequence[float] | Array],
    candidate: Mapping[str, Sequence[float] | Array],
    clusters: Sequence[int] | None = None,
    alpha: float = 0.05,
    draws: int = 99_999,
) -> JointVerdict:
    """Compare two prompts on every objective, row by row: `baseline` and `candidate` have a value for each row under each name.

    The rest is as in `whet.stats.decide`. A metric has no range: the worst that a guarded test reckons with is the
    largest value that either prompt showed. Raises UsageError for no goals, an empty or unequal number of rows, or an alpha
    outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it must lie in (0, 1).")
    compared = _compare_goals(goals, baseline, candidate, clusters, max(draws, enough_draws(alpha)))
    outcomes = {
        name: one.verdict(alpha, *p)
        for (name, p), one in zip(_p_values(compared).items(), compared, strict=True)
    }
    gained = [name for name, o in outcomes.items() if o.p_better <= alpha / 2]
    missing = [name for name, o in outcomes.items() if o.p_bound > alpha / 2]
    return JointVerdict(bool(gained) and not missing, _reason(outcomes, gained, missing, alpha), outcomes)


def p_values_of_objectives(
    goals: Sequence[Goal],
    baseline: Mapping[str, Sequence[float] | Array],
    candidate: Mapping[str, Sequence[float] | Array],
    clusters: Sequence[int] | None = None,
    draws: int = 99_999,
) -> dict[str, tuple[float, float]]:
    """`p_better` and `p_bound` of `decide_objectives` alone, by objective, for simulations."""
    return _p_values(_compare_goals(goals, baseline, candidate, clusters, draws))


def _compare_goals(
    goals: Sequence[Goal],
    baseline: Mapping[str, Sequence[float] | Array],
    candidate: Mapping[str, Sequence[float] | Array],
    clusters: Sequence[int] | None,
    draws: int,
) -> list[_Compared]:
    if not goals:
        raise UsageError("There is nothing to compare without an objective. Name at least one.")
    return [_Compared(goal, baseline[goal.name], candidate[goal.name], clusters, draws) for goal in goals]


def _p_values(compared: Sequence[_Compared]) -> dict[str, tuple[float, float]]:
    better = holm([one.p_better() for one in compared])
    return {one.goal.name: (p, one.p_bound()) for one, p in zip(compared, better, strict=True)}


def rows_for_margin(margin: float, width: float, alpha: float) -> int:
    """Independent rows that show a reward to be within its margin where it is the same on every row.

    Gaffke's bound is then (1 - margin / width) ** rows. Fewer do where it rises, more where some rows rise and others fall.
    """
    return math.ceil(math.log(alpha / 2) / math.log1p(-margin / width))


class _Compared:
    """Both prompts' values of one objective."""

    def __init__(
        self,
        goal: Goal,
        baseline: Sequence[float] | Array,
        candidate: Sequence[float] | Array,
        clusters: Sequence[int] | None,
        draws: int,
    ) -> None:
        self.before, self.after = (np.asarray(v, dtype=np.float64) for v in (baseline, candidate))
        if len(self.before) != len(self.after) or not len(self.before):
            raise UsageError(
                f"{goal.name}: the baseline has {len(self.before)} values and the candidate {len(self.after)}; a paired "
                "comparison needs one of each per example."
            )
        self.goal, self.clusters, self.draws = goal, clusters, draws
        self.unit = goal.width or max(float(np.abs([self.before, self.after]).max()), 1e-12)

    def p_better(self) -> float:
        """One-sided p-value of "it is not better"."""
        return self._p((self.after - self.before) * (1 if self.goal.maximise else -1), self.unit, strict=True)

    def p_bound(self) -> float:
        """The largest p-value of what is demanded."""
        sign = 1 if self.goal.maximise else -1
        values = [
            self._p(self._slack(bound), self.unit * max(1.0, bound.value if bound.relative else 1.0))
            for bound in self.goal.limits
        ]
        if self.goal.allowed is not None:
            gain = (self.after - self.before) * sign
            values.append(self._p(gain, self.unit, -self.goal.allowed))
        return max(values)

    def _slack(self, bound: Bound) -> Array:
        level = bound.value * self.before if bound.relative else np.full_like(self.after, bound.value)
        return np.asarray(level - self.after if bound.at_most else self.after - level)

    def _p(self, gains: Array, unit: float, theta: float = 0.0, strict: bool = False) -> float:
        """One-sided p-value of "the mean gain is at most theta"."""
        if self.goal.exact:
            mean = float(gains.mean()) - theta
            return 0.0 if mean > _ROUNDING * unit or (mean >= -_ROUNDING * unit and not strict) else 1.0
        unit = max(unit, float(np.abs(gains).max()), abs(theta))
        return p_value(gains / unit, self.clusters, theta / unit, self.draws)

    def verdict(self, alpha: float, p_better: float, p_bound: float) -> ObjectiveVerdict:
        """The verdict on the objective by its p-values, that of being better as it was corrected."""
        gains = self.after - self.before
        difference = math.fsum(gains) / len(gains)
        low = high = difference
        if not self.goal.exact:
            test = paired_test(gains / self.unit, self.clusters, 0.0, alpha, self.draws)
            low, high = test.low * self.unit, test.high * self.unit
        sign = 1 if self.goal.maximise else -1
        name = BETTER if p_better <= alpha / 2 else NOT_WORSE
        if p_bound > alpha / 2:
            name = WORSE if max(sign * low, sign * high) < 0 else NOT_SHOWN
        before, after = (math.fsum(v) / len(v) for v in (self.before, self.after))
        goal = "max" if self.goal.maximise else "min"
        bound = ", ".join(self.goal.demands)
        return ObjectiveVerdict(goal, before, after, difference, low, high, bound, p_better, p_bound, name)


def _reason(
    outcomes: Mapping[str, ObjectiveVerdict], gained: Sequence[str], missing: Sequence[str], alpha: float
) -> str:
    """One sentence: what is better, what holds, or what is not shown."""

    def say(names: Sequence[str]) -> str:
        return ", ".join(
            f"{name} ({show_number(o.baseline)} to {show_number(o.best)}, difference "
            f"{show_number(o.low)} to {show_number(o.high)})"
            for name in names
            for o in (outcomes[name],)
        )

    def demand(names: Sequence[str]) -> str:
        return ", ".join(f"{name} ({outcomes[name].bound})" for name in names)

    level = f"each at p = {show_number(alpha / 2)}"
    if gained and not missing:
        others = [name for name in outcomes if name not in gained]
        rest = f", and not worse in {demand(others)}" if others else ""
        return f"Promoted: better in {say(gained)}{rest}, {level}."
    better = (
        f"better in {say(gained)}" if gained else f"not shown to be better in any of {say(list(outcomes))}"
    )
    rest = f"; it is not shown that what is demanded holds of {demand(missing)}" if missing else ""
    return f"Not promoted: {better}{rest}, {level}."
