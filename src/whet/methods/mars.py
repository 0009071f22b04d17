"""MARS: a planner divides the work, a teacher asks, a critic judges the questions, a student rewrites, the target scores.

Zhang, Wang, Zhu, Liu, Lin, Cambria: MARS: A Multi-Agent Framework Incorporating Socratic Guidance for Automated Prompt
Optimization. 2025. arXiv:2503.16874. Code: github.com/exoskeletonzj/MARS.

    plan <- the planner's steps for this task
    repeat:
        for step in plan:
            question <- the teacher's, for this step;  if the critic finds it wanting: once more, with its advice
            prompt <- the student's, after the question
        score the prompt on the target
    until `rounds` or little changes;  return the best

Differences from the paper:
1. The target scores the prompt after each step, and a step that lowers the score is not built on. The code scores after all steps
   and has no acceptance test, so that one bad step stays under all that follow.
2. The result is chosen on validation examples among the start and the best few. The code chooses on the rows that it reports.
3. Teacher and student see failed answers of the prompt as it is, with critiques. In the code they see the prompt alone.
4. The search does not stop when the score changes little: which prompt is last decides nothing here.
5. A text that copies 32 characters in a row from the input of a single example is dropped.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, rounds and examples are reduced to fit (`whet.search.plan`). A plan has `steps` steps.

Run it:  whet optimize TASK --method mars --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.edits import text_in
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
from whet.types import mean_score

ENTRY = MethodEntry(
    "mars",
    "MARS: planner, teacher, critic and student",
    version=1,
    rank=134,
    when="a task has several aspects that should be worked on in turn",
    paper="Zhang et al., 2025",
    arxiv="2503.16874",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of MARS."""

    rounds: NonNegativeInt = 5
    """Passes through the plan."""
    steps: PositiveInt = 4
    """Steps of the plan."""
    examples: PositiveInt = 40
    """Training examples that each prompt is scored on."""
    shown: PositiveInt = 4
    """Failed answers that the teacher reads."""
    critic: bool = True
    """Whether a critic judges the teacher's questions."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def mars(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """A plan, and a dialogue for each of its steps; see the module."""
    wanted, asks = config.rounds * config.steps, 4.0 if config.critic else 2.0
    plan = fit(run, env, wanted, 1, config.examples, finalists=config.finalists, asks=asks)
    archive, current = Archive(), Candidate(start)
    await archive.validate(run, plan.env, [current])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    current = firsts[0].candidate if firsts else current
    rows, rollouts = (
        {row.id: row for row in train},
        await env.evaluate(run, current.prompt, train if plan.rounds else []),
    )
    best = mean_score(rollouts).mean if rollouts else env.reward.low
    steps = await make_plan(run, env, policy, start, config.steps) if plan.rounds else []
    for number in range(plan.rounds):
        wrong = mistakes(rollouts, env.reward.high)
        if not wrong:
            break
        shown = [
            show_rollout(rows[r.example_id], r) for r in run.rng.sample(wrong, min(config.shown, len(wrong)))
        ]
        talk = Dialogue(env, policy.adapt(), start, text_in(start, current.prompt), number)
        prompts = await talk.step(run, steps[number % len(steps)], shown, config.critic)
        for prompt in [one for one in prompts if one not in archive]:
            news = await env.evaluate(run, prompt, train)
            child = Candidate(prompt, (current.id,), f"step {number + 1}", mean_score(news))
            archive.add(run, child)
            if child.mean >= best:
                current, rollouts, best = child, news, child.mean
                await validate_leader(run, plan, archive, current)
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


async def make_plan(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, number: int
) -> list[str]:
    """The planner's steps; one that names the whole task where it writes none."""
    rows = minibatch(run.rng, env.train, PLANNED, balanced=True)
    head = EXAMPLES if wanted_answers_known(rows) else UNANSWERED
    about = show_instruction(env.description, start, text_in(start, start))
    question = "\n\n".join([about, head, *map(show_example, rows), f"{PLAN} {number}"])
    steps = await policy.write(run, question, "STEP", many=True)
    return steps[:number] or [WHOLE]


@dataclass(frozen=True)
class Dialogue:
    """The dialogue of teacher, critic and student about one step. `number` numbers their requests."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    text: str
    number: int

    async def step(self, run: Run, step: str, shown: Sequence[str], critic: bool) -> list[Prompt]:
        """The student's new prompt after the teacher's question; none where one of them says nothing of use."""
        questions = await self.teach(run, step, shown)
        if critic and questions and (advice := await self.judge(run, questions[0])):
            questions = await self.teach(run, step, shown, advice) or questions
        if not questions:
            return []
        about = "\n\n".join(
            [self.about(), FAILED, *shown, f"{STEP} {step}", f"{TEACHER}\n{questions[0]}", STUDENT]
        )
        prompts = await self.policy.rewrite(run, self.start, about, sample=self.number, text=self.text)
        return [
            one
            for one in prompts
            if not copied_input(text_in(self.start, one), self.env.train, self.start.source)
        ]

    async def teach(self, run: Run, step: str, shown: Sequence[str], advice: str = "") -> list[str]:
        """The teacher's question for a step; with the critic's advice, its second one."""
        more = [f"{ADVICE}\n{advice}"] if advice else []
        question = "\n\n".join([self.about(), FAILED, *shown, f"{STEP} {step}", *more, TEACH])
        return await self.policy.write(run, question, "QUESTION", sample=self.number)

    async def judge(self, run: Run, question: str) -> str:
        """The critic's advice; empty where the question is good, or the critic cannot be read."""
        asking = "\n\n".join([f"{TEACHER}\n{question}", JUDGE])
        for reply in await self.policy.write(run, asking, "VERDICT", sample=self.number):
            for value in json_values(reply):
                if isinstance(value, dict) and value.get("good") is False:
                    return str(value.get("advice") or ADVISED)
        return ""

    def about(self) -> str:
        """The head of a question: the task and the instruction."""
        return show_instruction(self.env.description, self.start, self.text)


PLANNED = 4
EXAMPLES = "Examples of its inputs, with what is wanted:"
PLAN = (
    "Plan how to improve this instruction. Each step works on one side of the task, such as what to look at, what to do in "
    "special cases, or the form of the answer. Write each step in one sentence. Number of steps:"
)
WHOLE = "Make the instruction fit the task."
FAILED = "With this instruction the model failed on these inputs:"
STEP = "The side to work on now:"
TEACH = (
    "You are the teacher of whoever improves the instruction. Ask one question that leads to what is wrong or missing on this "
    "side, by what the failures show. Be concrete, and do not give the answer as a command."
)
TEACHER = "The teacher asks:"
JUDGE = (
    "Does this question lead to one concrete fault, without being vague and without dictating the solution? Write a JSON object: "
    '{"good": true, "advice": ""} or {"good": false, "advice": "what to ask instead"}.'
)
ADVISED = "Ask about one concrete fault."
ADVICE = "Your last question was not good enough. Advice:"
STUDENT = "Think about the question, and write the instruction anew so that this side is right. Keep what works. Copy no input."
