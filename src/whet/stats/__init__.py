"""The gate: intervals for mean rewards, and the rule by which a candidate may replace a prompt."""

from whet.stats.betting import EProcess, confidence_sequence
from whet.stats.contrasts import ContrastTest, compare_bounds, evaluate_contrasts
from whet.stats.factorial import MOST_FACTORS, RESOLUTIONS, Design, fractional_design, full_design, letters
from whet.stats.gate import Improvement, decide, decide_answered, decide_anytime, hold_to_second_judge
from whet.stats.home import HomeAdvantage, evaluate_home
from whet.stats.intervals import Interval, difference_interval, interval, percent, show_p
from whet.stats.joint import Bound, Goal, JointVerdict, ObjectiveVerdict, decide_objectives
from whet.stats.multiplicity import FDR, POLICIES, STRICT, discovery_alpha, holm, opening_alpha
from whet.stats.paired import clusters_of, fewest_clusters
from whet.stats.power import rows_for_gain, smallest_gain

__all__ = [
    "FDR",
    "MOST_FACTORS",
    "POLICIES",
    "RESOLUTIONS",
    "STRICT",
    "Bound",
    "ContrastTest",
    "Design",
    "EProcess",
    "Goal",
    "HomeAdvantage",
    "Improvement",
    "Interval",
    "JointVerdict",
    "ObjectiveVerdict",
    "clusters_of",
    "compare_bounds",
    "confidence_sequence",
    "decide",
    "decide_answered",
    "decide_anytime",
    "decide_objectives",
    "difference_interval",
    "discovery_alpha",
    "evaluate_contrasts",
    "evaluate_home",
    "fewest_clusters",
    "fractional_design",
    "full_design",
    "hold_to_second_judge",
    "holm",
    "interval",
    "letters",
    "opening_alpha",
    "percent",
    "rows_for_gain",
    "show_p",
    "smallest_gain",
]
