"""RPO: comments after each turn, replay of earlier comments, and a gate; and that comments on early turns matter."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.desk_world import START, desk
from tests.methods.figures import won_over

import whet
from whet.methods.rpo import BEFORE, EARLIER, Config, TalkedPrompt, entries_to_replay, rpo
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun

CONFORMANCE = {"epochs": 3, "conversations": 8, "shown": 2, "gate": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"epochs": 2, "conversations": 2, "shown": 1, "gate": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(**settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    known = desk(0)
    model: Any = known.optimizer
    run = MeteredRun({"task": known.env.model, "optimizer": model}, 1)
    best = await rpo(run, known.env, LanguagePolicy(), START, Config(**settings))
    return best, model.questions, run


async def test_each_turn_is_commented_on_without_what_came_after_it() -> None:
    _, questions, _ = await search(epochs=1, shown=2)
    *comments, rewrite = questions
    assert [question.count("Answered: ") for question in comments] == [2, 4, 6, 8]
    assert not any("Reward: " in question for question in comments)
    assert BEFORE not in comments[0] and all(BEFORE in question for question in comments[1:])
    assert rewrite.count("Reward: ") == 2 and rewrite.count("After turn ") == 4


async def test_one_comment_after_the_conversation_or_none() -> None:
    _, questions, _ = await search(epochs=1, shown=2, feedback="mc")
    comment, rewrite = questions
    assert "<COMMENT>" in comment and comment.count("Reward: ") == 2 and "<INSTRUCTION>" in rewrite
    _, questions, _ = await search(epochs=1, feedback="none")
    assert len(questions) == 1 and "<COMMENT>" not in questions[0]


async def test_earlier_prompts_are_replayed_with_their_comments() -> None:
    _, questions, _ = await search(epochs=3)
    rewrites = [question for question in questions if "<COMMENT>" not in question]
    assert [EARLIER in question for question in rewrites] == [False, True, True]
    assert len(re.findall(r"Mean reward", rewrites[2])) == 2
    _, questions, _ = await search(epochs=3, replay=0)
    assert not any(EARLIER in question for question in questions)


def test_the_best_the_latest_and_one_at_random_are_replayed() -> None:
    buffer = [
        TalkedPrompt(f"text {n}", reward, f"comment {n}")
        for n, reward in enumerate((0.1, 0.9, 0.2, 0.3, 0.4))
    ]
    entries = entries_to_replay(MeteredRun(), buffer, 3)[1:]
    assert len(entries) == 3 and "text 1" in entries[0] + entries[1] and "text 4" in entries[-1]
    assert entries_to_replay(MeteredRun(), buffer, 0) == entries_to_replay(MeteredRun(), [], 3) == []


async def test_a_rewrite_that_earns_less_is_not_taken() -> None:
    known = desk(0)
    worse = "<INSTRUCTION>Say nothing.</INSTRUCTION>"

    class Worse:
        def __init__(self) -> None:
            self.questions: list[str] = []

        async def generate(self, request: Any) -> Any:
            from whet.types import Completion

            question = request.messages[-1].content
            self.questions.append(question)
            return [Completion("<COMMENT>It is bad.</COMMENT>" if "<COMMENT>" in question else worse)]

    started = START.edit("Ask for the colour. Ask for the size.")
    run = MeteredRun({"task": known.env.model, "optimizer": Worse()}, 1)  # type: ignore[dict-item]
    best = await rpo(run, known.env, LanguagePolicy(), started, Config(epochs=2))
    assert best.prompt == started


def test_through_the_public_face(tmp_path: Path) -> None:
    """A conversation of a task folder with a scripted user."""
    rows = [
        {"input": f"Hello {n}.", "replies": [f"Number {n}."], "target": f"Number {n}"}
        for n in range(100, 160)
    ]
    task = whet.Task.of(
        "Help.", data=rows, reward="contains", environment={"script": "replies", "turns": 2, "answer": "last"}
    )

    def clerk(messages: Any) -> str:
        repeats = "Repeat the number" in messages[0]["content"]
        return str(messages[-1]["content"]) if repeats and len(messages) > 2 else "Which number?"

    def writer(messages: Any) -> str:
        if "<COMMENT>" in messages[-1]["content"]:
            return "<COMMENT>The number was not repeated.</COMMENT>"
        return "<INSTRUCTION>Repeat the number.</INSTRUCTION>"

    result = whet.optimize(
        task, lm=clerk, optimizer_lm=writer, method=Config(epochs=1), run=tmp_path / "r", progress=False
    )
    assert result.promoted and result.best.prompt.text.strip() == "Repeat the number."


# The contests: comments after each turn against others, with equal task and optimizer calls.

SEEDS, LIMITS = range(100, 120), Budget(task_calls=3000, optimizer_calls=40)


@cache
def reached(late: bool = False, **settings: Any) -> list[float]:
    """What the method finds in the world of each seed."""
    return [play_world("rpo", desk(s, late), s, LIMITS, {"epochs": 8, **settings}) for s in SEEDS]


@pytest.mark.long
def test_comments_on_each_turn_win_where_early_turns_decide() -> None:
    assert won_over("one comment after the conversation", reached(), reached(feedback="mc")).low > 0
    assert won_over("no comment", reached(), reached(feedback="none")).low > 0


@pytest.mark.long
def test_they_win_nothing_where_the_last_turn_decides() -> None:
    assert won_over("one comment, late", reached(late=True), reached(late=True, feedback="mc")).low <= 0


@pytest.mark.long
def test_of_replay_no_benefit_is_shown() -> None:
    assert won_over("without replay", reached(), reached(replay=0)).low <= 0


@pytest.mark.long
def test_it_beats_random_search() -> None:
    other = [play_world("random_search", desk(s), s, LIMITS) for s in SEEDS]
    assert won_over("random search", reached(), other).low > 0
