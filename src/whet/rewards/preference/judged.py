"""A reward model fitted to pairs and to single thumbs together, and its measured quality on inputs that it has not seen.

A pair says P(a is preferred to b) = sigmoid(r(a) - r(b)) (Bradley and Terry 1952). A thumb says P(up) = sigmoid(r(a) + c + c_p):
the answer is compared with the usual one (c), and c_p is how lenient person p is. Both are rows of one logistic regression: a
pair has the difference of its features, a thumb its features and the columns of c and c_p.

The printed figures come from models that did not learn from the input in question: the inputs are divided into five parts, and
each part is judged by a model that is fitted to the four others. All judgements of an input belong to one part. The model that
is used learned from three parts; the inputs of the other two are there to test what is found with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, quantity
from whet.rewards.preference.fit import calibration, hedged_probability, temperature
from whet.rewards.preference.model import (
    FARTHEST,
    Embed,
    PreferenceLabel,
    PreferenceModel,
    PreferencePair,
    features_called,
)
from whet.stats.logistic import Array, logistic, sigmoid
from whet.stats.rates import score_interval, student_quantile

PARTS, HELD = 5, 2
"""Parts of the inputs, and those of them that the model which is used did not learn from."""
LEAST_INPUTS, LEAST_JUDGEMENTS = 10, 20
_BOTH_WAYS = 2.0
LENIENCY_RIDGE = 1.0
OWN_THUMBS, MOST_PEOPLE = 5, 50
"""Thumbs from which on a person's leniency is estimated, and of how many people at most, those with the most thumbs."""
COMMON_RIDGE = 0.01

Places = NDArray[np.int64]
Judgement: TypeAlias = PreferencePair | PreferenceLabel


class PersonAgreement(NamedTuple):
    """The share of judgements in which the model orders answers as one person does, its 95% interval, and the number of
    judgements."""

    person: str
    accuracy: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class HeldOut:
    """The quality of a reward model on inputs that it did not learn from."""

    accuracy: float
    """The share of pairs that it orders as people did. Thumbs count by the share of (up, down) that it orders right, the area
    under the ROC curve. One half is chance."""
    low: float
    """Lower end of the 95% interval of `accuracy`, with whole inputs as the unit."""
    high: float
    """Upper end of that interval."""
    brier: float
    """Mean squared distance of its probabilities and what people said."""
    base_brier: float
    """The same of always predicting one half for a pair, and the share of thumbs up for a thumb."""
    error: float
    """The expected calibration error."""
    pairs: int
    labels: int
    inputs: int
    people: tuple[PersonAgreement, ...] = ()
    """People who judged ten times or more."""

    @property
    def beats_chance(self) -> bool:
        """Whether the whole interval lies above one half."""
        return self.low > 0.5

    @property
    def supported_kl(self) -> float:
        """The divergence KL(policy, reference) in nats up to which this agreement speaks for the model:

            2 log((accuracy - 1/2) / (accuracy - low)),  0 where the model does not beat chance

        n answers of the reference are worth about n exp(-KL) answers of the policy (Chatterjee and Diaconis 2018, "The sample
        size required in importance sampling", arXiv:1511.01437, theorem 1.1). So the lower half of the interval, which shrinks
        with the root of their number, widens by exp(KL / 2); at this divergence it reaches chance. That the two go together in
        this way is our reading: the theorem speaks of means of answers of the reference that are weighted, and here nothing is
        weighted.
        """
        half = self.accuracy - self.low
        if not self.beats_chance:
            return 0.0
        return 2.0 * math.log((self.accuracy - 0.5) / half) if half > 0 else math.inf

    @property
    def opponents(self) -> tuple[PersonAgreement, ...]:
        """People who want the opposite of what the model learned: the whole interval lies below one half."""
        return tuple(one for one in self.people if one.high < 0.5)


@dataclass(frozen=True)
class JudgedAnswers:
    """People's judgements: pairs, and thumbs on single answers."""

    pairs: tuple[PreferencePair, ...]
    labels: tuple[PreferenceLabel, ...] = ()

    @property
    def all(self) -> tuple[Judgement, ...]:
        """Pairs, then thumbs."""
        return (*self.pairs, *self.labels)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The different inputs, sorted."""
        return tuple(sorted({one.query for one in self.all}))

    @cached_property
    def people(self) -> tuple[str, ...]:
        """The people who are named, sorted."""
        return tuple(sorted({one.person for one in self.all if one.person}))

    def __len__(self) -> int:
        return len(self.pairs) + len(self.labels)


@dataclass(frozen=True)
class FittedPreferences:
    """A model that learned from all inputs but those `held`, and its quality on inputs that it has not seen.

    Of the judged answers to the inputs that are held: `strengths` by each member, (m, n), and `lengths` in characters, (n,).
    """

    model: PreferenceModel
    held_out: HeldOut
    held: tuple[str, ...]
    strengths: Array
    lengths: Array

    @property
    def doubts(self) -> Array:
        """The members' disagreement on each of these answers, in nats."""
        return np.asarray(self.strengths.std(axis=0))


def fit_judgements(
    judged: JudgedAnswers,
    features: str = "words",
    *,
    embed: Embed | None = None,
    members: int = 8,
    ridge: float = 10.0,
    seed: int = 0,
) -> FittedPreferences:
    """Fit an ensemble to pairs and thumbs, and measure it by cross-validation over inputs.

    The members see the inputs resampled with replacement and are anchored as in `ensemble`. Raises UsageError for fewer than 10
    inputs, fewer than 20 judgements, and thumbs of one kind alone.
    """
    _check(judged)
    table = _Table.of(judged, features_called(features, embed))
    parts = _parts(len(judged.inputs), seed)
    fits = [
        table.fit(np.flatnonzero(parts != part), members=members, ridge=ridge, seed=seed + part)
        for part in range(PARTS)
    ]
    held_out = _measure(judged, table, fits, parts)
    held, kept = np.flatnonzero(parts < HELD), range(HELD, PARTS)
    differences, outcomes = _unseen_outcomes(
        table, [fits[p] for p in kept], [np.flatnonzero(parts == p) for p in kept]
    )
    final = table.fit(np.flatnonzero(parts >= HELD), members=members, ridge=ridge, seed=seed)
    model = final.model(table, features, max(1.0, temperature(differences, outcomes)))
    items = table.items_of(held)
    lengths = np.array([len(table.answers[item]) for item in items], dtype=np.float64)
    inputs = tuple(judged.inputs[i] for i in held)
    return FittedPreferences(model, held_out, inputs, model.strengths(table.features[items]), lengths)


def _check(judged: JudgedAnswers) -> None:
    if len(judged.inputs) < LEAST_INPUTS or len(judged) < LEAST_JUDGEMENTS:
        raise UsageError(
            f"{quantity(len(judged), 'judgement')} of answers to {quantity(len(judged.inputs), 'different input')} are too few: "
            f"whole inputs are held out to see whether a reward model can be trusted, which takes {LEAST_INPUTS} inputs and "
            f"{LEAST_JUDGEMENTS} judgements or more."
        )
    kinds = {label.good for label in judged.labels}
    if not judged.pairs and len(kinds) < 2:
        raise UsageError(
            f"All {len(judged.labels)} thumbs are {'up' if True in kinds else 'down'}, and no two answers to one input are "
            "compared: nothing says what people like better. Give judgements of both kinds."
        )


def _parts(inputs: int, seed: int) -> Places:
    """The part of each input, 0 to 4, equal in size but for one."""
    parts = np.empty(inputs, dtype=np.int64)
    parts[np.random.default_rng(seed).permutation(inputs)] = np.arange(inputs) % PARTS
    return parts


class _Fit(NamedTuple):
    """Members (m, d) on standardised features, with the intercepts of thumbs (m, 1 + people)."""

    members: Array
    leniency: Array
    center: Array
    scale: Array

    def strengths(self, features: Array) -> Array:
        """Strength of each item by each member, (m, n)."""
        x = ((features - self.center) / self.scale).clip(-FARTHEST, FARTHEST)
        return np.asarray(self.members @ x.T)

    def model(self, table: _Table, features: str, heat: float) -> PreferenceModel:
        """The members as a model of answers; the mean strength of all judged answers is its middle."""
        model = PreferenceModel(self.members, self.center, self.scale, 0.0, 1.0, features)
        middle = float(model.strengths(table.features).mean())
        return replace(model, middle=middle, temperature=heat)


@dataclass(frozen=True)
class _Table:
    """The judgements as places: `better` and `worse` are items (different answers to an input), so is `rated`; each judgement
    has the place of its input and of its person (-1: nobody whose leniency is estimated)."""

    answers: tuple[str, ...]
    features: Array
    better: Places
    worse: Places
    pair_input: Places
    rated: Places
    good: Array
    label_input: Places
    label_person: Places
    item_input: Places
    people: int

    @classmethod
    def of(cls, judged: JudgedAnswers, see: Callable[[Sequence[str], Sequence[str]], Array]) -> _Table:
        items: dict[tuple[str, str], int] = {}

        def place(query: str, answer: str) -> int:
            return items.setdefault((query, answer), len(items))

        better = [place(p.query, p.better) for p in judged.pairs]
        worse = [place(p.query, p.worse) for p in judged.pairs]
        rated = [place(one.query, one.answer) for one in judged.labels]
        inputs = {query: i for i, query in enumerate(judged.inputs)}
        thumbs = Counter(one.person for one in judged.labels if one.person)
        lenient = [
            person
            for person, n in sorted(thumbs.items(), key=lambda one: (-one[1], one[0]))
            if n >= OWN_THUMBS
        ]
        people = {person: i for i, person in enumerate(lenient[:MOST_PEOPLE])}
        queries, answers = zip(*items, strict=True)
        return cls(
            answers,
            see(queries, answers),
            _places(better),
            _places(worse),
            _places([inputs[p.query] for p in judged.pairs]),
            _places(rated),
            np.array([float(one.good) for one in judged.labels]),
            _places([inputs[one.query] for one in judged.labels]),
            _places([people.get(one.person, -1) for one in judged.labels]),
            _places([inputs[query] for query in queries]),
            len(people),
        )

    def items_of(self, inputs: Places) -> Places:
        """The judged answers to these inputs."""
        return np.flatnonzero(np.isin(self.item_input, inputs))

    def leniency(self, rows: Places) -> Array:
        """The columns of the intercepts for these thumbs: all, then each person; (n, 1 + people)."""
        columns = np.zeros((len(rows), 1 + self.people))
        columns[:, 0] = 1.0
        named = self.label_person[rows] >= 0
        columns[np.flatnonzero(named), 1 + self.label_person[rows][named]] = 1.0
        return columns

    def fit(self, inputs: Places, *, members: int, ridge: float, seed: int) -> _Fit:
        """The ensemble that learns from these inputs."""
        items = self.items_of(inputs)
        seen = self.features[items]
        center, deviation = seen.mean(axis=0), seen.std(axis=0)
        scale = np.where(deviation > 1e-9, deviation, 1.0)
        pairs = np.flatnonzero(np.isin(self.pair_input, inputs))
        labels = np.flatnonzero(np.isin(self.label_input, inputs))
        x = (self.features - center) / scale
        difference = x[self.better[pairs]] - x[self.worse[pairs]]
        width, extra = x.shape[1], 1 + self.people
        rows = np.zeros((len(pairs) + len(labels), width + extra))
        rows[: len(pairs), :width] = difference
        rows[len(pairs) :, :width] = x[self.rated[labels]]
        rows[len(pairs) :, width:] = self.leniency(labels)
        outcomes = np.concatenate([np.ones(len(pairs)), self.good[labels]])
        of_input = np.concatenate([self.pair_input[pairs], self.label_input[labels]])
        ridges = np.concatenate([np.full(width, ridge), [COMMON_RIDGE], np.full(self.people, LENIENCY_RIDGE)])
        rng = np.random.default_rng(seed)
        fitted = []
        for _ in range(members):
            times = np.zeros(int(self.item_input.max()) + 1)
            np.add.at(times, rng.choice(inputs, size=len(inputs)), 1.0)
            anchor = np.concatenate([rng.normal(size=width) / np.sqrt(ridge), np.zeros(extra)])
            fitted.append(logistic(rows, outcomes, weights=times[of_input], ridge=ridges, anchor=anchor))
        both = np.array(fitted)
        return _Fit(both[:, :width].copy(), both[:, width:], center, scale)


def _places(values: Sequence[int]) -> Places:
    return np.array(values, dtype=np.int64)


class _Unseen(NamedTuple):
    """A model's predictions for pairs and thumbs of inputs that it did not learn from: the differences of strength by each
    member, (m, pairs), and for thumbs the log-odds of up, (m, thumbs)."""

    pairs: Places
    labels: Places
    differences: Array
    odds: Array


def _unseen_agreement(table: _Table, fit: _Fit, inputs: Places) -> _Unseen:
    pairs = np.flatnonzero(np.isin(table.pair_input, inputs))
    labels = np.flatnonzero(np.isin(table.label_input, inputs))
    strengths = fit.strengths(table.features)
    odds = strengths[:, table.rated[labels]] + fit.leniency @ table.leniency(labels).T
    return _Unseen(pairs, labels, strengths[:, table.better[pairs]] - strengths[:, table.worse[pairs]], odds)


def _unseen_outcomes(table: _Table, fits: Sequence[_Fit], inputs: Sequence[Places]) -> tuple[Array, Array]:
    """Mean log-odds and outcomes of what each fit has not seen; pairs count in both orders."""
    odds, outcomes = [], []
    for fit, own in zip(fits, inputs, strict=True):
        unseen = _unseen_agreement(table, fit, own)
        difference = unseen.differences.mean(axis=0)
        odds += [difference, -difference, unseen.odds.mean(axis=0)]
        outcomes += [np.ones(len(difference)), np.zeros(len(difference)), table.good[unseen.labels]]
    return np.concatenate(odds), np.concatenate(outcomes)


def _measure(judged: JudgedAnswers, table: _Table, fits: Sequence[_Fit], parts: Places) -> HeldOut:
    """Each part by the model that has not seen it, at the temperature of the other parts."""
    own = [np.flatnonzero(parts == part) for part in range(PARTS)]
    right = np.zeros(len(judged.pairs))
    up = np.zeros(len(judged.labels))
    strength = np.zeros(len(judged.labels))
    likely = np.zeros(len(judged.pairs))
    for part, fit in enumerate(fits):
        others = [p for p in range(PARTS) if p != part]
        heat = max(
            1.0, temperature(*_unseen_outcomes(table, [fits[p] for p in others], [own[p] for p in others]))
        )
        unseen = _unseen_agreement(table, fit, own[part])
        mean = unseen.differences.mean(axis=0)
        right[unseen.pairs] = np.where(mean == 0, 0.5, mean > 0)
        likely[unseen.pairs] = hedged_probability(mean / heat, unseen.differences.std(axis=0) / heat)
        up[unseen.labels] = hedged_probability(
            unseen.odds.mean(axis=0) / heat, unseen.odds.std(axis=0) / heat
        )
        strength[unseen.labels] = unseen.odds.mean(axis=0)
    predicted = np.concatenate([likely, 1 - likely, up])
    outcomes = np.concatenate([np.ones_like(likely), np.zeros_like(likely), table.good])
    reliability = calibration(predicted, outcomes)
    share = float(table.good.mean()) if len(table.good) else 0.5
    n = len(judged)
    brier = (((likely - 1) ** 2).sum() + ((up - table.good) ** 2).sum()) / n
    base = (0.25 * len(likely) + share * (1 - share) * len(up)) / n
    ordered = _Ordered(right, table.pair_input, strength, table.good, table.label_input, parts)
    value, low, high = ordered.interval()
    people = []
    for person in judged.people:
        of_pairs = np.array([p.person == person for p in judged.pairs], dtype=bool)
        of_labels = np.array([one.person == person for one in judged.labels], dtype=bool)
        count = int(of_pairs.sum() + of_labels.sum())
        one = ordered.of(of_pairs, of_labels)
        if count >= 10 and one.has_judgements:
            people.append(PersonAgreement(person, *one.interval(), count))
    return HeldOut(
        value, low, high, float(brier), float(base), reliability.error,
        len(judged.pairs), len(judged.labels), len(judged.inputs), tuple(people),
    )  # fmt: skip


class _Ordered(NamedTuple):
    """Whether pairs are ordered right (1, 0, or one half for equal strengths), and the strengths of thumbs up and down."""

    right: Array
    pair_input: Places
    strength: Array
    good: Array
    label_input: Places
    parts: Places

    def of(self, pairs: NDArray[np.bool_], labels: NDArray[np.bool_]) -> _Ordered:
        """Of some judgements only."""
        return _Ordered(
            self.right[pairs], self.pair_input[pairs], self.strength[labels], self.good[labels],
            self.label_input[labels], self.parts,
        )  # fmt: skip

    def placements(self) -> tuple[Array, NDArray[np.bool_]]:
        """For each thumb the share of the opposite thumbs of its part that it is ordered right with, and whether it has any.

        Strengths of two parts come from two models and are not compared.
        """
        share, known = np.zeros(len(self.good)), np.zeros(len(self.good), dtype=bool)
        part = self.parts[self.label_input]
        for one in range(PARTS):
            ups, downs = (np.flatnonzero((part == one) & (self.good == side)) for side in (1.0, 0.0))
            if not len(ups) or not len(downs):
                continue
            for these, those, sign in ((ups, downs, 1.0), (downs, ups, -1.0)):
                other = np.sort(sign * self.strength[those])
                mine = sign * self.strength[these]
                below = np.searchsorted(other, mine, "left")
                up_to = np.searchsorted(other, mine, "right")
                share[these] = (below + up_to) / 2 / len(other)
                known[these] = True
        return share, known

    @property
    def has_judgements(self) -> bool:
        """Whether there is anything to order."""
        return bool(len(self.right)) or bool(self.placements()[1].any())

    def interval(self) -> tuple[float, float, float]:
        """The share that is ordered right, and its 95% interval.

        The variance is that of the influence of whole inputs (of the area under the curve: DeLong et al. 1988, with clusters:
        Obuchowski 1997). The interval is Wilson's, at the number of independent judgements that has this variance, with the
        quantile of Student's t for the number of inputs. The variance is doubled, because what is added up under cross-validation
        is not independent (Bates, Hastie, Tibshirani 2021, arXiv:2104.00673): if a judgement helps to predict
        another one, the other one helps to predict it too. So in a fit to chance, each product of two judgements comes twice.
        """
        share, known = self.placements()
        ups, downs = (np.flatnonzero(known & (self.good == side)) for side in (1.0, 0.0))
        n_pairs, n_labels = len(self.right), int(known.sum())
        weight = n_pairs / (n_pairs + n_labels)
        accuracy = float(self.right.mean()) if n_pairs else 0.0
        area = float((share[ups].mean() + share[downs].mean()) / 2) if n_labels else 0.0
        value = weight * accuracy + (1 - weight) * area
        influence = np.zeros(len(self.parts))
        if n_pairs:
            np.add.at(influence, self.pair_input, weight * (self.right - accuracy) / n_pairs)
        for side in (ups, downs) if n_labels else ():
            moved = (1 - weight) * (share[side] - share[side].mean()) / len(side)
            np.add.at(influence, self.label_input[side], moved)
        clusters = len({*self.pair_input.tolist(), *self.label_input[known].tolist()})
        if clusters < 2:
            return value, 0.0, 1.0
        variance = _BOTH_WAYS * float((influence**2).sum()) * clusters / (clusters - 1)
        n = (
            min(n_pairs + n_labels, value * (1 - value) / variance)
            if 0 < value < 1 and variance > 0
            else clusters
        )
        low, high = score_interval(value * n, n, student_quantile(0.975, clusters - 1))
        return value, low, high


def information_gain(strengths: Array, other: Array) -> Array:
    """Expected information, in bits, of asking a person which of two answers is better: (n,), from the strengths of both by each
    member, (m, n).

    BALD: the entropy of the mean prediction less the mean entropy of the predictions, H[mean_i p_i] - mean_i H[p_i] (Houlsby et
    al. 2011, arXiv:1112.5745, equation 2; the members stand for draws from the posterior). 0 where all members agree.
    """
    p = np.asarray(sigmoid(strengths - other))
    return np.asarray(_entropy(p.mean(axis=0)) - _entropy(p).mean(axis=0))


def _entropy(p: Array) -> Array:
    """Entropy in bits of a coin that shows heads with probability p."""
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-(q * np.log2(q) + (1 - q) * np.log2(1 - q)))
