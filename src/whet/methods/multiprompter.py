"""MultiPrompter: several prompters take turns and write one prompt together, each a short piece after what the others wrote.

Kim, Sohn, Logeswaran, Shim, Lee: MultiPrompter: Cooperative Prompt Optimization with Multi-Agent Reinforcement Learning. 2023.
arXiv:2310.16730. Only its abstract and introduction could be read: sizes, wording and the form of the advantage are ours.

    for step in 1..steps, for `group` chains:
        p_0 <- the prompt
        for turn i in 1..prompters:  y_i ~ pi_i(. | p_{i-1});  p_i <- p_{i-1} + y_i
        r <- mean reward of the frozen model under p_n on some rows                    one reward for all
        A_i <- V(p_i, i+1) - V(p_{i-1}, i),  for the last r - V(p_{n-1}, n)            V: a critic that sees the joint prompt
        policy gradient on every piece;  V moves towards r
    the chain of greedy pieces, or the best of `rewrites` chains on validation examples

A prompter only has to choose a short piece, so each has fewer texts to choose from than one that writes the whole.

Differences from the paper, as far as it could be read:
1. The prompters share one set of adapters and know by their question whose turn it is; the paper's have weights of their own.
2. The reward is the task's; the paper's is that of pictures.
3. `credit=shared` has no critic: whole chains are compared with each other (`advantage`), and all pieces of a chain get the same.
4. An empty piece leaves the prompt as it is. A chain that the prompt cannot take, or of which the bound on tokens cut a piece,
   gets the lowest reward and costs no call.
5. Under a limit on calls, steps and rows are reduced to fit.
6. `prompters=1` is the control of one that writes the whole, with as many tokens as all together; `steps=0` is the untrained one.

Run it:  whet optimize TASK --method multiprompter --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import unwrap, without_thought
from whet.rl.language import TAG, show_instruction
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.policy_model.optimizer import WHOLE
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import Leaders, due, plan_without_training, rewrite_of, score_rewrites
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit
from whet.types import Message

ENTRY = MethodEntry(
    "multiprompter",
    "MultiPrompter: prompters take turns on one prompt",
    version=2,
    rank=215,
    when="a prompt consists of several short pieces that a trained writer can find one after the other",
    paper="Kim et al., 2023",
    arxiv="2310.16730",
    needs=("policy",),
    trains="a language model that writes pieces of the prompt (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of MultiPrompter; the others are those of every training."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 60
    """Updates of the prompters."""
    prompters: PositiveInt = 2
    """Prompters that take turns (n)."""
    group: PositiveInt = 16
    """Chains of a step."""
    credit: Literal["critic", "shared"] = "critic"
    """critic: the change of the joint prompt's value by a piece; shared: the advantage of the whole chain for each piece."""
    kl: NonNegativeFloat = 0.01
    """Weight of the divergence from the first weights."""
    max_tokens: PositiveInt = 48
    """Bound on a piece."""
    examples: PositiveInt | None = 16
    """Training examples that the chains of a step are scored on."""
    rewrites: PositiveInt = 10
    """Chains that the result is chosen from."""
    checks: NonNegativeInt = 4
    """Times that the greedy chain is validated on the way."""


async def multiprompter(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on pieces of a prompt that are written in turn; see the module."""
    check(env, config)
    width, least = (config.group, 2) if config.steps else (config.rewrites, 1)
    plan = fit(
        run, env, config.steps + 1, width, config.examples, finalists=config.rewrites, asks=0, least=least
    )
    plan = plan if config.steps else plan_without_training(plan)
    steps = max(0, plan.rounds - 1)  # the last round is that of the finalists
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    trainer, leaders = Trainer(policy, config), Leaders(policy, start, "pieces")
    if config.credit == "critic":
        policy.with_critic()  # before a resume loads it

    async def write(run: Run, n: int, greedy: bool = False) -> list[Chain]:
        chains = [Chain(start.region_text().strip()) for _ in range(n)]
        for turn in range(config.prompters):
            questions = [ask(env.description, start, chain.text, turn, config.prompters) for chain in chains]
            groups = await trainer.sample(run, questions, n=1, greedy=greedy)
            chains = [chain.with_piece(sample) for chain, (sample,) in zip(chains, groups, strict=True)]
        return chains

    async def step(run: Run, number: int) -> None:
        chains = await write(run, plan.width)
        rewrites = [rewrite_of(start, chain.final_text) for chain in chains]
        rewards = await score_rewrites(run, env, rewrites, minibatch(run.rng, env.train, plan.examples))
        figures = learn(trainer, chains, rewards)
        distinct = len({chain.text for chain in chains})
        run.log("step", {"step": number, "best": max(rewards), "distinct": distinct, **figures})
        if due(number, steps, config.checks):
            await leaders.check(run, plan, archive, await greedy(run))

    async def greedy(run: Run) -> Prompt | None:
        return rewrite_of(start, (await write(run, 1, greedy=True))[0].final_text)

    if config.steps:
        await run.train(steps, step, policy)
    leaders.recall(archive)
    first = await greedy(run)
    rewrites = [rewrite_of(start, chain.final_text) for chain in await write(run, plan.finalists)]
    return await leaders.best_of(run, env, plan, archive, rewrites, first)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows, and for settings of training that pieces of a chain cannot follow."""
    refuse_selectors(config.rows, CHOSEN, "a prompt is about all rows, not about one.")
    if config.advantage == "remax":
        raise UsageError(
            "advantage=remax needs a greedy text beside each piece; multiprompter has none. Take rloo."
        )
    if config.credit == "critic" and (config.loss in WHOLE or config.kl_in == "reward"):
        raise UsageError(
            f"credit=critic gives each piece an advantage of its own, which loss={config.loss} with kl_in={config.kl_in} "
            f"does not take. Use {parameter('config.credit', 'shared')}."
        )


@dataclass(frozen=True)
class Chain:
    """A prompt in the making, and the samples of the prompters who had their turn. `cut`: a piece reached the bound on tokens."""

    text: str
    samples: tuple[Sample, ...] = ()
    cut: bool = False

    @property
    def final_text(self) -> str | None:
        """The whole text; None where a piece was cut."""
        return None if self.cut else self.text

    def with_piece(self, sample: Sample) -> Chain:
        """The chain after one more turn."""
        piece = unwrap(without_thought(sample.text), TAG).strip()
        text = f"{self.text}\n{piece}" if piece and sample.ended else self.text
        return Chain(text, (*self.samples, sample), self.cut or not sample.ended)


def learn(trainer: Trainer, chains: Sequence[Chain], rewards: Sequence[float]) -> dict[str, float]:
    """One update from all pieces of all chains; figures of the update and of the rewards."""
    policy, config = trainer.policy, trainer.config
    if isinstance(config, Config) and config.credit == "shared":
        groups = [[chain.samples[turn] for chain in chains] for turn in range(config.prompters)]
        return trainer.learn(groups, [rewards] * len(groups))
    critic = policy.with_critic()
    samples = [sample for chain in chains for sample in chain.samples]
    states = [row[:1] for row in policy.states(samples)]  # before the first token: the joint prompt was read
    values = [value for (value,) in critic.values(states)]
    watched = trainer.watch_divergence(samples)
    turns = len(samples) // len(chains)
    advantages = [
        advantage
        for i, reward in enumerate(rewards)
        for advantage in turn_advantages(values[i * turns : (i + 1) * turns], reward)
    ]
    figures = policy.update(samples, advantages, replace(config.update(), kl=config.kl))
    loss = critic.fit(states, [[reward] for reward in rewards for _ in range(turns)], config.critic_lr)
    return {**figures, **watched, "critic_loss": loss, "reward": fmean(rewards)}


def turn_advantages(values: Sequence[float], reward: float) -> list[float]:
    """V(after a piece) - V(before it); after the last piece the chain is worth its reward.

    >>> turn_advantages([0.25, 0.5], 1.0)
    [0.25, 0.5]
    """
    return [after - before for before, after in zip(values, [*values[1:], reward], strict=True)]


def ask(description: str, start: Prompt, text: str, turn: int, prompters: int) -> Conversation:
    """The question to the prompter whose turn it is (from 0): the task and the joint prompt so far."""
    known = show_instruction(description, start, text)
    which = f"{TURN} {turn + 1} {OF} {prompters}. " if prompters > 1 else ""
    return (Message("user", f"{known}\n\n{which}{REQUEST}"),)


TURN, OF = "Several writers add to this instruction in turn. You are writer", "of"
REQUEST = "Write what is to be added, and nothing else."
