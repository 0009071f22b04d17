"""A race for the front: who leaves early, who joins, what is answered, and who has children."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rewards.text import ExactMatch
from whet.search import Candidate, Front
from whet.search.front import vectors_of
from whet.search.front_race import FrontRace
from whet.stats import Goal
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Usage

ITEMS = (
    Objective(Goal("accuracy", maximise=True, width=1.0), part=0),
    Objective(Goal("length", maximise=False), metric="output_tokens"),
)
ROWS = tuple(Example(f"r{i}", {"input": f"row {i}"}, "yes", text=f"row {i}") for i in range(40))


def race(left: int | None = None, drops: bool = True, keep: int = 4) -> tuple[FrontRace, MeteredRun]:
    """A prompt `7 40 name` is right on seven of ten rows and answers with 40 tokens."""

    def answer(question: str, sample: int) -> Completion:
        right, tokens, _, _, row = question.split()
        return Completion("yes" if int(row) % 10 < int(right) else "no", usage=Usage(10, int(tokens)))

    env = Environment(Answers(answer), Objectives([(1.0, ExactMatch())], items=ITEMS, own=True), ROWS, ())
    front = Front(ITEMS, tested=False)
    one = FrontRace(
        env, ROWS, 10, left, front=front, measure=lambda r: vectors_of(env, r), keep=keep, drops=drops
    )
    return one, MeteredRun({"task": env.model}, 0)


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt.parse(f"{text} {{{{input}}}}") for text in texts]


def names(one: FrontRace, ids: list[str]) -> list[str]:
    return sorted(one.front.members[name].prompt.text.rpartition(" ")[0] for name in ids)


async def test_the_first_incumbents_are_those_that_no_other_dominates() -> None:
    one, run = race()
    await one.open(run, prompts("9 80 a", "5 20 b", "5 30 c", "4 90 d"))
    assert names(one, one.incumbents) == ["5 20 b", "9 80 a"]
    assert names(one, one.others) == ["4 90 d", "5 30 c"] and run.spent["task"] == 4 * 10


async def test_a_challenger_leaves_as_soon_as_the_nearest_incumbent_dominates_it() -> None:
    for drops, cost in ((True, 10), (False, 40)):
        one, run = race(drops=drops)
        await one.open(run, prompts("9 80 a"))
        while len(one.answered[one.incumbents[0]]) < 4:
            await one.extend(run)
        spent = run.spent["task"]
        await one.challenge(run, prompts("8 90 worse"))
        assert run.spent["task"] - spent == cost
        assert names(one, one.incumbents) == ["9 80 a"] and names(one, one.others) == ["8 90 worse"]


async def test_who_joins_sends_away_whom_it_dominates() -> None:
    one, run = race()
    await one.open(run, prompts("7 60 a", "5 20 b"))
    await one.challenge(run, prompts("9 60 better", "7 59 shorter"))
    assert names(one, one.incumbents) == ["5 20 b", "7 59 shorter", "9 60 better"]
    assert names(one, one.others) == ["7 60 a"]


async def test_nobody_answers_a_row_twice_and_incumbents_answer_more_blocks() -> None:
    one, run = race()
    await one.open(run, prompts("9 80 a", "5 20 b"))
    for number in range(8):
        await one.challenge(run, prompts(f"1 99 bad{number}"))
    assert max(Counter(one.env.model.questions).values()) == 1  # type: ignore[attr-defined]
    assert [len(one.answered[name]) for name in one.incumbents] == [4, 4]
    assert len(one.incumbents) + len(one.others) == 4


@pytest.mark.parametrize("left", [0, 7, 20, 33, 50])
async def test_what_is_left_bounds_a_race(left: int) -> None:
    one, run = race(left)
    await one.open(run, prompts("9 80 a", "5 20 b"))
    while one.incumbents and one.affords(1):
        await one.challenge(run, prompts(f"7 50 c{run.spent['task']}"))
        assert all(one.answered[name] for name in one.incumbents)
    assert run.spent["task"] <= left and bool(one.incumbents) == (left >= 20)


async def test_incumbents_are_parents_before_others_and_two_parents_differ() -> None:
    one, run = race()
    await one.open(run, prompts("9 80 a", "5 20 b", "5 30 c", "4 90 d"))
    drawn = [one.parents(run.rng) for _ in range(300)]
    assert all(first != second for first, second in drawn)
    times = Counter(name for pair in drawn for name in pair)
    assert min(times[name] for name in one.incumbents) > max(times[name] for name in one.others) > 0


async def test_the_only_prompt_is_both_parents() -> None:
    one, run = race()
    await one.open(run, prompts("9 80 a"))
    assert one.parents(random.Random(0)) == (one.incumbents[0],) * 2


def test_the_spread_is_infinite_at_the_ends_and_larger_where_neighbours_are_far() -> None:
    front = Front(ITEMS, tested=False)
    made = {name: Candidate(Prompt.parse(f"{name} {{{{input}}}}")) for name in "abcd"}
    for name, accuracy, length in (("a", 0.1, 10.0), ("b", 0.2, 12.0), ("c", 0.3, 14.0), ("d", 0.9, 90.0)):
        front.add(made[name], {"r": {"accuracy": accuracy, "length": length}})
    spread = front.spread([candidate.id for candidate in made.values()])
    values = {name: spread[made[name].id] for name in "abcd"}
    assert values["a"] == values["d"] == float("inf") and values["b"] < values["c"] < 2.0
    others = [made[name].id for name in "acd"]
    assert front.nearest(made["b"].id, others) in (made["a"].id, made["c"].id)
    assert front.nearest(made["d"].id, others[:2]) == made["c"].id
