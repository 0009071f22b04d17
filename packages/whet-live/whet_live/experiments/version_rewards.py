"""The quality of each version's answers, as a whole and by segment: ratings and signals in one estimate with an interval.

Two things distort a plain mean of ratings: which people rate, and which answers a version got. Both are corrected.

*Who rates.* `traffic.behaviour` learns from rated answers what signals are worth. Every answer counts with what its signals are
worth; where somebody rated it, the rating takes the place of that, with the inverse of the probability that such an answer of
such a version is rated. So ratings decide, and signals fill in where there are none: the estimate is right if either of the two
models is (augmented inverse-propensity weighting; Robins, Rotnitzky and Zhao, JASA 89(427), 1994). Signals that explain much
narrow the interval, and signals that explain nothing do not move the mean (compare prediction-powered inference; Angelopoulos et
al., Science 382, 2023).

*Which answers.* An experiment draws the version with known chances, which change with its revisions. Each answer of a version
counts with the inverse of its chance, and what is expected of the version at that time is added for the answers that another
version gave (doubly robust policy evaluation; Dudík, Langford and Li, ICML 2011). Weights are divided by their sum (Hájek) and
clipped at `MOST_WEIGHT` (Ionides, Journal of Computational and Graphical Statistics 17(2), 2008): clipping draws the estimate to
that of answers which are drawn often, and `clipped` counts the answers. Where answers stand in a list, each version is taken
over the positions of all (direct standardisation; for what a position does to clicks, Joachims, Swaminathan and Schnabel, WSDM
2017).

Intervals take the answers of one user as one cluster. They cover no distortion that neither signals, versions nor times show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, quantity
from whet.stats import interval
from whet.stats.clustered import mean_interval
from whet.stats.logistic import logistic, sigmoid
from whet_live.traffic.behaviour import (
    MOST,
    SMALLEST_PROPENSITY,
    BehaviourModel,
    Estimate,
    RatedAnswer,
    bounded_shares,
    fit_behaviour,
    standardised_features,
)

LEAST_RATED, LEAST_PEOPLE = 20, 10
"""Rated answers of a version, and people who rated them, without which its estimate is not calibrated."""
MOST_WEIGHT = 20.0
"""The maximum weight of an inverse chance."""
MOST_SEGMENTS = 8
LOGGED = "logged"
"""The draw of an answer whose chance the app logged itself."""
_BLOCKS, _PER_BLOCK, _PRIOR = 8, 50, 5.0
_LEAST_DRAWN = 20
_FEW = 100
"""Ratings of a version up to which their mean has an interval that holds whatever their distribution is."""
_METHOD = "doubly robust, Student's t over users"

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
State = Literal["calibrated", "not calibrated"]


@dataclass(frozen=True, slots=True)
class AssignedAnswer:
    """An answer with its signals and rating, and how its version was chosen."""

    answer: RatedAnswer
    version: int
    time: int
    """Microseconds."""
    draw: str = ""
    """The experiment that drew the version; `LOGGED`: an assigner of the app; empty: no draw."""
    chances: Mapping[int, float] = field(default_factory=dict)
    """The probabilities of the versions that could have been drawn."""
    segment: str = ""
    position: int = 0
    """Its position in a list of answers, from 1 on; 0: it stood alone."""
    unread_chance: bool = False
    """Whether the app logged a chance that is none."""


@dataclass(frozen=True, slots=True)
class VersionReward:
    """The reward of a version's answers in a segment, from 0 to 1."""

    version: int
    segment: str
    """Empty: all answers."""
    state: State
    answers: int
    """Answers of the version."""
    rated: int
    """Answers that were rated."""
    people: int
    """Users who rated."""
    drawn: bool
    """Whether `value` is corrected for the draw of versions."""
    population: int
    """With `drawn`, the answers that could have got the version, over which `value` is the mean."""
    naive: Estimate | None = None
    """The mean rating; None: there is none."""
    weighted: Estimate | None = None
    """The mean rating with inverse propensities; None: there is none."""
    value: Estimate | None = None
    """The joined estimate; None: there is none."""
    clipped: int = 0
    """Answers whose weight was larger than is allowed."""
    notes: tuple[str, ...] = ()
    """The limits of the estimate."""


@dataclass(frozen=True, slots=True)
class VersionRewards:
    """The estimates of a prompt, versions in order, the whole before its segments. `model` is what signals are worth, None
    with the `reason` where there are too few ratings to learn it from. `newest`: there are more answers, and only the newest
    were read."""

    prompt: str
    answers: int
    rewards: tuple[VersionReward, ...]
    model: BehaviourModel | None
    reason: str = ""
    newest: bool = False

    def as_json(self) -> dict[str, Any]:
        """The estimates as JSON values."""
        shown = [{**asdict(reward), "notes": list(reward.notes)} for reward in self.rewards]
        return {
            "prompt": self.prompt,
            "answers": self.answers,
            "rewards": shown,
            "weights": None if self.model is None else self.model.as_json()["weights"],
            "warnings": [] if self.model is None else list(self.model.warnings),
            "reason": self.reason,
            "newest": self.newest,
        }


def estimate_versions(
    prompt: str, rows: Iterable[AssignedAnswer], *, ridge: float = 1.0, most: float = MOST
) -> VersionRewards:
    """The estimates for every version, as a whole and in each of the largest segments. `ridge` and `most` as in `fit_behaviour`:
    the penalty on weights, and what the ratings of one user count at most."""
    answers = list(rows)
    columns, model, reason = _fit(answers, ridge, most)
    segments = [
        name for name, _ in Counter(row.segment for row in answers if row.segment).most_common(MOST_SEGMENTS)
    ]
    rewards = []
    for version in sorted({row.version for row in answers}):
        for segment in ("", *sorted(segments)):
            inside = np.ones(len(answers), dtype=bool) if not segment else columns.segment == segment
            if (inside & (columns.version == version)).any():
                rewards.append(_estimate(columns, answers, version, segment, inside))
    return VersionRewards(prompt, len(answers), tuple(rewards), model, reason)


@dataclass(frozen=True, slots=True)
class RewardsOverTime:
    """The worth of the answers of each version, step by step: `versions` has for each version that can be estimated at all
    the `whole` period, and the steps, each with its begin (microseconds), that have enough ratings of their own, corrected
    for the draw where the whole is. Without a model, `reason` says why. `newest`: only the newest answers of the period
    were read."""

    prompt: str
    answers: int
    versions: tuple[tuple[VersionReward, tuple[tuple[int, VersionReward], ...]], ...]
    reason: str = ""
    newest: bool = False


def estimate_over_time(
    prompt: str,
    rows: Iterable[AssignedAnswer],
    begins: Sequence[int],
    *,
    ridge: float = 1.0,
    most: float = MOST,
) -> RewardsOverTime:
    """The estimates for every version and every step; `begins` are the begins of the steps in order, of which the last has no
    end. What signals are worth, and how likely a rating is, is learned once, from all answers."""
    answers = list(rows)
    columns, _, reason = _fit(answers, ridge, most)
    steps = np.searchsorted(np.array(begins), columns.time, side="right") - 1
    everything = np.ones(len(answers), dtype=bool)
    estimates = []
    for version in sorted({row.version for row in answers}):
        whole = _estimate(columns, answers, version, "", everything)
        if whole.value is None:
            continue
        points = []
        for step in np.unique(steps[(columns.version == version) & (steps >= 0)]).tolist():
            one = _estimate(columns, answers, version, "", steps == step)
            if one.value is not None and one.drawn == whole.drawn:
                points.append((begins[step], one))
        estimates.append((whole, tuple(points)))
    return RewardsOverTime(prompt, len(answers), tuple(estimates), reason)


def _fit(
    answers: Sequence[AssignedAnswer], ridge: float, most: float
) -> tuple[_Columns, BehaviourModel | None, str]:
    """The answers as columns with what their signals are worth, or the reason why that is not known."""
    reason, model = "", None
    try:
        model = fit_behaviour([row.answer for row in answers], ridge=ridge, most=most)
    except UsageError as error:
        reason = str(error)
    return _Columns.of(answers, model, ridge, most), model, reason


@dataclass(frozen=True)
class _Columns:
    """The answers as columns (n,): `rating` is nan where there is none, `kept` what a rating keeps of its weight (1 without one),
    `worth` what the signals say, `pseudo` the rating joined with that, `chance` that of the version which was drawn (1: nobody
    drew), `inverse` the inverse probability of being rated."""

    version: NDArray[np.int64]
    segment: NDArray[np.object_]
    time: NDArray[np.int64]
    position: NDArray[np.int64]
    cluster: NDArray[np.int64]
    rating: Array
    chance: Array
    inverse: Array
    kept: Array
    worth: Array | None

    @property
    def rated(self) -> Mask:
        """Whether each answer is rated."""
        return ~np.isnan(self.rating)

    @classmethod
    def of(
        cls, rows: Sequence[AssignedAnswer], model: BehaviourModel | None, ridge: float, most: float
    ) -> _Columns:
        numbers: dict[str, int] = {}
        cluster = np.array(
            [numbers.setdefault(_source(row.answer), len(numbers)) for row in rows], dtype=np.int64
        )
        rating = np.array([np.nan if row.answer.rating is None else row.answer.rating for row in rows])
        version = np.array([row.version for row in rows], dtype=np.int64)
        time = np.array([row.time for row in rows], dtype=np.int64)
        inverse, kept = np.ones(len(rows)), np.ones(len(rows))
        worth = None
        if model is not None:
            worth = np.array([model.reward(row.answer.signals) for row in rows])
            rated = ~np.isnan(rating)
            inverse = 1.0 / _rating_chances(rows, rated, version, time, ridge)
            kept[rated] = bounded_shares(inverse[rated], cluster[rated], most)
        chance = np.array([row.chances.get(row.version, 1.0) for row in rows])
        segment = np.array([row.segment for row in rows], dtype=object)
        position = np.array([row.position for row in rows], dtype=np.int64)
        return cls(version, segment, time, position, cluster, rating, chance, inverse, kept, worth)


def _source(answer: RatedAnswer) -> str:
    return f"user {answer.user}" if answer.user is not None else f"answer {answer.id}"


def _rating_chances(
    rows: Sequence[AssignedAnswer],
    rated: Mask,
    version: NDArray[np.int64],
    time: NDArray[np.int64],
    ridge: float,
) -> Array:
    """The probability that each answer is rated (n,), from its signals, version and time; at least `SMALLEST_PROPENSITY`."""
    if rated.all():
        return np.ones(len(rows))
    signals = standardised_features([row.answer for row in rows])[1]
    spread = float(time.std())
    parts = [np.ones((len(rows), 1)), signals]
    if spread > 0:
        parts.append(((time - time.mean()) / spread)[:, None])
    values, counts = np.unique(version, return_counts=True)
    others = [
        one
        for one, n in zip(values, counts, strict=True)
        if n >= _LEAST_DRAWN and one != values[counts.argmax()]
    ]
    parts += [(version == other).astype(np.float64)[:, None] for other in others]
    design = np.column_stack(parts)
    penalty = np.array([1e-9] + [ridge] * (design.shape[1] - 1))
    weights = logistic(design, rated.astype(np.float64), ridge=penalty)
    return np.maximum(sigmoid(design @ weights), SMALLEST_PROPENSITY)


def _estimate(
    columns: _Columns, rows: Sequence[AssignedAnswer], version: int, segment: str, inside: Mask
) -> VersionReward:
    mine = inside & (columns.version == version)
    everybody, notes = _population(rows, version, inside), _unread_chances(rows, mine)
    drawn = int((everybody & mine).sum()) >= _LEAST_DRAWN
    counted = everybody & mine if drawn else mine
    population = everybody if drawn else mine
    rated = counted & columns.rated
    people = len(set(columns.cluster[rated].tolist()))
    naive = None
    if (mine & columns.rated).any():
        chosen = mine & columns.rated
        naive = _mean_rating(columns.rating[chosen], columns.cluster[chosen])
    shown = VersionReward(version, segment, "not calibrated", int(mine.sum()), int(rated.sum()), people, drawn,
                          int(population.sum()), naive)  # fmt: skip
    if columns.worth is None:
        return _with_notes(
            shown, [*notes, "ratings of the prompt are too few or all equal: signals have no weights yet"]
        )
    if rated.sum() < LEAST_RATED or people < LEAST_PEOPLE:
        few = f"{quantity(shown.rated, 'rated answer')} by {quantity(people, 'user')}"
        return _with_notes(shown, [*notes, f"{few}; it takes {LEAST_RATED} by {LEAST_PEOPLE}"])
    if not drawn:
        notes.append("no draw assigned this version: compare it with no other")
    weights, clipped = _assignment_weights(columns, counted, drawn)
    factor, unseen = _position_factor(columns, counted, population, weights)
    if unseen:
        notes.append(f"never shown at position {', '.join(map(str, unseen))}: nothing is known of it there")
    weights = weights * factor
    value = _doubly_robust(columns, counted, population, weights)
    bounded = int((1.0 / columns.inverse[counted] <= SMALLEST_PROPENSITY).sum())
    if naive is not None and (clipped or bounded):
        value = _widen(value, naive)
        notes.append(f"weights of {quantity(clipped + bounded, 'answer')} are clipped")
    return VersionReward(version, segment, "calibrated", shown.answers, shown.rated, people, drawn, shown.population, naive,
                         _weighted_ratings(columns, rated, counted, weights), value, clipped, tuple(notes))  # fmt: skip


def _unread_chances(rows: Sequence[AssignedAnswer], mine: Mask) -> list[str]:
    unread = sum(rows[at].unread_chance for at in np.flatnonzero(mine).tolist())
    if not unread:
        return []
    return [
        f"the metadata.propensity of {quantity(unread, 'answer')} is no number above 0 and up to 1: they count as not drawn"
    ]


def _with_notes(one: VersionReward, notes: Sequence[str]) -> VersionReward:
    return replace(one, notes=tuple(notes))


def _population(rows: Sequence[AssignedAnswer], version: int, inside: Mask) -> Mask:
    """Mark the answers that could have got the version by a draw whose chances are known."""
    logged = any(row.draw == LOGGED and row.version == version for row in rows)
    could = [
        (logged if row.draw == LOGGED else row.chances.get(version, 0.0) > 0.0) if row.draw else False
        for row in rows
    ]
    possible: Mask = np.array(could, dtype=bool) & inside
    return possible


def _assignment_weights(columns: _Columns, counted: Mask, drawn: bool) -> tuple[Array, int]:
    """The weights of the counted answers, in order, and how many were clipped."""
    if not drawn:
        return np.ones(int(counted.sum())), 0
    inverse = 1.0 / columns.chance[counted]
    return np.minimum(inverse, MOST_WEIGHT), int((inverse > MOST_WEIGHT).sum())


def _position_factor(
    columns: _Columns, counted: Mask, population: Mask, weights: Array
) -> tuple[Array, list[int]]:
    """The factor that turns the positions of the counted answers into those of the population, and the positions that they
    never had."""
    here, everywhere = columns.position[counted], columns.position[population]
    places, counts = np.unique(everywhere, return_counts=True)
    factor, unseen = np.ones(len(here)), []
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        share = float(weights[here == place].sum() / weights.sum())
        if share > 0.0:
            factor[here == place] = count / len(everywhere) / share
        else:
            unseen.append(place)
    return factor, unseen


def _doubly_robust(columns: _Columns, counted: Mask, population: Mask, weights: Array) -> Estimate:
    """The mean over the population: what is expected of the version at each time, and what its own answers add to that."""
    assert columns.worth is not None
    rated = columns.rated[counted]
    pseudo = columns.worth[counted].copy()
    inverse, kept = columns.inverse[counted][rated], columns.kept[counted][rated]
    inverse = inverse * kept * (inverse.sum() / (inverse @ kept))
    pseudo[rated] += inverse * (columns.rating[counted][rated] - pseudo[rated])
    blocks = min(_BLOCKS, max(1, len(pseudo) // _PER_BLOCK))
    edges = np.quantile(columns.time[counted], np.linspace(0, 1, blocks + 1)[1:-1])
    own_block = np.searchsorted(edges, columns.time[counted], side="right")
    total = float(weights @ pseudo / weights.sum())
    mass = np.bincount(own_block, weights, blocks)
    expected = (np.bincount(own_block, weights * pseudo, blocks) + _PRIOR * total) / (mass + _PRIOR)
    values = expected[np.searchsorted(edges, columns.time[population], side="right")]
    n = len(values)
    residual = pseudo - expected[own_block]
    share = weights * n / weights.sum()
    correction = float(weights @ residual / weights.sum())
    mean = float(values.mean()) + correction
    own = counted[population]
    values[own] += share * (residual - correction)
    one = mean_interval(values + correction, columns.cluster[population].tolist())
    return _clip(Estimate(mean, one.low - one.mean + mean, one.high - one.mean + mean, _METHOD))


def _weighted_ratings(columns: _Columns, rated: Mask, counted: Mask, weights: Array) -> Estimate:
    """The mean of the ratings alone, each with the inverse of both probabilities, divided by the sum of the weights."""
    each = weights[columns.rated[counted]] * columns.inverse[rated] * columns.kept[rated]
    each = each * len(each) / each.sum()
    mean = float(each @ columns.rating[rated]) / len(each)
    one = mean_interval(each * (columns.rating[rated] - mean), columns.cluster[rated].tolist())
    return _clip(
        Estimate(
            mean,
            mean + one.low - one.mean,
            mean + one.high - one.mean,
            "inverse propensities, Student's t over users",
        )
    )


def _mean_rating(values: Array, clusters: NDArray[np.int64]) -> Estimate:
    """The mean of ratings in [0, 1]. Where they are few or all equal, Student's interval is too narrow, or has no width."""
    if len(values) <= _FEW or values.min() == values.max():
        one = interval(values.tolist(), 0.0, 1.0, clusters=clusters.tolist())
        return Estimate(one.mean, one.low, one.high, f"ratings, {one.method} over users")
    one = mean_interval(values, clusters.tolist())
    return _clip(Estimate(one.mean, one.low, one.high, "ratings, Student's t over users"))


def _widen(value: Estimate, naive: Estimate) -> Estimate:
    """The estimate with an interval that is no narrower than that of the plain mean."""
    low = min(value.low, value.value - (naive.value - naive.low))
    high = max(value.high, value.value + (naive.high - naive.value))
    return _clip(Estimate(value.value, low, high, value.method))


def _clip(one: Estimate) -> Estimate:
    """The estimate inside 0..1."""
    value, low, high = (min(1.0, max(0.0, end)) for end in (one.value, one.low, one.high))
    return Estimate(value, low, high, one.method)
