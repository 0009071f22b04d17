"""The verdict of the settled outcomes: a winner, no difference, a broken guard-rail, or not yet.

Every threshold is chosen so that Ville's inequality bounds the chance of ever being wrong, over all looks:

- a winner is named by the units of whole cycles, and not while the arms differ in how many answer or one has fewer than 10
  outcomes. It beats each other live arm with an e-value of arms/alpha, and leads it at the decision: a lower bound of the
  mean effect over all units so far, which gives each of them one weight, lies above 0. The e-value alone tests that no
  unit gains; where the effect changes sign together with the spread of the outcomes, it grows without a lead. Take any
  arm that is in truth a best one. For
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
from statistics import NormalDist
from typing import Literal

import numpy as np

from whet.errors import quantity
from whet.stats.intervals import SEQUENCE, show_number
from whet_live.experiments.allocation import ArmTally
from whet_live.experiments.confidence_sequences import ConfidenceSequences, Null, SequenceInterval
from whet_live.experiments.definition import Definition, Guard
from whet_live.experiments.effects import MetricSample
from whet_live.experiments.reducer import Snapshot

State = Literal[
    "running", "winner", "no_difference", "futile", "rolled_back", "stopped", "passed", "unmeasured"
]

WHOLE = "whole cycles"
_IMBALANCE_ALPHA = 0.01
LEAST_UNITS = 10
"""Units with an outcome that each arm must have before a winner is named."""
_ODD_ALPHA = 0.01
"""The probability with which the counts of units hold a winner by chance: the winner then only waits for a person."""
_MOST_CLIPPED = 0.05
_MOST_LATE = 0.05
_DIFFERENCES, _MEANS = (-1.0, 1.0), (0.0, 1.0)


@dataclass(frozen=True)
class EffectEstimate:
    """The difference `version` minus `against` with its evidence, in units of the metric; more is better.

    All figures are of all units so far, except `evidence` and `reached`.
    """

    metric: str
    version: int
    against: int
    estimate: float
    low: float
    """Lower end of the confidence sequence; before the first outcome, the lowest possible effect."""
    high: float
    """Upper end of the confidence sequence; before the first outcome, the highest possible effect."""
    evidence: float
    """The largest e-value so far; it may have been reached at an earlier unit."""
    needed: float
    """The e-value that decides."""
    n: int
    """Units with an outcome."""
    reached: SequenceInterval | None = None
    """Once `evidence` decides: what was known when the e-value was largest. It lies above 0."""
    lead: float = -math.inf
    """The bound of `Capital.lead`."""

    @property
    def proven(self) -> bool:
        """Whether the evidence decides: it was reached, and the lead stands."""
        return self.evidence >= self.needed and self.lead > 0.0


@dataclass(frozen=True)
class GuardRailCheck:
    """A guard-rail and one arm: the harm done so far in units of the metric, more is worse.

    against control: the control's mean minus the arm's (turned so that more is worse). against value: the arm's
    mean itself. `limit` is what may not be exceeded. Each end of an interval holds by itself at the level that decides,
    so that `reached`, as in `Effect`, lies beyond the limit.
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
    reached: SequenceInterval | None = None

    @property
    def broken(self) -> bool:
        """Whether the harm is shown to exceed the limit."""
        return self.evidence >= self.needed


@dataclass(frozen=True)
class ExperimentVerdict:
    """The verdict at this time. `winner` is a version; `broken` are guard-rails shown to be broken by live arms.

    `held` says that a winner must not be applied without a person, because a warning puts the comparison in
    doubt. `reason` is one sentence for people.
    """

    state: State
    reason: str
    winner: int | None = None
    effects: tuple[EffectEstimate, ...] = ()
    checks: tuple[GuardRailCheck, ...] = ()
    warnings: tuple[str, ...] = ()
    held: bool = False

    @property
    def broken(self) -> list[GuardRailCheck]:
        """Guard-rails that are broken."""
        return [check for check in self.checks if check.broken]


def judge(
    snapshot: Snapshot, live: Sequence[int], watch: bool = False, sequences: ConfidenceSequences | None = None
) -> ExperimentVerdict:
    """The verdict on the live arms (indexes into the definition's arms).

    A broken guard-rail goes before everything else; the arms that it names are the caller's to take out. A `watch` decides
    nothing else. `sequences` are those of earlier snapshots of the fold: the verdict is the same without them, and takes longer.
    """
    sequences = sequences or ConfidenceSequences()
    sequences.renew(
        (snapshot.fold, snapshot.amended),
        {WHOLE: snapshot.whole or 0} | {name: len(sample.arms) for name, sample in snapshot.samples.items()},
    )
    definition = snapshot.definition
    sample = snapshot.samples[definition.goal.name]
    control = definition.versions.index(definition.control)
    tested = [arm for arm in live if arm != control]
    checks = tuple(
        _check(snapshot, guard, arm, control, sequences) for guard in definition.guards for arm in tested
    )
    effects = _effects(definition, sample, live, sequences, definition.goal.name)
    warnings, held = _diagnostics(snapshot, live, sequences)
    verdict = ExperimentVerdict("running", "", None, effects, checks, warnings, held)
    if verdict.broken:
        return replace(verdict, reason=_harm_reason(verdict.broken[0]))
    if watch:
        return replace(verdict, reason=watch_reason(checks))
    waits = ""
    if (winner := _winner(snapshot, live, sequences)) is not None:
        differ = _few_units(snapshot, live) or _answer_rates(snapshot, live)
        if not differ:
            doubts = [] if held else _find_odd_counts(snapshot)
            held = held or bool(doubts)
            reason, version = _win_reason(winner, winner[0].version, held), winner[0].version
            whole = replace(verdict, warnings=(*warnings, *doubts), held=held)
            return replace(whole, state="winner", winner=version, reason=reason)
        waits = f" No winner is named: {differ}"
    elif any(effect.proven for effect in effects):
        waits = f" {_cycle_reason(snapshot)}"
    if _all_equal(definition, sample, live, sequences):
        reason = f"No difference: all arms are within {definition.margin:g} of each other."
        return replace(verdict, state="no_difference", reason=reason)
    if len(sample.arms) >= definition.most_units:
        reason = f"No decision within {quantity(definition.most_units, 'unit')}; {_leading(effects)}{waits}"
        return replace(verdict, state="futile", reason=reason)
    return replace(verdict, reason=f"{_leading(effects)}{waits}")


def _winner(
    snapshot: Snapshot, live: Sequence[int], sequences: ConfidenceSequences
) -> list[EffectEstimate] | None:
    """The effects of the arm that beats every other one over the units of whole cycles; None while there is none."""
    sample = snapshot.decisive
    if sample is None:
        return None
    effects = _effects(snapshot.definition, sample, live, sequences, WHOLE)
    for version in (snapshot.definition.versions[arm] for arm in live):
        own = [effect for effect in effects if effect.version == version]
        if own and all(effect.proven for effect in own):
            return own
    return None


def _cycle_reason(snapshot: Snapshot) -> str:
    """Why a lead names no winner yet."""
    one = snapshot.definition
    days = "1 day" if one.cycle == 86_400 else f"{one.cycle / 86_400:g} days"
    if snapshot.cycles < one.cycles:
        return f"A winner is named after {one.cycles} whole cycle(s) of {days}; {snapshot.cycles} are over."
    return f"The {snapshot.cycles} whole cycle(s) of {days} that are over do not show it; what comes and goes within one may."


def _few_units(snapshot: Snapshot, live: Sequence[int]) -> str:
    """Say which arm has too few outcomes for a winner: of so few, nobody can see whether others were lost."""
    sample, versions = snapshot.decisive, snapshot.definition.versions
    assert sample is not None
    for arm in live:
        if (n := int(((sample.arms == arm) & ~np.isnan(sample.values)).sum())) < LEAST_UNITS:
            return f"version {versions[arm]} has {quantity(n, 'unit')} with an outcome, and the least is {LEAST_UNITS}."
    return ""


def _answer_rates(snapshot: Snapshot, live: Sequence[int]) -> str:
    """Say how arms differ in the share of their units that have an outcome, if the difference is significant and units without
    an outcome are left out: the outcomes are then those of different people."""
    goal, versions = snapshot.definition.goal, snapshot.definition.versions
    sample = snapshot.decisive
    if goal.missing is not None or sample is None:
        return ""
    known = snapshot.known[goal.name][: len(sample.arms)]
    pairs = list(combinations(live, 2))
    for one, zero in pairs:
        (n, rate), (m, other) = (
            (int(of.sum()), float(known[of].mean()) if of.any() else 0.0)
            for of in (sample.arms == one, sample.arms == zero)
        )
        pooled = (n * rate + m * other) / max(1, n + m)
        spread = math.sqrt(pooled * (1 - pooled) * (1 / max(1, n) + 1 / max(1, m)))
        if spread and 2 * NormalDist().cdf(-abs(rate - other) / spread) <= snapshot.definition.alpha / len(
            pairs
        ):
            return (
                f"{rate:.1%} of the units of version {versions[one]} have an outcome of {goal.name}, and {other:.1%} of those of "
                f"version {versions[zero]}. Who answers may differ too. Count a missing outcome as a value (`missing`), or "
                "find out why."
            )
    return ""


def count_outcomes(sample: MetricSample, arm: int) -> ArmTally:
    """Outcomes of one arm of a sample, for bandits and posteriors."""
    values = sample.values[(sample.arms == arm) & ~np.isnan(sample.values)]
    return ArmTally(len(values), float(values.sum()), float((values**2).sum()))


def _effects(
    definition: Definition,
    sample: MetricSample,
    live: Sequence[int],
    sequences: ConfidenceSequences,
    key: str,
) -> tuple[EffectEstimate, ...]:
    """Every live arm against every other one; `key` names the sample."""
    metric, versions, effects = definition.goal, definition.versions, list[EffectEstimate]()
    needed, ends, width = len(versions) / definition.alpha, 2.0 / definition.alpha, metric.high - metric.low
    for one, zero in combinations(live, 2):
        state = sequences.pair(key, sample, one, zero, _nulls(definition))
        now = state.now.interval(ends, _DIFFERENCES)
        for arm, other, swapped in ((one, zero, False), (zero, one, True)):
            evidence, reached = state.evidence(int(swapped)), None
            if evidence >= needed:
                then = state.peaks[int(swapped)].interval(ends, _DIFFERENCES)
                reached = (then.swap_arms() if swapped else then).above(0.0).times(width)
            present = (now.swap_arms() if swapped else now).times(width)
            lead = max(-1.0, state.now.lead(needed, swapped)) * width
            figures = (present.estimate, present.low, present.high, evidence, needed, present.n, reached)
            effects.append(EffectEstimate(metric.name, versions[arm], versions[other], *figures, lead))
    return tuple(effects)


def _nulls(definition: Definition) -> tuple[Null, ...]:
    """The nulls of the goal: no effect, and the margin, each for both arms."""
    margin = definition.margin / (definition.goal.high - definition.goal.low)
    return tuple(
        Null(value, turn) for value in ([0.0, -margin] if margin else [0.0]) for turn in (False, True)
    )


def _check(
    snapshot: Snapshot, guard: Guard, arm: int, control: int, sequences: ConfidenceSequences
) -> GuardRailCheck:
    metric, versions = guard.metric, snapshot.definition.versions
    sample, needed = snapshot.samples[metric.name], (len(versions) - 1) / guard.alpha
    if guard.against == "control":
        null = Null(guard.limit / (metric.high - metric.low))
        state, span = sequences.pair(metric.name, sample, control, arm, [null]), _DIFFERENCES
    else:
        null = Null(-metric.unit(guard.limit), swapped=True)
        state, span = sequences.mean(metric.name, sample, arm, [null]), _MEANS

    def in_units(seen: SequenceInterval) -> SequenceInterval:
        if guard.against == "control":
            return seen.times(metric.high - metric.low)
        ends = sorted((metric.value(seen.low), metric.value(seen.high)))
        return SequenceInterval(seen.n, metric.value(seen.estimate), *ends)

    now, evidence, reached = in_units(state.now.interval(needed, span)), state.evidence(0), None
    if evidence >= needed:
        then = state.peaks[0].interval(needed, span)
        turned = then.swap_arms().above(null.value).swap_arms() if null.swapped else then.above(null.value)
        reached = in_units(turned)
    figures = (now.estimate, now.low, now.high, evidence, needed, now.n, reached)
    return GuardRailCheck(metric.name, versions[arm], guard.against, guard.limit, *figures)


def _all_equal(
    definition: Definition, sample: MetricSample, live: Sequence[int], sequences: ConfidenceSequences
) -> bool:
    """Whether every pair is shown to be closer than the margin."""
    if definition.margin == 0.0 or len(live) < 2:
        return False
    needed, nulls = len(definition.arms) / definition.alpha, _nulls(definition)
    states = [sequences.pair(definition.goal.name, sample, *pair, nulls) for pair in combinations(live, 2)]
    return all(state.evidence(i) >= needed for state in states for i in (2, 3))


def _diagnostics(
    snapshot: Snapshot, live: Sequence[int], sequences: ConfidenceSequences
) -> tuple[tuple[str, ...], bool]:
    """Reasons to doubt the comparison, and whether a person must look before anything is applied."""
    goal = snapshot.definition.goal
    unexplained, unequal = _find_share_mismatches(snapshot, sequences), _unequal(snapshot, live, sequences)
    beyond = _beyond(snapshot)
    held = bool(unexplained) or (bool(unequal) and goal.missing is None) or goal.name in beyond
    warnings = [*unexplained, *unequal, *beyond.values()]
    late, used = snapshot.counts.late, sum(snapshot.values.values())
    if late > _MOST_LATE * (late + used):
        warnings.append(
            f"{late:,} of {late + used:,} values came after the window of their unit and are not used. Start again with a longer "
            "window where these values should count."
        )
    if snapshot.counts.mismatched:
        warnings.append(
            f"Left out: {quantity(snapshot.counts.mismatched, 'inference')} with a version that the definition does not assign."
        )
    return tuple(warnings), held


def _find_share_mismatches(snapshot: Snapshot, sequences: ConfidenceSequences) -> list[str]:
    """Numbers of units that do not fit the shares."""
    if sequences.imbalance(snapshot.units) < -math.log(_IMBALANCE_ALPHA):
        return []
    return [
        f"The arms have {snapshot.count_units()} units, which their shares do not explain: some inferences are not "
        "logged, or not assigned by the definition. No result can be trusted until this is found."
    ]


def _find_odd_counts(snapshot: Snapshot) -> list[str]:
    """Numbers of units that are unlikely under the shares at the one moment of a decision. The evidence over all looks comes late
    where an arm has few units, and a winner may rest on those that were lost."""
    units, versions = snapshot.units, snapshot.definition.versions
    counts, expected = np.array(snapshot.count_units()), units.chances.sum(axis=0)
    spread = np.sqrt((units.chances * (1.0 - units.chances)).sum(axis=0))
    for version, n, share, one in zip(versions, counts, expected, spread, strict=True):
        level = _ODD_ALPHA / max(1, len(versions) - 1)
        if one and 2 * NormalDist().cdf(-abs(n - share) / one) <= level:
            return [
                f"Version {version} has {quantity(int(n), 'unit')} where its share makes about {share:.0f}: some inferences may "
                "not be logged, or not assigned by the definition."
            ]
    return []


def _unequal(snapshot: Snapshot, live: Sequence[int], sequences: ConfidenceSequences) -> list[str]:
    """Pairs of arms of which one has more outcomes of the goal."""
    definition = snapshot.definition
    name, rates = definition.goal.name, snapshot.outcome_indicators(definition.goal.name)
    needed = len(live) * (len(live) - 1) / definition.alpha
    warnings = []
    for one, zero in combinations(live, 2):
        nulls = Null(0.0), Null(0.0, True)
        state = sequences.pair(f"answers to {name}", rates, one, zero, nulls, bounds=False)
        for i, arm, other, turn in ((0, one, zero, 1.0), (1, zero, one, -1.0)):
            if state.evidence(i) >= needed:
                warnings.append(
                    f"Units of version {definition.versions[arm]} have an outcome of {name} more "
                    f"often than those of version {definition.versions[other]}, by {turn * state.now.mean:.1%} of the units. "
                    "Who answers may differ too; compare with care, or count a missing outcome as a value."
                )
    return warnings


def _beyond(snapshot: Snapshot) -> dict[str, str]:
    """Metrics of which more values than a few lie outside the range that was declared."""
    return {
        name: (
            f"{snapshot.clipped[name]:,} of {snapshot.values[name]:,} values of {name} lie outside the range "
            f"[{metric.low:g}, {metric.high:g}] and count as its end: differences beyond it are not seen. Start "
            "again with the range that the values have."
        )
        for name, metric in snapshot.definition.metrics.items()
        if snapshot.clipped[name] > _MOST_CLIPPED * snapshot.values[name]
    }


def _win_reason(effects: Sequence[EffectEstimate], version: int, held: bool) -> str:
    own = [(e, e.reached) for e in effects if e.version == version and e.reached is not None]
    against = ", ".join(
        f"version {e.against} by {show_number(then.estimate)} ({SEQUENCE} {show_number(then.low)} to "
        f"{show_number(then.high)}) over {quantity(then.n, 'unit')}"
        for e, then in own
    )
    doubt = " A warning puts this in doubt: a person must look first." if held else ""
    return f"Version {version} is better on {effects[0].metric} than {against}.{doubt}"


def _harm_reason(check: GuardRailCheck) -> str:
    compared = "worse than the control by" if check.against == "control" else "at"
    seen = check.reached or SequenceInterval(check.n, check.harm, check.low, check.high)
    return (
        f"Version {check.version} breaks the guard-rail on {check.metric}: it is {compared} {show_number(seen.estimate)} "
        f"({SEQUENCE} {show_number(seen.low)} to {show_number(seen.high)}), and the limit is {show_number(check.limit)}, over "
        f"{quantity(seen.n, 'unit')}."
    )


def watch_reason(checks: Sequence[GuardRailCheck]) -> str:
    """The verdict of a watch while no guard-rail is shown to be broken."""
    nearest = max((check for check in checks if check.n), key=lambda c: c.evidence / c.needed, default=None)
    if nearest is None:
        return "No guard-rail has a settled outcome yet."
    return (
        f"No guard-rail is shown to be broken. Nearest to it is {nearest.metric}: the evidence is "
        f"{show_number(nearest.evidence)} of {show_number(nearest.needed)}, over {quantity(nearest.n, 'unit')}."
    )


def _leading(effects: Sequence[EffectEstimate]) -> str:
    known = [effect for effect in effects if effect.n]
    if not known:
        return "There is no settled outcome yet."
    best = max(known, key=lambda e: e.evidence / e.needed)
    lost = ""
    if best.evidence >= best.needed and not best.proven:
        lost = " It was reached, but all units so far do not show the lead."
    return (
        f"version {best.version} leads version {best.against} by {show_number(best.estimate)} "
        f"({SEQUENCE} {show_number(best.low)} to {show_number(best.high)}); the evidence is {show_number(best.evidence)} of "
        f"{show_number(best.needed)}.{lost}"
    )
