"""Online DPO: answers of the present policy are compared with each other, and it learns from who wins.

Guo, Zhang, Liu et al.: Direct Language Model Alignment from Online AI Feedback. 2024. arXiv:2402.04792 (`learn=dpo`).
Swamy, Dann, Kidambi, Wu, Agarwal: A Minimaximalist Approach to Reinforcement Learning from Human Feedback. ICML 2024.
arXiv:2401.04056 (`learn=win_rate`).

    reference <- pi <- the policy model
    for step in 1..steps, for each of `inputs` rows:
        y_1..y_group ~ pi, the present one
        each two of them are compared;   w_i <- the share of the others that y_i beats, a tie is half of a win
        dpo:       the pair of the best and the worst, by w;   `epochs` steps down the DPO loss against the reference
        win_rate:  policy gradient with the reward w
        sometimes: validate pi, greedy, under the start prompt
    the weights that validated best

Who compares: the optimizer model, which reads both answers in both orders (`compare=judge`), or the task's reward. No reward
model is fitted: where A beats B, B beats C and C beats A, there is no reward that says so; win rates of samples do.

The result is a system: trained weights that answer with the start prompt, which stays as it was.

Differences from the papers:
1. A judge is asked in both orders, and what it prefers in one order only is a tie.
2. `group` may be more than two with `dpo`. Answers that are the same tie without being compared; a row on which all tie teaches
   nothing.
3. The state of the weights is chosen on validation examples by the task's reward, which a judge's training never reads.
4. Low-rank adapters (`rank=0`: all weights), and no supervised learning before.
5. Within a limit on calls, steps are cut to what it pays.

Run it:  whet optimize TASK --method online_dpo --lm hf/PATH --policy hf/PATH --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import ClassVar, Literal

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt, TwoOrMore
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.answer_duels import ASKS, duel, what_is_wanted, without_reward
from whet.rl.answer_groups import answers
from whet.rl.language import LanguagePolicy
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.preference_pairs import Pair, prefer
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, share_out
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "online_dpo",
    "Online DPO and self-play: a model learns from comparisons of its own answers",
    version=1,
    rank=236,
    when="the answering model may itself be trained, and a judge can tell which of two answers is better",
    paper="Guo et al., 2024",
    arxiv="2402.04792",
    needs=("policy", "optimizer"),
    trains="the model that answers (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of online DPO; the others are those of every training, of which advantages and losses are for `win_rate`."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 30
    """Rounds of answering, comparing and learning."""
    inputs: PositiveInt = 8
    """Training rows of a step."""
    group: TwoOrMore = 2
    """Answers to a row; each two of them are compared."""
    compare: Literal["judge", "reward"] = "judge"
    """The comparison of two answers: by the optimizer model, or by the task's reward."""
    requirements: str = ""
    """A description of a good answer, for the judge."""
    learn: Literal["dpo", "win_rate"] = "dpo"
    """The learning signal: the best and the worst answer of a row (DPO), or the share of other answers that each answer
    beats."""
    beta: PositiveFloat = 0.1
    """Strength of the reference in DPO."""
    epochs: PositiveInt = 1
    """Steps down the DPO loss of the pairs of a step."""
    checks: NonNegativeInt = 4
    """Times that the weights are validated on the way."""


async def online_dpo(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Learning from comparisons of its own answers; see the module."""
    check(env, config)
    judged, trainer = config.compare == "judge", Trainer(policy, config)
    share = share_out(run, answering(env, policy, config), config.checks, 1, writes=judged)
    inputs = min(config.inputs, len(env.train))
    steps = payable_steps(config, share, inputs)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "online_dpo", max(1, steps), checks)
    world = without_reward(env) if judged else env
    about = what_is_wanted(env, start, config.requirements)
    policy.set_reference_policy()

    async def step(run: Run, number: int) -> None:
        rows = minibatch(run.rng, env.train, inputs)
        (played,) = await answers(run, world, trainer, [start], rows)
        groups = list(zip(rows, played.rollouts, strict=True))
        rates = await run.map(
            lambda branch, group: win_rates(branch, *group, about if judged else None), groups
        )
        pairs = [pair for one in zip(played.samples, rates, strict=True) if (pair := extremes(*one))]
        if config.learn == "win_rate":
            figures = trainer.learn(played.samples, rates)
        else:
            how = {"beta": config.beta, "lr": config.lr}
            figures = prefer(policy, pairs, **how, epochs=config.epochs, length=config.max_tokens)
        run.log("step", {"step": number, "decided": len(pairs) / len(rows), **figures})
        if systems.due(number):
            digest = await run.keep(policy)
            await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(steps, step, policy)
    return systems.recall(archive)


async def win_rates(run: Run, row: Example, rollouts: Sequence[Rollout], about: str | None) -> list[float]:
    """The share of the other answers to a row that each answer beats; a tie is half of a win. `about` is what a judge is told;
    None: the larger reward wins."""

    async def compare(branch: Run, pair: tuple[Rollout, Rollout]) -> float:
        one, other = pair
        if about is not None:
            return await duel(branch, ([row], [one], [other]), LanguagePolicy(), about)
        return 0.5 if one.reward == other.reward else float(one.reward > other.reward)

    places = list(combinations(range(len(rollouts)), 2))
    won = await run.map(compare, [(rollouts[i], rollouts[j]) for i, j in places])
    wins: list[list[float]] = [[] for _ in rollouts]
    for (i, j), first in zip(places, won, strict=True):
        wins[i].append(first)
        wins[j].append(1.0 - first)
    return [fmean(one) for one in wins]


def extremes(samples: Sequence[Sample], rates: Sequence[float]) -> Pair | None:
    """The answer that wins most and the one that wins least; None where all win as often, or the winner was cut off."""
    best, worst = (samples[rates.index(end(rates))] for end in (max, min))
    return None if max(rates) == min(rates) or not best.ended else (best, worst)


def payable_steps(config: Config, share: SearchPlan, inputs: int) -> int:
    """Steps that the limits pay for: answers, and with a judge its verdicts."""
    steps = share.payable(config.steps, inputs * config.group)
    if config.compare == "reward" or share.asks is None:
        return steps
    return min(steps, share.asks // (ASKS * inputs * config.group * (config.group - 1) // 2))


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "online_dpo draws rows uniformly.")


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
