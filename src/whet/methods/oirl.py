"""Prompt-OIRL: which prompt for which input, learned offline from what prompts earned before.

Sun, Hüyük, van der Schaar: Query-Dependent Prompt Evaluation and Optimization with Offline Inverse RL. ICLR 2024.
arXiv:2309.06553. Code: github.com/holarissun/Prompt-OIRL.

    log <- (row, prompt, reward) of earlier runs, or of a search that runs first
    pool <- prompts of the log
    r(x, p) <- a model of the reward, fitted to features of input and prompt; checked by cross-validation
    at inference: p* <- argmax of r(x, p) over the pool;  answer x under p*, or under the best single prompt where p* is not
        better by a margin

Differences from the paper and its code:
1. The model is ridge regression on products of features, input times prompt; the code grows 2,000 trees on the two side by side.
   A linear model of the two side by side would choose the same prompt for each input.
2. It is judged by what its choices earn, beyond the best single prompt, on rows that it was not fitted to. The code splits
   (row, prompt) pairs 80 to 20, so that a row stands on both sides, and judges predictions.
3. The best single prompt stays where the model does not predict more by a margin, and everywhere where the check fails.
4. The pool is chosen from the log: the prompts that earn the most where each row gets its best one. A prompt that is not in the
   log is never chosen; the paper chooses among such prompts too.
5. After a search the pool is measured on the rows that the log lacks; with `runs`, learning makes no call at all.
6. Inputs are known by hashed character trigrams, or by an `embedding`.
7. The router and the best single prompt are compared with the start on validation rows.
8. Within a limit on calls, `rows` are cut to half of what is left for training rows, and the search gets the rest.
9. Features that are `shuffled` among the rows, and `folds` of 0, which checks nothing, are the controls.

Run it:  whet optimize TASK --method oirl --set method=gepa --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveInt, PositiveProbability
from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError, named_fields
from whet.methods.method import LABEL_SCORES, OPTIMIZER, OPTIMIZER_OPTIONAL, Method, MethodEntry, configure
from whet.models.embeddings import NONE
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.prompt_router import (
    RewardModel,
    RouterTraining,
    check_routing,
    deploy_router,
    prompt_kernel,
    validate_router,
)
from whet.rl.reward_log import (
    Array,
    LoggedEnvironment,
    RewardLog,
    check_runs,
    fill_rewards,
    mean_rewards,
    read_runs,
)
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, share_out
from whet.search.stages import Stage, record_stage, stage_limits

ENTRY = MethodEntry(
    "oirl",
    "Prompt-OIRL: which prompt for which input",
    version=1,
    rank=57,
    when="inputs are of several kinds, and a prompt that helps one kind harms another",
    paper="Sun et al., ICLR 2024",
    arxiv="2309.06553",
    needs=("optimizer_optional",),
    trains="a model of rewards that chooses a prompt for every input",
    edits_all=True,
    combines=True,
)

STRENGTHS = (1.0, 10.0, 100.0)
DIRECTIONS = 32


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Prompt-OIRL."""

    runs: str = ""
    """Folders of finished runs of the same rows and model, separated by commas, whose answers are the log."""
    method: str = "random_search"
    """The method that searches first if no runs are named; its rollouts are the log."""
    prompts: PositiveInt = 8
    """Prompts to choose from at most."""
    rows: PositiveInt = 200
    """Training rows that the model of rewards is fitted to at most."""
    folds: NonNegativeInt = 5
    """Parts of the cross-validation; 0 for none."""
    alpha: PositiveProbability = 0.1
    """Level of the test that the choices must pass in cross-validation."""
    features: Literal["input", "shuffled"] = "input"
    """The features of a row: its own, or those of a random row (a control)."""
    embedding: str = NONE
    """Vectors of inputs: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""


def check(env: Environment, config: Config, methods: Callable[[str], Method]) -> None:
    """Raises UsageError for a task of several turns, an embedding that there is not, and a method that cannot search before."""
    check_routing("oirl", env, config.embedding)
    if config.runs:
        check_runs(env, folders(config))
        return
    method = methods(config.method)
    needs = (
        set(method.entry.needs) - {OPTIMIZER, OPTIMIZER_OPTIONAL} - ({LABEL_SCORES} if env.scores else set())
    )
    if method.entry.combines or method.deploys() or needs:
        raise UsageError(
            f"oirl: {config.method} cannot search before: it must find a text, with models that write."
        )
    if method.check is not None:
        method.check(env, configure(method, {}))


async def oirl(
    run: Run,
    env: Environment,
    policy: LanguagePolicy | None,
    start: Prompt,
    config: Config,
    methods: Callable[[str], Method],
) -> Candidate:
    """A model of rewards over inputs and prompts; see the module."""
    plan = share_out(run, env, 0, finalists=3, writes=policy is not None)
    archive, notes = Archive(), RewardLog()
    await archive.validate(run, plan.env, [Candidate(start)])
    size = min(config.rows, len(env.train))
    rows = minibatch(run.rng, env.train, max(1, plan.payable(size, 2 * config.prompts)))
    if config.runs:
        await read_runs(run, env, notes, start, folders(config))
        rows = [row for row in env.train if notes.compares(row)][: config.rows]
    else:
        kept = len(rows) * config.prompts
        await search_first(run, plan, notes, policy, start, config.method, methods, kept)
    how = RouterTraining(
        ridge, STRENGTHS, config.folds, config.alpha, config.embedding, config.features == "shuffled"
    )
    features = await how.features(run, rows)
    pool = notes.pool(start, rows, features, config.prompts)
    if not config.runs:
        await fill_rewards(run, plan.env, notes, pool, rows)
    table = notes.table(pool, rows)
    kernel = prompt_kernel([prompt.region_text() for prompt in pool])
    how = replace(how, fit=partial(ridge, kernel=kernel))
    router = await how.learn(run, env, pool, rows, features, table)
    return await validate_router(run, plan, archive, router, pool[int(mean_rewards(table).argmax())], "oirl")


def folders(config: Config) -> list[str]:
    """The folders of the runs that are named."""
    return [name.strip() for name in config.runs.split(",") if name.strip()]


async def search_first(
    run: Run,
    plan: SearchPlan,
    notes: RewardLog,
    policy: LanguagePolicy | None,
    start: Prompt,
    name: str,
    methods: Callable[[str], Method],
    kept: int,
) -> None:
    """Another method searches with all that is left but `kept` calls and the validations; its rollouts are noted."""
    method = methods(name)
    size = len(plan.env.validation)
    writes = {OPTIMIZER, OPTIMIZER_OPTIONAL} & set(method.entry.needs)
    env = as_environment_type(plan.env, LoggedEnvironment, notes=notes)

    async def search(branch: Run, config: Any) -> Any:
        await record_stage(branch, name, method.entry.version)
        limits = stage_limits(run.limits, {"task": size}, kept + (plan.validations - 1) * size, 1)
        stage = Stage(branch, limits, leads=True)
        return await method.coroutine(stage, env, policy if writes else None, start, config)

    await run.map(search, [configure(method, {})])


def ridge(features: Array, table: Array, strength: float, kernel: Array | None = None) -> RewardModel:
    """Ridge regression of rewards on (1, x) times p: x main directions of the features, p a root of the kernel of the prompts.

    Features (rows, width), rewards (rows, prompts) with NaN where unknown. Only what exceeds the mean of a prompt is regressed.
    """
    means, centre = mean_rewards(table), features.mean(axis=0)
    _, sizes, directions = np.linalg.svd(features - centre, full_matrices=False)
    kept = directions[: min(DIRECTIONS, int((sizes > 1e-9).sum()))]
    scale = np.sqrt(len(features)) / max(float(sizes[0]), 1e-9)
    x = np.hstack([np.ones((len(features), 1)), (features - centre) @ kept.T * scale])
    root = np.linalg.cholesky(np.eye(len(means)) if kernel is None else kernel)
    row, prompt = np.nonzero(~np.isnan(table))
    design = (x[row][:, :, None] * root[prompt][:, None, :]).reshape(len(row), -1)
    normal = design.T @ design + strength * np.eye(design.shape[1])
    coefficients = np.linalg.solve(normal, design.T @ (table[row, prompt] - means[prompt]))
    weights = root @ coefficients.reshape(x.shape[1], -1).T
    slopes = weights[:, 1:] @ kept * scale
    offsets = means + weights[:, 0] - slopes @ centre
    return RewardModel(np.hstack([offsets[:, None], slopes]), np.eye(len(means)))


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task in which the router of a blob chooses the prompt of every input. Raises UsageError for another blob."""
    return deploy_router(env, blob)
