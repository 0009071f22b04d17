"""The gate: intervals for mean rewards, and the rule by which a candidate may replace a prompt."""

from whet.stats.betting import EProcess, confidence_sequence
from whet.stats.gate import Improvement, confirmed, decide
from whet.stats.intervals import Interval, interval

__all__ = ["EProcess", "Improvement", "Interval", "confidence_sequence", "confirmed", "decide", "interval"]
