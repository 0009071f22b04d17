"""GEPA with ComBEE's groups: how failures are dealt, what becomes of the drafts, and that many do not overload a writer."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TopicModel, letters

from whet.environments.environment import Environment
from whet.methods.gepa import DRAFTS, Config, gepa
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.edits import PHRASES
from whet.search.minibatch import deal_twice
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_replies import request_text
from whet.testing.simulated_task import Answers
from whet.testing.simulators import Scripted, chance, luck
from whet.types import Message, Request

SORT = Prompt.parse("You sort letters.\n<!-- whet:begin -->\nSay yes or no.\n<!-- whet:end -->\n{{input}}")
ATTENTION = 2
"""Failures that the writer takes in in one call."""


@pytest.mark.parametrize(("n", "k"), [(4, 2), (9, 3), (10, 3), (16, 4), (25, 5), (7, 2)])
def test_each_row_is_dealt_to_two_different_groups(n: int, k: int) -> None:
    rows = letters(n)
    groups = deal_twice(random.Random(1), rows, k)
    assert len(groups) == k
    assert all(len({row.id for row in group}) == len(group) for group in groups)
    assert sorted(row.id for group in groups for row in group) == sorted(2 * [row.id for row in rows])
    assert max(map(len, groups)) - min(map(len, groups)) <= 2


class Hurried(Scripted):
    """Takes in the first failed inputs that it is shown, and adds the phrase of their topics; of drafts it keeps each line."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        text = question.split("<instructions>\n")[1].split("\n</instructions>")[0]
        if DRAFTS in question:
            drafts = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)
            lines = dict.fromkeys(line for draft in drafts for line in draft.splitlines())
            return f"<INSTRUCTION>{chr(10).join(lines)}</INSTRUCTION>"
        failed = re.findall(r"(?m)^Input: .*topic-(\d+)", question)
        seen = sorted(dict.fromkeys(failed), key=lambda topic: chance(self.seed, draw, topic))[:ATTENTION]
        added = [PHRASES[int(topic)] for topic in seen if PHRASES[int(topic)] not in text]
        return f"<INSTRUCTION>{chr(10).join([text, *added])}</INSTRUCTION>"


class Failing(TopicModel):
    """Eight of twelve topics fail until the prompt holds their phrase."""

    FAILING = 8


def hurried(seed: int) -> KnownWorld:
    """A writer of little attention, and many topics that fail."""
    model = Failing("topics", {"seed": str(seed)})
    env = Environment(model, ExactMatch(), letters(96), letters(24, 960))
    return KnownWorld(env, SORT, lambda p: model.accuracy(p.source), Hurried("hurried", {"seed": str(seed)}))


async def test_the_drafts_of_the_groups_become_one_text_in_one_more_call() -> None:
    known = hurried(0)
    model = Answers(lambda question, sample: known.optimizer.answer(_request(question), sample))  # type: ignore[union-attr]
    run = MeteredRun({"task": known.env.model, "optimizer": model})
    await gepa(run, known.env, LanguagePolicy(), SORT, Config(rounds=1, grouped=True))
    reflections = [q for q in model.questions if DRAFTS not in q]
    (reduction,) = [q for q in model.questions if DRAFTS in q]
    assert reduction.count("<INSTRUCTION>\n") >= 2
    shown = [row for q in reflections for row in re.findall(r"(?m)^Input: (Letter \d+)", q)]
    assert {shown.count(row) for row in shown} == {2}
    assert len(reflections) == int(len(set(shown)) ** 0.5)
    operators = [v["operator"] for name, v in run.logged if name == "candidate"]  # type: ignore[index, call-overload]
    assert operators == ["start", "drafts of groups as one"]


def _request(question: str) -> Request:
    return Request((Message("user", question),))


async def test_few_failures_are_reflected_on_as_always() -> None:
    known = hurried(0)
    rows = known.env.train[:3]
    env = Environment(known.env.model, ExactMatch(), rows, rows)
    run = MeteredRun({"task": env.model, "optimizer": known.optimizer})
    await gepa(run, env, LanguagePolicy(), SORT, Config(rounds=1, grouped=True))
    assert all(v["operator"] != "drafts of groups as one" for name, v in run.logged if name == "candidate")  # type: ignore[index, call-overload]


# The contest: one call that shows every failure overloads the writer; groups do not, in as many rounds.

SEEDS = range(8)
ONE_CALL = {"proposals": 1, "shown": 96}


@cache
def reached(**settings: Any) -> list[float]:
    """What two rounds of gepa find in the world of each seed."""
    return [play_world("gepa", hurried(seed), seed, Budget(), {"rounds": 2, **settings}) for seed in SEEDS]


def test_one_big_call_loses_to_groups() -> None:
    lost = won_over("one call that shows every failure", reached(grouped=True), reached(**ONE_CALL))
    assert lost.low > 0.1, lost


@pytest.mark.long
def test_over_the_default_no_benefit_is_shown() -> None:
    assert won_over("the default", reached(grouped=True), reached()).low < 0
