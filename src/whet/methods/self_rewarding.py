"""Self-rewarding: a model answers, judges its own answers and learns from its verdicts, and people's scores watch its judgement.

Yuan, Pang, Cho, Li, Sukhbaatar, Xu, Weston: Self-Rewarding Language Models. ICML 2024. arXiv:2401.10020, section 2. The alarm is
not from the paper.

    pi <- the policy model;  anchors <- answers that people scored
    a_0 <- agreement of pi's scores with people's on the anchors, with its 95% interval
    for round in 1..rounds:
        for each of `inputs` rows: `group` answers of pi, each scored by pi: the mean of `judgements` verdicts by the rubric
        pairs <- the best and the worst answer of each row whose scores differ
        reference <- pi;  `epochs` steps down the DPO loss of the pairs
        a <- agreement of pi's scores with people's on the anchors;   a is lower than a_0: end, with the weights from before
        validate pi by the task's reward
    the weights that validated best

a is lower than a_0 where the 95% interval of their difference lies above 0 (Zou 2007):
a_0 - a > sqrt((a_0 - low_0)^2 + (high - a)^2).
Both are measured with error, so a below low_0 alone would end many trainings of a judge that does not change.

The rubric and the anchors are those of the task's `judge` with a `human` column. Its own judge, which does not learn, grades
validation and sealed test: what the model thinks of itself trains it and decides nothing else.

With `scorer="judge"`, the verdicts are those of the task's judge instead, which may read images and sees what the answer paints
(`pixels: true`). The model that answers then needs no eyes. The anchors watch that judge in the same way, by fresh verdicts in
each round: a model behind an endpoint may change.

The result is a system: trained weights that answer with the start prompt, which stays as it was.

Differences from the paper:
1. No supervised start on answers and verdicts; the scale and the words are those of the task's rubric.
2. Inputs are training rows; the paper lets the model write new ones.
3. Low-rank adapters. An answer without a readable verdict is in no pair; an anchor without one has the lowest score.
4. Where the agreement at the beginning is not above chance, nothing is trained: there is nothing to watch.
5. `scorer="judge"`: another model than the policy judges. In the paper, both are one.

Run it:  whet optimize TASK --method self_rewarding --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, check_bounds
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import SearchStopped, UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.agreement import Agreement, agreement, parts_with_humans, select_labelled
from whet.rewards.judge import Judge
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample
from whet.rl.preference_pairs import Pair, prefer
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, share_out
from whet.types import Example

ENTRY = MethodEntry(
    "self_rewarding",
    "Self-rewarding: a model judges its own answers, watched by people's scores",
    version=2,
    rank=236,
    when="the answering model may itself be trained, people scored some answers, and no better judge is at hand",
    paper="Yuan et al., ICML 2024",
    arxiv="2401.10020",
    needs=("policy",),
    trains="the model that answers and judges itself (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
)

LEAST = 10
"""Anchors without which drift cannot be told from chance."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of self-rewarding."""

    rounds: NonNegativeInt = 4
    """Rounds of answering, judging and learning."""
    inputs: PositiveInt = 16
    """Training rows answered in a round."""
    group: PositiveInt = 4
    """Answers to a row."""
    judgements: PositiveInt = 3
    """Verdicts on an answer, of which the mean counts."""
    scorer: Literal["policy", "judge"] = "policy"
    """Whose verdicts train: those of the policy itself, or those of the task's judge."""
    anchors: PositiveInt = 50
    """Answers with a person's score, at most, that the model judges in each round."""
    beta: PositiveFloat = 0.1
    """Strength of the reference in DPO."""
    epochs: PositiveInt = 3
    """Steps down the DPO loss of a round's pairs."""
    lr: NonNegativeFloat = 3e-4
    """Adam's rate."""
    max_tokens: PositiveInt = 256
    """Bound on an answer, and on a verdict."""
    rank: NonNegativeInt = 8
    """Of the adapters (LoRA); 0 trains all weights of a small model."""
    alpha: PositiveFloat = 16.0
    """The adapters' output is scaled by alpha / rank."""

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds by a UsageError."""
        check_bounds(self)

    @property
    def lora(self) -> LoraSettings:
        """The settings of the weights that learn."""
        return LoraSettings(self.rank, self.alpha)


async def self_rewarding(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Rounds of DPO on the model's own verdicts, ended by an alarm on anchors; see the module."""
    check(env, config)
    share = share_out(run, answering(env, policy, config), config.rounds, 1, writes=False)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    trainer = Trainer(policy, Training(max_tokens=config.max_tokens))
    anchors = select_labelled(judge_of(env), env.train).rows[: config.anchors]
    rounds = min(config.rounds, share.validations - 1)
    own: OwnJudge | TaskJudge = OwnJudge(trainer, judge_of(env), config.judgements)
    if config.scorer == "judge":
        answers = config.inputs * config.group + len(anchors)
        rounds = payable_rounds(share, rounds, answers * config.judgements, len(anchors) * config.judgements)
        own = TaskJudge(judge_of(env), config.judgements, rounds + 1)
    systems = TrainedCandidates(policy, start, "self_rewarding", rounds, rounds)
    first = await own.agreement(run, anchors, 0)
    run.log("anchors", {"round": -1, "agreement": first.value, "low": first.low, "high": first.high})
    if first.low <= 0:
        raise SearchStopped(
            f"on {first.n} answers that people scored, {own.whose} scores cannot be told from chance ({first.value:.2f} "
            f"[{first.low:.2f}, {first.high:.2f}])"
        )

    async def step(run: Run, number: int) -> None:
        rows = minibatch(run.rng, env.train, config.inputs)
        groups = await trainer.sample(run, [start.render(row) for row in rows], n=config.group)
        texts = [(row, sample.text) for row, group in zip(rows, groups, strict=True) for sample in group]
        scores = iter(await own.scores(run, texts, number))
        scored = [[(next(scores), sample) for sample in group] for group in groups]
        pairs = [pair for group in scored if (pair := best_and_worst(group)) is not None]
        policy.set_reference_policy()
        how = {"beta": config.beta, "lr": config.lr}
        figures = prefer(policy, pairs, **how, epochs=config.epochs, length=config.max_tokens)
        known = [score for group in scored for score, _ in group if score is not None]
        now = await own.agreement(run, anchors, number + 1)
        figures |= {"own_score": fmean(known)} if known else {}
        run.log("step", {"step": number, "pairs": len(pairs), "anchor_agreement": now.value, **figures})
        if is_lower(now, first):
            raise SearchStopped(
                f"{own.whose} scores agree with people's on the anchors by {now.value:.2f}, and did so by {first.value:.2f} "
                f"[{first.low:.2f}, {first.high:.2f}] at the beginning: its judgement drifts"
            )
        digest = await run.keep(policy)
        await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(rounds, step, policy)
    return systems.recall(archive)


class AnchoredJudge:
    """A part of a judge that anchors watch: how far it agrees with people."""

    judge: Judge
    whose: ClassVar[str]
    """Its owner, in words."""

    async def scores(self, run: Run, answers: Sequence[tuple[Example, str]], turn: int) -> list[float | None]:
        """The score of each answer on the scale of the judge, in the round `turn`, from 0; None where no verdict can be read."""
        raise NotImplementedError

    async def agreement(
        self, run: Run, anchors: Sequence[tuple[Example, str, float]], turn: int
    ) -> Agreement:
        """Measure the agreement with people before the round `turn`, both on the scale from 0 to 1; an unreadable verdict is the
        lowest score."""
        low, high = self.judge.scale
        scores = await self.scores(run, [(row, text) for row, text, _ in anchors], turn)
        pairs = zip(scores, anchors, strict=True)
        own = [((low if one is None else one) - low, human - low) for one, (_, _, human) in pairs]
        return agreement([(one / (high - low), human / (high - low)) for one, human in own])


@dataclass(frozen=True)
class OwnJudge(AnchoredJudge):
    """A policy that judges by the rubric of a task's judge: the mean of several verdicts."""

    trainer: Trainer
    judge: Judge
    judgements: int
    whose: ClassVar[str] = "the policy's own"

    async def scores(self, run: Run, answers: Sequence[tuple[Example, str]], turn: int) -> list[float | None]:
        """See `AnchoredJudge`."""
        questions = [
            self.judge.as_messages(lambda rubric: rubric, self.judge.shows(row, text))
            for row, text in answers
        ]
        groups = await self.trainer.sample(run, questions, n=self.judgements)
        read = [[self.judge.read(one.text, whole=one.ended) for one in group] for group in groups]
        return [
            fmean(known) if (known := [verdict.score for verdict in group if verdict is not None]) else None
            for group in read
        ]


@dataclass(frozen=True)
class TaskJudge(AnchoredJudge):
    """The judge of the task, which is asked anew in each of the `turns`: the mean of several verdicts."""

    judge: Judge
    judgements: int
    turns: int
    whose: ClassVar[str] = "the judge's"

    async def scores(self, run: Run, answers: Sequence[tuple[Example, str]], turn: int) -> list[float | None]:
        """See `AnchoredJudge`. An answer without the picture that the judge should see has the lowest score."""
        samples = range(turn * self.judgements, (turn + 1) * self.judgements)

        async def one(branch: Run, answer: tuple[Example, str]) -> float | None:
            return await self.judge.score_answer(branch, *answer, samples, self.turns * self.judgements)

        return await run.map(one, answers)


def payable_rounds(share: SearchPlan, wanted: int, each: int, before: int) -> int:
    """Count the rounds whose verdicts are paid for: `each` of a round, and those `before` the first one. A verdict counts as a
    rollout, which costs no less."""
    return share.without(before).payable(wanted, each)


def is_lower(now: Agreement, first: Agreement) -> bool:
    """Tell whether the 95% interval of the difference of two agreements lies above 0 (Zou, Psychological Methods 2007)."""
    return first.value - now.value > math.hypot(first.value - first.low, now.high - now.value)


def best_and_worst(scored: Sequence[tuple[float | None, Sample]]) -> Pair | None:
    """The best and the worst answer of a group; None where all scores are equal, or fewer than two are known."""
    known = [(score, sample) for score, sample in scored if score is not None]
    if len(known) < 2:
        return None
    best, worst = max(known, key=lambda one: one[0]), min(known, key=lambda one: one[0])
    return None if best[0] == worst[0] else (best[1], worst[1])


def judge_of(env: Environment) -> Judge:
    """The task's judge with people's scores. Raises UsageError where there is none, or several."""
    judges = [one for one in parts_with_humans(env.reward) if isinstance(one, Judge)]
    if len(judges) != 1:
        raise UsageError(
            "self_rewarding needs one judge with people's scores, reward: {judge: {rubric: ..., human: COLUMN}}; this task "
            f"has {len(judges)}."
        )
    return judges[0]


def check(env: Environment, config: Config) -> None:
    """Refuse a task without a judge and enough answers that people scored."""
    if judge_of(env).pixels and config.scorer == "policy":
        raise UsageError(
            "The policy reads texts only, and the judge of this task sees pixels: set scorer to judge (--set scorer=judge)."
        )
    anchors = select_labelled(judge_of(env), env.train).rows[: config.anchors]
    if len(anchors) < LEAST:
        raise UsageError(
            f"The training rows have {len(anchors)} answers with a person's score; the alarm of self_rewarding needs {LEAST} "
            "or more."
        )


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
