"""Align-Pro: a prompter learns to reword each request, as far as it pays and no further than a divergence allows.

Trivedi, Chakraborty, Reddy, Aggarwal, Bedi, Atia: Align-Pro: A Principled Approach to Prompt Optimization for LLM Alignment.
AAAI 2025. arXiv:2501.03486. The objective and its optimum; sizes and wording are ours.

    max over rho of  E[ r(x, y) ] - lambda KL(rho || rho_0)        x' ~ rho(. | x),  y ~ frozen model(. | x')
    optimum:         rho*(x' | x)  proportional to  rho_0(x' | x) exp( E_y r(x, y) / lambda )

    for step in 1..steps, for each x of a batch:
        x'_1..x'_G ~ rho(. | x);   y_g ~ frozen model(. | x'_g)
        R_g <- r(x, y_g) - lambda log( rho(x'_g | x) / rho_0(x'_g | x) )
        A_g <- R_g - mean of the others;  policy gradient on rho
    in use: the likeliest x' for every x

The reward sees the request as it was, x, and never x'. With lambda 0 nothing holds the prompter back; with a large
lambda it stays what it was.

Differences from the paper:
1. The divergence is that of whole texts, in the reward of each sample: so the optimum is the one above
   (tests/methods/test_align_pro.py measures the distance). `advantage=gae` takes it off token by token and has a critic.
2. The reward is the task's, brought to [0, 1]; the paper's is a reward model of human preferences (here `reward: preference`).
3. In use the likeliest text, not a sample. Low-rank adapters instead of all weights (`rank=0`).
4. A rewording that is empty or that the bound on tokens cut earns nothing and costs no call.
5. The weights are chosen on validation examples among some checks on the way and the frozen model alone.
6. Under a limit on calls, steps and requests are reduced to fit.

Run it:  whet optimize TASK --method align_pro --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.cases import place_in_range
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.rewordings import GreedyRewording, RewriterTraining, check_one_turn, request_of, try_rewordings
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import written_text
from whet.rl.training import Advantage, Groups, Trainer, Training
from whet.rl.written_prompts import WrittenPrompts, with_writer
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example, Message

ENTRY = MethodEntry(
    "align_pro",
    "Align-Pro: a trained prompter rewords each request",
    version=1,
    rank=225,
    when="requests themselves are badly worded, and a prompter may reword each of them within a bound",
    paper="Trivedi et al., AAAI 2025",
    arxiv="2501.03486",
    needs=("policy",),
    trains="a language model that rewords every input (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of Align-Pro; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the prompter."""
    group: PositiveInt = 8
    """Rewordings of one request (G)."""
    requests: PositiveInt = 8
    """Requests of a step."""
    advantage: Advantage = "rloo"
    """The estimator of the advantages; the default compares each reward with the mean of the others and does not divide."""
    kl: NonNegativeFloat = 0.02
    """Lambda: the cost of a nat of divergence from the first weights, in a reward of 0 to 1."""
    max_tokens: PositiveInt = 128
    """Bound on a rewording."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""


async def align_pro(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on rewordings with the divergence in the reward; see the module."""
    check(env, config)
    charged = config.advantage != "gae"  # then lambda stands in the rewards of whole texts, and in no loss
    trainer = Trainer(policy, replace(config, kl=0.0) if charged else config)
    share = share_out(run, env, config.checks, 1, writes=False)
    requests = max(1, share.payable(min(config.requests, len(env.train)), config.group))
    steps = share.payable(config.steps, requests * config.group)
    training = await RewriterTraining.begin(run, policy, start, share, "align_pro", steps, config.checks)

    async def step(run: Run, number: int) -> dict[str, float]:
        batch = minibatch(run.rng, env.train, requests)
        groups = await trainer.draw_groups(run, [question(example) for example in batch])
        earned = await reward_rewordings(run, env, start, batch, groups)
        paid = charge_divergence(policy, config.kl, groups, earned) if charged else earned
        figures = trainer.learn(groups, paid)
        return {"answer": fmean(reward for group in earned for reward in group), **figures}

    return await training.train(run, step, lambda env: rewording(env, policy, config))


async def reward_rewordings(
    run: Run, env: Environment, start: Prompt, batch: Sequence[Example], groups: Groups
) -> list[list[float]]:
    """r(x, y) of the rewordings of each request, 0 to 1; 0 for one that cannot be used."""
    texts = [[written_text(sample) for sample in group] for group in groups]
    tried = await try_rewordings(run, env, start, batch, texts)
    return [[0.0 if r is None else place_in_range(r.reward, env.reward) for r in group] for group in tried]


def charge_divergence(
    policy: PolicyModel, weight: float, groups: Groups, rewards: Sequence[Sequence[float]]
) -> list[list[float]]:
    """R = r - weight x log(rho / rho_0) of each whole text, in the shape of the groups."""
    if not weight:
        return [list(row) for row in rewards]
    samples: list[Sample] = [sample for group in groups for sample in group]
    first = policy.reference_logprobs(samples)
    gaps = iter([sum(s.logprobs) - sum(row) for s, row in zip(samples, first, strict=True)])
    return [[reward - weight * next(gaps) for reward in row] for row in rewards]


def question(example: Example) -> Conversation:
    """The prompter's input."""
    return (Message("user", f"{REQUEST}\n\n{request_of(example)}"),)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns and for a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "align_pro draws requests uniformly.")
    check_one_turn(env, "align_pro")


def rewording(env: Environment, policy: PolicyModel, config: Config) -> WrittenPrompts:
    """The system: every input is reworded before the frozen model reads it."""
    return with_writer(env, GreedyRewording(Trainer(policy, config), question), "align_pro")


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights reword every input."""
    policy.load(blob)
    return rewording(env, policy, config)


REQUEST = (
    "Write this request in other words, so that a language model answers it well. Write the request only."
)
