"""ABO: the prompt is a list of steps with a demonstration that carries them out; errors are booked on single steps.

Ma, Wang, Zhou, Li, Du, Gui, Zhang, Huang: Are Large Language Models Good Prompt Optimizers? 2024. arXiv:2402.02101
(Automatic Behavior Optimization).

    steps <- the steps that do the task;  demo <- a worked example that carries out each of them
    repeat `rounds` times:
        answer a batch; for each wrong answer: the first step that broke, and how: not followed, wrong, or missing
        rewrite the step with most errors alone;  write the demonstration anew, after the new steps
        keep both where the score does not fall
    return the best

Differences from the paper:
1. New steps are compared with those before on the same training rows, and the result is chosen on validation examples. The paper
   takes every refinement, and its second one was worse than its first on a task.
2. Wrong answers are analysed several at once. A step that is missing is put behind the one that is named.
3. `demo` of false leaves the demonstration out, and `credit` of `random` rewrites any step: the controls of its two ideas.
4. The demonstration is of a training row with a target; its input must be none of the validation rows'. A step that copies 32
   characters in a row from a single input is dropped.
5. The steps stand behind the start's own text. The start itself competes too.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, rounds and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method abo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values, records
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.demonstrations import Demonstration, demonstration_filter
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import (
    UNANSWERED,
    minibatch,
    mistakes,
    show_example,
    show_rollout,
    wanted_answers_known,
)
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "abo",
    "ABO: steps, a demonstration of them, and errors booked on single steps",
    version=1,
    rank=136,
    when="the model knows what to do but does not do it, so an example must show the steps",
    paper="Ma et al., 2024",
    arxiv="2402.02101",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ABO."""

    rounds: NonNegativeInt = 6
    """Refinements; the paper makes 2 (N)."""
    examples: PositiveInt = 40
    """Training examples that each prompt is scored on."""
    errors: PositiveInt = 6
    """Wrong answers that are analysed in a round."""
    demo: bool = True
    """Whether a demonstration carries out the steps."""
    credit: Literal["tally", "random"] = "tally"
    """The step that is rewritten: the step with the most errors, or a random step."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def abo(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Steps with a demonstration; see the module."""
    plan = fit(run, env, config.rounds + 1, 1, config.examples, finalists=config.finalists, asks=3.0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    current = firsts[0].candidate if firsts else Candidate(start)
    writer = StepWriter(env, policy, start, text_in(start, current.prompt), config)
    procedure, best, rollouts = Procedure(), env.reward.low - 1, list[Rollout]()
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    for number in range(plan.rounds):
        writer = replace(writer, policy=policy.adapt())
        if not procedure.steps:
            new = await writer.begin(run, number)
        elif mistakes(rollouts, env.reward.high):
            new = await writer.refine(run, procedure, train, rollouts, number)
        else:
            break
        prompt = new.prompt(start, writer.base)
        if prompt is None or prompt in archive:
            continue
        news = await env.evaluate(run, prompt, train)
        child = Candidate(prompt, (current.id,), f"round {number + 1}", mean_score(news))
        archive.add(run, child)
        if child.mean >= best:
            procedure, current, rollouts, best = new, child, news, child.mean
            await validate_leader(run, plan, archive, current)
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


@dataclass(frozen=True)
class Procedure:
    """Steps, and a demonstration of them."""

    steps: tuple[str, ...] = ()
    demo: str = ""

    @property
    def listed(self) -> str:
        """The steps with their numbers, one a line."""
        return "\n".join(f"{i}. {step}" for i, step in enumerate(self.steps, 1))

    def prompt(self, start: Prompt, base: str) -> Prompt | None:
        """The start with the steps and the demonstration behind its text; None without steps, or where it refuses them."""
        demo = f"\n\n{SHOWN}\n\n{self.demo}" if self.demo else ""
        text = f"{base.rstrip()}\n\n{FOLLOW}\n{self.listed}{demo}\n".lstrip()
        return replace_region(start, text) if self.steps else None

    def change(self, number: int, kind: str, text: str) -> Procedure:
        """The steps with step `number` (from 1) written anew; one that was missing stands behind it, or first."""
        at = number if kind == MISSING else number - 1
        kept = self.steps[at:] if kind == MISSING else self.steps[number:]
        return replace(self, steps=(*self.steps[:at], text, *kept))


@dataclass(frozen=True)
class StepWriter:
    """The questions to the optimizer. `base` is the text before the steps."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    base: str
    config: Config

    async def begin(self, run: Run, number: int) -> Procedure:
        """The first steps, with a demonstration of them."""
        rows = minibatch(run.rng, self.env.train, SHOWN_ROWS, balanced=True)
        head = EXAMPLES if wanted_answers_known(rows) else UNANSWERED
        question = "\n\n".join([self.about(), head, *map(show_example, rows), STEPS])
        texts = await self.policy.write(run, question, "STEP", sample=number, many=True)
        steps = [line for text in texts if (line := " ".join(text.split())) and not self.objects(line)]
        return await self.demonstrate(run, Procedure(tuple(steps)), number)

    async def refine(
        self, run: Run, old: Procedure, train: Sequence[Example], rollouts: Sequence[Rollout], number: int
    ) -> Procedure:
        """The steps with one of them rewritten, that with most errors, and a demonstration of the new steps."""
        rows, wrong = {row.id: row for row in train}, mistakes(rollouts, self.env.reward.high)
        wrong = run.rng.sample(wrong, min(self.config.errors, len(wrong)))
        shown = [f"Answer {i}:\n{show_rollout(rows[r.example_id], r)}" for i, r in enumerate(wrong, 1)]
        head = f"{self.about()}\n\n{FOLLOW}\n{old.listed}"
        replies = await self.policy.write(
            run, "\n\n".join([head, WRONG, *shown, ANALYSE]), "ERRORS", sample=number
        )
        tally = book(replies, len(old.steps), len(wrong))
        anywhere = run.rng.randint(1, len(old.steps)), FAULTY
        step, kind = max(tally, key=lambda key: len(tally[key]), default=anywhere)
        broken = [shown[i] for i in sorted(tally.get((step, kind), ()))] or shown
        if self.config.credit == "random":
            (step, kind), broken = anywhere, shown
        named = f"{KINDS[kind]} {step}"
        question = "\n\n".join([head, WRONG, *broken, named, REWRITE])
        texts = await self.policy.write(run, question, "STEP", sample=number)
        lines = [line for text in texts if (line := " ".join(text.split())) and not self.objects(line)]
        return await self.demonstrate(run, old.change(step, kind, lines[0]), number) if lines else old

    async def demonstrate(self, run: Run, procedure: Procedure, number: int) -> Procedure:
        """The steps with a demonstration that carries them out on a training row; without one where none can be shown."""
        wanted = [row for row in self.env.train if row.target is not None]
        if not self.config.demo or not procedure.steps or not wanted:
            return replace(procedure, demo="")
        row = run.rng.choice(wanted)
        question = "\n\n".join(
            [f"{self.about()}\n\n{FOLLOW}\n{procedure.listed}", SHOW, show_example(row), CARRY_OUT]
        )
        for text in await self.policy.write(run, question, "DEMONSTRATION", sample=number):
            demo = Demonstration(row.id, row.user_text, text)
            if not demonstration_filter(self.env, self.start)(demo) and not secrets(demo.text):
                return replace(procedure, demo=demo.text)
        return replace(procedure, demo="")

    def objects(self, text: str) -> bool:
        """Whether a step copies a single input or holds something private."""
        return objectionable(secrets, self.env.train, self.start.source, text)

    def about(self) -> str:
        """The head of every question: the task and the instruction."""
        return show_instruction(self.env.description, self.start, self.base)


def book(replies: Sequence[str], steps: int, answers: int) -> dict[tuple[int, str], set[int]]:
    """The answers that broke at each step, by step and kind; what names no step or no answer is left out."""
    booked: dict[tuple[int, str], set[int]] = {}
    for record in (one for reply in replies for value in json_values(reply)[:1] for one in records(value)):
        step, kind, answer = record.get("step"), record.get("kind"), record.get("answer")
        if not isinstance(step, int) or not isinstance(answer, int) or kind not in KINDS:
            continue
        if 1 <= answer <= answers and (0 if kind == MISSING else 1) <= step <= steps:
            booked.setdefault((step, kind), set()).add(answer - 1)
    return booked


SHOWN_ROWS = 4
IGNORED, FAULTY, MISSING = "not followed", "wrong", "missing"
KINDS = {
    IGNORED: "The model does not follow this step. Word it so that nobody can pass over it. Step",
    FAULTY: "The model follows this step, and it is wrong. Correct it. Step",
    MISSING: "A step is missing. Write the one that belongs behind step",
}
FOLLOW = "Follow these steps:"
SHOWN = "An example that carries them out:"
EXAMPLES = "Examples of its inputs, with what is wanted:"
STEPS = "Write the steps that the model should follow to do this with any input of this kind, three to six short ones in order."
WRONG = "With these steps the model answered wrongly:"
ANALYSE = (
    "For each answer: which is the first step that broke? Write a JSON list: "
    '[{"answer": 1, "step": 2, "kind": "not followed"}]. The kind is "not followed", "wrong" or "missing"; of a missing step '
    "name the step behind which it belongs, 0 for the beginning."
)
REWRITE = "Write this one step in one or two sentences, and no other. It must hold for all inputs of this kind; copy no input."
SHOW = "Show how this input is answered:"
CARRY_OUT = "Write an answer to it that carries out each of the steps in order and ends with what is wanted."
