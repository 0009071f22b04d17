"""Adaptive prompting: a composition of prompt parts for each cluster of inputs.

Spliethöver, Knebler, Fumagalli, Muschalik, Hammer, Hüllermeier, Wachsmuth: Adaptive Prompting: Ad-hoc Prompt Composition for
Social Bias Detection. NAACL 2025. arXiv:2502.06487. Code: github.com/webis-de/naacl25-prompt-compositions.

    C <- compositions: the start with some of the parts, demonstrations among them
    for each training row x, for each c in C: r[x, c] <- reward of the answer to x under c
    f <- a model of r from x; checked by cross-validation
    at inference: c* <- argmax of f(x); answer x under c*, the best single composition where c* is not better by a margin

Differences from the paper and its code:
1. The model is k-means: inputs are put into clusters by their features, and f(x) is the mean reward in the cluster of x, drawn to
   that of all rows. The code trains DeBERTa-v3-large, which needs a GPU and thousands of rows.
2. The number of clusters is chosen by the error on rows that were not fitted to.
3. The best single composition stays where the model does not predict more by a margin, and everywhere where a cross-validation
   does not show a gain. The code always takes the likeliest one.
4. Rows that all or no compositions answer rightly count in the means.
5. Parts are sentences of yours (`parts`), sentences that a model writes, or those of whet; the paper's are persona, definition,
   stimulus and steps for one task. Demonstrations are there or not; none is chosen for its likeness to the input.
6. Of more than `compositions` combinations the start, each part alone and random ones are measured, instead of all 64.
7. The result is compared with the start on validation rows.
8. Within a limit on calls there are as many compositions as can be measured on 20 rows each, at least two.
9. Features that are `shuffled` among the rows, and `folds` of 0, which checks nothing, are the controls.

Run it:  whet optimize TASK --method adaptive --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveInt, PositiveProbability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.prompt_router import (
    RewardModel,
    RouterTraining,
    check_routing,
    deploy_router,
    validate_router,
)
from whet.rl.reward_log import Array, RewardLog, fill_rewards, mean_rewards
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.clusters import representatives
from whet.search.copies import copied_input
from whet.search.demonstrations import Demonstration, label_rows, with_demonstrations
from whet.search.edits import PHRASES, replace_region, text_in
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, share_out

ENTRY = MethodEntry(
    "adaptive",
    "Adaptive prompting: a composition of parts for each cluster of inputs",
    version=2,
    rank=58,
    when="inputs are of several kinds, and you know which sentences might help some of them",
    paper="Spliethöver et al., NAACL 2025",
    arxiv="2502.06487",
    needs=("optimizer_optional",),
    trains="clusters of inputs, with a prompt for each",
    edits_all=True,
)

NUMBERS = (2.0, 3.0, 4.0, 6.0, 8.0)
"""Numbers of clusters to choose from."""
SHRINK, ROUNDS, LEAST_ROWS = 4.0, 10, 20


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of adaptive prompting."""

    parts: str = ""
    """Sentences that may follow the start's text, separated by `|`; if empty, a model writes them, or whet uses built-in
    sentences."""
    most: PositiveInt = 4
    """Parts that a model writes, or that are taken of whet's."""
    shots: NonNegativeInt = 0
    """The number of demonstrations, which form an additional part; 0 for none."""
    compositions: PositiveInt = 16
    """Compositions to measure at most."""
    rows: PositiveInt = 200
    """Training rows that each is measured on at most."""
    folds: NonNegativeInt = 5
    """Parts of the cross-validation; 0 for none."""
    alpha: PositiveProbability = 0.1
    """Level of the test that the choices must pass in cross-validation."""
    features: Literal["input", "shuffled"] = "input"
    """The features of a row: its own, or those of a random row (a control)."""
    embedding: str = NONE
    """Vectors of inputs: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns, and for an embedding that there is not."""
    check_routing("adaptive", env, config.embedding)


async def adaptive(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """Clusters of inputs with a composition each; see the module."""
    plan = share_out(run, env, 0, finalists=2, writes=policy is not None and not config.parts)
    archive, notes = Archive(), RewardLog()
    await archive.validate(run, plan.env, [Candidate(start)])
    drawn = minibatch(run.rng, env.train, len(env.train))
    shown, rest = drawn[: config.shots], drawn[config.shots :] or drawn
    parts = await find_parts(run, env, policy, start, config, plan)
    count = max(2, plan.payable(config.compositions, LEAST_ROWS))
    pool = compositions(run, start, parts, label_rows(env, start, shown), count)
    rows = rest[: plan.payable(min(config.rows, len(rest)), len(pool))]
    await fill_rewards(run, plan.env, notes, pool, rows)
    table, shuffled = notes.table(pool, rows), config.features == "shuffled"
    how = RouterTraining(clusters, NUMBERS, config.folds, config.alpha, config.embedding, shuffled)
    router = await how.learn(run, env, pool, rows, await how.features(run, rows), table)
    return await validate_router(
        run, plan, archive, router, pool[int(mean_rewards(table).argmax())], "adaptive"
    )


async def find_parts(
    run: Run,
    env: Environment,
    policy: LanguagePolicy | None,
    start: Prompt,
    config: Config,
    plan: SearchPlan,
) -> list[str]:
    """The parts: those of the settings, those that a model writes, or whet's own."""
    if config.parts:
        return [part.strip() for part in config.parts.split("|") if part.strip()]
    if policy is None or plan.asks == 0:
        return run.rng.sample(PHRASES, min(config.most, len(PHRASES)))
    instruction = show_instruction(env.description, start, text_in(start, start))
    texts = await policy.write(run, f"{instruction}\n\n{REQUEST}", "SENTENCE", many=True)
    written = [
        text for text in texts if not copied_input(text, env.train, start.source) and not secrets(text)
    ]
    return list(dict.fromkeys(written))[: config.most]


def compositions(
    run: Run, start: Prompt, parts: Sequence[str], shown: Sequence[Demonstration], most: int
) -> list[Prompt]:
    """The start and other compositions of the parts, the demonstrations as one of them; `most` at most."""
    base, number = text_in(start, start).rstrip(), len(parts) + bool(shown)

    def subsets() -> Iterator[tuple[bool, ...]]:
        if 2**number <= most:
            yield from itertools.product((False, True), repeat=number)
            return
        yield (False,) * number
        yield from (tuple(i == j for j in range(number)) for i in range(number))
        for _ in range(20 * most):
            yield tuple(run.rng.random() < 0.5 for _ in range(number))

    prompts = {start.id: start}
    for subset in subsets():
        chosen = [part for part, used in zip(parts, subset, strict=False) if used]
        prompt = replace_region(start, "\n".join([base, *chosen]) + "\n") if chosen else start
        if prompt is not None and shown and subset[-1]:
            prompt = with_demonstrations(prompt, shown)
        if prompt is not None and len(prompts) < most:
            prompts.setdefault(prompt.id, prompt)
    return list(prompts.values())


def clusters(features: Array, table: Array, strength: float) -> RewardModel:
    """k-means with `strength` clusters; in each the mean rewards, drawn to those of all rows by 4 rows.

    Features (rows, width), rewards (rows, compositions) with NaN where unknown.
    """
    middle, means, known = features.mean(axis=0), mean_rewards(table), ~np.isnan(table)
    x = features - middle
    centres = x[representatives(x, [(0.5 + i * 0.618) % 1.0 for i in range(int(strength))])]
    for _ in range(ROUNDS):
        own = np.eye(len(centres))[(x @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)]
        sizes = own.sum(axis=0)[:, None]
        centres = np.where(sizes > 0, own.T @ x / np.maximum(sizes, 1.0), centres)
    sums, counts = own.T @ np.nan_to_num(table), own.T @ known
    offsets = -(centres @ middle) - (centres**2).sum(axis=1) / 2
    values = (sums + SHRINK * means) / (counts + SHRINK)
    return RewardModel(np.hstack([offsets[:, None], centres]), values, hard=True)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task in which every input has the composition of its cluster. Raises UsageError for another blob."""
    return deploy_router(env, blob)


REQUEST = (
    "Inputs differ, and what helps with some may harm others. Write single sentences that could be added to this instruction, "
    "each of another sort: a role, a definition of what is wanted, a hint at what to look for, steps to work through, the form "
    "of the answer."
)
