"""The gate: intervals for mean rewards, and the rule by which a candidate may replace a prompt."""

from whet.stats.betting import EProcess, confidence_sequence
from whet.stats.gate import Improvement, decide, decide_answered, decide_anytime, hold_to_second_judge
from whet.stats.intervals import Interval, difference_interval, interval, percent
from whet.stats.joint import Bound, Goal, JointVerdict, ObjectiveVerdict, decide_objectives
from whet.stats.multiplicity import holm, opening_alpha
from whet.stats.paired import clusters_of, fewest_clusters
from whet.stats.power import rows_for_gain, smallest_gain

__all__ = [
    "Bound",
    "EProcess",
    "Goal",
    "Improvement",
    "Interval",
    "JointVerdict",
    "ObjectiveVerdict",
    "clusters_of",
    "confidence_sequence",
    "decide",
    "decide_answered",
    "decide_anytime",
    "decide_objectives",
    "difference_interval",
    "fewest_clusters",
    "hold_to_second_judge",
    "holm",
    "interval",
    "opening_alpha",
    "percent",
    "rows_for_gain",
    "smallest_gain",
]
