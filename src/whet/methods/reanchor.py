"""ReAnchor: a weight for each label, fitted to the probabilities that a prompt leads to; no call beyond one pass over the rows.

ReAnchor, of DSPy 3.4.1 (2026; stanfordnlp/dspy, `teleprompt/reanchor`; no paper). The step after a search: the answer is the
label with the largest weight times probability.

    if `method` is named: prompt <- what it finds; else prompt <- start
    P <- the probabilities of the labels under the prompt, on training rows
    for each label: w <- the candidate weight with the best reward (candidates lie between the points where an answer flips)
        keep it if it is better on all rows, and better in `folds`-fold cross-validation
    keep all of it if it is better than no weights in the same check
    with `fit=content-free` instead: w <- 1 / the probability of each label on inputs that say nothing, for which no row needs a
        label (contextual calibration; Zhao, Wallace, Feng, Klein, Singh, ICML 2021, arXiv:2102.09690, section 5)

Differences from DSPy's:
1. The probabilities are those of the model, not numbers that it writes, so the task needs labels and a model that scores them.
2. Folds keep rows of one group, and rows with the same input, together. DSPy deals by index, so that near copies leak.
3. The reward is that of the task, whatever it makes of probabilities; DSPy counts right answers.
4. Weights are one by label; thresholds of yes and no are the case of two labels. Cut points of ordered scores are left out.
5. The weighted prompt is compared with the prompt and with the start on validation rows.
6. `folds` of 0 checks nothing: the control, which over-fits where rows are few.
7. Contextual calibration keeps the weights only if they beat the prompt on validation rows; the paper always keeps them.

Run it:  whet optimize TASK --method reanchor --set method=bdpl
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError, named_fields
from whet.methods.method import LABEL_SCORES, Method, MethodEntry, configure
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rewards import isinstance_label_reward
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.label_weights import Reweighted, WeightFit, content_free_rows, contextual_weights, deal
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.search.stages import Stage, record_stage, stage_limits
from whet.types import JSON, content_hash

ENTRY = MethodEntry(
    "reanchor",
    "ReAnchor: a weight for each label, after a search",
    version=1,
    rank=55,
    when="a model scores labels, and answers one of them too often",
    paper="DSPy, 2026",
    needs=("label_scores",),
    trains="a weight for each label",
    bound="its weights belong to the probabilities of one model",
    edits_all=True,
    combines=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ReAnchor."""

    method: str = ""
    """The name of the method that searches for a prompt first; if empty, the weights are fitted to the start prompt."""
    fit: Literal["rows", "content-free"] = "rows"
    """The weights fit labelled training rows, or make the labels equally likely on inputs that say nothing (contextual
    calibration)."""
    rows: PositiveInt = 200
    """Training rows that the weights are fitted to at most."""
    folds: NonNegativeInt = 5
    """Parts of the cross-validation that a weight must pass; 0 for none."""
    passes: PositiveInt = 2
    """Passes over the labels."""


@dataclass
class LabelWeights:
    """The state that is kept: a weight for each label."""

    values: dict[str, float]

    def save(self) -> bytes:
        """The weights as JSON."""
        return json.dumps(self.values).encode()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        self.values = read(blob)


def check(env: Environment, config: Config, methods: Callable[[str], Method]) -> None:
    """Raises UsageError for a reward that reads no probabilities, and for a method that cannot search before."""
    if not isinstance_label_reward(env.reward):
        raise UsageError(
            f"reanchor: the reward {env.reward.name} cannot be computed from probabilities of labels."
        )
    if config.method:
        method = methods(config.method)
        if method.entry.combines or method.deploys() or set(method.entry.needs) - {LABEL_SCORES}:
            raise UsageError(
                f"reanchor: {config.method} cannot search before: it must find a text without a model that writes."
            )


async def reanchor(
    run: Run,
    env: Environment,
    policy: object,
    start: Prompt,
    config: Config,
    methods: Callable[[str], Method],
) -> Candidate:
    """Weights of labels after a search; see the module. `policy` is not used."""
    plan = share_out(run, env, 0, finalists=2, writes=False)
    archive, env = Archive(), plan.env
    prompt = await archive.validate(run, env, [Candidate(start)])
    blank = config.fit == "content-free"
    payable = plan.payable(config.rows, 2 if config.method else 1)
    train = content_free_rows(env.train[0]) if blank else minibatch(run.rng, env.train, payable)
    if config.method:
        base = await search_first(
            run, env, start, config.method, methods, len(train) + 2 * len(env.validation)
        )
        archive.add(run, base)
        prompt = await archive.validate(run, env, [base])

    async def observe() -> JSON:
        rows: JSON = np.round((await env.label_probs([prompt.prompt], train))[0], 6).tolist()
        return rows

    args = content_hash([prompt.prompt.id, [row.id for row in train]])
    record = await run.effect("probabilities", observe, args, role="task", calls=len(train))
    seen = convert_record(record, list[list[float]])
    names = list(env.labels)
    if blank:
        fitted = contextual_weights(np.array(seen))
    else:
        right = np.array([names.index(str(row.target)) for row in train], np.int64)
        fitted = WeightFit(np.array(seen), right, score_of(env), deal(train, config.folds)).fit(config.passes)
    weights = [round(float(one), 6) for one in fitted]
    run.log("weights", dict(zip(names, weights, strict=True)))
    if set(weights) != {1.0}:
        system = await run.keep(LabelWeights(dict(zip(names, weights, strict=True))))
        candidate = Candidate(prompt.prompt, (prompt.id,), "weights", system=system)
        archive.add(run, candidate)
        await archive.validate(run, as_environment_type(env, Reweighted, weights=tuple(weights)), [candidate])
    return archive.incumbent or prompt


def score_of(env: Environment) -> Callable[[Any, object], Any]:
    """The reward of the task from probabilities (n, L) and right labels (n,)."""
    reward: Any = env.reward
    return lambda probs, right: reward.from_labels(probs[None], right)[0]


async def search_first(
    run: Run, env: Environment, start: Prompt, name: str, methods: Callable[[str], Method], kept: int
) -> Candidate:
    """Search with another method, with all calls but `kept`."""
    method, spent = methods(name), {"task": len(env.validation)}

    async def search(branch: Run, config: object) -> Any:
        await record_stage(branch, name, method.entry.version)
        stage = Stage(branch, stage_limits(run.limits, spent, kept, 1), leads=True)
        return await method.coroutine(stage, env, None, start, config)

    (base,) = await run.map(search, [configure(method, {})])
    return Candidate(base.prompt, (start.id,), name)


def read(blob: bytes) -> dict[str, float]:
    """The weights in a blob. Raises UsageError for anything else."""
    values = next(iter(json_values(blob.decode(errors="replace"))), None)
    if (
        not isinstance(values, dict)
        or not values
        or not all(isinstance(one, float) and one > 0 for one in values.values())
    ):
        raise UsageError("this is not a checkpoint of reanchor: it holds no weight for each label.")
    return values


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task with the weights at work. Raises UsageError for weights of other labels."""
    weights = read(blob)
    if list(weights) != list(env.labels):
        raise UsageError(
            f"the weights are of the labels {', '.join(weights)}, the task has {', '.join(env.labels)}."
        )
    return as_environment_type(env, Reweighted, weights=tuple(weights.values()))
