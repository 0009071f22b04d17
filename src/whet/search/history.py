"""The earlier attempts that an optimizer model sees: each as it was, counts and means with intervals, or nothing.

Krishnamurthy, Harris, Foster, Zhang, Slivkins: Can large language models explore in-context? NeurIPS 2024. arXiv:2403.15371.
There models chose well between arms only where the history was summarised for them, as the count and the mean of each arm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

from whet.errors import quantity
from whet.stats import interval
from whet.types import Score

History: TypeAlias = Literal["raw", "summary", "none"]


def show_score(history: History, score: Score, low: float, high: float, shown: Callable[[float], int]) -> str:
    """A score as a meta-prompt tells it: `shown` of its mean; in a summary with the 95% interval and the number of rows.

    `low` and `high` are the ends of the reward. The interval is left out where the rewards of the rows are not known.
    """
    text = f"{shown(score.mean)}"
    if history != "summary":
        return text
    rows = quantity(score.n, "row")
    if not score.rewards:
        return f"{text} ({rows})"
    ends = interval(list(score.rewards.values()), low, high)
    return f"{text} (95% interval {shown(ends.low)} to {shown(ends.high)}, {rows})"


def show_attempts(history: History, attempts: Sequence[tuple[str, float]], width: float) -> str:
    """Attempts, each a label and the change of the score that followed, as lines; none of them where nothing is to be seen.

    A summary has a line for each label in the order in which they were tried first: how often, the mean change, and its 95%
    interval where there are several. A change lies between -`width` and `width`.
    """
    if history == "none":
        return ""
    if history == "raw":
        return "\n".join(f"- {label}: {change:+.2f}" for label, change in attempts)
    lines = []
    for label in dict.fromkeys(label for label, _ in attempts):
        changes = [change for other, change in attempts if other == label]
        line = f"- {label}: {quantity(len(changes), 'attempt')}, mean {fmean(changes):+.2f}"
        if len(changes) > 1:
            ends = interval(changes, -width, width)
            line += f" (95% interval {ends.low:+.2f} to {ends.high:+.2f})"
        lines.append(line)
    return "\n".join(lines)
