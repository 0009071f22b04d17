"""MPO: while a model trains on a judge's scores, a stronger model rewrites the judge's rubric, watched by people's scores.

Kim et al.: Toward Evaluative Thinking: Meta Policy Optimization with Evolving Reward Models. 2025. arXiv:2504.20157.
Code: minnesotanlp/mpo.

    pi <- the policy model;  rubric <- that of the task's judge;  anchors <- answers that people scored
    a <- agreement of the judge's scores by the rubric with people's on the anchors
    for step in 1..steps:
        `group` answers of pi to each of `inputs` rows, scored by the judge with the rubric;   policy gradient
        every `every` steps:
            `samples` recent answers: for each, the optimizer model says what its score overlooked or paid for wrongly
            new <- the rubric rewritten by all of that, in one call
            a' <- agreement by the new rubric on the anchors;   a' >= a - `slack`: rubric, a <- new, a'
        sometimes: validate pi, greedy, under the start prompt, by the judge with the task's own rubric
    the weights that validated best

A policy finds what a rubric pays for and nobody meant. A rubric that is rewritten while that happens can say so.

The result is a system: trained weights that answer with the start prompt. The last rubric stands in the log (`rubric`).

Differences from the paper:
1. A new rubric must agree with people on the anchors as well as the old one. In the paper it replaces the old one untested;
   `gate=false` does that.
2. One sentence of criticism an answer and one rewrite take the place of counted items that are written one by one and merged.
3. Validation and sealed test keep the task's own rubric, which does not change.
4. Low-rank adapters (`rank=0`: all weights), and any mechanics of training.
5. `samples=0` never rewrites: the control. Recent answers are drawn at random; the code can look for badly judged ones first.
6. Within a limit on calls, steps and rewrites are cut to what it pays.

Run it:  whet optimize TASK --method mpo --lm hf/PATH --policy hf/PATH --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.agreement import agreement, select_labelled
from whet.rewards.asking import RULES, enclose_in_markers
from whet.rewards.judge import Judge
from whet.rl.answer_groups import answers
from whet.rl.language import LanguagePolicy
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch, shorten
from whet.search.plan import SearchPlan, share_out
from whet.types import Completion, Example, Rollout

ENTRY = MethodEntry(
    "mpo",
    "MPO: the rubric of a judge evolves while a model trains on its scores",
    version=1,
    rank=236,
    when="the answering model may be trained, its reward is a judge that it learns to please, and people scored some answers",
    paper="Kim et al., 2025",
    arxiv="2504.20157",
    needs=("policy", "optimizer"),
    trains="the model that answers (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
)

LEAST = 10
"""Anchors without which no rubric can be told from a worse one."""


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of MPO; the others are those of every training."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 60
    """Updates of the policy."""
    inputs: PositiveInt = 4
    """Training rows of a step."""
    group: PositiveInt = 4
    """Answers to a row."""
    every: PositiveInt = 20
    """Steps between two rewrites of the rubric (K)."""
    samples: NonNegativeInt = 16
    """Recent answers that are criticised for a rewrite; 0 leaves the rubric as it is."""
    gate: bool = True
    """Whether a new rubric must agree with people on the anchors."""
    slack: NonNegativeFloat = 0.0
    """The loss of agreement that a new rubric may have against the old rubric."""
    anchors: PositiveInt = 50
    """Answers with a person's score, at most, on which rubrics are compared."""
    checks: NonNegativeInt = 4
    """Times that the weights are validated on the way."""


async def mpo(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Policy gradient on a judge whose rubric evolves; see the module."""
    check(env, config)
    trainer, rubrics = Trainer(policy, config), Rubrics(env, policy, config)
    share = share_out(run, answering(env, policy, config), config.checks, 1, writes=config.samples > 0)
    inputs = min(config.inputs, len(env.train))
    steps, rewrites = payable_steps(config, share, inputs * config.group, len(rubrics.anchors))
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "mpo", max(1, steps), checks)
    await rubrics.begin(run, measured=rewrites > 0)

    async def step(run: Run, number: int) -> None:
        rows = minibatch(run.rng, env.train, inputs)
        (played,) = await answers(run, replace(env, reward=rubrics.judge), trainer, [start], rows)
        figures = trainer.learn(played.samples, played.rewards)
        rubrics.note(rows, played.rollouts)
        run.log("step", {"step": number, "rubric": rubrics.version, **figures})
        if (number + 1) % config.every == 0 and (number + 1) // config.every <= rewrites:
            await rubrics.revise(run, number)
        if systems.due(number):
            digest = await run.keep(policy)
            await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(steps, step, policy)
    return systems.recall(archive)


class Rubrics:
    """The rubric of a judge with its versions, in the notes of a policy, where a resume finds it."""

    def __init__(self, env: Environment, policy: PolicyModel, config: Config) -> None:
        self.env, self.policy, self.config, self.own = env, policy, config, judge_of(env)
        self.anchors = select_labelled(self.own, env.train).rows[: config.anchors]
        self.rows = {row.id: row for row in env.train}
        policy.notes["rubric"] = {"text": self.own.rubric, "version": 0, "agreement": 0.0, "recent": []}

    @property
    def notes(self) -> dict[str, Any]:
        """The notes as they are now: a resume replaces them."""
        notes: Any = self.policy.notes["rubric"]
        return notes  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        """The number of times that the rubric was replaced."""
        return int(self.notes["version"])

    @property
    def judge(self) -> Judge:
        """The judge with the rubric of now."""
        return replace(self.own, rubric=self.notes["text"])

    async def begin(self, run: Run, measured: bool) -> None:
        """Measure the agreement of the first rubric, where one is to be compared with it."""
        if measured:
            self.notes["agreement"] = await self.agree(run, self.own)
            run.log("anchors", {"agreement": self.notes["agreement"], "n": len(self.anchors)})

    def note(self, rows: Sequence[Example], groups: Sequence[Sequence[Rollout]]) -> None:
        """Take in what was answered and how it was scored, as many of the latest as a rewrite draws from."""
        known = [
            [row.id, one.output, one.reward] for row, group in zip(rows, groups, strict=True) for one in group
        ]
        self.notes["recent"] = [*self.notes["recent"], *known][-RECENT * max(1, self.config.samples) :]

    async def agree(self, run: Run, judge: Judge) -> float:
        """Measure the agreement of a judge's scores with people's on the anchors."""

        async def grade(branch: Run, anchor: tuple[Example, str, float]) -> float:
            row, text, _ = anchor
            return (await judge.grade(branch, row, Completion(text))).value

        scores, (low, high) = await run.map(grade, self.anchors), judge.scale
        people = [(human - low) / (high - low) for _, _, human in self.anchors]
        return agreement(list(zip(scores, people, strict=True))).value

    async def revise(self, run: Run, number: int) -> None:
        """Rewrite the rubric by what recent scores overlooked; the old one stays where the new one agrees less with people."""
        recent, writer = self.notes["recent"], LanguagePolicy()
        drawn = run.rng.sample(recent, min(self.config.samples, len(recent)))
        about = f"{PURPOSE}\n\n{self.env.description.strip()}".strip()
        rubric = f"{RUBRIC}\n<{TAG}>\n{self.notes['text'].strip()}\n</{TAG}>"

        async def criticise(branch: Run, one: Sequence[Any]) -> list[str]:
            name, text, reward = one
            shown = [
                enclose_in_markers("The task's input", shorten(self.rows[name].user_text, SHOWN)),
                enclose_in_markers("The answer", shorten(text, SHOWN)),
                f"The judge gave it {100 * reward:.0f} of 100.",
            ]
            question = "\n\n".join([about, rubric, RULES, *shown, CRITICISE])
            return await writer.write(branch, question, "CRITICISM", sample=number)

        remarks = [text for texts in await run.map(criticise, drawn) for text in texts]
        if not remarks:
            return
        points = "\n".join(f"- {text}" for text in dict.fromkeys(remarks))
        question = "\n\n".join([about, rubric, f"{CRITICISED}\n{points}", REWRITE])
        for new in await writer.write(run, question, TAG, sample=number):
            value = await self.agree(run, replace(self.own, rubric=new))
            taken = not self.config.gate or value >= self.notes["agreement"] - self.config.slack
            run.log("rubric", {"step": number, "text": new, "agreement": value, "taken": taken})
            if taken:
                self.notes.update(text=new, agreement=value, version=self.version + 1, recent=[])


def payable_steps(config: Config, share: SearchPlan, each: int, anchors: int) -> tuple[int, int]:
    """Steps of `each` answers, and rewrites of the rubric, that the limits pay for: each rubric is measured on the anchors."""
    most = config.steps // config.every if config.samples else 0
    most = most if share.asks is None else min(most, share.asks // (config.samples + 1))
    for steps in range(config.steps, 0, -1):
        rewrites = min(most, steps // config.every)
        measured = anchors * (rewrites + 1) if rewrites else 0
        if share.rollouts is None or steps * each + measured <= share.rollouts:
            return steps, rewrites
    return 0, 0


def judge_of(env: Environment) -> Judge:
    """The judge that is the task's reward. Raises UsageError where the reward is another one, or nobody's scores are named."""
    if not isinstance(env.reward, Judge) or env.reward.human is None:
        raise UsageError(
            "mpo needs a judge with people's scores as the reward, reward: {judge: {rubric: ..., human: COLUMN}}; the reward of "
            f"this task is {env.reward.name}."
        )
    return env.reward


def check(env: Environment, config: Config) -> None:
    """Refuse a task without a judge and enough answers that people scored, and a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "mpo draws rows uniformly.")
    anchors = select_labelled(judge_of(env), env.train).rows[: config.anchors]
    if len(anchors) < LEAST:
        raise UsageError(
            f"The training rows have {len(anchors)} answers with a person's score; mpo compares rubrics on {LEAST} or more."
        )


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)


TAG, RECENT, SHOWN = "RUBRIC", 4, 3000
PURPOSE = "A judge scores answers by a rubric, and a model is trained to earn high scores. You keep the rubric honest."
RUBRIC = "The rubric now:"
CRITICISE = (
    "Is this score what a careful person would give? Say in one or two sentences what the rubric overlooks here, or pays for "
    "although it makes the answer no better. If the score is right, say what in the rubric makes it so."
)
CRITICISED = "What was said of its scores, each about another answer:"
REWRITE = (
    "Write the rubric anew so that such scores come out right. Keep what works, be specific about what earns and what costs "
    "points, and stay short. Do not copy the answers. The judge knows the scale already."
)
