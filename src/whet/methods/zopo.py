"""ZOPO: local search over a pool of prompts by zeroth-order gradients of a Gaussian process over their embeddings.

Hu, Shu, Yu, Wu, Lin, Dai, Ng, Low: Localized Zeroth-Order Prompt Optimization. NeurIPS 2024. arXiv:2403.02993.

    P <- prompts that a model writes from examples; X <- their embeddings
    Q <- the scores of the first few; x <- the best of them
    until the budget is spent:
        fit a Gaussian process with the neural tangent kernel to the `nearest` scored prompts around x
        z <- the prompt of P that is not scored and nearest to x + a step along the gradient of its mean
        if its gain was expected to be less than a standard deviation of it for `patience` queries in a row: score the prompts
            nearest to x, then fit again;  else score z.  Q grows
        x <- z; after two queries without a gain, the best of Q
    return the best of Q

Differences from the paper and its code:
1. The result is chosen on validation examples among the start and the best by training score.
2. The start is in the pool and scored first. A model writes `per_call` prompts in one call, each call from other examples.
3. Embeddings are those of `embedding`; without one, hashed character trigrams, which know no language. They are projected
   on 32 random directions, so that a gradient takes 64 evaluations of the surrogate.
4. A step is as long as the median distance to the `local` nearest prompts. The code takes Adam steps of .01, after which the
   nearest prompt is most often the nearest to x, whatever the gradient.
5. Which prompt comes next is recorded in the run, so that a resume on another machine does not depend on its arithmetic.
6. From a start that earns nothing the two prompts of `whet.search.from_zero` join the pool, scored.
7. Within a limit on calls the pool, the scored prompts and their examples are cut to what it pays (`whet.search.plan`).
8. The code compares the variance at x with a threshold. At a scored prompt it is at most that of the noise, so that only
   rounding passes the threshold; here the expected gain of z is compared with its standard deviation.
9. `surrogate` of none scores the pool in random order: the control.

Run it:  whet optimize TASK --method zopo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from whet._util.fields import PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.instructions.neighbours import trigrams
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE, embedder
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.prompt_pool import write_pool
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.stats.neural_kernel import Array, NeuralProcess, project
from whet.types import JSON

ENTRY = MethodEntry(
    "zopo",
    "ZOPO: local search by a surrogate over embeddings",
    version=2,
    rank=68,
    when="a model writes many prompts in one call, and most of the cost is in scoring them",
    paper="Hu et al., NeurIPS 2024",
    arxiv="2403.02993",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ZOPO."""

    queries: PositiveInt = 165
    """The largest number of prompts that are scored, including the first prompts."""
    first: PositiveInt = 40
    """Prompts that are scored before the search; under a limit a quarter of all."""
    pool: PositiveInt = 500
    """Prompts that are written."""
    per_call: PositiveInt = 10
    """Prompts written in one call."""
    nearest: PositiveInt = 20
    """The number of scored prompts around the current prompt to which the surrogate is fitted."""
    local: PositiveInt = 10
    """The number of prompts around the current prompt that are scored after uncertain queries; it also sets the length of a
    step."""
    patience: PositiveInt = 5
    """Uncertain queries in a row before that; the gain of an uncertain query is below its standard deviation."""
    noise: PositiveFloat = 0.1
    """Standard deviation of a score, in units of the spread of the scores."""
    examples: PositiveInt = 20
    """Training examples that each prompt is scored on."""
    surrogate: Literal["ntk", "none"] = "ntk"
    """The Gaussian process, or none."""
    embedding: str = NONE
    """Vectors of prompts: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""

    @property
    def questions_at_most(self) -> int:
        """The largest number of requests to the optimizer model: those for the pool."""
        return -(-min(self.pool, LARGEST * self.queries) // self.per_call)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for an embedding that there is not, or that is not installed."""
    embedder(config.embedding)


async def zopo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Localised zeroth-order search; see the module."""
    plan = fit(
        run, env, config.queries, 1, config.examples, finalists=config.finalists, asks=1 / config.per_call
    )
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    archive.add(run, Candidate(start, score=(await env.score(run, [start], train))[0]))
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, train)
    calls = -(-min(config.pool, LARGEST * plan.rounds) // config.per_call)
    calls = calls if plan.asks is None else min(calls, plan.asks)
    written = await write_pool(run, env, policy, start, calls, config.per_call, config.pool)
    prompts = list(
        {p.id: p for p in (start, *(first.candidate.prompt for first in firsts), *written)}.values()
    )
    texts = [text_in(start, prompt) for prompt in prompts]
    embed = embedder(config.embedding)
    vectors = trigrams(texts) if embed is None else await embed(run, texts)
    search = LocalSearch(project(np.asarray(vectors, float), DIRECTIONS), config)
    search.scores |= {at: archive.members[p.id].mean for at, p in enumerate(prompts) if p in archive}

    async def score(places: Sequence[int]) -> None:
        scores = await env.score(run, [prompts[place] for place in places], train)
        for place, reached in zip(places, scores, strict=True):
            archive.add(run, Candidate(prompts[place], (start.id,), "query", reached))
            search.scores[place] = reached.mean

    order = run.rng.sample(search.unknown, len(search.unknown))
    queries = min(plan.rounds, len(order))
    early = min(config.first, -(-queries // 4) if plan.rollouts is not None else queries)
    await score(order[:early])
    for number in range(early, queries):
        seed = run.rng.getrandbits(31)
        place = (
            convert_record(await run.effect("query", partial(search.next, seed)), int)
            if config.surrogate == "ntk"
            else order[number]
        )
        await score([place])
        search.move(place)
        if number % VALIDATE == 0:
            await validate_leader(run, plan, archive, archive.top(1)[0])
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


@dataclass
class LocalSearch:
    """The state of the search: vectors of the pool, the known scores, the place of the current prompt."""

    points: Array
    config: Config
    scores: dict[int, float] = field(default_factory=dict)
    place: int = -1
    uncertain: int = 0
    stalled: int = 0
    around: list[int] = field(default_factory=list)

    @property
    def unknown(self) -> list[int]:
        """The places that are not scored."""
        return [place for place in range(len(self.points)) if place not in self.scores]

    @property
    def best(self) -> int:
        """The place of the best score; of equals the first."""
        return max(self.scores, key=lambda place: (self.scores[place], -place))

    def by_distance(self, point: Array, among: Sequence[int]) -> list[int]:
        """Places by their distance from a point."""
        gaps = np.linalg.norm(self.points[list(among)] - point, axis=1)
        return [among[at] for at in np.argsort(gaps, kind="stable")]

    async def next(self, seed: int) -> JSON:
        """The place to score next."""
        at = self.place if self.place >= 0 else self.best
        unknown, x = self.unknown, self.points[at]
        self.around = [place for place in self.around if place in unknown]
        if self.around:
            return self.around[0]
        known = self.by_distance(x, list(self.scores))[: self.config.nearest]
        low = self.points[known].min(axis=0)
        span = np.maximum(self.points[known].max(axis=0) - low, 1e-9)
        values = np.array([self.scores[place] for place in known])
        process = NeuralProcess.fit((self.points[known] - low) / span, values, self.config.noise, seed)
        gradient = process.gradient((x - low) / span) / span
        near, length = self.by_distance(x, unknown)[: self.config.local], float(np.linalg.norm(gradient))
        radius = float(np.median(np.linalg.norm(self.points[near] - x, axis=1)))
        end = self.by_distance(x + radius * gradient / (length or 1.0), unknown)[0]
        rise, deviation = process.rise((x - low) / span, (self.points[end] - low) / span)
        self.uncertain = self.uncertain + 1 if rise < deviation else 0
        if self.uncertain >= self.config.patience or length == 0.0:
            self.uncertain, self.around = 0, near
            return near[0]
        return end

    def move(self, place: int) -> None:
        """Go on from a place that was scored; after two without a gain, from the best."""
        gained = place == self.best
        self.stalled = 0 if gained else self.stalled + 1
        if self.around:
            self.place = self.best
        elif self.stalled >= 2:
            self.place, self.stalled = self.best, 0
        else:
            self.place = place


DIRECTIONS, VALIDATE, LARGEST = 32, 5, 8
