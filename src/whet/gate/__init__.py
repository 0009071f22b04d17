"""The gate: intervals for mean rewards, and the rule by which a candidate may replace a prompt."""

from whet.gate.decision import Improvement, decide, seconded
from whet.gate.intervals import Interval, interval
from whet.gate.sequential import EProcess, confidence_sequence

__all__ = ["EProcess", "Improvement", "Interval", "confidence_sequence", "decide", "interval", "seconded"]
