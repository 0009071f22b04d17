"""The gate: intervals for mean rewards, and the rule by which a candidate may replace a prompt."""

from whet.stats.betting import EProcess, confidence_sequence
from whet.stats.gate import Improvement, confirmed, decide, decide_anytime
from whet.stats.intervals import Interval, interval
from whet.stats.multiplicity import holm, opening_alpha
from whet.stats.paired import clusters_of, fewest_clusters

__all__ = [
    "EProcess",
    "Improvement",
    "Interval",
    "clusters_of",
    "confidence_sequence",
    "confirmed",
    "decide",
    "decide_anytime",
    "fewest_clusters",
    "holm",
    "interval",
    "opening_alpha",
]
