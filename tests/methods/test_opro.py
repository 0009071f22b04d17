"""OPRO: what the optimizer is shown, what is scored, what is returned, and that memory beats luck."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.methods.readers import Blinded, ScoreReader, without_scores

from whet.methods.opro import Config, bucket, opro
from whet.models.scripted import load
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Completion, Example, Reward

CONFORMANCE = {"steps": 3, "samples": 4, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 2, "samples": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
SCORE = re.compile(r"</INSTRUCTION>\nScore: (-?\d+)$", re.MULTILINE)


def numbered() -> Callable[[str, int], str]:
    """An optimizer that writes a new text each time, helpful words among them now and then."""
    words = ("carefully", "evidence", "tone", "single", "plainly")
    return lambda question, sample: f"<PROMPT>Text {sample}: sort {words[sample % 5]}.</PROMPT>"


async def search(
    answer: Callable[[str, int], Any], seed: int = 0, env: Any = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, seed)
    return await opro(run, env, LanguagePolicy(), START, Config(**settings)), model, run


async def test_history_is_shown_in_ascending_order_in_whole_numbers() -> None:
    _, model, _ = await search(numbered(), steps=5, samples=6, memory=20)
    for question in model.questions:
        scores = [int(score) for score in SCORE.findall(question)]
        assert scores == sorted(scores)
        assert all(0 <= score <= 100 for score in scores)
    assert [len(SCORE.findall(q)) for q in model.questions[::6]] == [1, 7, 13, 19, 20]


async def test_the_best_are_kept_in_memory() -> None:
    _, model, _ = await search(numbered(), steps=4, samples=8, memory=3)
    last = [int(score) for score in SCORE.findall(model.questions[-1])]
    assert len(last) == 3
    assert last[0] >= max(int(s) for q in model.questions[:8] for s in SCORE.findall(q))


async def test_exemplars_change_from_step_to_step() -> None:
    _, model, _ = await search(numbered(), steps=4, samples=1, exemplars=3)
    shown = [tuple(re.findall(r"Input: (.*)\nWanted: (?:positive|negative)", q)) for q in model.questions]
    assert {len(inputs) for inputs in shown} == {3}
    assert len(set(shown)) > 1
    _, model, _ = await search(numbered(), steps=1, samples=1, exemplars=0)
    assert "Wanted:" not in model.questions[0]


async def test_scores_that_teach_nothing_are_not_to_be_compared() -> None:
    env = replace(review_world(Answers(lambda q, s: "nothing")), labels={})  # type: ignore[arg-type]
    _, model, _ = await search(numbered(), env=env, steps=1, samples=1)
    assert "earn nothing" in model.questions[0]
    assert "Build on what the higher-scoring" not in model.questions[0]
    _, model, _ = await search(numbered(), steps=1, samples=1)
    assert "Build on what the higher-scoring" in model.questions[0]


async def test_exemplars_show_every_target() -> None:
    _, model, _ = await search(numbered(), steps=4, samples=1, exemplars=2)
    for question in model.questions:
        assert set(re.findall(r"Wanted: (.*)", question)) == {"positive", "negative"}


async def test_the_surroundings_and_the_task_are_shown() -> None:
    _, model, _ = await search(
        numbered(), env=replace(review_world(), description="Reviews."), steps=1, samples=1
    )
    assert "Reviews." in model.questions[0]
    assert "[INSTRUCTION]\nReview: {{input}}" in model.questions[0]


async def test_duplicates_are_not_scored_again() -> None:
    env = review_world(train=20, validation=10)
    _, model, run = await search(
        lambda q, s: "<PROMPT>Always the same.</PROMPT>", env=env, steps=5, samples=4
    )
    assert len(model.requests) == 20
    assert run.spent["task"] == 2 * 20 + 2 * 10


async def test_texts_that_are_too_long_are_dropped() -> None:
    env = review_world(train=20, validation=10)
    best, _, run = await search(
        lambda q, s: f"<PROMPT>{'very ' * 50}long {s}</PROMPT>", env=env, steps=2, samples=4, longest=200
    )
    assert best.prompt == START
    assert run.spent["task"] == 20 + 10


async def test_no_request_repeats_another_ones_number() -> None:
    _, model, _ = await search(lambda q, s: "", steps=3, samples=4)
    assert len({request.sample for request in model.requests}) == 24
    assert {request.temperature for request in model.requests} == {1.0}


async def test_the_start_wins_when_nothing_is_better() -> None:
    best, _, _ = await search(lambda q, s: f"<PROMPT>Guess, be quick {s}.</PROMPT>", steps=3, samples=4)
    assert best.prompt == START


class Lucky(ExactMatch):
    """Texts with `lucky` in them are perfect on training rows and useless elsewhere."""

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        validation = example.id.startswith("review-10")
        return Reward(
            float("lucky" in completion.text and not validation) or 0.5 * ("Honest" in completion.text)
        )


async def test_the_result_is_chosen_on_validation_not_by_luck() -> None:
    env = replace(review_world(Answers(lambda q, s: q)), reward=Lucky(), labels={})  # type: ignore[arg-type]
    words = ("Honest work", "lucky guess")
    best, _, run = await search(
        lambda q, s: f"<PROMPT>{words[s % 2]} {s}.</PROMPT>", env=env, steps=3, samples=4, finalists=10
    )
    leader: Any = max((v for n, v in run.logged if n == "candidate"), key=lambda v: v["train"])
    assert "lucky" in leader["messages"][0][1]
    assert "Honest" in best.prompt.region_text()


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [(0.574, 0, 1, 57), (-180, -180, 200, 0), (200, -180, 200, 100), (3, 3, 3, 0)],
)
def test_buckets(value: float, low: float, high: float, shown: int) -> None:
    assert bucket(value, low, high, 100) == shown


@pytest.mark.parametrize("most", [150, 200, 300])
async def test_small_budgets_buy_two_steps_and_a_validated_newcomer(most: int) -> None:
    env = review_world(train=40, validation=20)
    run = MeteredRun({"task": env.model, "optimizer": Answers(numbered())}, limits=Budget(task_calls=most))
    await opro(run, env, LanguagePolicy(), START, Config())
    steps = {value["operator"] for name, value in run.logged if name == "candidate"}  # type: ignore[index, call-overload]
    assert {"step 1", "step 2"} <= steps
    assert sum(name == "validated" for name, _ in run.logged) >= 2
    assert 0.6 * most < run.spent["task"] <= most


# The contest: an optimizer that compares scores wins by them, and by nothing else.

PLAIN = Prompt.parse(SOURCE.replace(" Be quick, and guess freely.", ""))
SEEDS, CALLS = range(4), Budget(task_calls=1500)


def climb(seed: int, change: Callable[[str], str] = str) -> KnownWorld:
    """Eight words help, five hinder. Optimizer and random search know the same phrases, with all of these; what the optimizer is
    asked is changed first."""
    words = {
        "words": "carefully,evidence,tone,negations,irony,precise,literally,facts",
        "harmful": "expert,step,explain,brief,likely",
    }
    model: Any = load("labels", {**words, "harm": "0.08", "base": "0.4", "seed": str(seed)})
    reader: Any = Blinded(ScoreReader("reader", {"seed": str(seed)}), change)
    env = review_world(model, train=80, validation=30)
    return KnownWorld(env, PLAIN, lambda p: model.accuracy(p.source), reader)


@cache
def reached(method: str, hidden: bool = False) -> list[float]:
    """What a method finds in the world of each seed; random search edits as often as the optimizer has rounds for."""
    settings = {"edits": 16} if method == "random_search" else None
    change = without_scores if hidden else str
    return [play_world(method, climb(seed, change), seed, CALLS, settings) for seed in SEEDS]


@pytest.mark.long
def test_an_optimizer_that_reads_the_scores_beats_random_search() -> None:
    won = paired_difference(reached("opro"), reached("random_search"))
    assert won.low > 0.1, won


def test_with_its_scores_hidden_it_loses_what_it_won() -> None:
    lost = paired_difference(reached("opro"), reached("opro", hidden=True))
    assert lost.low > 0.1, lost
    nothing = paired_difference(reached("opro", hidden=True), reached("random_search"))
    assert nothing.low < 0, nothing


@pytest.mark.parametrize("earns", [True, False])
async def test_a_request_speaks_of_wanted_answers_only_where_rows_have_targets(earns: bool) -> None:
    class OfNoTarget(ExactMatch):
        """A reward that needs no target, as tests that run or a judge."""

        async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
            return Reward(0.5 if earns else 0.0)

    env: Any = replace(review_world(Answers(lambda q, s: "nothing")), labels={})
    train, validation = ([replace(e, target=None) for e in part] for part in (env.train, env.validation))
    env = replace(env, train=tuple(train), validation=tuple(validation), reward=OfNoTarget())
    _, model, _ = await search(numbered(), env=env, steps=1, samples=1)
    (question,) = model.questions
    assert question.count("\nInput: ") == 3 and "Examples of inputs:\n" in question
    assert "wanted" not in question and "answers above" not in question
    assert ("earn nothing" in question) is not earns
