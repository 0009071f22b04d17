"""People's behaviour as a reward: implicit signals weighted by a model that is fitted to the explicit ratings of the same
traffic.

Few people rate, and not at random: those who are annoyed rate more. The correction is open about that. A first model
says how likely an answer with such signals is to be rated at all; each rating then counts with the inverse of that
(inverse-propensity weights, Rosenbaum and Rubin, Biometrika 70(1), 1983), and the mean is the doubly robust one
(augmented inverse-propensity weighting, Robins, Rotnitzky and Zhao, JASA 89(427), 1994, section 3), which is right when
either of the two models is. Both answers, corrected and not, are reported. What the signals do not show cannot be
corrected by them: `hidden` says how far the mean could lie off if the odds of a good rating were twice as high, or half
as high, among those who did not rate (an exponential tilt; Scharfstein, Rotnitzky and Robins, JASA 94(448), 1999).

The reward itself is a fractional logistic regression (Papke and Wooldridge, Journal of Applied Econometrics 11(6), 1996)
with a ridge penalty on standardised features; intervals are sandwich intervals that take all ratings of one user as one
source (Liang and Zeger, Biometrika 73(1), 1986).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, quantity
from whet.stats.logistic import Array, logistic, sigmoid

SANDWICH = "sandwich, people as clusters"
"""The method of the intervals."""

EVENTS = ("copy", "regenerate", "follow_up", "abandon", "share")
"""Signals that either happened or did not: none is 0."""

MEASURES = ("edit_distance", "dwell", "external_check")
"""Signals that are not known where they were not sent: whether one was sent is a feature of its own."""

LEAST = 50
MOST = 5
"""The maximum joint weight of one user's ratings, in ratings of average weight."""
SMALLEST_PROPENSITY = 0.02
ODDS = 2.0
_Z = 1.959963984540054
_FOLDS = 5
PLEASED = {"copy": 1, "share": 1, "external_check": 1, "regenerate": -1, "abandon": -1, "edit_distance": -1}
"""Signals that speak for an answer (1) or against it (-1), if people mean what they do."""
FEW = 20
"""With fewer raters, intervals that take a rater as one are not to be relied on."""
LOST = 0.05
"""From this share of all ratings on, a warning names what is lost because few users rate much."""


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """One answer: its signals (kind -> value, several of a kind already combined), and its rating in 0..1 if it has one.

    `user` groups the answers of one source; without one every answer is a source of its own.
    """

    id: str
    signals: Mapping[str, float] = field(default_factory=dict)
    rating: float | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval: a sandwich interval with people as clusters."""

    value: float
    low: float
    high: float
    method: str = SANDWICH


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one feature, per standard deviation of the feature, in log-odds of a good rating.

    `mean` and `scale` standardise the feature; `naive` is the weight without the correction, `rates` how the feature
    moves the log-odds of being rated at all.
    """

    feature: str
    mean: float
    scale: float
    weight: Estimate
    naive: Estimate
    rates: float


@dataclass(frozen=True, slots=True)
class BehaviourModel:
    """The fitted reward, and everything that one must know to trust it or not."""

    weights: tuple[Weight, ...]
    intercept: float
    answers: int
    rated: int
    sources: int
    naive: Estimate
    """The mean rating of those who rated."""
    corrected: Estimate
    """The estimate for all answers."""
    hidden: tuple[float, float]
    """The range of `corrected` if those who did not rate differ in ways that the signals do not show."""
    explained: float
    """The share of the ratings' variance that the signals explain, in answers that were left out of the fit; below 0: none."""
    effective: float
    """The number of equally weighted ratings that the weighted ones are worth."""
    warnings: tuple[str, ...] = ()

    def reward(self, signals: Mapping[str, float]) -> float:
        """The expected rating in (0, 1) of an answer with these signals."""
        odds = self.intercept
        for weight in self.weights:
            value = _feature(weight.feature, signals)
            if value is not None:
                odds += weight.weight.value * (value - weight.mean) / weight.scale
        return 0.5 * (1.0 + math.tanh(0.5 * odds))

    def as_json(self) -> dict[str, object]:
        """The model as JSON values; `from_json` reads it again."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BehaviourModel:
        """A model from `as_json`."""
        weights = tuple(
            Weight(**{**row, "weight": Estimate(**row["weight"]), "naive": Estimate(**row["naive"])})
            for row in value["weights"]
        )
        tuples = {"weights": weights, **{name: tuple(value[name]) for name in ("warnings", "hidden")}}
        return BehaviourModel(
            **{**value, **tuples, **{name: Estimate(**value[name]) for name in ("naive", "corrected")}}
        )


def fit_behaviour(
    observations: Iterable[RatedAnswer], *, ridge: float = 1.0, most: float = MOST
) -> BehaviourModel:
    """Fit the reward to all answers of some traffic, rated or not.

    `ridge` is the penalty on the squared weights. The ratings of one user weigh together at most what `most` ratings of
    average weight do, so that nobody bends the weights by rating much, nor by rating what nobody else rates; infinity
    lets all count. `naive` knows no such bound. Raises UsageError when fewer than LEAST answers are rated, when all
    ratings are equal, or when no signal varies.
    """
    rows = list(observations)
    rated = np.array([row.rating is not None for row in rows], dtype=bool)
    _refuse(rows, int(rated.sum()))
    names, x, means, scales = standardised_features(rows)
    y = np.array([row.rating for row in rows if row.rating is not None], dtype=np.float64)
    sources = _sources(rows)
    mine = sources[rated]
    rates, propensity = _propensity(x, rated, ridge)
    inverse = 1.0 / propensity[rated]
    shrunk = bounded_shares(inverse, mine, most)
    inverse *= shrunk
    inverse *= len(y) / inverse.sum()
    beta, weights = _fit(x[rated], y, inverse, mine, ridge)
    naive = _fit(x[rated], y, np.ones_like(y), mine, ridge)[1]
    likely = sigmoid(_with_one(x) @ beta)
    effective = float(inverse.sum() ** 2 / (inverse**2).sum())
    explained = _cross_validated_r2(x[rated], y, inverse, mine, ridge)
    each = zip(names, means, scales, weights[1:], naive[1:], rates[1:].tolist(), strict=True)
    return BehaviourModel(
        weights=tuple(Weight(*row) for row in each),
        intercept=float(beta[0]),
        answers=len(rows),
        rated=len(y),
        sources=len(set(mine.tolist())),
        naive=_mean(y, mine),
        corrected=_doubly_robust(y, rated, propensity, likely, sources, shrunk),
        hidden=_sensitivity_ends(y, rated, likely),
        explained=explained,
        effective=effective,
        warnings=(
            *_of_fit(explained, effective, propensity, len(y)),
            *_of_people(dict(zip(names, weights[1:], strict=True)), shrunk, mine, most),
        ),
    )


def _refuse(rows: Sequence[RatedAnswer], rated: int) -> None:
    if rated < LEAST:
        raise UsageError(
            f"{rated} of {len(rows)} answers are rated; weights of signals need at least {LEAST} ratings. "
            "Collect more, or use the ratings as they are."
        )
    ratings = {row.rating for row in rows if row.rating is not None}
    if not all(math.isfinite(rating) and 0 <= rating <= 1 for rating in ratings):
        raise UsageError("A rating lies outside 0..1. Bring the ratings to that range first.")
    if len(ratings) < 2:
        raise UsageError(
            f"All {rated} ratings are {ratings.pop():g}: there is nothing to tell apart. Collect more."
        )
    if len({_who(row) for row in rows if row.rating is not None}) < 2:
        raise UsageError(
            f"All {rated} ratings are by one user, who cannot speak for the others. Collect more."
        )
    if not all(math.isfinite(value) for row in rows for value in row.signals.values()):
        raise UsageError("A signal is not a finite number. Leave it out.")


def _feature(name: str, signals: Mapping[str, float]) -> float | None:
    """The value of a feature; None for a measure that is not known, which then counts as its mean."""
    if name.endswith(" sent"):
        return float(name.removesuffix(" sent") in signals)
    if name in MEASURES and name not in signals:
        return None
    value = float(signals.get(name, 0.0))
    return math.log1p(max(value, 0.0)) if name in ("dwell", "regenerate", "follow_up", "share") else value


def standardised_features(rows: Sequence[RatedAnswer]) -> tuple[list[str], Array, list[float], list[float]]:
    """Names, standardised columns (n, k), means and scales of the features that vary."""
    names, columns, means, scales = [], [], [], []
    sent = {kind for row in rows for kind in row.signals}
    for name in (*EVENTS, *MEASURES, *(f"{name} sent" for name in MEASURES)):
        if name.removesuffix(" sent") not in sent:  # what nobody sent does not vary
            continue
        values = [_feature(name, row.signals) for row in rows]
        seen = np.array([value for value in values if value is not None], dtype=np.float64)
        if len(seen) < 2 or float(seen.std()) < 1e-9:
            continue
        mean, scale = float(seen.mean()), float(seen.std())
        names.append(name)
        columns.append([0.0 if value is None else (value - mean) / scale for value in values])
        means.append(mean)
        scales.append(scale)
    if not names:
        raise UsageError(
            "No implicit signal varies between the answers. Send some: copy, regenerate, dwell, ..."
        )
    return names, np.array(columns).T, means, scales


def _sources(rows: Sequence[RatedAnswer]) -> NDArray[np.int64]:
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(_who(row), len(numbers)) for row in rows], dtype=np.int64)


def _who(row: RatedAnswer) -> str:
    """The person whom an answer was for; an answer for nobody known stands by itself."""
    return f"user {row.user}" if row.user is not None else f"answer {row.id}"


def _with_one(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), x])


def _penalty(k: int, ridge: float) -> Array:
    return np.array([1e-9] + [ridge] * (k - 1))


def _beta(x: Array, y: Array, weights: Array, ridge: float) -> Array:
    """Intercept and weights (1 + k); the intercept is free."""
    design = _with_one(x)
    return logistic(design, y, weights=weights, ridge=_penalty(design.shape[1], ridge))


def _propensity(x: Array, rated: NDArray[np.bool_], ridge: float) -> tuple[Array, Array]:
    """The weight of each feature in the log-odds of being rated (1 + k), and the probability of being rated (n), at least
    SMALLEST_PROPENSITY."""
    if rated.all():
        return np.zeros(x.shape[1] + 1), np.ones(len(x))
    rates = _beta(x, rated.astype(np.float64), np.ones(len(x)), ridge)
    return rates, np.maximum(sigmoid(_with_one(x) @ rates), SMALLEST_PROPENSITY)


def _by_source(scores: Array, sources: NDArray[np.int64]) -> Array:
    """Sums of scores (n, k) over each source (g, k)."""
    _, place = np.unique(sources, return_inverse=True)
    sums = np.zeros((int(place.max()) + 1, scores.shape[1]))
    np.add.at(sums, place, scores)
    return sums


def _fit(
    x: Array, y: Array, weights: Array, sources: NDArray[np.int64], ridge: float
) -> tuple[Array, list[Estimate]]:
    """Intercept and weights (1 + k), and the same with sandwich intervals, sources as clusters."""
    beta, design = _beta(x, y, weights, ridge), _with_one(x)
    p = sigmoid(design @ beta)
    curve = (design * (weights * p * (1 - p))[:, None]).T @ design + np.diag(_penalty(design.shape[1], ridge))
    sums = _by_source(design * (weights * (y - p))[:, None], sources)
    groups = len(sums)
    meat = sums.T @ sums * (groups / max(groups - 1, 1))
    inverse = np.linalg.inv(curve)
    errors = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
    ends = zip(beta.tolist(), errors.tolist(), strict=True)
    return beta, [Estimate(b, b - _Z * e, b + _Z * e) for b, e in ends]


def _mean(values: Array, sources: NDArray[np.int64]) -> Estimate:
    """Mean with an interval that takes one source as one."""
    mean = float(values.mean())
    sums = _by_source((values - mean)[:, None], sources)[:, 0]
    groups = len(sums)
    error = math.sqrt(float((sums**2).sum()) * groups / max(groups - 1, 1)) / len(values)
    return Estimate(mean, max(mean - _Z * error, 0.0), min(mean + _Z * error, 1.0))


def bounded_shares(weights: Array, sources: NDArray[np.int64], most: float) -> Array:
    """The share of its weight that each rating keeps, in (0, 1], so that no source has more than `most` ratings of average
    weight: the mean over the sources of what one rating of theirs weighs."""
    _, place, each = np.unique(sources, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights)
    return np.asarray(np.minimum(1.0, most * float((sums / each).mean()) / sums)[place], dtype=np.float64)


def _doubly_robust(
    y: Array,
    rated: NDArray[np.bool_],
    propensity: Array,
    likely: Array,
    sources: NDArray[np.int64],
    shrunk: Array,
) -> Estimate:
    """The mean over all answers: what the reward says, corrected by what it missed among the rated. Where the correction is
    bounded, the interval is no narrower than that of the plain mean."""
    missed, inverse = np.zeros(len(likely)), 1.0 / propensity[rated]
    kept = shrunk * inverse.sum() / (shrunk @ inverse)
    missed[rated] = (y - likely[rated]) * inverse * kept
    corrected, plain = _mean(likely + missed, sources), _mean(y, sources[rated])
    value = min(max(corrected.value, 0.0), 1.0)
    low, high = min(corrected.low, value), max(corrected.high, value)
    if (propensity <= SMALLEST_PROPENSITY).any():
        low = max(min(low, value - (plain.value - plain.low)), 0.0)
        high = min(max(high, value + (plain.high - plain.value)), 1.0)
    return Estimate(value, low, high)


def _sensitivity_ends(y: Array, rated: NDArray[np.bool_], likely: Array) -> tuple[float, float]:
    """The mean if the odds of a good rating were ODDS times lower or higher among the unrated than their signals say."""
    ends = []
    for factor in (1 / ODDS, ODDS):
        others = likely[~rated]
        tilted = factor * others / (1 - others + factor * others)
        ends.append(float((y.sum() + tilted.sum()) / len(likely)))
    return ends[0], ends[1]


def _cross_validated_r2(
    x: Array, y: Array, weights: Array, sources: NDArray[np.int64], ridge: float
) -> float:
    """Share of the variance explained in answers of sources that the fit did not see (five folds)."""
    fold = np.array([blake2b(int(s).to_bytes(8, "big"), digest_size=2).digest()[0] % _FOLDS for s in sources])
    guess = np.full(len(y), np.nan)
    for number in range(_FOLDS):
        inside, outside = fold != number, fold == number
        if outside.any() and inside.any():
            beta = _beta(x[inside], y[inside], weights[inside], ridge)
            guess[outside] = sigmoid(_with_one(x[outside]) @ beta)
    known = ~np.isnan(guess)
    if not known.any():
        return 0.0
    mean = float(np.average(y, weights=weights))
    left = float(weights[known] @ (y[known] - guess[known]) ** 2)
    return 1.0 - left / max(float(weights[known] @ (y[known] - mean) ** 2), 1e-12)


def _of_fit(explained: float, effective: float, propensity: Array, rated: int) -> Iterator[str]:
    """Warnings about what the signals cannot tell; `effective` is a number of ratings out of `rated`."""
    if explained < 0.02:
        yield (
            f"The signals explain {max(explained, 0.0):.0%} of the ratings' variance: this reward says next to nothing."
        )
    if effective < rated / 3:
        yield (
            f"After the correction {rated} ratings are worth {effective:.0f}: some signals are hardly ever rated, or few "
            "users rate much."
        )
    few = float((propensity <= SMALLEST_PROPENSITY).mean())
    if few > 0.1:
        yield (
            f"{few:.0%} of the answers have signals that are rated less than once in {1 / SMALLEST_PROPENSITY:.0f} "
            "times; for them the correction is bounded."
        )


def _of_people(
    weights: Mapping[str, Estimate], shrunk: Array, sources: NDArray[np.int64], most: float
) -> Iterator[str]:
    """The signs that some people distorted the weights, by many ratings or by reversed ones. `shrunk` (n,) says how much of
    its weight each rating keeps, in (0, 1], `sources` (n,) whose it is, `most` what one source may weigh, in ratings."""
    loud, all_of_them = len(set(sources[shrunk < 1.0].tolist())), len(set(sources.tolist()))
    if all_of_them < FEW:
        yield f"The ratings are by {quantity(all_of_them, 'user')} only: the intervals may be too narrow."
    if 2 * loud < all_of_them and 1.0 - float(shrunk.mean()) > LOST:
        yield f"{loud} of {all_of_them} users rate so much that it counts less: as {most:g} ratings each."
    for name, weight in weights.items():
        sign = PLEASED.get(name, 0)
        if sign and max(sign * weight.low, sign * weight.high) < 0:
            how = "worse" if sign > 0 else "better"
            yield (
                f"Answers with {name} are rated {how} than others, which is the wrong way round. Look at who rates them "
                "before you trust this reward."
            )
