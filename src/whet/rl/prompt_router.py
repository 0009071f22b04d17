"""The choice of a prompt for each input: a model of rewards, fitted to a log, and the task in which it chooses.

A log says what prompts earned on rows. From features of a row the model predicts the reward of each prompt of a pool; the
prompt with the best prediction is used where that is better by a margin than the one for the best single prompt, and the best
single prompt elsewhere. The fitted model is checked on folds of rows that it was not fitted to (`cross_validate`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError
from whet.instructions.neighbours import grams, normal
from whet.models.embeddings import embedder
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl.reward_log import Array, mean_rewards
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.label_weights import deal
from whet.search.plan import SearchPlan
from whet.stats.paired import p_value
from whet.types import JSON, Example, Message, Rollout, Score, content_hash, mean_score

WIDTH = 1024
"""Hashed trigrams of an input, where there is no embedding."""
MARGINS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Margins that are tried, in units of the range of the reward."""
_DIGITS = 6


async def features_of(run: Run, texts: Sequence[str], embedding: str) -> Array:
    """Vectors of texts: those of the embedding, or for `none` their hashed character trigrams, of length 1."""
    embed = embedder(embedding)
    if embed is not None:
        return await embed(run, texts)
    counts = np.zeros((len(texts), WIDTH))
    for row, text in enumerate(texts):
        for gram in grams(text):
            counts[row, zlib.crc32(gram.encode("utf-8", "surrogatepass")) % WIDTH] += 1.0
    return normal(counts)


def prompt_kernel(texts: Sequence[str]) -> Array:
    """The kernel of prompts (P, P), their expected similarity in reward: half by their trigrams, half of each prompt's own."""
    counts = np.zeros((len(texts), WIDTH))
    for row, text in enumerate(texts):
        for gram in grams(text):
            counts[row, zlib.crc32(gram.encode("utf-8", "surrogatepass")) % WIDTH] += 1.0
    unit = normal(counts - counts.mean(axis=0))
    kernel: Array = (unit @ unit.T + np.eye(len(texts))) / 2
    return kernel


@dataclass(frozen=True)
class RewardModel:
    """Predicted rewards: of features x the units are `weights` (units, 1 + width) times (1, x); the predictions are those of the
    strongest unit where it is `hard`, else the sum of the units times `values` (units, prompts)."""

    weights: Array
    values: Array
    hard: bool = False

    def predict(self, features: Array) -> Array:
        """Predicted rewards (rows, prompts) from features (rows, width)."""
        units = self.weights[:, 0] + features @ self.weights[:, 1:].T
        if self.hard:
            units = np.eye(units.shape[1])[units.argmax(axis=1)]
        predicted: Array = units @ self.values
        return predicted


Fit = Callable[[Array, Array, float], RewardModel]
"""From features (rows, width), rewards (rows, prompts; NaN where unknown) and a strength to a model."""


@dataclass(frozen=True)
class Choice:
    """The best prompt by a model of rewards, where that predicts `margin` more for it than for `single`; elsewhere `single`."""

    model: RewardModel
    single: int
    margin: float

    def choose(self, features: Array) -> NDArray[np.int64]:
        """The place of the chosen prompt for each row."""
        return choose(self.model.predict(features), np.full(len(features), self.single), self.margin)


def choose(predicted: Array, singles: NDArray[np.int64], margin: float) -> NDArray[np.int64]:
    """The place of the best prediction in each row; of the row's single prompt where that is not behind by more than `margin`."""
    best = predicted.argmax(axis=1).astype(np.int64)
    rows = np.arange(len(predicted))
    ahead = predicted[rows, best] - predicted[rows, singles] > margin
    return np.where(ahead, best, singles)


@dataclass(frozen=True)
class CrossValidated:
    """The quality of a model on rows that it was not fitted to.

    The strength with the least squared error, the margin with the most reward, and what choosing earned there more than the best
    single prompt, in units of the range of the reward, for each row where both are known.
    """

    strength: float
    margin: float
    gains: Array

    def holds(self, alpha: float) -> bool:
        """Whether choosing earned more by a paired test at `alpha`, one-sided."""
        return bool(self.gains.sum() > 0) and p_value(self.gains.tolist(), draws=9_999) <= alpha


def cross_validate(
    features: Array,
    table: Array,
    folds: Sequence[NDArray[np.int64]],
    fit: Fit,
    strengths: Sequence[float],
    span: float = 1.0,
) -> CrossValidated:
    """Fit without each fold, predict on it, and compare with the best single prompt, which is chosen without it too.

    `span` is the range of the rewards.
    """
    singles, rows = np.zeros(len(table), np.int64), np.arange(len(table))
    predictions = {strength: np.zeros_like(table) for strength in strengths}
    for fold in folds:
        rest = np.setdiff1d(rows, fold)
        singles[fold] = mean_rewards(table[rest]).argmax()
        for strength in strengths:
            predictions[strength][fold] = fit(features[rest], table[rest], strength).predict(features[fold])
    errors = {strength: np.nansum((one - table) ** 2) for strength, one in predictions.items()}
    strength = min(strengths, key=lambda one: float(errors[one]))
    known = np.where(np.isnan(table), -np.inf, predictions[strength])
    base = ~np.isnan(table[rows, singles])
    options = []
    for margin in MARGINS:
        chosen = choose(known[base], singles[base], margin * span)
        options.append((margin * span, (table[rows[base], chosen] - table[rows[base], singles[base]]) / span))
    margin, gains = max(options, key=lambda one: float(one[1].sum()))
    return CrossValidated(strength, margin, gains)


@dataclass
class Router:
    """The state that is kept: a pool of prompts, how one is chosen, and from which features."""

    prompts: list[Prompt]
    choice: Choice
    embedding: str

    def save(self) -> bytes:
        """The router as JSON."""
        model = self.choice.model
        facts: dict[str, Any] = {
            "prompts": [[m.as_list() for m in prompt.messages] for prompt in self.prompts],
            "weights": model.weights.round(_DIGITS).tolist(),
            "values": model.values.round(_DIGITS).tolist(),
            "hard": model.hard,
            "single": self.choice.single,
            "margin": self.choice.margin,
            "embedding": self.embedding,
        }
        return json.dumps(facts).encode()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        stored = read_router(blob)
        self.prompts, self.choice, self.embedding = stored.prompts, stored.choice, stored.embedding

    async def route(self, run: Run, examples: Sequence[Example]) -> list[Prompt]:
        """The prompt for each row; recorded, so that a resume does not depend on the arithmetic of its machine."""
        if not examples:
            return []
        features = await features_of(run, [example.user_text for example in examples], self.embedding)

        async def places() -> JSON:
            chosen: JSON = self.choice.choose(features).tolist()
            return chosen

        args = content_hash([example.id for example in examples])
        chosen: Any = await run.effect("route", places, args)
        return [self.prompts[int(place)] for place in chosen]


def read_router(blob: bytes) -> Router:
    """The router in a blob. Raises UsageError for anything else."""
    facts = next(iter(json_values(blob.decode(errors="replace"))), None)
    names = {"prompts", "weights", "values", "hard", "single", "margin", "embedding"}
    if not isinstance(facts, dict) or facts.keys() != names or not facts["prompts"]:
        raise UsageError("this is not a checkpoint of a router: it holds no prompts and how to choose one.")
    prompts = [Prompt(tuple(Message(*message) for message in messages)) for messages in facts["prompts"]]
    model = RewardModel(np.array(facts["weights"]), np.array(facts["values"]), bool(facts["hard"]))
    if model.values.shape != (len(model.weights), len(prompts)) or facts["single"] not in range(len(prompts)):
        raise UsageError("this is not a checkpoint of a router: its sizes do not fit together.")
    return Router(prompts, Choice(model, facts["single"], facts["margin"]), facts["embedding"])


class PromptChooser(Protocol):
    """Whoever knows the prompt for each row: a router, or a memory that recalls what like rows taught."""

    def save(self) -> bytes:
        """Its state."""
        ...

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned."""
        ...

    async def route(self, run: Run, examples: Sequence[Example]) -> list[Prompt]:
        """The prompt for each row; recorded."""
        ...


async def answer_each(
    run: Run, env: Environment, prompts: Sequence[Prompt], examples: Sequence[Example], sample: int = 0
) -> list[Rollout]:
    """One rollout for each row under its own prompt, in order. Rows have different ids. Where labels are scored, each prompt has
    one batch."""
    if not env.scores:
        return await env.rollouts(run, list(zip(prompts, examples, strict=True)), sample)
    rollouts: dict[str, Rollout] = {}
    for one in {p.id: p for p in prompts}.values():
        rows = [e for p, e in zip(prompts, examples, strict=True) if p.id == one.id]
        rollouts |= {r.example_id: r for r in await env.evaluate(run, one, rows, sample)}
    return [rollouts[example.id] for example in examples]


@dataclass(frozen=True)
class Routed(Environment):
    """A task in which each row is answered under the prompt that `router` chooses for it. A row costs one task call."""

    router: PromptChooser | None = None

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each row, in order; its prompt id is that of the chosen prompt."""
        chosen = await self._choose_prompts(run, prompt, examples)
        return await answer_each(run, self._plain, chosen, examples, sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward over the rows, once for each prompt."""
        return [mean_score(await self.evaluate(run, prompt, examples)) for prompt in prompts]

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair; the row decides under which prompt."""
        return await self.evaluate(run, pairs[0][0], [e for _, e in pairs], sample) if pairs else []

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Answer one row and grade the answer."""
        (chosen,) = await self._choose_prompts(run, prompt, [example])
        return await self._plain.rollout(run, chosen, example, sample)

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text under which each row is answered, in order."""
        return [one.region_text() for one in await self._choose_prompts(run, prompt, examples)]

    @property
    def _plain(self) -> Environment:
        """The same task under one prompt."""
        return as_environment_type(self, Environment)

    async def _choose_prompts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[Prompt]:
        return [prompt] * len(examples) if self.router is None else await self.router.route(run, examples)


def routed_environment(env: Environment, router: PromptChooser) -> Routed:
    """The task in which a router, or a memory, chooses the prompts."""
    return as_environment_type(env, Routed, router=router)


def deploy_router(env: Environment, blob: bytes) -> Routed:
    """The task with the router of a blob at work. Raises UsageError for another blob."""
    return routed_environment(env, read_router(blob))


@dataclass(frozen=True)
class RouterTraining:
    """The settings by which a router is learned: a fit and the strengths to choose from, the folds of the cross-validation, a
    level.

    0 folds: no check and no margin. `shuffled`: features are dealt out anew among the rows, the control.
    """

    fit: Fit
    strengths: Sequence[float]
    folds: int
    alpha: float
    embedding: str
    shuffled: bool = False

    async def features(self, run: Run, rows: Sequence[Example]) -> Array:
        """The features of rows (rows, width)."""
        vectors = await features_of(run, [row.user_text for row in rows], self.embedding)
        return vectors[run.rng.sample(range(len(rows)), len(rows))] if self.shuffled else vectors

    async def learn(
        self,
        run: Run,
        env: Environment,
        prompts: Sequence[Prompt],
        rows: Sequence[Example],
        features: Array,
        table: Array,
    ) -> Router | None:
        """The router for a pool of prompts from their rewards (rows, prompts) on training rows with features (rows, width); None
        where its check fails, and where there are fewer than two prompts or rows."""
        folds = deal(rows, self.folds)
        if len(prompts) < 2 or len(rows) < 2 or len(folds) == 1:
            return None

        async def fit() -> JSON:
            single, span = int(mean_rewards(table).argmax()), (env.reward.high - env.reward.low) or 1.0
            strength, margin, gains = self.strengths[len(self.strengths) // 2], 0.0, None
            if folds:
                cross = cross_validate(features, table, folds, self.fit, self.strengths, span)
                strength, margin, gains = cross.strength, cross.margin, cross.gains.tolist()
                if not cross.holds(self.alpha):
                    return {"gains": gains, "router": None}
            choice = Choice(self.fit(features, table, strength), single, margin)
            router = Router(list(prompts), choice, self.embedding)
            return {
                "gains": gains,
                "strength": strength,
                "margin": margin,
                "router": router.save().decode(),
            }

        learned: Any = await run.effect(
            "router", fit, content_hash([[p.id for p in prompts], [r.id for r in rows]])
        )
        run.log(
            "router",
            {key: value for key, value in learned.items() if key != "router"} | {"prompts": len(prompts)},
        )
        return None if learned["router"] is None else read_router(learned["router"].encode())


async def validate_router(
    run: Run, plan: SearchPlan, archive: Archive, router: Router | None, single: Prompt, operator: str
) -> Candidate:
    """The incumbent after the best single prompt, and what the router makes of it, are validated as far as the plan pays."""
    start = next(iter(archive.validated))
    alone = Candidate(single, () if single.id == start else (start,), operator)
    if router is not None:
        candidate = Candidate(single, (start,), operator, system=await run.keep(router))
        archive.add(run, candidate)
        await archive.validate(run, routed_environment(plan.env, router), [candidate])
    if len(archive.validated) < plan.validations:
        archive.add(run, alone)
        await archive.validate(run, plan.env, [alone])
    assert archive.incumbent is not None
    return archive.incumbent


def check_routing(name: str, env: Environment, embedding: str) -> None:
    """Raises UsageError for a program or a task of several turns, and for an embedding that there is not."""
    if type(env) is not Environment:
        raise UsageError(
            f"{name} chooses a prompt for one question with one answer; this task is made of several turns."
        )
    embedder(embedding)
