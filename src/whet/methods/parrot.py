"""Parrot: several rewards without weights, because only what no other sample dominates teaches the rewriter of requests.

Lee, Li, Ke, Yoo, Zhang, Yu, Wang, Deng, Entis, He, Li, Kim, Essa, Yang: Parrot: Pareto-optimal Multi-Reward Reinforcement
Learning Framework for Text-to-Image Generation. ECCV 2024. arXiv:2401.05675. Its abstract and summaries by others could be read;
details are our reading.

    for step in 1..steps, for each request x of a batch, with each reward k named in turn, and all of them together:
        x'_1..x'_G ~ pi(. | x, "<reward k>");   r_k(y_g) for all rewards k,   y_g ~ frozen model(. | x, x'_g)
        N <- the samples of x that no other sample of x dominates
        raise log pi(x'_g | ...) for g in N by its rewards, and leave all others alone
    in use: the likeliest x' for x with all rewards named; the frozen model reads x and x'

A sample dominates another one that is not better in any reward and worse in one.

Differences from the paper:
1. The image model stays frozen: only the rewriter is trained. The rewards are the task's objectives.
2. Samples of one request are compared with each other, not those of a batch of different requests.
3. Each reward is brought to [0, 1] by the lowest and the highest of the request's samples, so that its scale does not matter. A
   sample that was asked for reward k counts with that reward, one that was asked for all with their mean.
4. The paper's guidance mixes what the image model makes of the request and of the rewording. Here the request stands before the
   rewording (`keep_request`), in training and in use.
5. The paper names all rewards in use only. Here this question is asked in training too, because it is the one that is used.
   `selection=all` gives dominated samples their weight, `selection=weighted` learns from the task's weighted sum: the controls.
6. The weights are chosen on validation examples among some checks on the way and the frozen model alone. Low-rank adapters.
7. A rewording that is empty or that the bound on tokens cut teaches nothing and costs no call.
8. Under a limit on calls, steps and requests are reduced to fit.

Run it:  whet optimize TASK --method parrot --lm images/openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import fmean
from typing import ClassVar, Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards import Objectives
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.policy_model.optimizer import WHOLE
from whet.rl.rewordings import (
    GreedyRewording,
    RewriterTraining,
    check_one_turn,
    read_rewording,
    request_of,
    try_rewordings,
)
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.training import Advantage, Trainer, Training
from whet.rl.written_prompts import WrittenPrompts, with_writer
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example, Message, Rollout

ENTRY = MethodEntry(
    "parrot",
    "Parrot: a rewriter trained by what no sample dominates",
    version=2,
    rank=228,
    when="several rewards count, nobody can weigh them, and each request may be reworded",
    paper="Lee et al., ECCV 2024",
    arxiv="2401.05675",
    needs=("policy", "objectives"),
    trains="a language model that rewords every input (LoRA)",
    extra="train",
)

Selection = Literal["pareto", "all", "weighted"]
REWARD = "reward"


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of Parrot; the others are those of every training."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 60
    """Updates of the rewriter."""
    group: PositiveInt = 12
    """Rewordings of one request in a step, shared among the rewards that are named (G)."""
    requests: PositiveInt = 8
    """Requests of a step."""
    selection: Selection = "pareto"
    """The samples from which the policy learns: those that no other sample dominates, all, or all by the task's weighted sum
    (the controls)."""
    aims: bool = True
    """Whether each reward is also named alone; false names all of them each time."""
    keep_request: bool = True
    """Whether the frozen model reads the request before its rewording."""
    advantage: Advantage = "dr_grpo"
    """The estimator of the advantages (selection=weighted)."""
    kl: NonNegativeFloat = 0.01
    """Weight of the divergence from the first weights."""
    max_tokens: PositiveInt = 128
    """Bound on a rewording."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""


async def parrot(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Policy gradient on non-dominated rewordings; see the module."""
    check(env, config)
    names = list(signs_of(env))
    aims = [*([name] for name in names if config.aims and len(names) > 1), names]
    each = max(1, config.group // len(aims))
    trainer, share = Trainer(policy, config), share_out(run, env, config.checks, 1, writes=False)
    requests = max(1, share.payable(min(config.requests, len(env.train)), each * len(aims)))
    steps = share.payable(config.steps, requests * each * len(aims))
    training = await RewriterTraining.begin(run, policy, start, share, "parrot", steps, config.checks)

    async def step(run: Run, number: int) -> dict[str, float]:
        batch = minibatch(run.rng, env.train, requests)
        questions = [question(names, aim, example) for example in batch for aim in aims]
        drawn = await trainer.sample(run, questions, n=each)
        groups = [list(chain(*drawn[i : i + len(aims)])) for i in range(0, len(drawn), len(aims))]
        texts = [[reading(config, e, s) for s in group] for e, group in zip(batch, groups, strict=True)]
        tried = await try_rewordings(run, env, start, batch, texts)
        own = [aim for aim in aims for _ in range(each)]
        figures = learn(trainer, env, config.selection, groups, tried, own)
        answer = fmean([r.reward for group in tried for r in group if r is not None] or [env.reward.low])
        return {"answer": answer, **figures}

    return await training.train(run, step, lambda env: rewording(env, policy, config))


def learn(
    trainer: Trainer,
    env: Environment,
    selection: Selection,
    groups: Sequence[Sequence[Sample]],
    tried: Sequence[Sequence[Rollout | None]],
    aims: Sequence[Sequence[str]],
) -> dict[str, float]:
    """One update; figures of the policy, and the share of samples that no other dominates (`front`)."""
    signs = signs_of(env)
    samples, weights, sums, front = list[Sample](), list[float](), list[list[float]](), list[bool]()
    for group, rollouts in zip(groups, tried, strict=True):
        usable = [i for i, r in enumerate(rollouts) if r is not None and r.answered]
        vectors = [vector_of(env, rollouts[i], signs) for i in usable]
        free = non_dominated(vectors)
        front += free
        samples += [group[i] for i in usable]
        unit = scale_to_group(vectors)
        places = [[list(signs).index(name) for name in aims[i]] for i in usable]
        pairs = zip(unit, places, free, strict=True)
        every = selection == "all"
        weights += [fmean(row[k] for k in own) if good or every else 0.0 for row, own, good in pairs]
        sums.append([env.reward.low if r is None else r.reward for r in rollouts])
    share = {"front": fmean(front)} if front else {}
    if selection == "weighted":
        return {**trainer.learn(groups, sums), **share}
    share |= trainer.watch_divergence([sample for group in groups for sample in group])
    if not any(weights):
        return share
    settings = replace(trainer.config.update(), kl=trainer.config.kl)
    return {**trainer.policy.update(samples, weights, settings), **share}


def signs_of(env: Environment) -> Mapping[str, float]:
    """The objectives of a task: 1 where more is better, -1 where less is; its reward where it has no objectives."""
    if not isinstance(env.reward, Objectives):
        return {REWARD: 1.0}
    return {item.name: 1.0 if item.goal.maximise else -1.0 for item in env.reward.items}


def vector_of(env: Environment, rollout: Rollout | None, signs: Mapping[str, float]) -> list[float]:
    """The rewards of a rollout, more of each of which is better."""
    assert rollout is not None, "only samples that were tried have rewards"
    values = env.reward.values(rollout) if isinstance(env.reward, Objectives) else {REWARD: rollout.reward}
    return [sign * values[name] for name, sign in signs.items()]


def non_dominated(vectors: Sequence[Sequence[float]]) -> list[bool]:
    """Of each vector, whether no other one is at least as good in all rewards and better in one.

    >>> non_dominated([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [0.0, 1.0]])
    [True, True, False, True]
    """

    def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)

    return [not any(dominates(other, one) for other in vectors) for one in vectors]


def scale_to_group(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each reward brought to [0, 1] by its lowest and highest value; 0 where all are equal.

    >>> scale_to_group([[1.0, 700.0], [3.0, 700.0], [2.0, 700.0]])
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    columns = [(min(column), max(column)) for column in zip(*vectors, strict=True)]
    return [
        [(v - low) / (high - low) if high > low else 0.0 for v, (low, high) in zip(row, columns, strict=True)]
        for row in vectors
    ]


def reading(config: Config, example: Example, sample: Sample) -> str | None:
    """The text that the frozen model reads instead of the request."""
    text = read_rewording(example, sample)
    return text if text is None or not config.keep_request else f"{request_of(example)}\n{text}"


def question(names: Sequence[str], aim: Sequence[str], example: Example) -> Conversation:
    """The question to the rewriter: the request, and the wanted rewards, as far as the task has them."""
    wanted = "" if list(names) == [REWARD] else f" {AIM} {', '.join(aim)}."
    return (Message("user", f"{REQUEST}{wanted}\n\n{request_of(example)}"),)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns, for a choice of rows, and for fewer samples than rewards."""
    refuse_selectors(config.rows, CHOSEN, "parrot draws requests uniformly.")
    check_one_turn(env, "parrot")
    if config.selection != "weighted" and (config.loss in WHOLE or config.kl_in == "reward"):
        raise UsageError(
            f"selection={config.selection} weighs each sample by itself, which loss={config.loss} with kl_in={config.kl_in} does "
            f"not take. Use {parameter('config.selection', 'weighted')}."
        )
    rewards = len(signs_of(env))
    if config.aims and rewards > 1 and config.group <= rewards:
        raise UsageError(
            f"group={config.group}: each of the {rewards} rewards needs a sample, and all of them together one more. Raise group."
        )


def rewording(env: Environment, policy: PolicyModel, config: Config) -> WrittenPrompts:
    """The system: every request is expanded, with all rewards named."""
    names = list(signs_of(env))
    asks, reads = partial(question, names, names), partial(reading, config)
    return with_writer(env, GreedyRewording(Trainer(policy, config), asks, reads), "parrot")


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights expand every request."""
    policy.load(blob)
    return rewording(env, policy, config)


REQUEST = "Write more of this request, so that its result turns out well. Write the addition only."
AIM = "What counts:"
