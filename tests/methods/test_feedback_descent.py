"""Feedback Descent: both orders, what becomes of reasons after a win, and that the reasons are what wins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import SHOWN, Blinded, letters
from tests.methods.rule_worlds import HARMFUL, SORT, PoisonModel, failed_topics

import whet
from whet.environments.environment import Environment
from whet.methods.feedback_descent import BEATEN, NO_REASON, Config, feedback_descent, within
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, request_text, shuffle
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, ConstantReward, review_world
from whet.types import Request

CONFORMANCE = {"rounds": 3, "questions": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "questions": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

ANSWER = re.compile(r"Answer of system (\d) to input (\d+), between the two markers:\n\[\[\w+\]\]\n(\w+)")
INPUT = re.compile(r"Input (\d+), between the two markers:\n\[\[\w+\]\]\n.*topic-(\d+)")
NAMED = re.compile(r"Nothing helps with topic-(\d+)\.")


class Reasoner(Scripted):
    """As a judge it prefers the system that is unsure of fewer inputs, and names the topic of one of which the better one is
    unsure. As a writer it reads which topics failed or were named, and knows for each a phrase: with the probability `right` the
    one that helps, else a harmful one. The topics named last, or those that failed most, come first. It takes no phrase that it
    sees in a text already. Where nothing is said it takes in any phrase."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"right": "0.5", "likes": "", "most": "1"}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        return self.judge(question, draw) if ANSWER.search(question) else self.write(question, draw)

    def judge(self, question: str, draw: str) -> str:
        unsure: dict[str, list[str]] = {"1": [], "2": []}
        for system, number, answer in ANSWER.findall(question):
            unsure[system] += [number] if answer == "unsure" else []
        ahead = len(unsure["2"]) - len(unsure["1"])
        better = "1" if ahead > 0 or (ahead == 0 and chance(self.seed, draw) < 0.5) else "2"
        better = self.options["likes"] or better
        topics = dict(INPUT.findall(question))
        topic = choose_by_luck([topics[number] for number in unsure[better]] or [""], self.seed, draw)
        return (
            f"<VERDICT>{better}\n{f'Nothing helps with topic-{topic}.' if topic else 'Well done.'}</VERDICT>"
        )

    def write(self, question: str, draw: str) -> str:
        texts = SHOWN.findall(question)
        topics = [*map(int, NAMED.findall(question)[::-1]), *failed_topics(question)]
        knows = [
            PHRASES[t]
            if chance(self.seed, draw, t) < self.option_float("right")
            else choose_by_luck(HARMFUL, draw, t)
            for t in dict.fromkeys(topics)
            if PHRASES[t] not in texts[0]
        ]
        new = [phrase for phrase in knows if not any(phrase in text for text in texts)]
        left = [phrase for phrase in PHRASES if phrase not in texts[0]]
        chosen = (new or shuffle(left, self.seed, draw))[: self.option_int("most")]
        return f"<INSTRUCTION>{' '.join([texts[0], *chosen])}</INSTRUCTION>"


def world(seed: int, change: Callable[[str], str] = str, **options: str) -> KnownWorld:
    """Letters about twelve topics, of which six fail until the prompt holds their phrase; half of the phrases harm."""
    model = PoisonModel("topics", {"seed": str(seed)})
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    writer: Any = Blinded(Reasoner("reasoner", {"seed": str(seed), **options}), change)
    return KnownWorld(env, SORT, lambda p: model.accuracy(p.source), writer)


async def search(known: KnownWorld, **settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    questions: list[str] = []
    inner: Any = known.optimizer
    asked: Any = Blinded(inner.inner, lambda text: questions.append(text) or inner.change(text))  # type: ignore[func-returns-value]
    run = MeteredRun({"task": known.env.model, "optimizer": asked}, 1)
    best = await feedback_descent(run, known.env, LanguagePolicy(), known.start, Config(**settings))
    return best, questions, run


def duels(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "duel"]


@pytest.mark.parametrize("evaluator", ["reward", "judge"])
@pytest.mark.parametrize("after_win", ["reset", "keep"])
async def test_challengers_that_lost_are_shown_with_their_reasons_until_one_wins(
    evaluator: str, after_win: str
) -> None:
    _, questions, run = await search(world(3), rounds=12, evaluator=evaluator, after_win=after_win, shown=99)
    proposals = [q for q in questions if "<VERDICT>" not in q]
    outcomes = {duel["round"]: duel["won"] for duel in duels(run)}
    assert len(proposals) == 12 and {0.0, 1.0} <= set(outcomes.values())
    lost = 0
    for number, question in enumerate(proposals, 1):
        won = outcomes.get(number)
        assert len(SHOWN.findall(question)) == 1 + lost
        assert (BEATEN in question) == (lost > 0)
        lost = 0 if won == 1.0 and after_win == "reset" else lost + (won == 0.0)


async def test_the_latest_challengers_are_shown_and_none_where_none_is_wanted() -> None:
    for shown in (2, 0):
        _, questions, _ = await search(world(3), rounds=12, shown=shown, after_win="keep")
        assert max(len(SHOWN.findall(question)) for question in questions) == 1 + shown


async def test_the_reason_of_a_reward_is_the_worst_answers_and_a_champion_has_its_own() -> None:
    _, questions, run = await search(world(3), rounds=12)
    for question, before in zip(questions[1:], duels(run), strict=False):
        assert before["reason"].count("Reward: ") <= 4
        assert (before["reason"] or NO_REASON) in question


async def test_both_answer_the_same_rows_and_none_is_answered_twice() -> None:
    asked: list[str] = []
    known = world(0)
    model: Any = Blinded(known.env.model, lambda text: asked.append(text) or text)  # type: ignore[arg-type, func-returns-value]
    _, questions, _ = await search(
        replace(known, env=replace(known.env, model=model)), rounds=6, evaluator="judge"
    )
    judged = [question for question in questions if "<VERDICT>" in question]
    assert judged and len(asked) == len(set(asked)) > 48
    for question in judged:
        assert [system for system, _, _ in ANSWER.findall(question)] == ["1", "2"] * 8


async def test_the_judge_sees_no_prompt_no_reward_and_not_who_is_in_place() -> None:
    _, questions, run = await search(world(0), rounds=8, evaluator="judge")
    judged = [question for question in questions if "<VERDICT>" in question]
    assert {duel["won"] for duel in duels(run)} & {1.0}
    for question in judged:
        assert not any(phrase in question for phrase in PHRASES)
        assert "Reward" not in question and "Wanted" not in question
        assert "champion" not in question and "challenger" not in question


@pytest.mark.parametrize("place", ["1", "2"])
async def test_a_round_is_skipped_where_the_verdicts_differ_by_the_order(place: str) -> None:
    """Nothing is kept of it: no reason, and no other champion."""
    best, questions, run = await search(world(0, likes=place), rounds=6, evaluator="judge")
    assert best.prompt == SORT
    assert {duel["won"] for duel in duels(run)} == {0.5} and {duel["reason"] for duel in duels(run)} == {""}
    assert not any(BEATEN in question for question in questions)


@pytest.mark.parametrize("reply", ["Both", "1 or 2\nBetter.", "", "3\nShorter.", "\n"])
async def test_a_verdict_that_names_neither_decides_nothing(
    reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reasoner, "judge", lambda self, question, draw: f"<VERDICT>{reply}</VERDICT>")
    best, _, run = await search(world(0), rounds=3, evaluator="judge")
    assert best.prompt == SORT and {duel["won"] for duel in duels(run)} == {0.5}


async def test_a_judge_is_shown_first_what_the_two_answer_differently() -> None:
    limits = Budget(task_calls=1500, optimizer_calls=60)
    known = world(0)
    asked: list[str] = []
    writer: Any = known.optimizer
    spied: Any = Blinded(writer.inner, lambda text: asked.append(text) or text)  # type: ignore[func-returns-value]
    run = MeteredRun({"task": known.env.model, "optimizer": spied}, 1, limits=limits)
    config = Config(evaluator="judge", questions=4)
    await feedback_descent(run, known.env, LanguagePolicy(), SORT, config)
    for question in [question for question in asked if "<VERDICT>" in question]:
        answers = [answer for _, _, answer in ANSWER.findall(question)]
        same = [one == other for one, other in zip(answers[::2], answers[1::2], strict=True)]
        assert len(same) == 4 and same == sorted(same) and not same[0]


async def test_requirements_are_told_to_writer_and_judge() -> None:
    words = "Answers must rhyme."
    _, questions, _ = await search(world(0), rounds=2, evaluator="judge", requirements=words)
    assert questions and all(words in question for question in questions)


@pytest.mark.parametrize("value", [0.0, 0.5])
async def test_flat_rewards_keep_the_start(value: float) -> None:
    known = world(0)
    known = replace(known, env=replace(known.env, reward=ConstantReward(value)))
    best, _, run = await search(known, rounds=4)
    assert best.prompt == SORT and {duel["won"] for duel in duels(run)} == {0.0}


@pytest.mark.parametrize(
    ("evaluator", "rollouts", "asks", "sizes"),
    [
        ("reward", None, None, (30, 8)),
        ("reward", 160, 100, (10, 8)),
        ("reward", 400, 10, (10, 20)),
        ("judge", 400, 30, (10, 20)),
        ("reward", 7, None, (0, 8)),
    ],
)
def test_rounds_are_what_a_limit_pays_for_and_more_rows_use_the_rest(
    evaluator: Any, rollouts: int | None, asks: int | None, sizes: tuple[int, int]
) -> None:
    plan = SearchPlan(world(0).env, rollouts, asks, 3, 1)
    assert within(Config(evaluator=evaluator), plan) == sizes


@pytest.mark.parametrize("evaluator", ["reward", "judge"])
@pytest.mark.parametrize("most", [150, 300])
def test_a_small_limit_is_kept_and_used(most: int, evaluator: str) -> None:
    known, limits = world(1), Budget(task_calls=most, optimizer_calls=20)
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1, limits=limits)
    config: Any = Config(evaluator=evaluator)  # type: ignore[arg-type]
    asyncio.run(feedback_descent(run, known.env, LanguagePolicy(), SORT, config))
    assert run.spent["task"] <= most and 4 <= run.spent["optimizer"] <= 20
    assert run.spent["task"] > 0.4 * most


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.feedback_descent.Config(rounds=12),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: the same writer, where reasons are those of other topics, or are left out.

LIMITS = {
    "large": Budget(task_calls=1500, optimizer_calls=90),
    "small": Budget(task_calls=300, optimizer_calls=20),
}
TOPIC = re.compile(r"topic-\d+")


def with_other_topics(question: str) -> str:
    """A question to the writer in which every reason is about another topic."""
    if "<VERDICT>" in question:
        return question
    return TOPIC.sub(lambda m: f"topic-{int(chance(question, m.start()) * 12)}", question)


def without_reasons(question: str) -> str:
    """A question to the writer in which no reason stands."""
    return question if "<VERDICT>" in question else TOPIC.sub("some topic", question)


def without_challengers(question: str) -> str:
    """A question to the writer in which reasons stand, but the texts that lost do not."""
    head, beaten, rest = question.partition(BEATEN)
    return head + beaten + SHOWN.sub("", rest) if "<VERDICT>" not in question else question


CHANGES: dict[str, Callable[[str], str]] = {
    "": str,
    "shuffled": with_other_topics,
    "empty": without_reasons,
    "hidden": without_challengers,
}


@cache
def reached(
    limits: str, method: str = "feedback_descent", change: str = "", seeds: int = 12, **settings: Any
) -> list[float]:
    """What a method finds in the world of each seed."""
    return [
        play_world(method, world(seed, CHANGES[change]), seed, LIMITS[limits], settings)
        for seed in range(seeds)
    ]


def test_with_reasons_of_other_topics_it_loses() -> None:
    own, shuffled = (reached("large", change=change, evaluator="judge") for change in ("", "shuffled"))
    won = won_over("judge, reasons shuffled", own, shuffled)
    assert won.low > 0, won


@pytest.mark.long
@pytest.mark.parametrize("evaluator", ["reward", "judge"])
def test_without_its_reasons_it_loses_and_random_search_does_too(evaluator: str) -> None:
    for limits in LIMITS:
        own = reached(limits, evaluator=evaluator, seeds=30)
        for change in ("shuffled", "empty", "hidden"):
            won = won_over(
                f"{evaluator}, {limits}, {change}",
                own,
                reached(limits, change=change, evaluator=evaluator, seeds=30),
            )
            assert won.low > 0 or limits == "small", won
        won_over(
            f"{evaluator}, {limits}, keep",
            own,
            reached(limits, evaluator=evaluator, after_win="keep", seeds=30),
        )
        won = won_over(
            f"{evaluator}, {limits}, random search", own, reached(limits, "random_search", seeds=30)
        )
        assert won.low > 0 or limits == "small", won
