"""Whether the quality of a live prompt is on the right side of a threshold, for a build server."""

from __future__ import annotations

import math

from whet.errors import UsageError, did_you_mean, quantity, show_reward
from whet.reporting import ThresholdCheck, reaches
from whet_live.quality.glance import main_measure
from whet_live.quality.measures import BY_NAME, SCORE, QualityMeasure, measure_named
from whet_live.quality.report import QualityReport
from whet_live.quality.series import MeasureSeries


def check_quality(
    report: QualityReport, threshold: float, measure: str = "", *, sure: bool = False
) -> ThresholdCheck:
    """Whether the mean of a measure over the whole period of a report, which has one group, is `threshold` or more; or, of a
    measure of which less is better, `threshold` or less. With `sure`, the end of its 95% interval that is the worse one decides.
    Without the name of a measure it is what people said, else a score. Undecided where no answer has the measure.

    Raises UsageError for a measure that there is not, one of which neither side is better, and a threshold that cannot be met
    or missed.
    """
    group = report.groups[0]
    name = measure or main_measure([one.measure.name for one in group.series if one.measure.better > 0])
    if not name:
        return ThresholdCheck(report.prompt, "undecided", "nobody judged an answer of the period")
    wanted = _find_measure(name, threshold)
    series = group.of(name)
    if series is None:
        return ThresholdCheck(
            report.prompt, "undecided", f"{wanted.title.lower()}: no answer of the period has a value"
        )
    return _judge_series(report.prompt, series, threshold, sure)


def _find_measure(name: str, threshold: float) -> QualityMeasure:
    if name not in BY_NAME and not (name.startswith(SCORE) and len(name) > len(SCORE)):
        raise UsageError(
            f'There is no measure "{name[:60]}".{did_you_mean(name, BY_NAME)} Write {", ".join(BY_NAME)} or {SCORE}NAME.'
        )
    wanted = measure_named(name)
    if not wanted.better:
        raise UsageError(f"More {name} is neither better nor worse, so there is no threshold to meet.")
    low, high = (-math.inf, math.inf) if wanted.kind == "amount" else (wanted.low, wanted.high)
    if not (math.isfinite(threshold) and low <= threshold <= high):
        raise UsageError(
            f"The threshold {threshold:g} is no value of {name}, which lies in {low:g} to {high:g}."
        )
    return wanted


def _judge_series(prompt: str, series: MeasureSeries, threshold: float, sure: bool) -> ThresholdCheck:
    measure, whole = series.measure, series.whole
    more = measure.better > 0
    worse = whole.low if more else whole.high
    measured = worse if sure else whole.mean
    passed = reaches(measured, threshold) if more else reaches(-measured, -threshold)
    ends = f"[{show_reward(whole.low)}, {show_reward(whole.high)}]"
    who = f"{quantity(whole.n, 'answer')} to {quantity(whole.clusters, 'user')}"
    what = f"the {'lower' if more else 'upper'} end of " if sure else ""
    side = f"{'not ' if passed else ''}{'below' if more else 'above'}"
    sentence = f"{what}{measure.title.lower()} {show_reward(whole.mean)} {ends}, {who}, is {side} {show_reward(threshold)}"
    return ThresholdCheck(prompt, "passed" if passed else "failed", sentence)
