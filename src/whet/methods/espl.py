"""E-SPL: principle lists evolve while the weights of the model that follows them learn.

Evolutionary System Prompt Learning for Reinforcement Learning in LLMs. arXiv:2602.14697. Algorithm and sizes as in
the published code (LunjunZhang/E-SPL).

    pool <- [empty list of principles]
    for step in 1..steps:
        P <- K programs of the pool (the newest always in)
        each program answers a batch of problems, `group` answers each:  y ~ pi(. | program, problem)
        A <- r - mean r of the answers of the same program to the same problem;  update of pi (modes rl, both)
        rank the programs by accuracy -> TrueSkill
        best <- the most accurate;  (modes evolution, both:)
        with probability pc: pool += crossover(best, the other winners), rating fused
        pool += mutation(best, problems with mixed outcomes), rating inflated
        evict;  validate
    the program and weights that validated best

The result is a system: trained weights that answer with the program in their prompt. In mode `evolution` the weights
stay what they were.

Differences from the paper:
1. Programs and weights are chosen on validation examples, and must beat the start under the task model alone; the
   published code chooses checkpoints on the test set.
2. The best rated program is never evicted (there: the oldest, whatever its rating), and what is validated is the
   program that is almost surely best (mu - 2 sigma), not the newest.
3. Summary, critique and plan are one request with the mistakes of the problem it is about (there: three, and the
   critique carried the rollouts of the last problem for all). The mutating model is the policy itself as it is now, or
   `mutator=optimizer`, the run's optimizer model.
4. Low-rank adapters with the mechanics of docs/training.md as settings; the paper's importance-weighted loss, mean
   baseline and no divergence are the defaults. Groups of equal rewards have no advantage and teach nothing. In a world
   of several turns `credit=turn` credits each turn with what followed it.
5. Within a limit on calls, steps are cut to what the limit pays; an answer of the policy counts as a task call.

Run it:  whet optimize TASK --method espl --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.evolving import (
    Pool,
    answers,
    crossover_question,
    mutation_question,
    operate,
    success,
    training_groups,
    validated,
)
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel
from whet.rl.programs import Selection, applied, rated, select
from whet.rl.trainer import Talking, Trainer
from whet.rl.training_settings import Advantage, Loss
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import share_out


@dataclass(frozen=True)
class Config(Talking):
    """Settings of E-SPL; the others are those of every training."""

    mode: Literal["both", "rl", "evolution"] = "both"
    """What learns: the principles, the weights, or both."""
    steps: int = 40
    """Steps; each updates the weights and may add two programs."""
    group: int = 5
    """Answers to one problem under one program."""
    problems: int = 8
    """Problems of a step."""
    programs: int = 3
    """Programs that answer in a step (K)."""
    selection: Selection = "lucb"
    """How they are chosen."""
    recent: int = 5
    """They are chosen among the newest so many."""
    pool: int = 100
    """Programs kept."""
    crossover: float = 0.2
    """Probability of a crossover in a step (pc)."""
    principles: int = 8
    """Principles of a program at most."""
    marginalize: bool = False
    """Whether the baseline is the mean over all programs instead of the same one."""
    mutator: Literal["policy", "optimizer"] = "policy"
    """Who writes the operations."""
    explain: bool = True
    """Whether the request explains the operations; embedded/tiny knows them and must not be told."""
    advantage: Advantage = "dr_grpo"
    """How rewards become advantages: the mean is taken off, nothing is divided."""
    loss: Loss = "importance"
    """Loss of a token."""
    temperature: float = 0.7
    """Of sampling."""
    checks: int = 4
    """Times that a program with the present weights is validated."""


async def espl(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Evolution of principle lists and policy gradient under each of them; see the module."""
    check(env, config)
    low, high = env.reward.low, env.reward.high
    mechanics = Trainer(policy, config, env.train, (low, high))
    system = answering(env, policy, config)
    share = share_out(run, system, config.checks, 1, writes=False)
    programs = 1 if config.mode == "rl" else config.programs
    cost = min(config.problems, len(env.train)) * config.group * programs
    steps = config.steps if share.rollouts is None else min(config.steps, share.rollouts // cost)
    checks = min(steps, config.checks, share.validations - 1)
    archive = Archive()
    alone = replace(env, validation=share.env.validation)
    await archive.validate(run, alone, [Candidate(start)])
    pool = Pool(policy, start, config.pool)
    writes = config.explain, config.mutator == "optimizer"

    async def step(run: Run, number: int) -> None:
        programs = select(run.rng, pool.members, config.programs, config.selection, config.recent)
        problems = mechanics.choose(run.rng, config.problems)
        prompts = [pool.prompt(program) for program in programs]
        played = await answers(run, env, mechanics, prompts, problems)
        accuracy = [fmean(r.reward for group in one.rollouts for r in group) for one in played]
        figures: dict[str, float] = {}
        keys = [problem.id for problem in problems] * (1 if config.marginalize else len(programs))
        if config.mode != "evolution":
            figures = mechanics.learn(*training_groups(played, config.marginalize), keys=keys)
        mechanics.observe(problems, success(env, played), config.group * len(programs))
        after = rated(programs, [(value - low) / (high - low) for value in accuracy])
        pool.replace(after)
        if config.mode != "rl":
            best = max(range(len(programs)), key=lambda i: accuracy[i])
            if run.rng.random() < config.crossover and len(programs) > 1:
                groups = [one.rollouts for one in played]
                query, winners = crossover_question(programs, best, groups, problems, high - low)
                written = await operate(run, mechanics, query, *writes)
                parents = [after[i] for i in winners] or [after[best]]
                pool.crossed(parents, applied(programs[best].principles, written, config.principles), number)
            query = mutation_question(programs[best], played[best].rollouts, problems, high)
            written = await operate(run, mechanics, query, *writes)
            pool.mutated(after[best], applied(programs[best].principles, written, config.principles), number)
        run.log("step", {"step": number, "answer": max(accuracy), "programs": len(pool.members), **figures})
        if checks and (number + 1) * checks // steps > number * checks // steps:
            await validated(run, archive, pool, answering(share.env, policy, config), await run.keep(policy))

    await run.train(steps, step, policy)
    return pool.recall(archive)


def check(env: Environment, config: Config) -> None:
    """Refuse what this method cannot do."""
    if config.hints != "none" or config.advantage == "remax":
        raise UsageError(
            "espl knows no hints and no greedy baseline: leave hints=none, and take another advantage."
        )
    if config.by_turn and getattr(env, "world", None) is None:
        raise UsageError("credit=turn needs episodes of several turns; this task has no `environment:`.")


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
