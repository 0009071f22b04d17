"""The promotion rule for a prompt that serves several cases: by the mean over cases, or by the worst of them.

**Mean.** Each case counts alike, however many rows it has: a row of case k counts N / (K n_k) times, of N rows and K cases. The
test is that of `whet.stats.gate.decide` on these differences. Where cases have unequal rows, a row of a small case counts
several times, and a case that loses on a few of its rows skews the weighted differences: sign flips alone promoted 7% of prompts
that are no better (docs/figures.md). So Gaffke's bound must agree there where rewards are right or wrong, as with equal rows, and
for others where the differences of one case are skewed to the left or do not vary.

**Worst.** The claim is min over k of c_k > min over j of b_j, for the means c of the candidate and b of the baseline. Let j be
the case on which the baseline was worst on rows that the test has not (validation). Whenever the claim is false there is a case
k with c_k <= b_j. So all of "c_k <= b_j" are tested, and the largest p-value counts (an intersection-union test, which needs no
correction): for k = j on pairs, for the others by the two means alone. c_k <= b_j means that c_k <= t or b_j >= t, for any t; as
t is chosen by the data, the p-value is twice the larger one of the two.

**Harm.** Each case has the paired interval of its own difference. Where that lies below 0, and the case lost more than
`TOLERANCE` on average, nothing is promoted, whatever the other cases gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whet.stats.gate import Improvement, decide
from whet.stats.intervals import say_p, show_number
from whet.stats.paired import Array, cluster_sums, fewest_clusters, is_left_skewed, p_value_curve, paired_test

TOLERANCE = 0.05
"""The largest mean loss of a case, as a share of the range of its reward, that does not forbid a promotion."""
BETTER, NOT_WORSE, NOT_SHOWN, WORSE = "better", "not worse", "not shown", "worse"
_STEPS = 20


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """One case: the means of both prompts in [0, 1], their paired difference with its interval, the p-value of "not better", the
    number of rows, and the `verdict`: better, not worse (than by the tolerance), not shown, or worse."""

    baseline: float
    best: float
    difference: float
    low: float
    high: float
    p_better: float
    n: int
    verdict: str

    @property
    def harmed(self) -> bool:
        """Whether it is shown to have lost more than is tolerated."""
        return self.verdict == WORSE and self.difference < -TOLERANCE


@dataclass(frozen=True, slots=True)
class CasesVerdict:
    """The verdict on all cases together, and on each by its name."""

    improvement: Improvement
    cases: Mapping[str, CaseVerdict]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one case: both rewards, and the cluster of each row."""

    baseline: Array
    candidate: Array
    clusters: Sequence[int]


def decide_cases(
    names: Sequence[str],
    baseline: Sequence[float],
    candidate: Sequence[float],
    clusters: Sequence[int],
    alpha: float = 0.05,
    *,
    weakest: str | None = None,
    minimum_effect: float = 0.0,
) -> CasesVerdict:
    """Compare two prompts on the rows of several cases.

    names: the case of each row. baseline, candidate: one reward in [0, 1] for each row. clusters: as in `decide`. weakest: the
    case on which the baseline was worst on other rows; the verdict is then that on the worst case, else that on the mean over
    cases. Raises UsageError as `decide` does.
    """
    rows = _by_case(names, baseline, candidate, clusters)
    scale = {name: len(names) / (len(rows) * len(own.clusters)) for name, own in rows.items()}
    before, after = (
        [scale[name] * value for name, value in zip(names, values, strict=True)]
        for values in (baseline, candidate)
    )
    most = max(scale.values())
    bound = most > min(scale.values()) and _needs_bound(list(rows.values()))
    whole = decide(before, after, 0.0, most, alpha, False, minimum_effect, clusters, bound)
    if weakest is not None:
        whole = _of_worst(rows, weakest, whole, alpha, minimum_effect)
    cases = {name: _verdict(own, alpha) for name, own in rows.items()}
    return CasesVerdict(_with_harm(whole, cases), cases)


def _needs_bound(cases: Sequence[_Rows]) -> bool:
    """Whether sign flips alone may not hold the level where the cases have unequal numbers of rows."""
    differences = [rows.candidate - rows.baseline for rows in cases]
    if all(np.isin(each, (-1.0, 0.0, 1.0)).all() for each in differences):
        return True
    sums = [cluster_sums(each, rows.clusters) for each, rows in zip(differences, cases, strict=True)]
    return any(is_left_skewed(*of_case) for of_case in sums)


def _by_case(
    names: Sequence[str], baseline: Sequence[float], candidate: Sequence[float], clusters: Sequence[int]
) -> dict[str, _Rows]:
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    before, after = (np.asarray(values, dtype=np.float64) for values in (baseline, candidate))
    return {name: _Rows(before[own], after[own], [clusters[i] for i in own]) for name, own in places.items()}


def _verdict(rows: _Rows, alpha: float) -> CaseVerdict:
    test = paired_test(rows.candidate - rows.baseline, rows.clusters, 0.0, alpha)
    difference = float(np.mean(rows.candidate - rows.baseline))
    verdict = NOT_WORSE if test.low >= -TOLERANCE else NOT_SHOWN
    verdict = BETTER if test.p_value <= alpha / 2 else WORSE if test.high < 0 else verdict
    ends = float(test.low), float(test.high)
    means = float(np.mean(rows.baseline)), float(np.mean(rows.candidate))
    return CaseVerdict(*means, difference, *ends, float(test.p_value), len(rows.clusters), verdict)


def _of_worst(
    rows: Mapping[str, _Rows], weakest: str, whole: Improvement, alpha: float, minimum_effect: float
) -> Improvement:
    """The verdict on the worst case; counts and e-value stay those of all rows."""
    own, others = rows[weakest], [rows[name] for name in rows if name != weakest]
    paired = paired_test(own.candidate - own.baseline, own.clusters, minimum_effect, alpha)
    above = [_p_above(other, own, minimum_effect) for other in others]
    p = max([float(paired.p_value), *above])
    low = min([paired.low, *(_bound_difference(o.candidate, o, own.baseline, own, alpha)[0] for o in others)])
    high = max(
        [paired.high, *(_bound_difference(own.candidate, own, o.baseline, o, alpha)[1] for o in others)]
    )
    before, after = (
        min(float(np.mean(getattr(row, side))) for row in rows.values()) for side in ("baseline", "candidate")
    )
    verdict = replace(
        whole,
        difference=after - before,
        low=float(low),
        high=float(high),
        p_value=float(f"{p:.9g}"),
        promoted=p <= alpha / 2,
        method="worst case",
        more_examples=None,
    )
    return replace(verdict, reason=_reason(verdict, weakest, (before, after), rows, alpha))


def _p_above(one: _Rows, other: _Rows, minimum_effect: float) -> float:
    """The p-value of "the candidate on one case has no larger mean than the baseline on the other one"."""
    shifted = other.baseline + minimum_effect
    low, high = float(np.mean(shifted)), float(np.mean(one.candidate))
    if high <= low:
        return 1.0
    p, is_above = 1.0, p_value_curve(one.candidate, one.clusters)
    is_below = p_value_curve(-shifted, other.clusters)
    for _ in range(_STEPS):
        t = (low + high) / 2
        above, below = is_above(t), is_below(-t)
        p = min(p, 2 * max(above, below))
        low, high = (low, t) if above > below else (t, high)
    return min(1.0, p)


def _bound_difference(
    first: Array, one: _Rows, second: Array, other: _Rows, alpha: float
) -> tuple[float, float]:
    """The least and the largest difference of the means of two cases, each with an error of at most alpha/2."""
    a, b = (paired_test(v, r.clusters, 0.0, alpha / 2) for v, r in ((first, one), (second, other)))
    return max(0.0, a.low) - min(1.0, b.high), min(1.0, a.high) - max(0.0, b.low)


def _reason(
    verdict: Improvement,
    weakest: str,
    means: tuple[float, float],
    rows: Mapping[str, _Rows],
    alpha: float,
) -> str:
    before, after = map(show_number, means)
    fewest = fewest_clusters(alpha)
    short = [name for name, own in rows.items() if len(set(own.clusters)) < fewest]
    if short:
        return (
            f"Not promoted: too few examples; the worst case needs at least {fewest:,} in each case, and {short[0]} has "
            f"{len(set(rows[short[0]].clusters)):,}."
        )
    figures = (
        f"the worst case was worth {before} and is worth {after} ({weakest} was the worst one on validation rows; "
        f"{say_p(verdict.p_value)}, and a promotion takes {show_number(alpha / 2)} or less)"
    )
    return f"{'Promoted' if verdict.promoted else 'Not promoted'}: {figures}."


def _with_harm(verdict: Improvement, cases: Mapping[str, CaseVerdict]) -> Improvement:
    """The verdict, with a word on each case that lost; not promoted where one is shown to have lost more than is tolerated."""
    harmed = [name for name, one in cases.items() if one.harmed]
    lost = [f"{name} {_change(one)}" for name, one in cases.items() if _is_lost(one)]
    if harmed and verdict.promoted:
        rest = verdict.reason.partition("romoted: ")[2]
        losses = ", ".join(f"{name} {_change(cases[name])}" for name in harmed)
        reason = f"Not promoted: shown to harm {losses}, more than the tolerated {show_number(TOLERANCE)}. In all: {rest}"
        return replace(verdict, promoted=False, reason=reason)
    if not lost:
        return verdict
    return replace(verdict, reason=f"{verdict.reason} Cases that lost: {', '.join(lost)}.")


def _is_lost(case: CaseVerdict) -> bool:
    return case.verdict == WORSE or case.difference < -TOLERANCE


def _change(case: CaseVerdict) -> str:
    shown = "shown" if case.verdict == WORSE else "which may be chance"
    return f"({show_number(case.baseline)} to {show_number(case.best)}, {shown})"
