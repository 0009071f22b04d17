"""The promotion rule: may the candidate replace the baseline?

One rule, stated three ways that are the same: the lower end of the confidence sequence for the mean
difference is above the minimum effect; the hedged capital against "the mean difference is at most
the minimum effect" has reached 1/alpha; the one-sided e-value has reached 2/alpha, 40 at alpha =
0.05. So a promoted candidate never has an interval that reaches down to the minimum effect, and
the chance that a candidate which is not better is *ever* promoted, at whatever look, is at most alpha/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whet.errors import UsageError
from whet.stats.betting import MOST_EXAMPLES, EProcess, confidence_sequence, unit_values

_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Improvement:
    """Verdict on a candidate against a baseline, on the same n examples.

    `difference` is the mean of candidate minus baseline, `low` and `high` the ends of its confidence
    sequence, in units of the reward. `e_value` is the evidence that the difference exceeds the minimum
    effect: 1 is none, promotion needs 2/alpha. `wins`, `losses` and `ties` count examples. `reason` is
    one sentence for people.
    """

    difference: float
    low: float
    high: float
    promoted: bool
    reason: str
    e_value: float
    n: int
    wins: int
    losses: int
    ties: int


def decide(
    baseline: Sequence[float],
    candidate: Sequence[float],
    low: float,
    high: float,
    alpha: float = 0.05,
    same: bool = False,
    minimum_effect: float = 0.0,
) -> Improvement:
    """Compare the rewards of two prompts on the same examples, paired by position.

    baseline, candidate: one reward per example in [low, high]; several rollouts of one example are averaged
    before, because they are not independent evidence about other examples. alpha in (0, 1): the
    interval has the confidence 1 - alpha. same: both are the same prompt, so that nothing is compared.
    minimum_effect: the difference that must be exceeded, in [0, high - low).

    The examples must be drawn independently from the population that the claim is about, and neither
    prompt may have been chosen with their help. Raises UsageError for lists of different length, no
    examples, a reward outside the range, or alpha or minimum_effect outside their ranges.
    """
    n = len(baseline)
    if n != len(candidate):
        raise UsageError(
            f"The baseline has {n} rewards and the candidate {len(candidate)}; "
            "a paired comparison needs one of each per example."
        )
    if same:
        reason = "Not promoted: the candidate is the same prompt as the baseline."
        return Improvement(0.0, 0.0, 0.0, False, reason, 1.0, n, 0, 0, n)
    differences = unit_values(candidate, low, high) - unit_values(baseline, low, high)
    differences[np.abs(differences) < _TIE] = 0.0
    width = high - low
    if not 0.0 <= minimum_effect < width:
        raise UsageError(f"minimum_effect is {minimum_effect}; it must lie in [0, {width:g}).")
    below, above = confidence_sequence(differences, -1.0, 1.0, alpha)
    evidence = EProcess(minimum_effect / width).update(differences)
    wins, losses = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    verdict = Improvement(
        difference=math.fsum(differences) / n * width,
        low=below * width,
        high=above * width,
        promoted=below * width > minimum_effect,
        reason="",
        e_value=evidence.e_value,
        n=n,
        wins=wins,
        losses=losses,
        ties=n - wins - losses,
    )
    return replace(verdict, reason=_reason(verdict, evidence, alpha, minimum_effect))


def confirmed(verdict: Improvement, second: Improvement, name: str) -> Improvement:
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


def _reason(verdict: Improvement, evidence: EProcess, alpha: float, minimum_effect: float) -> str:
    """One sentence that says what was decided and on which numbers."""
    data = (
        f"{_examples(verdict.n)} ({verdict.wins} better, {verdict.losses} worse, {verdict.ties} equal; "
        f"{100 * (1 - alpha):g}% interval {_number(verdict.low)} to {_number(verdict.high)})"
    )
    better = f"better by {_number(verdict.difference)} on average"
    required = f"the required {_number(minimum_effect)}"
    if verdict.promoted:
        margin = f", more than {required}" if minimum_effect else ""
        return f"Promoted: {better} over {data}{margin}."
    sweep = EProcess(evidence.null).update([1.0]).examples_needed(2.0 / alpha)
    if sweep is None or verdict.n < sweep:
        return (
            f"Not promoted: too few examples ({verdict.n:,}); even the largest gain on every one would need "
            f"{_at_least(sweep)}; so far the average difference is {_number(verdict.difference)}."
        )
    if verdict.difference < 0:
        chance = "" if verdict.high < 0 else ", which may be chance"
        return f"Not promoted: worse by {_number(-verdict.difference)} on average over {data}{chance}."
    if verdict.difference == 0:
        return f"Not promoted: no difference on average over {data}."
    if verdict.difference <= minimum_effect:
        return f"Not promoted: {better} over {data}, which is not more than {required}."
    total = evidence.examples_needed(2.0 / alpha)
    more = "more than a million" if total is None else f"roughly {_roughly(max(1, total - verdict.n)):,}"
    return (
        f"Not promoted: {better} over {data}, but the evidence is not enough; "
        f"if the effect stays like this, {more} more examples would be needed."
    )


def _examples(n: int) -> str:
    return f"{n:,} example" + ("" if n == 1 else "s")


def _at_least(n: int | None) -> str:
    return f"more than {MOST_EXAMPLES:,}" if n is None else f"at least {n:,}"


def _roughly(n: int) -> int:
    """Round up to two significant digits."""
    unit = int("1" + "0" * max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def _number(value: float) -> str:
    """Three significant digits, without exponent for ordinary rewards and without a negative zero."""
    return f"{float(f'{value:.3g}') + 0.0:g}"
