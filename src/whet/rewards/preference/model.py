"""A reward model fitted to pairwise preferences: fitted, kept as safetensors, and used as the reward of a task."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from whet.errors import UsageError
from whet.rewards.asking import RewardOptions
from whet.rewards.composite import Weighted
from whet.rewards.preference.features import BUILT_IN, EMBEDDED, Features, embedding_features
from whet.rewards.preference.fit import (
    Calibration,
    calibration,
    conservative_mean,
    ensemble,
    hedged_probability,
    temperature,
)
from whet.rewards.reward import RewardFunction
from whet.run import Run
from whet.stats.logistic import Array, sigmoid
from whet.types import Completion, Example, Reward
from whet_client.storable import show_value

FORMAT = "whet-preference/1"
EMBEDDINGS = "embeddings"
"""Named by a reward that needs a frozen embedding of texts; `with_embeddings` gives it one."""
PROBIT = 1.702
"""sigmoid(1.702 z) is the normal distribution function of z to within 0.01 (Camilli 1994)."""
FARTHEST = 4.0  # standard deviations: beyond what was seen nothing more is gained
HELD_OUT = 5  # every fifth pair is not learned from, and calibrates

Embed = Callable[[Sequence[str]], Array]


@dataclass(frozen=True)
class PreferencePair:
    """For one `query` the answer `better` was preferred to `worse`, by `person` where the rows name people."""

    query: str
    better: str
    worse: str
    person: str = ""


@dataclass(frozen=True)
class PreferenceLabel:
    """A thumb: for one `query` the `answer` alone was called good or bad, by `person` where the rows name people."""

    query: str
    answer: str
    good: bool
    person: str = ""


@dataclass(frozen=True)
class PreferenceModel:
    """An ensemble of linear strengths over features of (input, answer)."""

    members: Array
    """(m, d)"""
    center: Array
    """(d,): the mean of each feature."""
    scale: Array
    """(d,): by what each feature is divided."""
    middle: float
    """The mean strength of the answers that the model was fitted to."""
    temperature: float
    """The temperature that fits held-out pairs."""
    features: str
    """The name of the features."""

    def strengths(self, features: ArrayLike) -> Array:
        """Strength of each item by each member, (m, n), in nats of odds, 0 for a usual answer; features (n, d).

        Features count up to 4 standard deviations from their mean.
        """
        x = ((np.asarray(features, dtype=np.float64) - self.center) / self.scale).clip(-FARTHEST, FARTHEST)
        return np.asarray((self.members @ x.T - self.middle) / self.temperature)

    def probability(self, a: ArrayLike, b: ArrayLike) -> Array:
        """P(a is preferred to b), row by row of features (n, d), drawn to one half where the members disagree."""
        difference = self.strengths(a) - self.strengths(b)
        return hedged_probability(difference.mean(axis=0), difference.std(axis=0))

    def save(self) -> bytes:
        """The model as safetensors bytes. Raises UsageError when safetensors is not installed."""
        tensors = {  # safetensors writes the memory of an array, whatever its strides
            name: np.ascontiguousarray(getattr(self, name)) for name in ("members", "center", "scale")
        }
        numbers = {
            "format": FORMAT,
            "features": self.features,
            "middle": self.middle,
            "heat": self.temperature,
        }
        blob: bytes = _safetensors()[0].save(tensors, metadata={"json": json.dumps(numbers)})
        return blob

    @classmethod
    def load(cls, blob: bytes, where: str) -> PreferenceModel:
        """The return value of `save`. Raises UsageError naming `where` for anything else."""
        reader, damaged = _safetensors()
        try:
            tensors = reader.load(blob)
            length = struct.unpack("<Q", blob[:8])[0]
            facts = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["json"])
            if facts["format"] != FORMAT or facts["features"] not in (*BUILT_IN, EMBEDDED):
                raise ValueError(f"format {facts['format']}, features {facts['features']}")
            parts = (tensors["members"], tensors["center"], tensors["scale"])
            return cls(*parts, float(facts["middle"]), float(facts["heat"]), str(facts["features"]))
        except (damaged, KeyError, TypeError, ValueError, struct.error) as error:
            raise UsageError(
                f"{where}: this is not a preference model of the format {FORMAT}: {error}"
            ) from error


def fit_preferences(
    pairs: Sequence[PreferencePair],
    features: str = "words",
    *,
    embed: Embed | None = None,
    members: int = 8,
    ridge: float = 10.0,
    seed: int = 0,
) -> tuple[PreferenceModel, Calibration]:
    """Fit pairs, and say on every fifth of them, which are not learned from, how far the model can be trusted.

    Those held out also set the temperature; for the calibration each half of them is judged at the temperature of the
    other, so that no pair is judged at one that was fitted to it.

    `features` is one of surface, words (no model needed) and embedded/encoder (needs `embed`). Raises UsageError for fewer
    than 10 pairs, unknown features, or a missing `embed`.
    """
    if len(pairs) < 2 * HELD_OUT:
        raise UsageError(
            f"{len(pairs)} pairs are too few to fit a preference model; give {2 * HELD_OUT} or more."
        )
    see = features_called(features, embed)
    queries = [pair.query for pair in pairs]
    better, worse = see(queries, [p.better for p in pairs]), see(queries, [p.worse for p in pairs])
    order = np.random.default_rng(seed).permutation(len(pairs))
    held, kept = order[::HELD_OUT], np.setdiff1d(order, order[::HELD_OUT])
    both = np.concatenate([better[kept], worse[kept]])
    center, deviation = both.mean(axis=0), both.std(axis=0)
    scale = np.where(deviation > 1e-9, deviation, 1.0)
    fitted = ensemble(
        (better[kept] - center) / scale,
        (worse[kept] - center) / scale,
        members=members,
        ridge=ridge,
        seed=seed,
    )
    model = PreferenceModel(fitted, center, scale, 0.0, 1.0, features)
    model = replace(model, middle=float(model.strengths(both).mean()))
    sure = np.empty(len(held))
    for half in (0, 1):  # each half of the held-out pairs is judged at the temperature of the other
        seen, judged = held[1 - half :: 2], slice(half, None, 2)
        cooled = at_temperature(model, better[seen], worse[seen])
        sure[judged] = cooled.probability(better[held[judged]], worse[held[judged]])
    outcomes = np.arange(2 * len(held)) < len(held)
    trust = calibration(np.concatenate([sure, 1 - sure]), outcomes)
    return at_temperature(model, better[held], worse[held]), trust


def at_temperature(model: PreferenceModel, better: Array, worse: Array) -> PreferenceModel:
    """The model at the temperature, 1 or more, that fits pairs of features (n, d) that it did not learn from."""
    model = replace(model, temperature=1.0)
    difference = (model.strengths(better) - model.strengths(worse)).mean(axis=0)
    both_ways = np.concatenate([difference, -difference])
    return replace(
        model, temperature=max(1.0, temperature(both_ways, np.arange(len(both_ways)) < len(better)))
    )


def features_called(name: str, embed: Embed | None = None) -> Features:
    """The features of a name. Raises UsageError for an unknown name or a missing embedding."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name != EMBEDDED:
        raise UsageError(f'there are no features "{name}"; there are {", ".join((*BUILT_IN, EMBEDDED))}.')
    if embed is None:
        raise UsageError(f"the features {EMBEDDED} need an embedding of texts: pip install 'whet[embedded]'")
    return embedding_features(embed)


def strengths_of(
    model: PreferenceModel, inputs: Sequence[str], answers: Sequence[str], embed: Embed | None = None
) -> Array:
    """Strength of each answer by each member, (m, n). Raises UsageError as `features_called`."""
    return model.strengths(features_called(model.features, embed)(inputs, answers))


@dataclass(frozen=True)
class Seen:
    """The range of judged answers that the model did not learn from: the disagreement, in nats, that 19 of 20 of them stay
    below, and the lengths in characters between which 19 of 20 lie."""

    doubt: float
    shortest: float
    longest: float

    @classmethod
    def of(cls, doubts: ArrayLike, lengths: ArrayLike) -> Seen:
        """From the disagreement on, and the lengths of, one answer or more."""
        low, high = np.quantile(np.asarray(lengths, dtype=np.float64), (0.025, 0.975))
        return cls(float(np.quantile(np.asarray(doubts, dtype=np.float64), 0.95)), float(low), float(high))


@dataclass(frozen=True)
class Preference:
    """The rank of an answer among usual answers: sigmoid(strength less `brake` x the members' disagreement), in (0, 1).

    One half is a usual answer of the pairs that the model was fitted to. The part `doubt` is the disagreement in nats. With
    `spread`, the standard deviation of the braked strengths of judged answers in nats, the value is about the share of judged
    answers that are weaker, if their strengths are normal. `seen`: where the alarm rings.
    """

    model: PreferenceModel
    brake: float = 1.0
    files: tuple[Path, ...] = ()
    embed: Embed | None = field(default=None, compare=False)
    seen: Seen | None = None
    spread: float | None = None
    name: str = "preference"
    low: float = 0.0
    high: float = 1.0

    @property
    def needs(self) -> frozenset[str]:
        """embeddings, when the model's features are made of them."""
        return frozenset({EMBEDDINGS} if self.model.features == EMBEDDED else ())

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """Raises UsageError when the features need an embedding that was not given."""
        see = features_called(self.model.features, self.embed)
        scores = self.model.strengths(see([example.user_text], [completion.text]))
        doubt = float(scores.std(axis=0)[0])
        parts = {"doubt": doubt} | ({} if self.seen is None else {"length": float(len(completion.text))})
        steepness = 1.0 if self.spread is None else PROBIT / self.spread
        return Reward(float(sigmoid(steepness * conservative_mean(scores, self.brake))[0]), parts)

    def alarm(self, parts: Mapping[str, float], start: Mapping[str, float]) -> str:
        """Why a prompt with these mean parts is beyond what people judged; empty where it is not, or is no farther out than the
        start prompt, whose parts are {} where it is the one in question."""
        if self.seen is None:
            return ""
        doubt, length = parts["doubt"], parts["length"]
        if doubt > max(self.seen.doubt, start.get("doubt", 0.0)):
            return (
                f"the members of the reward model disagree by {doubt:.3g} nats on its answers, and by at most "
                f"{self.seen.doubt:.3g} on "
                "19 of 20 answers that people judged"
            )
        if length > max(self.seen.longest, start.get("length", 0.0)):
            return (
                f"its answers have {length:.0f} characters on average, and those that people judged at most "
                f"{self.seen.longest:.0f}"
            )
        if length < min(self.seen.shortest, start.get("length", length + 1)):
            return (
                f"its answers have {length:.0f} characters on average, and those that people judged at least "
                f"{self.seen.shortest:.0f}"
            )
        return ""


def build_preference(options: RewardOptions) -> Preference:
    """`reward: {preference: {model: FILE.safetensors, brake: 1.0}}`, optionally with `spread` and `alarm: {doubt, shortest,
    longest}`. Raises UsageError with the place."""
    options.only("model", "brake", "alarm", "spread")
    path = options.folder / options.text("model")
    brake = options.values.get("brake", 1.0)
    if isinstance(brake, bool) or not isinstance(brake, int | float) or not 0 <= brake <= 100:
        options.refuse(f"the option brake must be a number from 0 to 100; this is {brake!r}.")
    try:
        blob = path.read_bytes()
    except OSError as error:
        options.refuse(f"model: the file {path} cannot be read: {error}.")
    model = PreferenceModel.load(blob, f"{options.where}: {path}")
    spread = options.values.get("spread")
    if spread is not None and (
        isinstance(spread, bool) or not isinstance(spread, int | float) or spread <= 0
    ):
        options.refuse(f"the option spread must be a number above 0; this is {spread!r}.")
    nats = None if spread is None else float(spread)
    return Preference(model, float(brake), (path,), seen=_read_alarm(options), spread=nats)


def _read_alarm(options: RewardOptions) -> Seen | None:
    """The bounds of the alarm; None where it is not wanted."""
    bounds = options.values.get("alarm")
    if bounds is None:
        return None
    names = tuple(Seen.__dataclass_fields__)
    if not isinstance(bounds, Mapping) or {*bounds} != {*names} or not all(map(_is_bound, bounds.values())):
        options.refuse(
            f"the option alarm has the numbers {', '.join(names)}, 0 or more; this is {show_value(bounds)}."
        )
    return Seen(**{name: float(bounds[name]) for name in names})


def _is_bound(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def with_embeddings(reward: RewardFunction, embed: Embed) -> RewardFunction:
    """The reward with a frozen embedding of texts wherever it needs one."""
    if isinstance(reward, Weighted):
        return replace(
            reward, parts=[(weight, with_embeddings(part, embed)) for weight, part in reward.parts]
        )
    return replace(reward, embed=embed) if isinstance(reward, Preference) else reward


def _safetensors() -> tuple[Any, type[Exception]]:
    """The library's numpy part and the error of a damaged file."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UsageError("a preference model needs safetensors: pip install 'whet[train]'") from error
    return safetensors.numpy, safetensors.SafetensorError
