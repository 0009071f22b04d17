"""How far a judge agrees with people, and a warning when that is not far.

Cohen's kappa where people's scores have two levels (Cohen 1960), else rank correlation (Spearman 1904). Both are 1 for
full agreement and about 0 for a judge that knows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.errors import show_reward
from whet.rewards.composite import Weighted
from whet.rewards.program import RewardFailed
from whet.rewards.reward import RewardFunction
from whet.run import Run
from whet.types import Completion, Example

POOR = 0.4
LEAST = 5
_Z = 1.959963984540054
_GOOD = {
    *("good", "yes", "true", "correct", "right", "pass", "passed", "up", "thumbs_up", "ok"),
    *("acceptable", "accepted"),
}
_BAD = {
    *("bad", "no", "false", "incorrect", "wrong", "fail", "failed", "down", "thumbs_down"),
    *("unacceptable", "rejected"),
}

SPEARMAN, KAPPA, UNDEFINED = "spearman", "kappa", "undefined"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a judge with people over `n` answers, in [-1, 1], with its 95% interval.

    `kind` is spearman, kappa, or undefined (fewer than two pairs, or people who gave one score to everything;
    the value is then 0). `poor`: below 0.4 over at least 5 answers. The interval is that of Bonett and Wright
    (2000) for Spearman and of Fleiss, Cohen and Everitt (1969) for kappa; full agreement is treated as if it
    had one fault.
    """

    value: float
    kind: str
    n: int
    low: float
    high: float
    poor: bool

    def warning(self, name: str) -> str | None:
        """What to say when the agreement is poor, else None."""
        if not self.poor:
            return None
        return (
            f"The reward {name} agrees poorly with the human scores: {self.kind} {show_reward(self.value, 2)} "
            f"(95% interval {show_reward(self.low, 2)} to {show_reward(self.high, 2)}) over {self.n} answers. "
            "What a run gains by it may not be what people want: change the rubric or the judge model first."
        )


def agreement(pairs: Sequence[tuple[float, float]]) -> Agreement:
    """Agreement of (judge, human) scores, whose scales may differ.

    Two levels of people's scores (good and bad) are compared with a judge's scores in [0, 1] cut in the middle.
    """
    n = len(pairs)
    judge, human = np.array([p[0] for p in pairs], dtype=float), np.array([p[1] for p in pairs], dtype=float)
    levels = len(np.unique(human))
    if n < 2 or levels < 2:
        return Agreement(0.0, UNDEFINED, n, -1.0, 1.0, False)
    if levels == 2 and judge.min() >= 0.0 and judge.max() <= 1.0:
        kind, table = KAPPA, np.zeros((2, 2))
        np.add.at(table, ((judge >= 0.5).astype(int), (human == human.max()).astype(int)), 1.0)
        value, error = kappa(table)
        low, high = max(-1.0, value - _Z * error), min(1.0, value + _Z * error)
    else:
        kind, value = SPEARMAN, spearman(judge, human)
        low, high = _fisher(value, n)
    return Agreement(value, kind, n, low, high, value < POOR and n >= LEAST)


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Pearson correlation of the ranks, ties at their mean rank; 0 when one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: NDArray[np.float64] = (2 * last - counts + 1) / 2
    return mean[inverse]


def _fisher(value: float, n: int) -> tuple[float, float]:
    """Interval by Fisher's z with the standard error of Bonett and Wright (2000); [-1, 1] below four
    pairs.
    """
    if n < 4:
        return -1.0, 1.0
    edge = 1.0 - 12.0 / (n * (n * n - 1))
    r = min(edge, max(-edge, value))
    error = math.sqrt((1.0 + r * r / 2.0) / (n - 3))
    return math.tanh(math.atanh(r) - _Z * error), max(value, math.tanh(math.atanh(r) + _Z * error))


def kappa(table: NDArray[np.float64]) -> tuple[float, float]:
    """Cohen's kappa of a 2 x 2 table of counts (judge, human), and its standard error.

    The error comes from the table with one more pair spread evenly over it, so that it is not 0 for full agreement.
    """
    return _kappa(table)[0], _kappa(table + 1.0 / table.size)[1]


def _kappa(table: NDArray[np.float64]) -> tuple[float, float]:
    n = float(table.sum())
    p = table / n
    rows, columns = p.sum(1), p.sum(0)
    observed, expected = float(np.trace(p)), float(rows @ columns)
    if expected >= 1.0:
        return 0.0, 0.0
    value = (observed - expected) / (1.0 - expected)
    mean = columns[:, None] + rows[None, :]
    spread = (
        float((p * (np.eye(2) - mean * (1.0 - value)) ** 2).sum()) - (value - expected * (1.0 - value)) ** 2
    )
    return value, math.sqrt(max(0.0, spread) / n) / (1.0 - expected)


def parts_with_humans(reward: RewardFunction) -> list[RewardFunction]:
    """The rewards that name a column of human scores (`human`), also inside a weighted list."""
    if isinstance(reward, Weighted):
        return [judged for _, part in reward.parts for judged in parts_with_humans(part)]
    return [reward] if getattr(reward, "human", None) else []


def human_score(value: object) -> float | None:
    """A person's score as a number: a number, or a word such as good, bad, yes, no, pass, fail; else None."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    word = value.strip().casefold().replace(" ", "_")
    if word in _GOOD | _BAD:
        return float(word in _GOOD)
    try:
        score = float(value.partition("/")[0])
    except ValueError:
        return None
    return score if math.isfinite(score) else None


def select_labelled(
    reward: RewardFunction, examples: Sequence[Example], most: int = 50
) -> list[tuple[Example, str, float]]:
    """At most `most` examples with the answer that a person scored, and the score."""
    column, output = str(getattr(reward, "human", "")), str(getattr(reward, "human_output", "output"))
    rows: list[tuple[Example, str, float]] = []
    for example in examples:
        score, answer = human_score(example.row.get(column)), example.row.get(output)
        if score is not None and isinstance(answer, str) and len(rows) < most:
            rows.append((example, answer, score))
    return rows


async def measure(run: Run, reward: RewardFunction, examples: Sequence[Example], most: int = 50) -> Agreement:
    """Let a reward grade answers that people have scored, and compare. Costs at most `most` x `judge_calls`
    calls.

    People's scores that all lie on the reward's `scale` (default [0, 1]) are mapped to [0, 1] as the judge's
    own are.
    """

    async def one(branch: Run, row: tuple[Example, str, float]) -> tuple[float, float] | None:
        example, answer, score = row
        try:
            return (await reward.grade(branch, example, Completion(answer))).value, score
        except RewardFailed:
            return None

    pairs = [pair for pair in await run.map(one, select_labelled(reward, examples, most)) if pair is not None]
    low, high = getattr(reward, "scale", (0.0, 1.0))
    if all(low <= human <= high for _, human in pairs):
        pairs = [(judge, (human - low) / (high - low)) for judge, human in pairs]
    return agreement(pairs)
