"""PRewrite: a language model with trained weights rewrites the instruction, rewarded by the task it then does.

Kong, Hombaiah, Zhang, Mei, Bendersky: PRewrite: Prompt Rewriting with Reinforcement Learning. ACL 2024 (short).
arXiv:2401.08189. Sections 3.1 to 3.3.

    pi <- rewriter model; ref <- its frozen copy
    for step in 1..steps:
        t_1..t_G ~ pi(. | meta prompt, t_0)
        r_i <- mean reward of the frozen task model with t_i on random training examples
        PPO update of pi with r - kl KL(pi || ref)
    PRewrite-I: the greedy rewrite.  PRewrite-S: of n sampled rewrites the best on validation examples

Differences from the paper:
1. The advantage is relative to the group of a step (`advantage=grpo`), and the divergence is a term of the loss. The paper's PPO,
   with a learned critic and the divergence in the reward, is `advantage=gae`.
2. Low-rank adapters instead of all weights (`rank=0`).
3. The reward is the task's: exact match, F1, perplexity of the target or a weighted sum of them, as in the paper, or
   any other.
4. A rewrite that the prompt cannot take (empty, a lost slot, too long, cut at the bound on tokens) gets the lowest reward and
   costs no call. What the rewriter thinks first, and what encloses all of its text, is no part of it.
5. The start prompt and greedy rewrites on the way are candidates too, and half of the n rewrites are not sampled: they are those
   that earned most in training, which may be lost to the last policy. The meta prompt is worded anew: the paper's could not be
   verified.
6. Under a limit on calls, steps and examples are reduced to fit (`whet.search.plan`).
7. `steps=0` is the control: the untrained rewriter's `rewrites` samples, the best of them chosen.

Run it:  whet optimize TASK --method prewrite --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import refuse_selectors, score_on_rows
from whet.rl.score_book import Leaders, due, plan_without_training, rewrite_of, score_rewrites, written_text
from whet.rl.training import Trainer, Training, rows_of_training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit
from whet.types import Message

ENTRY = MethodEntry(
    "prewrite",
    "PRewrite: a trained rewriter of the instruction",
    version=3,
    rank=200,
    when="a rewriter with trainable weights should rewrite many prompts, now and later",
    paper="Kong et al., ACL 2024",
    arxiv="2401.08189",
    needs=("policy",),
    trains="a language model that rewrites the prompt (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of PRewrite; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the rewriter."""
    group: PositiveInt = 16
    """Rewrites sampled in a step."""
    kl: NonNegativeFloat = 0.01
    """Weight of the divergence from the frozen rewriter (beta)."""
    max_tokens: PositiveInt = 128
    """Bound on a rewrite."""
    examples: PositiveInt | None = 16
    """Training examples that the rewrites of a step are scored on."""
    inference: Literal["greedy", "search"] = "search"
    """greedy: PRewrite-I; search: PRewrite-S."""
    rewrites: PositiveInt = 10
    """Rewrites that PRewrite-S chooses from (n): half those that earned most in training, half new samples."""
    checks: NonNegativeInt = 4
    """Times that the greedy rewrite is validated on the way."""


async def prewrite(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on the weights of a rewriter; see the module."""
    refuse_selectors(config.rows, ("erpo",), "a rewrite is about all rows, not about one.")
    width, least = (config.group, config.smallest_group) if config.steps else (config.rewrites, 1)
    plan = fit(
        run, env, config.steps + 1, width, config.examples, finalists=config.rewrites, asks=0, least=least
    )
    plan = plan if config.steps else plan_without_training(plan)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    trainer = Trainer(policy, config)
    steps = max(0, plan.rounds - 1)  # the last round is that of the finalists
    free = config.steps and plan.rollouts is None
    n = config.rewrites if free else min(config.rewrites, plan.width if plan.rounds else plan.finalists)
    leaders = Leaders(policy, start, "rewrite")
    question = (Message("user", META.replace("[TEXT]", start.region_text())),)
    most = steps * plan.examples if plan.rollouts is not None else None
    source = rows_of_training(config, policy, start, env.train, steps, plan.examples, most)

    async def step(run: Run, number: int) -> None:
        (group,) = await trainer.draw_groups(run, [question], n=plan.width)
        rewrites = [rewrite_of(start, written_text(sample)) for sample in group]
        if config.rows == "uniform":
            rewards = await score_rewrites(run, env, rewrites, minibatch(run.rng, env.train, plan.examples))
        else:
            rewards = await score_on_rows(run, env, source, rewrites, plan.examples)
        if rewards:
            leaders.note_rewards(rewrites, rewards)
            figures = trainer.learn([group], [rewards])
            distinct = len({sample.text for sample in group})
            run.log("step", {"step": number, "best": max(rewards), "distinct": distinct, **figures})
        if due(number, steps, config.checks):
            await leaders.check(run, plan, archive, await greedy(run))

    async def greedy(run: Run) -> Prompt | None:
        ((sample,),) = await trainer.sample(run, [question], n=1, greedy=True)
        return rewrite_of(start, written_text(sample))

    if config.steps:
        await run.train(steps, step, policy)
    leaders.recall(archive)
    first = await greedy(run)
    if config.inference == "greedy":
        return Candidate(first, (start.id,), "rewrite") if first is not None else Candidate(start)
    earned = leaders.best_rewarded(n // 2)
    (group,) = await trainer.sample(run, [question], n=n - len(earned))
    rewrites = [*earned, *(rewrite_of(start, written_text(sample)) for sample in group)]
    return await leaders.best_of(run, env, plan, archive, rewrites, first)


META = """Rewrite the following instruction by adding specific requirements.

Instruction: [TEXT]

Rewritten:"""
