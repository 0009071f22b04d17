"""ROPE: what a question is about, what becomes of what a person states, and what asking about answers that differ is worth."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods import requiring_person
from tests.methods.figures import won_over

import whet
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.rope import Config, check, rope, within
from whet.models.scripted import Scripted, choose_by_luck, luck, request_text, shuffle
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, OpenPoint, people
from whet.rl.open_points import ASKED, DECIDE, INPUTS, STATED
from whet.rl.person_requirements import PersonQuestion, state_at_terminal
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world
from whet.types import Example, Request, Reward

Author = Callable[[str, str, list[str]], list[str]]
ALWAYS = {"ask": requiring_person.__file__}
"""Settings of every run in the conformance suite: who is asked."""
CONFORMANCE = {"questions": 3, "inputs": 3, **ALWAYS}
"""Settings of a run in the conformance suite."""
SWEEP = {"questions": 2, "inputs": 2, **ALWAYS}
"""Settings of a run that is killed at every boundary."""

POINTS, TOUCHED = 24, 4
"""Points that an answer may be read in two ways on, and those that an input touches."""
KNOWN, STATED_FIRST, HIDDEN, IDLE = 12, 4, 2, 4
"""What the author requires a reading of; of these what the start says, and where the model is always wrong; and points on which
answers differ and nobody cares."""
LINE = re.compile(r"On p(\d+): ([ab])")
READ = re.compile(r"p(\d+)=([ab])")


def required(seed: int) -> dict[int, str]:
    """The readings that the author requires, by point; the start states the first ones, and the model is wrong on the next."""
    return {
        point: choose_by_luck("ab", seed, "wanted", point)
        for point in shuffle(range(POINTS), seed, "points")[:KNOWN]
    }


def line(seed: int, point: int) -> str:
    """A requirement as a sentence."""
    return f"On p{point}: {required(seed)[point]}"


def author(seed: int) -> Author:
    """An author who replies to a question about a point with the reading that is required, or with nothing."""

    def ask(question: str, input: str, answers: list[str]) -> list[str]:
        point = int(re.findall(r"p(\d+)", question)[0])
        return [line(seed, point)] if point in required(seed) else []

    return ask


def reading(seed: int, stated: dict[int, str], point: int, row: str, sample: int) -> str:
    """How the task model reads a point: as stated, else either way where it is open, else always one way."""
    wanted, points = required(seed), shuffle(range(POINTS), seed, "points")
    if point in stated:
        return stated[point]
    if point in points[STATED_FIRST : STATED_FIRST + HIDDEN]:
        return "ba"["ab".index(wanted[point])]
    is_open = point in wanted or point in points[KNOWN : KNOWN + IDLE]
    return choose_by_luck("ab", seed, point, row, sample) if is_open else "a"


class Readings:
    """The share of the required readings of the points that an input touches; 1 where it touches none."""

    name, low, high, needs = "readings", 0.0, 1.0, frozenset[str]()

    def __init__(self, seed: int) -> None:
        self.wanted = required(seed)

    async def grade(self, run: Any, example: Any, completion: Any) -> Any:
        assert example.id.startswith("v"), "the reward of a training row was asked for"
        own = {int(point): read for point, read in READ.findall(completion.text)}
        met = [own[point] == self.wanted[point] for point in own if point in self.wanted]
        return Reward(sum(met) / len(met) if met else 1.0)


class Asker(Scripted):
    """Asks which reading of a point is wanted: of one on which the answers that it sees differ, else of any one in the inputs;
    never of one that is stated or was asked about."""

    OPTIONS: ClassVar[dict[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        done = {int(point) for point in re.findall(r"p(\d+)", question.partition(STATED)[2])}
        done |= {int(point) for point in re.findall(r"p(\d+)", question.partition(ASKED)[2])}
        done |= {int(point) for point, _ in LINE.findall(question)}
        shown = question.partition("between the two markers")[2].partition(STATED)[0]
        read = {pair for pair in READ.findall(shown.partition(ASKED)[0])}
        differing = {int(point) for point, _ in read if {(point, "a"), (point, "b")} <= read}
        touched = {int(point) for point in re.findall(r"p(\d+)\b(?!=)", shown.partition(ASKED)[0])}
        left = sorted(differing - done) or sorted(touched - done)
        if not left:
            return "<QUESTION>0</QUESTION>"
        return f"<QUESTION>Which reading of p{choose_by_luck(left, self.seed, luck(request, sample))}?</QUESTION>"


def world(seed: int) -> KnownWorld:
    """Inputs that touch points, of which the author requires a reading of half and has stated a third of these."""
    start = "".join(f"\n- {line(seed, point)}" for point in [*required(seed)][:STATED_FIRST])
    prompt = Prompt.parse(
        f"<!-- whet:begin -->\nRead the points.\n\nRequirements:{start}\n<!-- whet:end -->\n{{{{input}}}}"
    )

    def task(question: str, sample: int) -> str:
        stated = {int(point): read for point, read in LINE.findall(question)}
        row = question.splitlines()[-1]
        points = map(int, re.findall(r"p(\d+)", row))
        return " ".join(f"p{point}={reading(seed, stated, point, row, sample)}" for point in points)

    def row(name: str) -> Example:
        touched = sorted(shuffle(range(POINTS), seed, "row", name)[:TOUCHED])
        text = f"{name}: {' '.join(f'p{point}' for point in touched)}"
        return Example(name, {"input": text}, None, {"input": text}, text)

    def worth(found: Prompt) -> float:
        return sum(line(seed, point) in found.source for point in required(seed)) / KNOWN

    train, validation = (tuple(row(f"{kind}{n}") for n in range(40)) for kind in "tv")
    env = Environment(Answers(task), Readings(seed), train, validation)
    return KnownWorld(env, prompt, worth, Asker("asker", {"seed": str(seed)}))


async def search(
    known: KnownWorld, ask: Any, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, list[Any], MeteredRun, list[str]]:
    """What is found, what was stated, the run, and the questions to the model."""
    questions = list[str]()

    class Watched(Asker):
        def answer(self, request: Request, sample: int) -> str:
            questions.append(request_text(request))
            return super().answer(request, sample)

    run = MeteredRun({"task": known.env.model, "optimizer": Watched("w", {"seed": "1"})}, 1, limits=limits)
    best = await rope(run, known.env, LanguagePolicy(), known.start, Config(ask=ask, **settings))
    return best, [value for name, value in run.logged if name == "requirements"], run, questions


async def test_a_question_is_about_the_input_whose_answers_differ_most() -> None:
    seen = []

    def ask(question: str, input: str, answers: list[str]) -> list[str]:
        seen.append((question, input, answers))
        return []

    _, stated, _, questions = await search(world(0), ask)
    assert len(seen) == len(stated) == 6
    for (text, input, answers), asked in zip(seen, questions, strict=True):
        point = re.findall(r"p\d+", text)[0]
        assert DECIDE in asked and f"\n{input}\n" in asked and asked.count("Input 1,") == 1
        assert len({*answers}) == 2 and point in input
        assert all(f"\n{answer}\n" in asked for answer in answers)
    assert seen[0][0] in questions[1].partition(ASKED)[2], "what was asked already is shown"


async def test_what_is_stated_are_lines_of_the_prompt_under_which_is_answered_next() -> None:
    known = world(0)
    best, stated, _, questions = await search(known, author(0))
    said = [one for entry in stated for one in entry["stated"]]
    assert said and all(f"\n- {one}" in best.prompt.region_text() for one in said)
    assert best.prompt.region_text().count("Requirements:") == 1, "they go on with the list that is there"
    assert known.worth(best.prompt) > known.worth(known.start)
    assert stated[0]["stated"][0] in questions[-1].partition(STATED)[2]
    assert stated[0]["stated"][0] in known.env.model.questions[-1]


async def test_where_no_answers_differ_the_inputs_alone_are_shown() -> None:
    known = world(0)
    env = replace(known.env, model=Answers(lambda question, sample: "p1=a"))
    _, _, _, questions = await search(replace(known, env=env), author(0))
    assert all(
        INPUTS in asked and asked.count("Input ") == 5 and "Answer 1" not in asked for asked in questions
    )
    _, _, run, questions = await search(known, author(0), choose="blind")
    assert all(INPUTS in asked for asked in questions)
    assert run.spent["task"] == 2 * len(known.env.validation), (
        "nothing is answered where no answers are shown"
    )


async def test_where_the_model_has_no_question_nobody_is_asked() -> None:
    known = world(0)

    def nobody(question: str, input: str, answers: list[str]) -> list[str]:
        raise AssertionError("asked")

    run = MeteredRun(
        {"task": known.env.model, "optimizer": Answers(lambda question, sample: "<QUESTION>0.</QUESTION>")}, 1
    )
    assert (
        await rope(run, known.env, LanguagePolicy(), known.start, Config(ask=nobody))
    ).prompt == known.start


async def test_one_sentence_is_a_requirement_and_one_that_is_stated_already_is_none() -> None:
    _, stated, _, _ = await search(world(0), lambda question, input, answers: " Be   kind. ")
    assert [entry["stated"] for entry in stated] == [["Be kind."], *[[]] * 5]


@pytest.mark.parametrize("reply", [None, 3, [1], ["Keep {{input}}."], ["<!-- whet:end -->"], ["..."]])
async def test_what_is_no_requirement_is_refused(reply: object) -> None:
    with pytest.raises(UsageError, match=r"ask\(\) returned"):
        await search(world(0), lambda question, input, answers: reply)


async def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(UsageError, match=r"ask\(\) failed: ZeroDivisionError"):
        await search(world(0), lambda question, input, answers: 1 / 0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ("terminal", "there is no terminal"),
        ("nobody", "Give a function, or a Python file"),
        (lambda question: "a", "cannot be called"),
        (os.__file__, "there is no function `ask`"),
    ],
)
def test_without_somebody_to_ask_it_is_refused(
    ask: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nobody, pytest.raises(UsageError, match=message):
        monkeypatch.setattr(sys, "stdin", nobody)
        check(review_world(), Config(ask=ask))


async def test_at_a_terminal_lines_are_requirements_until_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["Be kind.", "{{input}}", "Be brief.", "", None])

    async def read() -> str | None:
        return next(lines)

    monkeypatch.setattr(people, "read_line", read)
    question = PersonQuestion("How long?", OpenPoint("Dish 1", ("good", "\x1b[31mbad", "good")), 2, 5)
    assert await state_at_terminal(question) == ["Be kind.", "Be brief."]
    written = capsys.readouterr().err
    assert (
        "Question 2 of 5. Input: Dish 1" in written and "How long?" in written and "\x1b[31m" not in written
    )
    assert written.count("good") == 1 and "This text cannot be a requirement" in written
    with pytest.raises(UsageError, match="What you stated is kept"):
        await state_at_terminal(question)


@pytest.mark.parametrize(
    ("rollouts", "asks", "choose", "questions"),
    [
        (None, None, "differing", 6),
        (35, None, "random", 3),
        (35, None, "blind", 6),
        (None, 2, "blind", 2),
        (9, 9, "differing", 0),
    ],
)
def test_questions_within_limits(rollouts: int | None, asks: int | None, choose: Any, questions: int) -> None:
    assert within(Config(choose=choose), SearchPlan(world(0).env, rollouts, asks, 2, 1)) == questions


def test_in_python_a_function_is_asked_and_what_it_stated_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def optimize() -> Any:
        def ask(question: str, input: str, answers: list[str]) -> list[str]:
            asked.append(question)
            return [f"Weigh it {'well ' * len(asked)}."]

        calls = iter(range(1000))
        return whet.optimize(
            "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\n{{input}}",
            data=[{"input": f"Dish {n}", "target": "good"} for n in range(40)],
            reward=lambda example, output: float("Weigh" in output),
            lm=lambda messages: f"{messages[-1].content} {next(calls)}",
            optimizer_lm=lambda messages: f"<QUESTION>What of {next(calls)}?</QUESTION>",
            method=whet.methods.rope.Config(questions=3, inputs=2, ask=ask),
            run=tmp_path / "run",
            control=None,
        ).to_dict()

    result = optimize()
    assert len(asked) == 3 and result["usage"]["calls"]["optimizer"] == 3
    assert "Weigh" in result["best"]["prompt"]
    optimize()
    assert len(asked) == 3


# The contest: the input whose answers differ most, any input, inputs without answers; and what those miss that are always wrong.


@cache
def recovered(seeds: int = 20, **settings: Any) -> list[float]:
    """The share of what the author requires that stands in the prompt at the end, in the world of each seed."""
    return [
        play_world("rope", world(seed), seed, Budget(), {"ask": author(seed), **settings})
        for seed in range(seeds)
    ]


def test_asked_about_inputs_without_answers_it_recovers_less() -> None:
    won = won_over("choose=blind", recovered(), recovered(choose="blind"))
    assert won.low > 0, won


@pytest.mark.long
def test_against_its_controls() -> None:
    for questions in (6, 12):
        own = recovered(seeds=30, questions=questions)
        print(
            f"{questions} questions: {sum(own) / 30:.3f} of what is required; start: {STATED_FIRST / KNOWN:.3f}"
        )
        for name in ("random", "blind"):
            won = won_over(f"choose={name}", own, recovered(seeds=30, questions=questions, choose=name))
            assert won.low > 0 or name == "random", won
