"""ROPE: a person states requirements, asked about inputs whose answers differ; they become lines of the prompt.

Ma, Peng, Shen, Koedinger, Wu: What Should We Engineer in Prompts? Training Humans in Requirement-Driven LLM Use. 2024.
arXiv:2409.08775. There people are taught to state clear and complete requirements; here they are asked for them.

    R <- nothing
    for question in 1..questions:
        `answers` answers to each of `inputs` training inputs under the start prompt with R
        x <- the input whose answers differ most
        a model that reads x, its answers and R writes one question: which difference does R leave open?
        R <- R and what the person replies                (nothing, where the difference does not matter)
    return the start prompt with R, if it beats the start

Differences from the paper, of which the abstract could be read:
1. It is a way of teaching people, with feedback on their requirements by a model. That a question comes from answers which really
   differ is ours, and so is this loop.
2. Where no two answers differ, the question is about the inputs alone.
3. What a person states is recorded when it is stated. A run that is stopped goes on with the question that is open.
4. The prompt with the requirements is measured on validation rows by the reward of the task beside the start. `whet init --ask`
   asks in the same way for a new task, and there the requirements are kept as checks too: a checklist is the reward.
5. `choose` is the control: `random` takes any of the inputs, `blind` shows inputs without answers.
6. Within a limit on calls there are fewer questions.

Run it:  whet optimize TASK --method rope --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from whet._util.fields import NonNegativeInt, PositiveInt, TwoOrMore
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.answer_duels import without_reward
from whet.rl.open_points import OpenPoint, write_question
from whet.rl.people import TERMINAL
from whet.rl.person_requirements import PersonQuestion, extend_prompt, find_author, state_requirements
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.minibatch import infinite_batches, next_rows
from whet.search.plan import SearchPlan, share_out, validate_finalists
from whet.types import Example

ENTRY = MethodEntry(
    "rope",
    "ROPE: a person states requirements, asked about inputs whose answers differ",
    version=1,
    rank=66,
    when="a person knows what is required and did not state all of it",
    paper="Ma et al., 2024",
    arxiv="2409.08775",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ROPE."""

    questions: NonNegativeInt = 6
    """Questions to the person at most."""
    inputs: PositiveInt = 5
    """Training inputs that are answered for a question."""
    answers: TwoOrMore = 2
    """Answers to each of them, at temperature 1."""
    ask: str | Callable[..., Any] = TERMINAL
    """The source of replies: the person at the terminal, or a Python file with `def ask(question, input, answers)`, or such a
    function, which returns a list of requirements."""
    choose: Literal["differing", "random", "blind"] = "differing"
    """The subject of a question: the input whose answers differ most, a random input, or all inputs without answers."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError where nobody can be asked."""
    find_author(config.ask)


async def _answer(env: Environment, prompt: Prompt, answers: int, run: Run, row: Example) -> OpenPoint:
    rollouts = [(await env.evaluate(run, prompt, [row], sample))[0] for sample in range(answers)]
    return OpenPoint(row.user_text, tuple(r.output for r in rollouts if r.error is None))


async def rope(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Requirements asked of a person; see the module."""
    author, plan = find_author(config.ask), share_out(run, env, 0, finalists=1)
    questions, archive, rows = within(config, plan), Archive(), infinite_batches(run.rng, env.train)
    run.note_rounds(questions, config.questions)
    await archive.validate(run, plan.env, [Candidate(start)])
    warm = replace(without_reward(env), generation=replace(env.generation, temperature=1.0))
    best, stated, earlier = Candidate(start), list[str](), list[str]()
    for number in range(questions):
        batch = next_rows(rows, config.inputs)
        points = [OpenPoint(row.user_text) for row in batch]
        if config.choose != "blind":
            points = await run.map(partial(_answer, warm, best.prompt, config.answers), batch)
        shown = choose_points(run, config, points)
        about = show_instruction(env.description, start, text_in(start, best.prompt), INSTRUCTION)
        text = await write_question(
            run, policy.adapt(), shown, stated, earlier, about=about, sample=number * STRIDE
        )
        if text is None:
            continue
        earlier.append(text)
        question = PersonQuestion(text, shown[0], number + 1, questions)
        new = [one for one in await state_requirements(run, author, question) if one not in stated]
        run.log("requirements", {"question": text, "stated": list(new)})
        prompt = extend_prompt(start, [*stated, *new])
        if new and prompt is not None:
            stated += new
            best = Candidate(prompt, (best.id,), f"question {number + 1}")
            archive.add(run, best)
    return await validate_finalists(run, plan, archive, [best])


def choose_points(run: Run, config: Config, points: Sequence[OpenPoint]) -> list[OpenPoint]:
    """The inputs that a question shows: one input with its answers, or, if there is none whose answers differ, all inputs."""
    if config.choose == "random":
        return [run.rng.choice(points)]
    widest = max(points, key=lambda point: point.spread)
    return [widest] if widest.spread else [OpenPoint(point.input) for point in points]


def within(config: Config, plan: SearchPlan) -> int:
    """Questions that the plan pays for."""
    each = 0 if config.choose == "blind" else config.inputs * config.answers
    payable = plan.payable(config.questions, each) if each else config.questions
    return payable if plan.asks is None else min(payable, plan.asks)


STRIDE = 1_000
INSTRUCTION = "The instruction under which the inputs are answered:"
