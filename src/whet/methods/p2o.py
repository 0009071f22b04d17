"""P2O: prompts evolve on the rows where every rollout fails, and the weights learn to do without these prompts.

P2O: prompts and policy optimized together. 2026. arXiv:2603.21877. Only the abstract and an implementation of the distillation by
others could be read: the main loop, sizes and wording are ours.

    for step in 1..steps:
        y_1..y_G ~ pi(. | x) for each row x of a batch;   A <- r - mean r
        hard <- rows whose whole group failed; they join a pool
        every `every` steps: F <- a round of evolution of prompts on rows of the pool       (whet.rl.prompt_front)
        for each hard x: y ~ pi(. | x under a prompt of F);  if the rewards differ: A <- r - mean r
        update: - A log pi(y | x),  of the hard rows too on the context without the prompt
    in use: pi(. | x) under the prompt as written

Rows on which every rollout fails have no gradient. A prompt that opens them makes rewards differ, and what is learned from these
rollouts is learned for the bare context, so that at the end no prompt is needed.

Differences from the paper, as far as it could be read:
1. No importance ratio on the moved rollouts: pi(y | x) / pi(y | x, prompt) is nearly 0 for what the bare policy never writes,
   and a clipped or shaped ratio would learn nothing from just these. `ratio=shaped` is that of Guide-GRPO (whet.rl.guidance).
2. The evolution is a light round of GEPA with the policy itself as the writer (`writer=optimizer`: the run's optimizer model).
3. Low-rank adapters (`rank=0`: all weights). The divergence, if it has a weight, is measured on the bare context.
4. The weights are chosen on validation examples under the prompt as written, against the task model alone.
5. Under a limit on calls, steps are reduced to fit; an answer of the policy counts as a task call.
6. `every=0` is plain GRPO; `distil=false` learns on the context with the prompt; both are controls.

Run it:  whet optimize TASK --method p2o --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.advantages import Rows, equal
from whet.rl.answer_groups import answers
from whet.rl.guidance import all_failed, without_hints
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.prompt_front import PromptFront, Writer, evolve
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Advantage, MultiTurnTraining, Reward, Trainer, total_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example

ENTRY = MethodEntry(
    "p2o",
    "P2O: prompts open rows that the weights never solve",
    version=1,
    rank=232,
    when="the answering model may be trained, and on many rows it never finds a right answer by itself",
    paper="2026",
    arxiv="2603.21877",
    needs=("policy", "optimizer_optional"),
    trains="the model that answers (LoRA), with prompts as help",
    extra="train",
    bound="its trained weights are what answers",
)


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of P2O; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the weights."""
    group: PositiveInt = 8
    """Answers to one problem (G)."""
    problems: PositiveInt = 8
    """Problems of a step."""
    every: NonNegativeInt = 5
    """Steps from one round of evolution to the next; 0 for none."""
    hard: PositiveInt = 8
    """Rows of the pool that prompts are measured on, at most."""
    new: PositiveInt = 3
    """Prompts that a round writes."""
    kept: PositiveInt = 4
    """The number of prompts that stay, besides the start prompt."""
    among: Literal["hard", "any"] = "hard"
    """The rows on which prompts evolve: those of the pool, or random rows (the control)."""
    distil: bool = True
    """Whether rollouts under a prompt are learned from on the context without it."""
    ratio: Literal["none", "shaped"] = "none"
    """Weight of such rollouts: none, or the shaped importance ratio of Guide-GRPO."""
    writer: Writer = "policy"
    """The writer of prompts."""
    advantage: Advantage = "grpo"
    """The estimator of the advantages."""
    checks: NonNegativeInt = 4
    """Times that the weights are validated on the way."""


async def p2o(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """GRPO with prompts for the rows that always fail, distilled away; see the module."""
    check(env, config)
    trainer, system = Trainer(policy, config), answering(env, policy, config)
    share = share_out(run, system, config.checks, 1, writes=False)
    problems = min(config.problems, len(env.train))
    steps = share.payable(config.steps, cost_of_step(config, problems))
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "p2o", max(1, steps), checks)
    prompts = PromptFront(policy, start, config.kept)
    policy.notes["hard"] = []
    rows = {row.id: row for row in env.train}
    low, high = env.reward.low, env.reward.high

    async def step(run: Run, number: int) -> None:
        batch = minibatch(run.rng, env.train, problems)
        (bare,) = await answers(run, env, trainer, [start], batch)
        rewards = [[(r.reward - low) / (high - low) for r in group] for group in bare.rollouts]
        failed = [i for i, group in enumerate(rewards) if all_failed(group)]
        solved = {batch[i].id for i in range(len(batch)) if i not in failed}
        pool = dict.fromkeys([*policy.notes["hard"], *(batch[i].id for i in failed)])
        policy.notes["hard"] = [name for name in pool if name not in solved]
        figures: dict[str, float] = {"hard": float(len(policy.notes["hard"]))}
        among = policy.notes["hard"] if config.among == "hard" else list(rows)
        if config.every and number % config.every == 0 and among:
            chosen = [rows[name] for name in run.rng.sample(among, min(config.hard, len(among)))]
            best = await evolve(run, system, trainer, prompts, chosen, config.new, config.writer)
            figures["opened"] = (best - low) / (high - low)
        helped = Helped([], [], [])
        if config.every:
            for i, text in zip(failed, prompts.draw(run.rng, len(failed)), strict=True):
                await help_row(
                    run, env, trainer, config, prompts.prompt(text), batch[i], bare.samples[i], helped
                )
        groups, paid = [*bare.samples, *helped.groups], [*bare.rewards, *helped.rewards]
        ones = [[1.0] * len(sample.tokens) for group in bare.samples for sample in group]
        figures |= trainer.learn(groups, paid, [*ones, *helped.weights] if helped.groups else None)
        answer = fmean(r.reward for group in bare.rollouts for r in group)
        run.log("step", {"step": number, "answer": answer, "helped": len(helped.groups), **figures})
        if systems.due(number):
            digest = await run.keep(policy)
            await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(steps, step, policy)
    return systems.recall(archive)


@dataclass(frozen=True)
class Helped:
    """Groups that were written under a prompt of the front, as groups that are learned from; `weights` by sample."""

    groups: list[list[Sample]]
    rewards: list[list[Reward]]
    weights: Rows


async def help_row(
    run: Run,
    env: Environment,
    trainer: Trainer,
    config: Config,
    prompt: Prompt,
    row: Example,
    plain: Sequence[Sample],
    helped: Helped,
) -> None:
    """Answer a row under a prompt; where the rewards differ, take the group in, on the context without the prompt."""
    (again,) = await answers(run, env, trainer, [prompt], [row])
    (group,), (rewards,) = again.samples, again.rewards
    if equal([total_reward(reward) for reward in rewards]):
        return
    weights = [[1.0] * len(sample.tokens) for sample in group]
    if config.distil:
        group, shaped = without_hints(trainer.policy, group, [plain[0]] * len(group))
        weights = shaped if config.ratio == "shaped" else weights
    helped.groups.append(list(group))
    helped.rewards.append(list(rewards))
    helped.weights.extend(weights)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows: the pool of hard rows is one."""
    refuse_selectors(config.rows, CHOSEN, "p2o has a choice of rows of its own, the pool of hard rows.")


def cost_of_step(config: Config, problems: int) -> int:
    """Answers of the policy that a step takes at most; a round of evolution is divided among its steps."""
    again = 2 if config.every else 1
    measured = (1 + config.kept + config.new) * config.hard
    return problems * config.group * again + (-(-measured // config.every) if config.every else 0)


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
