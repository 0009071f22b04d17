"""The promotion rule: may the candidate replace the baseline?

`decide` looks once, at rows that were sealed until then, by the fixed-sample test of `whet.stats.paired`. `decide_anytime` may
look again after every row, by the betting test of `whet.stats.betting`, and needs more rows. By both a candidate is
promoted exactly if the test refutes that the difference is the minimum effect or less: its interval then does not reach below
that. It happens to a candidate that is not better with a probability of at most alpha/2, at one look and at all looks together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whet.errors import UsageError, quantity
from whet.stats.betting import MOST_EXAMPLES, Array, ClusterBets, unit_values
from whet.stats.intervals import SEQUENCE, percent, say_p, show_number
from whet.stats.paired import GUARDED, cluster_sums, fewest_clusters, paired_test

_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Improvement:
    """Verdict on a candidate against a baseline, on the same examples."""

    difference: float
    """The mean of candidate minus baseline, in units of the reward."""
    low: float
    """The lower end of the interval of the difference, with the confidence 1 - `alpha`."""
    high: float
    """The upper end of that interval."""
    promoted: bool
    reason: str
    """The verdict in one sentence for people."""
    e_value: float
    """The evidence of the anytime-valid test on the same differences; a promotion needs 2 / `alpha`."""
    n: int
    """Examples."""
    wins: int
    """Examples on which the candidate earned more."""
    losses: int
    """Examples on which the candidate earned less."""
    ties: int
    """Examples on which both earned the same."""
    p_value: float
    """One-sided, against the minimum effect; a promotion needs `alpha` / 2."""
    clusters: int
    """The independent units among the examples."""
    alpha: float
    method: str
    """The method by which the interval was made."""
    more_examples: int | None = None
    """If a gain was seen but not shown: roughly how many more examples would show it if it stays the same; None: unknown."""
    missing: int = 0
    """Pairs without an answer (`decide_answered`)."""
    withheld: bool = False
    """Whether the missing pairs would decide, so that there is no verdict."""


def decide(
    baseline: Sequence[float],
    candidate: Sequence[float],
    low: float,
    high: float,
    alpha: float = 0.05,
    same: bool = False,
    minimum_effect: float = 0.0,
    clusters: Sequence[int] | None = None,
    with_bound: bool = False,
) -> Improvement:
    """Compare the rewards of two prompts on the same examples, paired by position, at one look.

    baseline, candidate: one reward per example in [low, high]; several rollouts of one example are averaged
    before, because they are not independent evidence about other examples. alpha in (0, 1): the
    interval has the confidence 1 - alpha. same: both are the same prompt, so that nothing is compared.
    minimum_effect: the difference that must be exceeded, in [0, high - low). clusters: a number for each example, equal for those
    that are not independent of each other; by default each example is its own.

    The clusters must be drawn independently from the population that the claim is about, and neither
    prompt may have been chosen with their help. Raises UsageError for lists of different length, no
    examples, a reward outside the range, or alpha or minimum_effect outside their ranges.
    """
    differences, width = _differences(baseline, candidate, low, high, alpha, minimum_effect)
    if same:
        return _nothing(len(differences), alpha)
    minimum = minimum_effect / width
    test = paired_test(differences, clusters, minimum, alpha, with_bound=with_bound)
    verdict = _improvement(differences, width, alpha, (test.low, test.high))
    verdict = replace(
        verdict,
        promoted=test.p_value <= alpha / 2,
        e_value=_bets(differences, clusters, 1).against(minimum).e_value,
        p_value=float(f"{test.p_value:.9g}"),
        clusters=test.clusters,
        method=test.method,
    )
    more = None if test.needed is None else (test.needed - test.clusters) * verdict.n / test.clusters
    return _explain(verdict, minimum_effect, fewest_clusters(alpha), more)


def decide_anytime(
    baseline: Sequence[float],
    candidate: Sequence[float],
    low: float,
    high: float,
    alpha: float = 0.05,
    minimum_effect: float = 0.0,
    clusters: Sequence[int] | None = None,
    largest: int = 1,
) -> Improvement:
    """Decide as `decide` does, with a verdict that holds at every look while examples are added.

    The claim is about the mean over examples, as in `decide`, and a cluster is staked as one value, by `ClusterBets`. `largest`:
    the most examples that one cluster is known to have, beside those that are here; later clusters should not be larger.
    """
    differences, width = _differences(baseline, candidate, low, high, alpha, minimum_effect)
    bets = _bets(differences, clusters, largest)
    evidence = bets.against(minimum_effect / width)
    verdict = _improvement(differences, width, alpha, bets.interval(alpha))
    verdict = replace(
        verdict,
        promoted=verdict.low > minimum_effect,
        e_value=evidence.e_value,
        p_value=float(f"{min(1.0, math.exp(-evidence.log_e_value)):.9g}"),
        clusters=len(bets.sums),
    )
    clearest = ClusterBets(np.ones(1), np.ones(1), 1.0).against(evidence.null)
    fewest = clearest.examples_needed(2.0 / alpha)
    total = evidence.examples_needed(2.0 / alpha)
    more = None if total is None else (total - verdict.clusters) * verdict.n / verdict.clusters
    return _explain(verdict, minimum_effect, fewest or MOST_EXAMPLES, more)


def _bets(differences: Array, clusters: Sequence[int] | None, largest: int) -> ClusterBets:
    sums, sizes = cluster_sums(differences, clusters)
    return ClusterBets(sums, sizes, max(float(largest), float(sizes.max())))


Test = Callable[[Sequence[float], Sequence[float], Sequence[int]], Improvement]
"""A comparison of rewards, paired by position, whose last argument numbers the cluster of each pair."""


def decide_answered(
    test: Test,
    baseline: Sequence[float | None],
    candidate: Sequence[float | None],
    low: float,
    high: float,
    clusters: Sequence[int],
    minimum_effect: float = 0.0,
) -> Improvement:
    """The verdict of `test` where some rewards are missing (None: nobody answered).

    Difference and counts are those of the pairs that have both rewards. A promotion must hold in the worst case, with `high` for
    each missing reward of the baseline and `low` for each of the candidate: then the p-value and the lower end are those of
    the worst case, and the upper end is that of the best one. Where the best case would promote and the worst would not, the
    verdict is withheld.
    """
    pairs = list(zip(baseline, candidate, strict=True))
    whole = [i for i, pair in enumerate(pairs) if None not in pair]
    missing = len(pairs) - len(whole)
    if not missing:
        return test([a or 0.0 for a, _ in pairs], [b or 0.0 for _, b in pairs], clusters)
    worst, best = (
        test([x if a is None else a for a, _ in pairs], [y if b is None else b for _, b in pairs], clusters)
        for x, y in ((high, low), (low, high))
    )
    seen = worst
    if whole:
        known = [[pairs[i][side] or 0.0 for i in whole] for side in (0, 1)]
        seen = test(known[0], known[1], [clusters[i] for i in whole])
    if not whole:
        seen = replace(seen, difference=0.0, n=0, wins=0, losses=0, ties=0, clusters=0)
    verdict = replace(
        seen,
        low=worst.low,
        high=best.high,
        p_value=worst.p_value,
        e_value=worst.e_value,
        promoted=worst.promoted,
        missing=missing,
        withheld=best.promoted and not worst.promoted,
    )
    return replace(verdict, reason=_reason_with_missing(verdict, seen, len(pairs), minimum_effect))


def _reason_with_missing(verdict: Improvement, seen: Improvement, of: int, minimum_effect: float) -> str:
    """The reason of a verdict on pairs of which some have no answer."""
    lost = f"{verdict.missing:,} of {quantity(of, 'pair')} have no answer"
    if verdict.withheld:
        figures = f"; the others differ by {show_number(seen.difference)} on average" if verdict.n else ""
        return f"Not promoted: no verdict. {lost}{figures}. The missing answers would decide."
    if verdict.promoted:
        words = _reason(verdict, minimum_effect, 0, None)
        return f"{words} {lost}; interval and p-value count them in the worst case for the new prompt."
    return f"{seen.reason} {lost}, and whatever they hold would not promote it."


def _differences(
    baseline: Sequence[float],
    candidate: Sequence[float],
    low: float,
    high: float,
    alpha: float,
    minimum_effect: float,
) -> tuple[Array, float]:
    """Candidate minus baseline in units of the range's width, and that width. Raises UsageError."""
    if len(baseline) != len(candidate):
        raise UsageError(
            f"The baseline has {len(baseline)} rewards and the candidate {len(candidate)}; "
            "a paired comparison needs one of each per example."
        )
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it must lie in (0, 1).")
    differences = unit_values(candidate, low, high) - unit_values(baseline, low, high)
    differences[np.abs(differences) < _TIE] = 0.0
    if not 0.0 <= minimum_effect < high - low:
        raise UsageError(f"minimum_effect is {minimum_effect}; it must lie in [0, {high - low:g}).")
    return differences, high - low


def _nothing(n: int, alpha: float) -> Improvement:
    reason = "Not promoted: the candidate is the same prompt as the baseline."
    return Improvement(0.0, 0.0, 0.0, False, reason, 1.0, n, 0, 0, n, 1.0, n, alpha, "none")


def _improvement(differences: Array, width: float, alpha: float, ends: tuple[float, float]) -> Improvement:
    """The figures that both tests share."""
    n = len(differences)
    wins, losses = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    difference = math.fsum(differences) / n * width
    low, high = ends[0] * width, ends[1] * width
    return Improvement(
        difference, low, high, False, "", 1.0, n, wins, losses, n - wins - losses, 1.0, n, alpha, SEQUENCE
    )


def hold_to_second_judge(verdict: Improvement, second: Improvement, name: str) -> Improvement:
    """The verdict on a candidate, held to that of a second judge (`name`) on the same answers: both must promote it.

    Difference, interval and counts stay those of the first; a promotion that the second judge refuses is none.
    """
    if not verdict.promoted:
        return verdict
    first, other = (one.reason.partition("romoted: ")[2] for one in (verdict, second))
    if second.promoted:
        return replace(verdict, reason=f"{verdict.reason} The second opinion, {name}: {other}")
    reason = f"Not promoted: the second opinion, {name}, does not confirm it: {other} The first: {first}"
    return replace(verdict, promoted=False, reason=reason)


def _explain(verdict: Improvement, minimum_effect: float, fewest: int, more: float | None) -> Improvement:
    """The verdict with its reason, and with the number of examples that a gain lacks."""
    gained = not verdict.promoted and verdict.difference > minimum_effect
    if gained and more is not None and more > 0:
        verdict = replace(verdict, more_examples=_roughly(math.ceil(more)))
    return replace(verdict, reason=_reason(verdict, minimum_effect, fewest, more))


def _reason(verdict: Improvement, minimum_effect: float, fewest: int, more: float | None) -> str:
    """One sentence that says what was decided and on which numbers."""
    data = (
        f"{_examples(verdict)} ({verdict.wins} better, {verdict.losses} worse, {verdict.ties} equal; "
        f"{percent(1 - verdict.alpha)}% interval {show_number(verdict.low)} to {show_number(verdict.high)}; "
        f"{say_p(verdict.p_value)} by the {verdict.method}, and a promotion takes {show_number(verdict.alpha / 2)} or "
        "less)"
    )
    better = f"better by {show_number(verdict.difference)} on average"
    required = f"the required {show_number(minimum_effect)}"
    if verdict.promoted:
        margin = f", more than {required}" if minimum_effect else ""
        return f"Promoted: {better} over {data}{margin}."
    if verdict.clusters < fewest:
        size = f"{verdict.n:,}" if verdict.clusters == verdict.n else _examples(verdict)
        return (
            f"Not promoted: too few examples ({size}); even the largest gain on every one would need "
            f"at least {fewest:,}; so far the average difference is {show_number(verdict.difference)}."
        )
    if verdict.difference < 0:
        chance = "" if verdict.high < 0 else ", which may be chance"
        return f"Not promoted: worse by {show_number(-verdict.difference)} on average over {data}{chance}."
    if verdict.difference == 0:
        return f"Not promoted: no difference on average over {data}."
    if verdict.difference <= minimum_effect:
        return f"Not promoted: {better} over {data}, which is not more than {required}."
    skewed = verdict.method == GUARDED and more is not None and more <= 0
    if skewed:
        return f"Not promoted: {better} over {data}, but rare large losses may outweigh that."
    count = "more than a million" if more is None else f"roughly {_roughly(max(1, math.ceil(more))):,}"
    return (
        f"Not promoted: {better} over {data}, but the evidence is not enough; "
        f"if the effect stays like this, {count} more examples would be needed."
    )


def _examples(verdict: Improvement) -> str:
    words = f"{verdict.n:,} example" + ("" if verdict.n == 1 else "s")
    return words if verdict.clusters == verdict.n else f"{words} in {quantity(verdict.clusters, 'cluster')}"


def _roughly(n: int) -> int:
    """Round up to two significant digits."""
    unit = int("1" + "0" * max(0, len(str(n)) - 2))
    return -(-n // unit) * unit
