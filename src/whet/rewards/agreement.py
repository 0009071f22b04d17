"""The agreement of a judge with people, and a warning when it is low.

Cohen's kappa where people's scores have two levels, one on each side of the middle of the scale (Cohen 1960), else rank
correlation (Spearman 1904). Both are 1 for full agreement and about 0 for a judge that knows nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._util.verdicts import Verdicts
from whet.errors import UsageError, quantity, show_reward
from whet.rewards.composite import Weighted
from whet.rewards.program import RewardFailed
from whet.rewards.reward import RewardFunction
from whet.rewards.score_reading import split_score
from whet.run import Run
from whet.types import Completion, Example
from whet_client.storable import show_value

POOR = 0.4
LEAST = 5
_Z = 1.959963984540054

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
        """The warning when the agreement is poor or unknown, else None."""
        if self.kind == UNDEFINED:
            why = (
                f"people gave the same score to all {self.n} answers"
                if self.n > 1
                else "one answer with a person's score is too few"
                if self.n
                else "no answer has a person's score that is read"
            )
            return f"How far the reward {name} agrees with the human scores cannot be told: {why}."
        if not self.poor:
            return None
        return (
            f"The reward {name} agrees poorly with the human scores: {self.kind} {show_reward(self.value, 2)} "
            f"(95% interval {show_reward(self.low, 2)} to {show_reward(self.high, 2)}) over {self.n} answers. "
            "What a run gains by it may not be what people want: change the rubric or the judge model first."
        )


def agreement(pairs: Sequence[tuple[float, float]]) -> Agreement:
    """Agreement of (judge, human) scores, whose scales may differ.

    Two levels of people's scores are good and bad where both sides' scores are in [0, 1] and the middle lies between the levels:
    it then cuts the judge's scores too. Two levels on one side of the middle, or on another scale, are compared as ranks.
    """
    n = len(pairs)
    judge, human = np.array([p[0] for p in pairs], dtype=float), np.array([p[1] for p in pairs], dtype=float)
    levels = np.unique(human)
    if n < 2 or len(levels) < 2:
        return Agreement(0.0, UNDEFINED, n, -1.0, 1.0, False)
    on_unit_scale = min(judge.min(), human.min()) >= 0.0 and max(judge.max(), human.max()) <= 1.0
    if len(levels) == 2 and on_unit_scale and levels[0] < 0.5 <= levels[1]:
        kind, table = KAPPA, np.zeros((2, 2))
        np.add.at(table, ((judge >= 0.5).astype(int), (human >= 0.5).astype(int)), 1.0)
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


@dataclass(frozen=True, slots=True)
class RaterPair:
    """The agreement of two raters on the answers that both scored."""

    first: str
    second: str
    agreement: Agreement

    @property
    def opposed(self) -> bool:
        """Whether they put answers in opposite orders: the whole interval is below 0."""
        return self.agreement.kind != UNDEFINED and self.agreement.high < 0


def compare_raters(scored: Sequence[tuple[str, str, float]]) -> list[RaterPair]:
    """All pairs of raters who scored 5 answers or more in common, by name. `scored`: rater, answer, score; of two scores of one
    rater for one answer the last counts."""
    by_rater: dict[str, dict[str, float]] = {}
    for rater, answer, score in scored:
        by_rater.setdefault(rater, {})[answer] = score
    pairs = []
    for first, second in itertools.combinations(sorted(by_rater), 2):
        both = by_rater[first].keys() & by_rater[second].keys()
        if len(both) >= LEAST:
            scores = [(by_rater[first][one], by_rater[second][one]) for one in sorted(both)]
            pairs.append(RaterPair(first, second, agreement(scores)))
    return pairs


def parts_with_humans(reward: RewardFunction) -> list[RewardFunction]:
    """The rewards that name a column of human scores (`human`), also inside a weighted list."""
    if isinstance(reward, Weighted):
        return [judged for _, part in reward.parts for judged in parts_with_humans(part)]
    return [reward] if getattr(reward, "human", None) else []


def human_scores(
    values: Sequence[object],
    low: float,
    high: float,
    verdicts: Verdicts = Verdicts(),  # noqa: B008
) -> list[float | None]:
    """The scores of people in one column as numbers on one scale; None for what is not read.

    `4/5`, `8/10` and `80%` are the same share of `high`, and stars are counted; plain numbers beside them have the one
    denominator of the column, and are not read where there are several, or percentages. A value that `verdicts` know is an
    end of the scale from `low` to `high`. Plain numbers are verdicts too where all are 0 or 1, or -1 or 1, and they stand
    beside such words or the lower one lies outside the scale.
    """
    read = [_parts_of_score(value, verdicts) for value in values]
    denominators = {of for _, of in read if of}
    plain = {score for score, of in read if score is not None and of is None}
    shares = any(isinstance(value, str) and value.rstrip().endswith("%") for value in values)
    worded = any(of == _WORD for _, of in read)
    binary = plain <= {0.0, 1.0} or plain <= {-1.0, 1.0}
    if plain and binary and not denominators and (worded or min(plain) < low):
        read = [(None if score is None else float(score == 1.0), _WORD) for score, _ in read]

    def on_scale(score: float | None, of: float | None) -> float | None:
        if score is None:
            return None
        if of == _WORD:
            return high if score else low
        if not denominators:
            return score
        if of is None and (len(denominators) > 1 or shares):
            return None
        return score / (of or next(iter(denominators))) * high

    return [on_scale(*parts) for parts in read]


_WORD = 0.0


def _parts_of_score(value: object, verdicts: Verdicts) -> tuple[float | None, float | None]:
    """A score and its denominator: `_WORD` of a word that is good (1) or bad (0), None of a plain number. The score is None where
    nothing is read."""
    verdict = verdicts.of(value)
    if verdict is not None:
        return float(verdict), _WORD
    if isinstance(value, int | float):
        return (float(value) if math.isfinite(value) else None), None
    if not isinstance(value, str):
        return None, None
    number, slash, of = value.partition("/")
    score: float | None
    try:
        score, denominator = float(number), float(of) if slash else None
    except ValueError:
        score, denominator = split_score(value)
        if score is None:
            return None, None
    known = math.isfinite(score) and (denominator is None or 0.0 < denominator < math.inf)
    return (score, denominator) if known else (None, None)


@dataclass(frozen=True)
class Labelled:
    """The answers that people scored, each with its row and its score, and the scores that were not read."""

    rows: Sequence[tuple[Example, str, float]]
    unread: Sequence[tuple[Example, object]]

    def warning(self, reward: RewardFunction) -> str | None:
        """The warning about scores that were not read; None where all were."""
        if not self.unread:
            return None
        column, n = getattr(reward, "human", ""), len(self.unread)
        return (
            f"{n} of {quantity(n + len(self.rows), 'human score')} in the column {show_value(column)} cannot be read, such as "
            f"{show_value(self.unread[0][1])} in {self.unread[0][0].place}; the agreement of {reward.name} with people is "
            "measured without them. Write a number, a number with what it is out of (4/5, 80%), stars, or two values, of which "
            "`human_good: VALUE` names the good one."
        )


def select_labelled(reward: RewardFunction, examples: Sequence[Example]) -> Labelled:
    """The examples with an answer that a person scored. Scores that are empty are none.

    Raises UsageError where the scores are two words and nothing says which one is good."""
    column, output = str(getattr(reward, "human", "")), str(getattr(reward, "human_output", "output"))
    scored = [
        (e, e.row[output])
        for e in examples
        if isinstance(e.row.get(output), str) and e.row.get(column) not in (None, "")
    ]
    values = [example.row[column] for example, _ in scored]
    scores = human_scores(values, *_scale_of(reward), _order_scores(reward, values))
    return Labelled(
        [(*row, score) for row, score in zip(scored, scores, strict=True) if score is not None],
        [
            (example, value)
            for (example, _), value, score in zip(scored, values, scores, strict=True)
            if score is None
        ],
    )


def _order_scores(reward: RewardFunction, values: Sequence[object]) -> Verdicts:
    """The values of the words among people's scores: the constants of other tools, and `human_good` with its opposite."""
    words = list(dict.fromkeys(value.strip().casefold() for value in values if isinstance(value, str)))
    good, column = getattr(reward, "human_good", None), getattr(reward, "human", "")
    if good is not None:
        key = str(good).strip().casefold()
        if values and key not in words:
            raise UsageError(
                f"human_good: {show_value(good)} is no value of the column {show_value(column)}. It holds "
                f"{', '.join(map(show_value, words[:8])) or 'no words'}."
            )
        others = [word for word in words if word != key and _is_word(word)]
        return Verdicts({key: True} | ({others[0]: False} if len(others) == 1 else {}))
    unread = [word for word in words if _parts_of_score(word, Verdicts())[0] is None]
    if len(unread) == len({*map(str, values)}) == 2:
        raise UsageError(
            f"The human scores in the column {show_value(column)} are {show_value(unread[0])} and {show_value(unread[1])}, and "
            f"nothing says which one is good. Write `human_good: {unread[0]}` or `human_good: {unread[1]}` beside `human`."
        )
    return Verdicts()


def _is_word(text: str) -> bool:
    score, of = _parts_of_score(text, Verdicts())
    return score is None or of == _WORD


def _scale_of(reward: RewardFunction) -> tuple[float, float]:
    scale: tuple[float, float] = getattr(reward, "scale", (0.0, 1.0))
    return scale


async def measure(
    run: Run, reward: RewardFunction, rows: Sequence[tuple[Example, str, float]], most: int = 50
) -> Agreement:
    """Let a reward grade answers that people have scored, the first `most` of `rows`, and compare. Costs at most
    `most` x `judge_calls` calls.

    People's scores that all lie on the reward's `scale` (default [0, 1]) are mapped to [0, 1] as the judge's
    own are.
    """

    async def one(branch: Run, row: tuple[Example, str, float]) -> tuple[float, float] | None:
        example, answer, score = row
        try:
            return (await reward.grade(branch, example, Completion(answer))).value, score
        except RewardFailed:
            return None

    pairs = [pair for pair in await run.map(one, rows[:most]) if pair is not None]
    low, high = _scale_of(reward)
    if all(low <= human <= high for _, human in pairs):
        pairs = [(judge, (human - low) / (high - low)) for judge, human in pairs]
    return agreement(pairs)
