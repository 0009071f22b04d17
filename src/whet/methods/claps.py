"""ClaPS: cluster the words, prune those that change little, then search prompts of the few that are left.

Zhou, Wan, Vulić, Korhonen: Survival of the Most Influential Prompts: Efficient Black-Box Prompt Search via Clustering and
Pruning. Findings of EMNLP 2023. arXiv:2310.12774.

    V <- for each of `clusters` clusters of the vocabulary (k-means on the words' vectors) the word nearest to its centre
    I(v) <- R(v) - R("") for each v in V;  V <- {v : I(v) above the `quantile` of I}
    genetic: population <- random prompts of `length` words of V
             for generation in 1..generations:
                 elite <- the best tenth;  population <- elite, half mutants of the elite (each word replaced with
                 probability `mutation`), half crossovers of two of the elite
    greedy:  `length` times: append the word of V that scores best
    the best on training examples are compared on validation examples

Differences from the paper and its code:
1. A crossover takes each word from either parent. The code copies one parent whole. Every word may mutate; the code leaves out
   the first and the last one.
2. The best prompts are looked up by prompt; the code takes the number of the best one of a generation in the next generation.
3. R("") is not scored: it moves all I(v) alike, and which words are pruned is a matter of their order.
4. R is the mean log-probability of the right label (`reward`); the code takes the cross-entropy of a softmax of probabilities.
5. Words are the whole words that the task model knows as single pieces, `vocabulary` at most, and clusters are fewer than the
   paper's 2,000 of all pieces, with a lower quantile. There is no particle swarm and no calibration of labels by test inputs.
6. The result is chosen on validation examples among the best few and the start. No prompt is scored twice.
7. Within a limit on calls a third of the prompts that it pays for goes into the pruning at most; population, examples and
   generations are cut to the rest (`whet.search.population`, `whet.search.plan`).

Run it:  whet optimize TASK --method claps --lm embedded/encoder
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.clusters import representatives
from whet.search.edits import with_words
from whet.search.label_signal import Signal, label_signal
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.search.population import Individual, fittest, grade_new, population_size
from whet.search.vocabulary import vocabulary
from whet.types import JSON, Example

if TYPE_CHECKING:
    from whet.rl.token_policy import TokenBackbone

ENTRY = MethodEntry(
    "claps",
    "ClaPS: words are clustered and pruned, then searched",
    version=2,
    rank=72,
    when="a model in this process scores labels, the prompt may be any words, and no training is wanted",
    paper="Zhou et al., EMNLP Findings 2023",
    arxiv="2310.12774",
    needs=("local",),
    extra="embedded",
)

Words = tuple[str, ...]


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ClaPS."""

    search: Literal["genetic", "greedy"] = "genetic"
    """The search over the remaining words."""
    vocabulary: PositiveInt = 4000
    """Words to cluster: those of the training inputs first, then common ones."""
    clusters: NonNegativeInt = 500
    """The number of clusters, each with one word; 0: words are drawn from the whole vocabulary."""
    quantile: Probability = 0.95
    """Share of the words that is pruned, those that change the score least for the better; 0: none."""
    length: PositiveInt = 5
    """Words of a prompt."""
    population: PositiveInt = 128
    """Prompts of a generation."""
    generations: NonNegativeInt = 30
    """Generations after the first one."""
    reward: Signal = "auto"
    """The figure by which prompts are compared; auto: likelihood if the task counts right labels, else the task's reward."""
    examples: PositiveInt | None = None
    """Training examples that each prompt is scored on; none means all of them."""
    finalists: PositiveInt = 32
    """Prompts measured on validation examples at the end."""


async def claps(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Clustering, pruning and search of words; see the module. `policy` is not used."""
    signal = label_signal(env, config.reward, "likelihood")
    size = population_size(run, env, config.population, asks=0)
    rounds = 1 + config.generations
    plan = fit(run, env, rounds, size, config.examples, finalists=config.finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    search = WordSearch(env, archive, plan, start, rows, signal)
    words = vocabulary(env, config.vocabulary)
    if 0 < config.clusters < len(words):
        draws = [run.rng.random() for _ in range(config.clusters)]
        record = await run.effect("words", lambda: cluster_words(env, words, draws))
        words = convert_record(record, list[str])
    payable = plan.payable(len(words) + rounds * size, plan.examples)
    pruned = len(words) if plan.rollouts is None else min(len(words), payable // 3)
    if config.quantile > 0:
        singles = await search.grade(run, [(word,) for word in run.rng.sample(words, pruned)])
        words = influential(singles, config.quantile, config.length)
    left = payable - len(search.scored)
    if words and config.search == "greedy":
        await search.append(run, words, config.length, left)
    elif words:
        await search.evolve(run, words, config.length, size, left // size)
    best = [one.candidate for one in fittest(search.scored, config.finalists)]
    return await validate_finalists(run, plan, archive, best)


def influential(singles: Sequence[Individual[Words]], quantile: float, least: int) -> list[str]:
    """The words that score above the quantile of all, the best first; as many as a prompt has at least."""
    kept = max(least, round((1 - quantile) * len(singles)))
    return [one.genome[0] for one in fittest(singles, kept)]


def mutant(run: Run, parent: Words, words: Sequence[str]) -> Words:
    """A prompt with each word replaced by a chance of a tenth."""
    return tuple(run.rng.choice(words) if run.rng.random() < MUTATION else word for word in parent)


def cross(run: Run, first: Words, second: Words) -> Words:
    """A prompt with each word from either parent."""
    return tuple(run.rng.choice(pair) for pair in zip(first, second, strict=True))


@dataclass
class WordSearch:
    """Prompts of words that were scored."""

    env: Environment
    archive: Archive
    plan: SearchPlan
    start: Prompt
    rows: Sequence[Example]
    signal: Sequence[str]
    scored: list[Individual[Words]] = field(default_factory=list)

    async def grade(self, run: Run, made: Sequence[Words]) -> list[Individual[Words]]:
        """Score the prompts that are new."""
        parents, prompts = (self.start.id,), [(with_words(self.start, words), words) for words in made]
        new = [Individual(Candidate(p, parents, "words"), words) for p, words in prompts if p is not None]
        scored = await grade_new(run, self.env, self.archive, new, self.rows, self.signal)
        self.scored += scored
        return scored

    async def lead(self, run: Run) -> None:
        """Validate the best so far, as far as the plan pays for it."""
        for one in fittest(self.scored, 1):
            await validate_leader(run, self.plan, self.archive, one.candidate)

    async def evolve(self, run: Run, words: Sequence[str], length: int, size: int, rounds: int) -> None:
        """Generations of prompts: the best tenth, and their mutants and crossovers."""
        population = list[Individual[Words]]()
        for number in range(rounds):
            elite = fittest(population, max(1, size // 10))
            made = [tuple(run.rng.choices(words, k=length)) for _ in range(0 if number else size)]
            for place in range(size if elite else 0):
                first, second = (run.rng.choice(elite).genome for _ in range(2))
                made.append(mutant(run, first, words) if place % 2 else cross(run, first, second))
            population = [*elite, *await self.grade(run, made)]
            await self.lead(run)

    async def append(self, run: Run, words: Sequence[str], length: int, left: int) -> None:
        """Word by word, the one with which the prompt scores best."""
        prefix: Words = ()
        for _ in range(length):
            made = [(*prefix, word) for word in words[:left]]
            new = await self.grade(run, made)
            known = {one.genome: one for one in self.scored}
            longer = fittest([known[one] for one in made if one in known], 1)
            left -= len(new)
            if not longer:
                break
            prefix = longer[0].genome
            await self.lead(run)


async def cluster_words(env: Environment, words: Sequence[str], draws: Sequence[float]) -> JSON:
    """The words that stand for the clusters of words, one cluster for each draw."""
    body = _lender(env)()
    vectors = np.asarray(body.embeddings[body.ids(words)], dtype=np.float64)
    return [words[row] for row in representatives(vectors, draws)]


def check(env: Environment, config: Config) -> None:
    """Raise UsageError for a model that lends no vectors of words, and for a signal that the task does not have."""
    _lender(env)
    label_signal(env, config.reward, "likelihood")


def _lender(env: Environment) -> Callable[[], TokenBackbone]:
    make: Callable[[], TokenBackbone] | None = getattr(env.model, "policy_body", None)
    if make is None:
        raise UsageError(
            f"claps clusters words by the vectors of a model in this process; {env.model.address} has none to lend. "
            f"Use {parameter('lm', 'embedded/encoder')}, {parameter('lm', 'embedded/mlm')} or {parameter('lm', 'hf/PATH')}."
        )
    return make


MUTATION = 0.1
