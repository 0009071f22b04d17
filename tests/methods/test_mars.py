"""MARS: a plan whose steps are worked on in turn, a critic who sends questions back, and no step that lowers the score."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TOPICS, with_other_inputs
from tests.methods.rule_worlds import HARMFUL, LAST_WORD, RuleWriter, failed_topics, optimized, poisoned

from whet.methods.mars import ADVICE, PLAN, STEP, STUDENT, TEACHER, WHOLE, Config, mars
from whet.models.scripted import chance, choose_by_luck, load
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world

CONFORMANCE = {"rounds": 2, "steps": 2, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 1, "steps": 2, "examples": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def school(
    text: str = "Weigh the evidence",
    verdict: str = '{"good": true}',
    steps: tuple[str, ...] = ("Look.", "Answer."),
) -> Callable[[str, int], str]:
    """Planner, teacher, critic and student in one."""

    def write(question: str, sample: int) -> str:
        if PLAN in question:
            return "\n".join(f"<STEP>{step}</STEP>" for step in steps)
        if "<VERDICT>" in question:
            return f"<VERDICT>{verdict}</VERDICT>"
        if "<QUESTION>" in question:
            return f"<QUESTION>What about {'this' if ADVICE in question else 'that'}?</QUESTION>"
        return f"<PROMPT>{text} {sample}.</PROMPT>"

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"rounds": 2, "steps": 2, "examples": 30, **settings})
    return await mars(run, env, LanguagePolicy(), START, config), model, run


def students(model: Answers) -> list[str]:
    return [q for q in model.questions if STUDENT in q]


async def test_the_steps_of_the_plan_are_worked_on_in_turn() -> None:
    _, model, _ = await search(school())
    assert [q.partition(STEP)[2].splitlines()[0].strip() for q in students(model)] == ["Look.", "Answer."] * 2
    assert sum(PLAN in q for q in model.questions) == 1


async def test_a_plan_that_cannot_be_read_is_one_step() -> None:
    _, model, _ = await search(school(steps=()))
    assert {q.partition(STEP)[2].splitlines()[0].strip() for q in students(model)} == {WHOLE}


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ('{"good": true, "advice": ""}', "What about that?"),
        ('{"good": false, "advice": "Ask about the tone."}', "What about this?"),
        ("I like it", "What about that?"),
    ],
)
async def test_a_question_that_the_critic_refuses_is_asked_once_more(verdict: str, shown: str) -> None:
    _, model, _ = await search(school(verdict=verdict))
    assert all(f"{TEACHER}\n{shown}" in q for q in students(model))
    asked = [q for q in model.questions if "<QUESTION>" in q]
    assert len(asked) == (2 if "false" in verdict else 1) * len(students(model))
    assert all("Ask about the tone." in q for q in asked if ADVICE in q)


async def test_teacher_and_student_see_what_failed() -> None:
    _, model, _ = await search(school(), rounds=1, steps=1)
    assert all("Reward: 0" in q for q in model.questions if STUDENT in q or "<QUESTION>" in q)


async def test_without_a_critic_nobody_judges() -> None:
    _, model, _ = await search(school(), critic=False)
    assert not any("<VERDICT>" in q for q in model.questions) and students(model)


async def test_a_step_that_lowers_the_score_is_not_built_on() -> None:
    env = review_world(load("labels", {"words": "like", "harmful": "quick,guess", "harm": "0.2"}))
    best, model, _ = await search(school("Guess, be quick"), env, rounds=3)
    assert all("\nSay what the review is like." in q for q in students(model))
    assert best.prompt == START


async def test_each_step_is_scored_on_the_same_rows() -> None:
    _, _, run = await search(school(), finalists=1)
    validated = sum(name == "validated" for name, _ in run.logged)
    scored = sum(name == "candidate" and v["operator"] != "start" for name, v in run.logged)  # type: ignore[index, call-overload]
    assert run.spent["task"] == 30 * (1 + scored) + 20 * validated


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_steps(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, model, run = await search(school(), env, limits, **vars(Config()))
    assert len(students(model)) >= 2
    assert 0.4 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    assert LAST_WORD in optimized(tmp_path, "mars", lambda question: school(LAST_WORD)(question, 0))


# The contest: a teacher whose questions are concrete half of the time; a vague one misleads the student.


def lesson(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """A student follows a concrete question; after a vague one a harmful phrase comes in. Advice makes questions concrete."""
    if PLAN in question:
        return "<STEP>Say what letters are about.</STEP>\n<STEP>Say how to answer.</STEP>"
    if "<VERDICT>" in question:
        good = "topic-" in question.partition(TEACHER)[2]
        return f'<VERDICT>{{"good": {str(good).lower()}, "advice": "Name a topic."}}</VERDICT>'
    if "<QUESTION>" in question:
        topics = [topic for topic in failed_topics(question) if PHRASES[topic] not in question]
        concrete = topics and (ADVICE in question or chance(writer.seed, question) < 0.4)
        return f"<QUESTION>{f'What of topic-{topics[0]}' if concrete else 'What could be better'}?</QUESTION>"
    text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
    topic = re.findall(r"What of topic-(\d+)", question)
    phrase = PHRASES[int(topic[0])] if topic else choose_by_luck(HARMFUL, writer.seed, question)
    return f"<INSTRUCTION>{text} {phrase}</INSTRUCTION>"


OF_ANY_ROW = with_other_inputs(lambda line: int(chance(line, "other") * TOPICS))


@cache
def reached(method: str = "mars", change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    limits = Budget(task_calls=800)
    return [play_world(method, poisoned(seed, lesson, change), seed, limits, settings) for seed in range(8)]


def test_it_wins_by_its_critic_and_by_what_the_teacher_reads() -> None:
    assert won_over("without the critic", reached(), reached(critic=False)).low > 0
    assert won_over("with failures of other inputs", reached(), reached(change=OF_ANY_ROW)).low > 0
    assert won_over("random_search", reached(), reached("random_search", edits=16)).low > 0


@pytest.mark.long
def test_over_as_many_steps_without_a_plan_no_benefit_is_shown() -> None:
    assert won_over("a plan of one step", reached(), reached(steps=1, rounds=20)).low <= 0
