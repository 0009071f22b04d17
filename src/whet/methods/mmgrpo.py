"""mmGRPO: policy gradient on all calls of a program, each compared with the same call of the other rollouts.

Ziems, Soylu, Agrawal et al.: Multi-module GRPO: Composing Policy Gradients and Prompt Optimization for Language Model Programs.
2025. arXiv:2508.04660. Groups as in DSPy's `GRPO` (3.4.1).

    for each step, for each row x of a batch: `group` rollouts of the program, every call answered by pi
        for each prompt m of the program and each j: a group is the j-th call of m in each rollout, with the reward of its rollout
        A <- (r - mean) / std within the group
    update of pi by all groups
    in use: pi answers all calls of the program

All prompts share one policy and one reward. Rollouts may read different inputs in the same place, and make fewer or more calls.

Differences from the paper and DSPy:
1. A place that few rollouts came to has a small group, and one rollout alone teaches nothing. DSPy fills short groups by
   repetition, which makes the spread smaller, or cuts the long ones.
2. A failed rollout has the lowest reward; in DSPy it has 0, and an answer that cannot be read has -1.
3. `group` is 8. DSPy's default is one rollout, whose advantage is always 0.
4. `baseline=held` is counterfactual: a call is compared with others in its place, while all other calls of its rollout answer as
   they did. `rerun` holds the earlier calls only; `input` compares calls that happened to read the same. `prompts` learns from
   the calls of some prompts only. All of these are ours.
5. Weights are chosen on validation rows, against the task model alone. Low-rank adapters (`rank=0`: all weights).
6. Under a limit on calls, steps are reduced to fit; a call that the policy answers counts as a task call.
7. The calls of a program are answered one by one, not in a batch.

Run it:  whet optimize TASK --method mmgrpo --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, did_you_mean, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.call_groups import Baseline, let_policy_answer, roll_groups
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import MultiTurnTraining, Trainer
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out

ENTRY = MethodEntry(
    "mmgrpo",
    "mmGRPO: the model that a program asks is trained on all its calls",
    version=1,
    rank=234,
    when="a program asks a model several times, and this model may be trained",
    paper="Ziems et al., 2025",
    arxiv="2508.04660",
    needs=("policy",),
    trains="the model that answers the calls of a program (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
    programs=True,
)


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of mmGRPO; the others are those of every training."""

    steps: NonNegativeInt = 100
    """Updates of the weights."""
    group: PositiveInt = 8
    """Rollouts of one row."""
    problems: PositiveInt = 4
    """Rows of a step."""
    baseline: Baseline = "place"
    """The calls with which a call is compared: the same call of the other rollouts (place); those with the same input text
    (input); or repetitions of this call, with all other calls held to their answers (held) or only the earlier calls
    (rerun)."""
    prompts: str = ""
    """Prompts of the program whose calls are learned from, by name; all by default."""
    checks: NonNegativeInt = 4
    """Times that the weights are validated on the way."""


async def mmgrpo(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Policy gradient on the calls of a program; see the module."""
    check(env, config)
    trainer, names = Trainer(policy, config), chosen_prompts(config, start)
    share = share_out(run, let_policy_answer(env, policy, config), config.checks, 1, writes=False)
    system = share.env
    problems = min(config.problems, len(env.train))
    each = rollouts_each(config, system)
    steps = share.payable(config.steps, problems * each)
    archive = Archive()
    await archive.validate(run, replace(env, validation=system.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "mmgrpo", max(1, steps), checks)

    async def step(run: Run, number: int) -> None:
        batch = minibatch(run.rng, env.train, problems)
        rolled = await roll_groups(run, env, trainer, config, start, batch, names, config.baseline)
        figures = trainer.learn(rolled.samples, rolled.rewards)
        rewards = [rollout.reward for group in rolled.rollouts for rollout in group]
        groups = len(rolled.samples)
        run.log("step", {"step": number, "answer": fmean(rewards), "groups": groups, **figures})
        if systems.due(number):
            await systems.validate(run, archive, system, await run.keep(policy))

    await run.train(steps, step, policy)
    return systems.recall(archive)


def rollouts_each(config: Config, env: Environment) -> int:
    """Rollouts that one row of a step costs at most: where the later calls are made anew, a call costs those too."""
    calls = int(getattr(env, "calls", 1))
    return -(-config.group * (calls + 1) // 2) if config.baseline == "rerun" else config.group


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "mmgrpo trains on all rows alike.")


def chosen_prompts(config: Config, start: Prompt) -> list[str]:
    """The prompts whose calls are learned from; none means all. Raises UsageError for one that the program does not have."""
    names = [name.strip() for name in config.prompts.split(",") if name.strip()]
    for name in names:
        if name not in start.parts:
            raise UsageError(f'mmgrpo: the program has no prompt "{name}".{did_you_mean(name, start.parts)}')
    return names


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the calls."""
    policy.load(blob)
    return let_policy_answer(env, policy, config)
