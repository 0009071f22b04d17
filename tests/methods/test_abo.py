"""ABO: errors are booked on single steps, one step is rewritten, and a demonstration carries them out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.readers import FAILED_INPUT, TOPICS, TopicModel, letters
from tests.methods.rule_worlds import LAST_WORD, SORT, optimized

from whet.environments.environment import Environment
from whet.methods.abo import FAULTY, FOLLOW, IGNORED, KINDS, MISSING, SHOWN, Config, Procedure, abo, book
from whet.models.scripted import Scripted, request_text, shuffle
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Request

CONFORMANCE = {"rounds": 3, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "examples": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def writer(*errors: dict[str, Any], step: str = "Weigh the evidence") -> Callable[[str, int], str]:
    def write(question: str, sample: int) -> str:
        if "<ERRORS>" in question:
            return f"<ERRORS>{json.dumps(errors)}</ERRORS>"
        if "<DEMONSTRATION>" in question:
            return "<DEMONSTRATION>First I read, then I answer: positive</DEMONSTRATION>"
        first = "\n".join(f"<STEP>Do {i}.</STEP>" for i in range(1, 4))
        return first if FOLLOW not in question else f"<STEP>{step} {sample}.</STEP>"

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"rounds": 1, "examples": 30, **settings})
    return await abo(run, env, LanguagePolicy(), START, config), model, run


def texts(run: MeteredRun) -> list[str]:
    """The texts that were scored, in order."""
    return [v["messages"][0][1] for name, v in run.logged if name == "candidate" and v["operator"] != "start"]  # type: ignore[index, call-overload]


async def test_the_first_prompt_lists_the_steps_and_a_demonstration_behind_the_text() -> None:
    _, _, run = await search(writer(), rounds=0)
    (text,) = texts(run)
    listed = f"{FOLLOW}\n1. Do 1.\n2. Do 2.\n3. Do 3.\n\n{SHOWN}\n\nInput: Visit "
    assert f"guess freely.\n\n{listed}" in text and "\nAnswer: First I read, then I answer: positive" in text


@pytest.mark.parametrize(
    ("errors", "steps"),
    [
        ([(1, 2, FAULTY), (2, 2, FAULTY), (3, 1, FAULTY)], ["Do 1.", "Weigh the evidence 1.", "Do 3."]),
        ([(1, 3, IGNORED), (2, 3, IGNORED), (3, 3, FAULTY)], ["Do 1.", "Do 2.", "Weigh the evidence 1."]),
        ([(1, 0, MISSING)], ["Weigh the evidence 1.", "Do 1.", "Do 2.", "Do 3."]),
        ([(1, 1, MISSING)], ["Do 1.", "Weigh the evidence 1.", "Do 2.", "Do 3."]),
    ],
)
async def test_only_the_step_with_most_errors_is_rewritten(
    errors: list[tuple[int, int, str]], steps: list[str]
) -> None:
    _, model, run = await search(
        writer(*({"answer": a, "step": s, "kind": k} for a, s, k in errors)), demo=False
    )
    assert re.findall(r"(?m)^\d\. (.*)$", texts(run)[-1]) == steps
    _, step, kind = errors[0]
    assert f"{KINDS[kind]} {step}" in model.questions[-1]


async def test_the_rewriter_sees_the_answers_that_broke_at_the_step() -> None:
    _, model, _ = await search(writer({"answer": 2, "step": 1, "kind": FAULTY}), demo=False)
    assert "Answer 2:" in model.questions[-1] and "Answer 1:" not in model.questions[-1]


async def test_the_demonstration_is_written_anew_after_the_new_steps() -> None:
    _, model, _ = await search(writer({"answer": 1, "step": 1, "kind": FAULTY}))
    demos = [q for q in model.questions if "<DEMONSTRATION>" in q]
    assert len(demos) == 2 and "Weigh the evidence 1." in demos[1] and "Weigh" not in demos[0]
    _, model, run = await search(writer(), demo=False)
    assert not any("<DEMONSTRATION>" in q for q in model.questions) and SHOWN not in texts(run)[0]


async def test_steps_with_which_the_score_falls_are_not_kept() -> None:
    worse = writer({"answer": 1, "step": 1, "kind": FAULTY}, step="Guess, be quick: guess quick")
    best, model, _ = await search(worse, rounds=3, demo=False)
    assert best.prompt == START or "Guess, be quick:" not in best.prompt.text
    assert model.questions


@pytest.mark.parametrize(
    ("record", "booked"),
    [
        ({"answer": 1, "step": 2, "kind": "wrong"}, {(2, "wrong"): {0}}),
        ({"answer": 1, "step": 0, "kind": "missing"}, {(0, "missing"): {0}}),
        ({"answer": 1, "step": 0, "kind": "wrong"}, {}),
        ({"answer": 9, "step": 1, "kind": "wrong"}, {}),
        ({"answer": 1, "step": 9, "kind": "wrong"}, {}),
        ({"answer": 1, "step": 1, "kind": "odd"}, {}),
        ({"answer": "1", "step": None}, {}),
    ],
)
def test_errors_are_booked_on_steps_and_answers_that_there_are(
    record: dict[str, Any], booked: dict[Any, Any]
) -> None:
    assert book([json.dumps([record])], 3, 2) == booked


def test_nothing_is_booked_from_a_reply_that_cannot_be_read() -> None:
    assert book(["Step two, I think."], 3, 2) == {} == book([], 3, 2)


def test_a_missing_step_stands_behind_the_one_that_is_named() -> None:
    assert Procedure(("a", "b")).change(2, MISSING, "c").steps == ("a", "b", "c")
    assert Procedure(("a", "b")).change(1, FAULTY, "c").steps == ("c", "b")


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_versions(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, _, run = await search(writer({"answer": 1, "step": 1, "kind": FAULTY}), env, limits, **vars(Config()))
    assert len(texts(run)) >= 2
    assert 0.4 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    def write(question: str) -> str:
        return (
            "<DEMONSTRATION>It is.</DEMONSTRATION>"
            if "<DEMONSTRATION>" in question
            else f"<STEP>{LAST_WORD}</STEP>"
        )

    assert f"1. {LAST_WORD}" in optimized(tmp_path, "abo", write)


# The contest: a model that follows a step which it is told in three cases of ten, and one that it is shown in nine.


class Follower(TopicModel):
    """A TopicModel that does what the step of a topic says with the probability `told`, and `shown` where an example does it."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"told": "0.3", "shown": "0.9"}
    FAILING = 5

    def right(self, topic: int, prompt: str) -> float:
        if topic not in shuffle(range(TOPICS), self.seed, "hard")[: self.FAILING]:
            return 0.9
        steps, _, demo = prompt.partition(SHOWN)
        if PHRASES[topic] not in steps:
            return 0.1
        return self.option_float("shown" if PHRASES[topic] in demo else "told")


class StepAuthor(Scripted):
    """Knows the step of a topic when it sees one fail, and shows each step in a demonstration."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        steps = re.findall(r"(?m)^\d+\. (.*)$", question)
        topics = [int(topic) for topic in FAILED_INPUT.findall(question)]
        if "<DEMONSTRATION>" in question:
            return f"<DEMONSTRATION>{' '.join(steps)} So: yes</DEMONSTRATION>"
        if "<ERRORS>" in question:
            known = [steps.index(PHRASES[t]) + 1 if PHRASES[t] in steps else 0 for t in topics]
            errors = [
                {"answer": i, "step": step or len(steps), "kind": "not followed" if step else "missing"}
                for i, step in enumerate(known, 1)
            ]
            return f"<ERRORS>{json.dumps(errors)}</ERRORS>"
        if not steps:
            return "<STEP>Read the letter.</STEP>\n<STEP>Say yes or no.</STEP>"
        lacking = [t for t in topics if PHRASES[t] not in steps] or topics
        return f"<STEP>{PHRASES[max(sorted(set(lacking)), key=lacking.count)]}</STEP>"


@cache
def reached(seeds: int, method: str = "abo", told: str = "0.3", **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    worlds = []
    for seed in range(seeds):
        model = Follower("follower", {"seed": str(seed), "told": told})
        env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
        accuracy: Callable[[Prompt], float] = lambda p, model=model: model.accuracy(p.source)  # type: ignore[misc]  # noqa: E731
        worlds.append(KnownWorld(env, SORT, accuracy, StepAuthor("author", {"seed": str(seed)})))
    limits = Budget(task_calls=800)
    return [play_world(method, world, seed, limits, settings) for seed, world in enumerate(worlds)]


@on_seeds(4, 8)
def test_a_demonstration_wins_where_the_model_follows_what_it_is_shown(seeds: int) -> None:
    assert won_over("without a demonstration", reached(seeds), reached(seeds, demo=False)).low > 0.05
    assert won_over("random_search", reached(seeds), reached(seeds, "random_search", edits=16)).low > 0.05


@pytest.mark.long
@pytest.mark.parametrize("seeds", [8])
def test_where_it_follows_what_it_is_told_the_demonstration_wins_nothing(seeds: int) -> None:
    told, alone = reached(seeds, told="0.9"), reached(seeds, told="0.9", demo=False)
    assert won_over("without a demonstration, told", told, alone).low < 0.01


@pytest.mark.long
@pytest.mark.parametrize("seeds", [8])
def test_booked_errors_win_over_any_step(seeds: int) -> None:
    assert won_over("with any step rewritten", reached(seeds), reached(seeds, credit="random")).low > 0
