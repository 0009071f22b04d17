"""BetterTogether: a method for prompts and training of the weights, one after the other, as a short text says.

Soylu, Potts, Khattab: Fine-Tuning and Prompt Optimization: Two Great Steps that Work Better Together. EMNLP 2024.
arXiv:2407.10930. Stages as in DSPy 3.4.1 (`BetterTogether`).

    for each stage of "p -> w -> p":
        p: prompt <- what a method for prompts finds from the prompt, with the weights as they are
        w: y ~ pi(. | prompt, x) for rows x; the right y are imitated (or compared by GRPO) under this prompt
        validate the pair of prompt and weights
    in use: the pair that validated best, the earliest of equals

A good prompt makes right answers appear that weights can learn from, and prompts can be chosen for the weights that are there.

Differences from the paper and DSPy:
1. Right answers are imitated as they are sampled, with one gradient step on each batch of rows. The paper samples first and then
   fine-tunes for some epochs. `learn=grpo` compares the answers to a row instead.
2. Every stage, and the start under the task model alone, is validated on the rows that the task keeps for that. DSPy takes the
   first tenth of the training rows in their order, which is none of fewer than ten, and then returns the last stage unseen.
3. A stage that fails ends the run with its error, which a resume begins again; DSPy returns what was best before, with a flag.
4. All stages share the limits on calls: each has an equal part of what is left. An answer of the policy counts as a task call.
5. A method runs under its own defaults (`prompts`); its version is recorded, and a resume under another is refused.
6. Low-rank adapters (`rank=0`: all weights). A second `w` goes on from the weights as they are.
7. Of a program all calls are learned from, as in `mmgrpo`.

Run it:  whet optimize TASK --method better_together --set strategy="p -> w -> p" --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.environments.program import ProgramEnvironment
from whet.errors import UsageError, named_fields
from whet.methods.method import OPTIMIZER, OPTIMIZER_OPTIONAL, Method, MethodEntry, configure
from whet.prompt import Prompt
from whet.rl.call_groups import let_policy_answer, roll_groups
from whet.rl.language import LanguagePolicy
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.training import MultiTurnTraining, Trainer, total_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import payable_rollouts
from whet.search.stages import Stage, common_rows, record_stage, stage_limits
from whet_client.storable import show_value

ENTRY = MethodEntry(
    "better_together",
    "BetterTogether: stages for the prompt and stages for the weights",
    version=1,
    rank=233,
    when="the answering model may be trained, and a method for its prompt is to be followed by training, or the other way round",
    paper="Soylu et al., EMNLP 2024",
    arxiv="2407.10930",
    needs=("policy", "optimizer_optional"),
    trains="the model that answers (LoRA), and its prompt",
    extra="train",
    bound="its trained weights are what answers",
    edits_all=True,
    combines=True,
    programs=True,
)


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of BetterTogether; the others are those of every training."""

    strategy: str = "p -> w -> p"
    """Stages in their order: p searches for a prompt, w trains the weights."""
    prompts: str = "bootstrap"
    """The method of the stages p, by name."""
    learn: Literal["imitate", "grpo"] = "imitate"
    """The learning of the weights: from right answers alone, or from the comparison of the answers to a row."""
    steps: NonNegativeInt = 60
    """Updates of the weights in a stage w."""
    group: PositiveInt = 8
    """Answers to one problem."""
    problems: PositiveInt = 8
    """Problems of a step."""


async def better_together(
    run: Run,
    env: Environment,
    policy: PolicyModel,
    start: Prompt,
    config: Config,
    methods: Callable[[str], Method],
) -> Candidate:
    """Stages for prompts and for weights; see the module."""
    trainer, kinds = Trainer(policy, config), stages_of(config.strategy)
    archive, spent, prompt = Archive(prefers_shorter=False), Counter[str](), start
    env = common_rows(run, env, 1 + len(kinds))
    system = let_policy_answer(env, policy, config)
    each = len(env.validation) * system.calls
    await archive.validate(run, env, [Candidate(start)])
    for number, kind in enumerate(kinds):
        spent["task"] += each
        left = len(kinds) - number
        stage = Stage(run, stage_limits(run.limits, spent, left * each, left), leads=False, spent=spent)
        rows = tuple(run.rng.sample(env.train, len(env.train)))
        if kind == PROMPT:
            prompt = await search(stage, replace(system, train=rows), prompt, methods(config.prompts))
        else:
            await learn(stage, replace(system, train=rows), trainer, config, prompt)
        candidate = Candidate(
            prompt, (start.id,), f"stage {number + 1}: {kind}", system=await run.keep(policy)
        )
        archive.add(run, candidate)
        await archive.validate(run, system, [candidate])
    return archive.incumbent or Candidate(start)


def check(env: Environment, config: Config, methods: Callable[[str], Method]) -> None:
    """Raises UsageError for stages that there are not, a method that cannot search in them, and a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "better_together trains on all rows alike.")
    if PROMPT in stages_of(config.strategy):
        method = methods(config.prompts)
        others = set(method.entry.needs) - {OPTIMIZER, OPTIMIZER_OPTIONAL}
        if method.entry.combines or others or method.deploys():
            raise UsageError(
                f"better_together: {config.prompts} is no method for a stage: it must search for a text, with models that write."
            )
        if method.check is not None:
            method.check(env, configure(method, {}))


def stages_of(strategy: str) -> list[str]:
    """The stages of a strategy in their order. Raises UsageError for one that is neither p nor w.

    >>> stages_of("p -> w->p")
    ['p', 'w', 'p']
    """
    kinds = [kind.strip() for kind in strategy.split("->")]
    wrong = next((kind for kind in kinds if kind not in (PROMPT, WEIGHTS)), None)
    if wrong is not None:
        raise UsageError(
            f"better_together: strategy has the stage {show_value(wrong)}; a stage is p (prompt) or w (weights). "
            'Write for example strategy="p -> w".'
        )
    return kinds


async def search(
    run: Stage, system: MultiTurn | ProgramEnvironment, prompt: Prompt, method: Method
) -> Prompt:
    """Search from a prompt with another method, while the weights stay as they are."""
    await record_stage(run, method.entry.name, method.entry.version)
    writer = LanguagePolicy() if {OPTIMIZER, OPTIMIZER_OPTIONAL} & set(method.entry.needs) else None
    result: Any = await method.coroutine(run, system, writer, prompt, configure(method, {}))
    better: Prompt = result.prompt
    return better


async def learn(
    run: Stage, system: MultiTurn | ProgramEnvironment, trainer: Trainer, config: Config, prompt: Prompt
) -> None:
    """Training under a prompt, of as many steps as the limits of the stage pay for."""
    problems = min(config.problems, len(system.train))
    paid = payable_rollouts(run, system, writes=False)
    steps = config.steps if paid is None else min(config.steps, paid // (problems * config.group))

    async def step(run: Run, number: int) -> None:
        batch = minibatch(run.rng, system.train, problems)
        rolled = await roll_groups(run, system, trainer, config, prompt, batch)
        if config.learn == "grpo":
            figures = trainer.learn(rolled.samples, rolled.rewards)
        else:
            groups = zip(rolled.samples, rolled.rewards, strict=True)
            pairs = [pair for samples, rewards in groups for pair in zip(samples, rewards, strict=True)]
            right = [sample for sample, reward in pairs if total_reward(reward) >= system.reward.high]
            update = replace(config.update(), loss="reinforce", kl=0.0)
            figures = trainer.policy.update(right, [1.0] * len(right), update) if right else {}
        answer = fmean(rollout.reward for group in rolled.rollouts for rollout in group)
        run.log("step", {"step": number, "answer": answer, **figures})

    await run.train(steps, step, trainer.policy)


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return let_policy_answer(env, policy, config)


PROMPT, WEIGHTS = "p", "w"
