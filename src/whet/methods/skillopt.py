"""SkillOpt: a text is trained like weights, by few edits a step, behind a strict gate that remembers what it refused.

SkillOpt. Microsoft, 2026. arXiv:2605.23904. Rules and defaults as in the published code (github.com/microsoft/SkillOpt, 0.2.0).

    skill <- start; score it on the gate's rows
    for epoch in 1..epochs:
        refused <- nothing
        for step of the epoch:
            L <- least + (most - least) (1 + cos(pi step / steps)) / 2, rounded                  (a learning rate in edits)
            answer a batch with the skill; show failures, and successes, in small groups to analysts: at most L edits each
            put equal edits together, keep the L with most support, apply them at their anchors
            score the new skill; strictly better: skill <- it;  else: refused gains the edits with both scores
        from the second epoch on: compare the answers of the epoch's first and last skill row by row;
            write the guidance, a section that steps cannot touch, and notes for the analysts of the next epoch
    return the best skill

Differences from the paper:
1. The gate compares on training rows of its own, which no analyst sees; the result is chosen on validation examples. The paper
   asks one split at each step and returns what that split liked best.
2. Edits are merged by rule: equal ones count as one with more support, those of failures come first. The code asks the model to
   merge and to rank.
3. An edit whose anchor is not in the text is dropped and counted (`edits` in the log). The code appends its text instead.
4. The guidance passes the gate too, as the paper says and its code does not; `slow` of false leaves it out. Its score is
   measured, where the code compares the next step with that of the text without it.
5. Edits that copy 32 characters in a row from a single input, or hold private data, are dropped: the analysts see the answers.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, steps, batches and analysts are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method skillopt --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.rl.principles import operations_or_lines
from whet.run import Run
from whet.search.anchored_edits import APPEND, AnchoredEdit, rank_edits, read_edit
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, infinite_batches, minibatch, next_rows, show_rollout
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "skillopt",
    "SkillOpt: a text trained by few edits a step",
    version=1,
    rank=22,
    when="a long instruction should be kept and grow by small edits that have each been tested",
    paper="Microsoft, 2026",
    arxiv="2605.23904",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of SkillOpt."""

    steps: NonNegativeInt = 20
    """Steps of all epochs together."""
    epochs: PositiveInt = 4
    """Epochs. From the second epoch on, each ends with a slow update. At the end of an epoch, its refused edits are forgotten."""
    batch: PositiveInt = 40
    """Training examples of a step, and of the gate."""
    shown: PositiveInt = 8
    """Rollouts that an analyst reads."""
    analysts: PositiveInt = 5
    """The largest number of analysts in a step; each is one call of the optimizer model."""
    most: PositiveInt = 4
    """Edits of the first step at most (L)."""
    least: PositiveInt = 2
    """Edits of the last step at most."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """The schedule by which the number of edits falls from `most` to `least`."""
    gate: Literal["strict", "off"] = "strict"
    """strict: a new skill must score higher than the previous skill; off: every new skill is accepted."""
    slow: bool = True
    """Whether epochs end with a slow update."""


async def skillopt(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """A text trained by bounded edits; see the module."""
    plan = fit(run, env, config.steps, 2, config.batch, least=2)
    trainer = SkillTraining(plan, policy, start, config, Archive(), Skill(text_in(start, start)))
    await trainer.archive.validate(run, plan.env, [Candidate(start)])
    await trainer.begin(run)
    plan, first = trainer.plan, trainer.skill
    epoch = max(2, math.ceil(plan.rounds / config.epochs))
    for number in range(plan.rounds):
        last = number % epoch == epoch - 1
        trainer.policy = policy.adapt()
        if config.slow and last and number >= epoch and trainer.skill != first:
            new, edits = await trainer.slow_update(run, first, number), list[AnchoredEdit]()
        else:
            limit = learning_rate(config, number, plan.rounds)
            new, edits = await trainer.step(run, limit, number)
        await trainer.gate(run, new, edits, f"step {number + 1}")
        if last:
            first, trainer.refused = trainer.skill, []
    return await validate_finalists(run, plan, trainer.archive, trainer.archive.top(plan.finalists + 1))


def learning_rate(config: Config, step: int, steps: int) -> int:
    """Edits that step `step` (from 0) of `steps` may make."""
    done = step / max(1, steps)
    share = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}
    return round(config.least + share[config.schedule] * (max(config.most, config.least) - config.least))


@dataclass(frozen=True)
class Skill:
    """The trained text, which steps edit, and the guidance, which only slow updates write."""

    text: str
    guidance: str = ""

    def prompt(self, start: Prompt) -> Prompt | None:
        """The prompt with it; None where the prompt refuses the text."""
        guidance = f"\n\n{HEAD}\n{self.guidance}\n" if self.guidance else ""
        return replace_region(start, f"{self.text.rstrip()}{guidance}" if guidance else self.text)


@dataclass
class SkillTraining:
    """The state of a training: the skill with its score on the rows of the gate, refused edits, notes for the analysts."""

    plan: SearchPlan
    policy: LanguagePolicy
    start: Prompt
    config: Config
    archive: Archive
    skill: Skill
    score: float = -math.inf
    held: Sequence[Example] = ()
    batches: Iterator[Example] = field(default_factory=lambda: iter(()))
    refused: list[str] = field(default_factory=list)
    notes: str = ""

    async def begin(self, run: Run) -> None:
        """Leave a start that earns nothing, set rows apart for the gate, and score the skill on them."""
        env = self.plan.env
        self.plan, firsts = await leave_zero(run, self.plan, self.archive, self.start, secrets)
        prompts = [first.candidate.prompt for first in firsts] + [self.start]
        self.skill = Skill(text_in(self.start, prompts[0]))
        rows = minibatch(run.rng, env.train, len(env.train), balanced=True)
        size = max(1, min(self.plan.examples, len(rows) // 2))
        self.held, self.batches = rows[:size], infinite_batches(run.rng, rows[size:] or rows)
        if self.plan.rounds:
            self.score = (await env.score(run, prompts[:1], self.held))[0].mean

    async def step(self, run: Run, limit: int, number: int) -> tuple[Skill, list[AnchoredEdit]]:
        """The skill after the best edits that analysts of a batch propose, and these edits."""
        env, prompt = self.plan.env, self.skill.prompt(self.start) or self.start
        batch = next_rows(self.batches, min(self.plan.examples, len(env.train)))
        rows = {row.id: row for row in batch}
        rollouts = answered_rollouts(await env.evaluate(run, prompt, batch))
        failed = [r for r in rollouts if r.reward < env.reward.high]
        passed = [r for r in rollouts if r.reward >= env.reward.high]
        asks = self.config.analysts
        asks = asks if self.plan.asks is None else min(asks, max(1, self.plan.asks // self.plan.rounds))
        groups = [(FAILED, group) for group in cut(failed, self.config.shown)[: max(1, asks - 1)]]
        groups += [
            (PASSED, group) for group in cut(passed, self.config.shown)[: asks - len(groups)][:1] if groups
        ]

        async def analyse(branch: Run, at: int) -> list[AnchoredEdit]:
            heading, group = groups[at]
            shown = [show_rollout(rows[rollout.example_id], rollout) for rollout in group]
            question = "\n\n".join([*self.about(), heading, *shown, REQUEST + str(limit), SCHEMA])
            replies = await self.policy.write(branch, question, "EDITS", sample=number * 100 + at)
            read = [read_edit(one) for reply in replies for one in operations_or_lines(reply, APPEND)]
            return [edit for edit in read if edit is not None and self.admits(edit.text)][:limit]

        proposals = await run.map(analyse, range(len(groups)))
        return self.apply_edits(run, rank_edits(proposals), limit)

    def apply_edits(
        self, run: Run, edits: Sequence[AnchoredEdit], limit: int
    ) -> tuple[Skill, list[AnchoredEdit]]:
        """The skill after the first `limit` of the edits that can be made, and these."""
        skill, made = self.skill, list[AnchoredEdit]()
        for edit in edits:
            text = edit.of(skill.text) if len(made) < limit else None
            new = skill if text is None else replace(skill, text=text)
            if new != skill and new.prompt(self.start) is not None:
                skill, made = new, [*made, edit]
        run.log("edits", {"limit": limit, "proposed": len(edits), "made": len(made)})
        return skill, made

    def admits(self, text: str) -> bool:
        """Whether a new text copies no single input and holds nothing private."""
        return not objectionable(secrets, self.plan.env.train, self.start.source, text)

    async def gate(self, run: Run, new: Skill, edits: Sequence[AnchoredEdit], operator: str) -> None:
        """Score a new skill and take it where it is strictly better; else remember its edits."""
        prompt, old = new.prompt(self.start), self.skill.prompt(self.start) or self.start
        if prompt is None or new == self.skill:
            return
        known = self.archive.members.get(prompt.id)
        score = known.score if known else None
        score = score or (await self.plan.env.score(run, [prompt], self.held))[0]
        candidate = Candidate(prompt, (old.id,), operator, score)
        self.archive.add(run, candidate)
        if score.mean > self.score or self.config.gate == "off":
            self.skill, self.score = new, score.mean
            await validate_leader(run, self.plan, self.archive, candidate)
        elif edits:
            listed = "; ".join(
                f"{edit.op}: {' | '.join(filter(None, (edit.anchor, edit.text)))}" for edit in edits
            )
            self.refused.append(f"- {listed} (score {self.score:.3g} -> {score.mean:.3g})")

    async def slow_update(self, run: Run, first: Skill, number: int) -> Skill:
        """The skill with new guidance, from rows that the first and the last skill of the epoch answered; with it come notes."""
        env, size = self.plan.env, max(1, self.plan.examples // 2)
        rows = next_rows(self.batches, size)
        prompts = [skill.prompt(self.start) or self.start for skill in (first, self.skill)]
        olds, news = await run.map(lambda branch, prompt: env.evaluate(branch, prompt, rows), prompts)
        shown = [
            change(row, a, b) for row, a, b in zip(rows, olds, news, strict=True) if a.reward != b.reward
        ]
        shown += [
            change(row, a, b)
            for row, a, b in zip(rows, olds, news, strict=True)
            if a.reward == b.reward < env.reward.high
        ]
        head = "\n\n".join([*self.about(), CHANGES, *shown[: self.config.shown]])
        sample = number * 100
        notes = await self.policy.write(run, f"{head}\n\n{NOTES}", "NOTES", sample=sample)
        texts = await self.policy.write(run, f"{head}\n\n{GUIDANCE}", "GUIDANCE", sample=sample)
        self.notes = notes[0] if notes else self.notes
        guidance = [text for text in texts if self.admits(text)]
        return replace(self.skill, guidance=guidance[0]) if guidance else self.skill

    def about(self) -> list[str]:
        """The head of every question: the task, the skill, its guidance, what was refused, the notes."""
        known = setting(self.plan.env.description, self.start)
        parts = [f"{known}{SKILL}\n\n<SKILL>\n{self.skill.text}\n</SKILL>"]
        parts += [f"{FIXED}\n{self.skill.guidance}"] if self.skill.guidance else []
        parts += ["\n".join([REFUSED, *self.refused])] if self.refused else []
        return [*parts, *([f"{LEARNED}\n{self.notes}"] if self.notes else [])]


def cut(rollouts: Sequence[Rollout], size: int) -> list[Sequence[Rollout]]:
    """Rollouts in groups of `size`, the last one smaller."""
    return [rollouts[at : at + size] for at in range(0, len(rollouts), size)]


def change(row: Example, old: Rollout, new: Rollout) -> str:
    """A row with the answers before and after."""
    return f"{show_rollout(row, old)}\n{LATER} {new.output}\nReward: {new.reward:.3g}"


HEAD = "Keep in mind:"
SKILL = "The instruction of a language model, which you improve by a few edits:"
FIXED = "Guidance that stands below it. You cannot edit it:"
REFUSED = "These edits were tried already and did not raise the score. Do not propose them again:"
LEARNED = "What earlier edits taught:"
FAILED = "With this instruction the model failed on these inputs:"
PASSED = (
    "With this instruction the model answered these inputs rightly. Propose only edits that keep that so:"
)
LATER = "Answered later:"
REQUEST = (
    "Find what these have in common, and write edits that help with all inputs of this kind. Copy no input. The best edit comes "
    "first. Edits at most: "
)
SCHEMA = (
    'Write a JSON list. An edit is {"op": "append", "text": "..."}, {"op": "insert_after", "anchor": "...", "text": "..."}, '
    '{"op": "replace", "anchor": "...", "text": "..."} or {"op": "delete", "anchor": "..."}. An anchor is a piece of the '
    "instruction, copied exactly."
)
CHANGES = "Rows that an earlier version of the instruction and this one answered:"
NOTES = "Which kinds of edit helped here, and which did harm? Tell whoever edits the instruction next, in two or three sentences."
GUIDANCE = (
    "Write the guidance anew: at most three short sentences that hold for all inputs of this kind, keep what became better and "
    "repair what became worse. Copy no input."
)
