"""PromptAgent: what critic and writer are shown, what small budgets buy, and that building on what was found wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TOPICS, Blinded, TopicModel, letters, with_other_inputs

from whet.environments.environment import Environment
from whet.methods.promptagent import Config, promptagent
from whet.models.scripted import Scripted, chance, luck
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world
from whet.types import Request

CONFORMANCE = {"iterations": 2, "width": 2, "depth": 2, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "width": 2, "depth": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def numbered(question: str, sample: int) -> str:
    """A critic and a writer of texts that differ."""
    return f"<FEEDBACK>Too vague, says {sample}.</FEEDBACK><INSTRUCTION>Text {sample}: mind the tone.</INSTRUCTION>"


async def search(env: Any = None, **settings: Any) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(numbered)
    run = MeteredRun({"task": env.model, "optimizer": model})
    return await promptagent(run, env, LanguagePolicy(), START, Config(**settings)), model, run


async def test_the_critic_sees_errors_and_the_writer_what_was_said_and_the_way_from_the_start() -> None:
    _, model, _ = await search(iterations=1, width=1, depth=3, batch=4)
    critics, writers = model.questions[::2], model.questions[1::2]
    assert all(question.count("\nReward: 0") == 4 for question in critics)
    assert all("Too vague, says" in question for question in writers)
    assert [question.count("<INSTRUCTION>\n") for question in writers] == [1, 2, 3]
    assert "Text 0" in writers[1].split("oldest first")[0]
    assert "Say what the review is like" in writers[1].split("oldest first")[1]


async def test_a_batch_without_errors_leads_to_praise() -> None:
    _, model, _ = await search(
        replace(review_world(), reward=ConstantReward(1.0)), iterations=1, width=1, depth=1
    )
    assert "answered these inputs well" in model.questions[0]
    assert "makes these answers good" in model.questions[0]


async def test_no_prompt_answers_a_training_row_twice() -> None:
    env = review_world(train=20, validation=10)
    _, _, run = await search(env, iterations=2, width=2, depth=2, examples=20)
    scored = {value["id"] for name, value in run.logged if name == "candidate"}  # type: ignore[index, call-overload]
    validated = sum(name == "validated" for name, _ in run.logged)
    assert run.spent["task"] == 20 * len(scored) + 10 * validated


async def test_no_request_repeats_another_ones_number() -> None:
    _, model, _ = await search(iterations=2, width=3, depth=3)
    for questions in (model.requests[::2], model.requests[1::2]):
        assert len({(request.messages, request.sample) for request in questions}) == len(questions)


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_a_tree_that_is_deeper_than_one_level(most: int) -> None:
    env = review_world(train=40, validation=20)
    limits = Budget(task_calls=most, optimizer_calls=16)
    run = MeteredRun({"task": env.model, "optimizer": Answers(numbered)}, limits=limits)
    await promptagent(run, env, LanguagePolicy(), START, Config())
    levels = {value["operator"] for name, value in run.logged if name == "candidate"}  # type: ignore[index, call-overload]
    assert {"level 1", "level 2"} <= levels
    assert sum(name == "validated" for name, _ in run.logged) >= 2
    assert run.spent["task"] <= most
    assert 10 <= run.spent["optimizer"] <= 16


# The contest: a tree builds on what it found; where it may not, or its critic reads other rows, it loses what it won.

SORT = Prompt.parse("You sort letters.\n<!-- whet:begin -->\nSay yes or no.\n<!-- whet:end -->\n{{input}}")
SEEDS, CALLS = range(10), Budget(task_calls=600)
Change = Callable[[str], str]
OF_ANY_ROW = with_other_inputs(lambda line: int(chance(line, "other") * TOPICS))


class FeedbackReader(Scripted):
    """Names the topic of most inputs that it is shown, and edits in the phrase of the topic that was named: each has one."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        if "<FEEDBACK>" in question:
            topics = re.findall(r"(?m)^Input: .*topic-(\d+)", question) or ["0"]
            most = max(sorted(set(topics)), key=lambda t: (topics.count(t), chance(self.seed, draw, t)))
            return f"<FEEDBACK>It says nothing about topic-{most}.</FEEDBACK>"
        text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
        named = re.findall(r"nothing about topic-(\d+)", question)
        return f"<INSTRUCTION>{text} {PHRASES[int(named[0])]}</INSTRUCTION>"


def topics(seed: int, change: Change) -> KnownWorld:
    """Four of twelve topics fail until the prompt holds their phrase; of 24 phrases, which random search knows as well."""
    model = TopicModel("topics", {"seed": str(seed)})
    reader: Any = Blinded(FeedbackReader("reader", {"seed": str(seed)}), change)
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    return KnownWorld(env, SORT, lambda p: model.accuracy(p.source), reader)


@cache
def reached(method: str, change: Change = str, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, topics(seed, change), seed, CALLS, settings) for seed in SEEDS]


def test_a_tree_beats_random_search() -> None:
    won = won_over("random_search", reached("promptagent"), reached("random_search", edits=16))
    assert won.low > 0.03, won


@pytest.mark.long
def test_a_flat_tree_loses_what_the_tree_won() -> None:
    lost = won_over("with a flat tree", reached("promptagent"), reached("promptagent", tree=False))
    assert lost.low > 0.03, lost


@pytest.mark.long
def test_with_errors_of_other_rows_it_loses_what_it_won() -> None:
    lost = won_over("with errors of other rows", reached("promptagent"), reached("promptagent", OF_ANY_ROW))
    assert lost.low > 0, lost


@pytest.mark.long
@pytest.mark.parametrize("c", [0.0, 2.5])
def test_exploration_makes_no_difference_where_a_few_topics_fail(c: float) -> None:
    assert won_over(f"with c={c}", reached("promptagent"), reached("promptagent", c=c)).low <= 0
