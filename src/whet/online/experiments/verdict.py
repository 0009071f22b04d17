"""What the settled outcomes allow to say: a winner, no difference, a broken guard-rail, or not yet.

Every threshold is chosen so that Ville's inequality bounds the chance of ever being wrong, over all looks:

- a winner beats each other live arm with an e-value of arms/alpha. Take any arm that is in truth a best one. For
  another arm to win wrongly it must have beaten this one (arms - 1 events of chance alpha/arms each); if all are
  equal, this one may win too (one event more). So with two arms alpha = 0.05 asks for 40, as the gate does;
- no difference: each pair is closer than the margin, both ways, with an e-value of arms/alpha;
- a guard-rail breaks for an arm with an e-value of (arms - 1)/alpha of its own alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from whet.online.experiments.allocation import Tally
from whet.online.experiments.definition import Definition, Guard, Metric
from whet.online.experiments.effects import (
    Sample,
    Scores,
    estimate,
    evidence,
    interval,
    log_imbalance,
    means,
    scores,
)
from whet.online.experiments.fold import Snapshot

State = Literal["running", "winner", "no_difference", "futile", "rolled_back", "stopped"]

_IMBALANCE_ALPHA = 0.01
_MOST_CLIPPED = 0.05


@dataclass(frozen=True)
class Effect:
    """A difference with its evidence: `version` minus `against` in units of the metric, more is better.

    `low` and `high` are the ends of a confidence sequence (nan before the first outcome), `evidence` is the largest
    e-value that was reached, `needed` the one that decides, `n` the number of units with an outcome.
    """

    metric: str
    version: int
    against: int
    estimate: float
    low: float
    high: float
    evidence: float
    needed: float
    n: int

    @property
    def proven(self) -> bool:
        """Whether the evidence decides."""
        return self.evidence >= self.needed


@dataclass(frozen=True)
class Check:
    """A guard-rail and one arm: the harm done so far in units of the metric, more is worse.

    against control: the control's mean minus the arm's (turned so that more is worse). against value: the arm's
    mean itself. `limit` is what may not be exceeded.
    """

    metric: str
    version: int
    against: Literal["control", "value"]
    limit: float
    harm: float
    low: float
    high: float
    evidence: float
    needed: float
    n: int

    @property
    def broken(self) -> bool:
        """Whether the harm is shown to exceed the limit."""
        return self.evidence >= self.needed


@dataclass(frozen=True)
class Verdict:
    """What can be said now. `winner` is a version; `broken` are guard-rails shown to be broken by live arms.

    `held` says that a winner must not be applied without a person, because a warning puts the comparison in
    doubt. `reason` is one sentence for people.
    """

    state: State
    reason: str
    winner: int | None = None
    effects: tuple[Effect, ...] = ()
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    held: bool = False

    @property
    def broken(self) -> list[Check]:
        """Guard-rails that are broken."""
        return [check for check in self.checks if check.broken]


def judge(found: Snapshot, live: Sequence[int]) -> Verdict:
    """The verdict on the live arms (indexes into the definition's arms).

    A broken guard-rail goes before everything else; the arms that it names are the caller's to take out.
    """
    definition = found.definition
    sample = found.samples[definition.goal.name]
    control = definition.versions.index(definition.control)
    tested = [arm for arm in live if arm != control]
    checks = tuple(_check(found, guard, arm, control) for guard in definition.guards for arm in tested)
    effects = _effects(definition.goal, sample, definition.versions, live, definition.alpha)
    warnings, held = _doubts(found, live)
    verdict = Verdict("running", "", None, effects, checks, warnings, held)
    if verdict.broken:
        return replace(verdict, reason=_harm_reason(verdict.broken[0]))
    winner = next((arm for arm in live if _beats_all(effects, definition.versions[arm])), None)
    if winner is not None and len(live) > 1:
        version = definition.versions[winner]
        return replace(verdict, state="winner", winner=version, reason=_win_reason(effects, version, held))
    if _all_equal(definition, sample, live):
        reason = f"No difference: all arms are within {definition.margin:g} of each other."
        return replace(verdict, state="no_difference", reason=reason)
    if len(sample.arms) >= definition.most_units:
        reason = f"No decision within {definition.most_units:,} units; {_leading(effects)}"
        return replace(verdict, state="futile", reason=reason)
    return replace(verdict, reason=_leading(effects))


def tally(sample: Sample, arm: int) -> Tally:
    """Outcomes of one arm of a sample, for bandits and posteriors."""
    values = sample.values[(sample.arms == arm) & ~np.isnan(sample.values)]
    return Tally(len(values), float(values.sum()), float((values**2).sum()))


def _effects(
    metric: Metric, sample: Sample, versions: Sequence[int], live: Sequence[int], alpha: float
) -> tuple[Effect, ...]:
    """Every live arm against every other one."""
    width, needed, found = metric.high - metric.low, len(versions) / alpha, list[Effect]()
    for one, zero in combinations(live, 2):
        ahead = scores(sample, one, zero)
        mean, (low, high), n = estimate(ahead), interval(ahead, alpha), int(ahead.used.sum())
        ends = ((one, zero, mean, low, high, ahead), (zero, one, -mean, -high, -low, ahead.reversed()))
        for arm, other, middle, below, above, way in ends:
            figures = (middle * width, below * width, above * width, evidence(way))
            found.append(Effect(metric.name, versions[arm], versions[other], *figures, needed, n))
    return tuple(found)


def _check(found: Snapshot, guard: Guard, arm: int, control: int) -> Check:
    metric, versions = guard.metric, found.definition.versions
    sample = found.samples[metric.name]
    width = metric.high - metric.low
    harm: Scores
    if guard.against == "control":
        harm, null = scores(sample, control, arm), guard.limit / width
        ends = interval(harm, guard.alpha)
        values = (estimate(harm) * width, ends[0] * width, ends[1] * width)
    else:
        harm, null = means(sample, arm).reversed(), -metric.unit(guard.limit)
        ends = interval(harm, guard.alpha, -1.0, 0.0)
        raw = [metric.value(-end) for end in (estimate(harm), *ends)]
        values = (raw[0], min(raw[1:]), max(raw[1:]))
    needed = (len(versions) - 1) / guard.alpha
    n = int(harm.used.sum())
    return Check(
        metric.name, versions[arm], guard.against, guard.limit, *values, evidence(harm, null), needed, n
    )


def _beats_all(effects: Sequence[Effect], version: int) -> bool:
    own = [effect for effect in effects if effect.version == version]
    return bool(own) and all(effect.proven for effect in own)


def _all_equal(definition: Definition, sample: Sample, live: Sequence[int]) -> bool:
    """Whether every pair is shown to be closer than the margin."""
    margin = definition.margin / (definition.goal.high - definition.goal.low)
    if margin == 0.0 or len(live) < 2:
        return False
    needed = len(definition.arms) / definition.alpha
    for one, zero in combinations(live, 2):
        found = scores(sample, one, zero)
        if evidence(found, -margin) < needed or evidence(found.reversed(), -margin) < needed:
            return False
    return True


def _doubts(found: Snapshot, live: Sequence[int]) -> tuple[tuple[str, ...], bool]:
    """What puts the comparison in doubt, and whether a person must look before anything is applied."""
    goal = found.definition.goal
    unexplained, unequal, beyond = _unexplained(found), _unequal(found, live), _beyond(found)
    held = bool(unexplained) or (bool(unequal) and goal.missing is None) or goal.name in beyond
    warnings = [*unexplained, *unequal, *beyond.values()]
    if found.counts.mismatched:
        warnings.append(
            f"{found.counts.mismatched:,} inferences show a version that the definition does not assign; "
            "they are left out."
        )
    return tuple(warnings), held


def _unexplained(found: Snapshot) -> list[str]:
    """Numbers of units that do not fit the shares."""
    units = found.units
    if not len(units.arms):
        return []
    if float(log_imbalance(units.arms, units.chances).max()) < -math.log(_IMBALANCE_ALPHA):
        return []
    return [
        f"The arms have {found.assigned()} units, which their shares do not explain: some inferences are not "
        "logged, or not assigned by the definition. No result can be trusted until this is found."
    ]


def _unequal(found: Snapshot, live: Sequence[int]) -> list[str]:
    """Pairs of arms of which one has more outcomes of the goal."""
    definition = found.definition
    rates = found.answered(definition.goal.name)
    needed = len(live) * (len(live) - 1) / definition.alpha
    warnings = []
    for one, zero in combinations(live, 2):
        ahead = scores(rates, one, zero)
        for arm, other, way in ((one, zero, ahead), (zero, one, ahead.reversed())):
            if evidence(way) >= needed:
                warnings.append(
                    f"Units of version {definition.versions[arm]} have an outcome of {definition.goal.name} more "
                    f"often than those of version {definition.versions[other]}, by {estimate(way):.1%} of the units. "
                    "Who answers may differ too; compare with care, or count a missing outcome as a value."
                )
    return warnings


def _beyond(found: Snapshot) -> dict[str, str]:
    """Metrics of which more values than a few lie outside the range that was declared."""
    return {
        name: (
            f"{found.clipped[name]:,} of {found.values[name]:,} values of {name} lie outside the range "
            f"[{metric.low:g}, {metric.high:g}] and count as its end: differences beyond it are not seen. Start "
            "again with the range that the values have."
        )
        for name, metric in found.definition.metrics.items()
        if found.clipped[name] > _MOST_CLIPPED * found.values[name]
    }


def _win_reason(effects: Sequence[Effect], version: int, held: bool) -> str:
    against = ", ".join(
        f"version {e.against} by {_number(e.estimate)} ({_number(e.low)} to {_number(e.high)})"
        for e in effects
        if e.version == version
    )
    doubt = " A warning puts this in doubt: a person must look first." if held else ""
    n = max(e.n for e in effects)
    return f"Version {version} is better on {effects[0].metric} than {against}, over {n:,} units.{doubt}"


def _harm_reason(check: Check) -> str:
    compared = "worse than the control by" if check.against == "control" else "at"
    return (
        f"Version {check.version} breaks the guard-rail on {check.metric}: it is {compared} {_number(check.harm)} "
        f"({_number(check.low)} to {_number(check.high)}), and the limit is {_number(check.limit)}, over "
        f"{check.n:,} units."
    )


def _leading(effects: Sequence[Effect]) -> str:
    known = [effect for effect in effects if effect.n]
    if not known:
        return "There is no settled outcome yet."
    best = max(known, key=lambda e: e.evidence / e.needed)
    return (
        f"version {best.version} leads version {best.against} by {_number(best.estimate)} "
        f"({_number(best.low)} to {_number(best.high)}); the evidence is {_number(best.evidence)} of "
        f"{_number(best.needed)}."
    )


def _number(value: float) -> str:
    """Three significant digits without a negative zero."""
    return f"{float(f'{value:.3g}') + 0.0:g}"
