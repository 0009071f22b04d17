"""The population of E-SPL: ratings of children, eviction, what a resume finds, and what the mutating model is asked."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

pytest.importorskip("trueskill", reason="ratings need trueskill: pip install 'whet[train]'")

from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.methods.espl import OPERATIONS, Pool, crossover_question, mutation_question
from whet.prompt import Prompt
from whet.rl.principles import PrincipleList
from whet.run import MemoryRun
from whet.search.archive import Archive, Candidate
from whet.types import Example, Rollout

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")


def pool(most: int = 9) -> tuple[Pool, Any]:
    learner: Any = Scribe(lambda conversation: ["a"])
    return Pool(learner, START, most), learner


def test_it_begins_with_an_empty_list_and_children_inherit_ratings() -> None:
    members, _ = pool()
    (first,) = members.members
    assert first == PrincipleList() and members.prompt(first) == START
    members.add_mutation(first, ["a"], 3)
    members.add_crossover(members.members, ["a", "b"], 4)
    members.add_mutation(first, ["a"], 5)  # says nothing new
    _, child, cross = members.members
    assert (child.mu, child.sigma) == pytest.approx((25.0, math.hypot(25 / 3, 1)))
    precisions = 1 / (25 / 3) ** 2 + 1 / ((25 / 3) ** 2 + 1)
    assert (cross.mu, cross.sigma) == pytest.approx((25.0, math.sqrt(1 / precisions + 1)))
    assert (child.born, child.parents, cross.parents, cross.key) == (3, (0,), (0, 1), 2)
    assert members.prompt(cross).region_text() == (
        "so\nFirst read the instructions and principles below.\nG0: a\nG1: b\n"
    )


def test_the_best_rated_outlives_the_newer() -> None:
    members, _ = pool(most=3)
    members.replace([PrincipleList(mu=40.0, sigma=1.0)])
    for i in range(5):
        members.add_mutation(PrincipleList(mu=10.0, sigma=1.0, key=7), [f"p{i}"], i)
    assert [p.key for p in members.members] == [0, 4, 5] and members.best.key == 0


def test_ratings_are_replaced_by_key() -> None:
    members, _ = pool()
    members.add_mutation(PrincipleList(), ["a"], 0)
    members.replace([PrincipleList(("a",), 30.0, 2.0, key=1), PrincipleList(("gone",), key=8)])
    assert [(p.key, p.mu) for p in members.members] == [(0, 25.0), (1, 30.0)]


async def test_what_was_validated_is_found_after_a_resume() -> None:
    made = small(lambda request: "yes" if "G0: good" in request.messages[0].content else "no", 8)
    run = MemoryRun({"task": made.model})
    members, learner = pool()
    archive = Archive()
    await archive.validate(run, made.env, [Candidate(START)])
    members.add_mutation(PrincipleList(mu=60.0, sigma=1.0), ["good"], 0)
    await members.validate(run, archive, made.env, members.key("d" * 64))
    learner.notes = json.loads(json.dumps(learner.notes))
    again = Archive()
    again.validated, again.incumbent = {START.id: 0.0}, Candidate(START)
    found = members.recall(again)
    assert found == archive.incumbent and found.system == "d" * 64 and again.validated == archive.validated
    assert archive.validated[found.id] == 1.0


async def test_the_program_that_is_almost_surely_best_is_validated_and_not_the_newest() -> None:
    made = small(lambda request: "yes" if "G0: good" in request.messages[0].content else "no", 8)
    members, _ = pool()
    members.add_mutation(PrincipleList(mu=30.0, sigma=1.0), ["good"], 0)
    members.add_mutation(PrincipleList(mu=31.0, sigma=8.0), ["new"], 1)
    archive = Archive()
    run = MemoryRun({"task": made.model})
    await members.validate(run, archive, made.env, members.key("d" * 64))
    assert archive.incumbent is not None and "G0: good" in archive.incumbent.prompt.region_text()


# questions

PROBLEMS = [Example(f"e{i}", {"input": f"problem {i}"}, f"target {i}", {}, f"problem {i}") for i in range(4)]


def group(number: int, *rewards: float) -> list[Rollout]:
    return [Rollout("p", f"e{number}", f"answer {number}.{i}", r) for i, r in enumerate(rewards)]


def test_a_mutation_contrasts_right_answers_with_wrong_ones_to_the_same_problem() -> None:
    groups = [group(0, 1, 0, 1, 1), group(1, 0, 0), group(2, 0, 0.5, 0.2, 0.1), group(3, 1, 1)]
    asked = mutation_question(PrincipleList(("a",)), groups, PROBLEMS, 1.0)
    blocks = [b.strip().splitlines() for b in asked.removesuffix(OPERATIONS).split("Input: ")[1:]]
    assert blocks == [
        [
            "problem 0",
            "Expected: target 0",
            "Good answer: answer 0.3",
            "Good answer: answer 0.2",
            "Bad answer: answer 0.1",
        ],
        [
            "problem 2",
            "Expected: target 2",
            "Good answer: answer 2.1",
            "Bad answer: answer 2.0",
            "Bad answer: answer 2.3",
        ],
    ], "mixed outcomes alone; without a full reward the best counts"
    assert asked.startswith("Principles:\nG0: a\n") and asked.endswith(OPERATIONS)


def test_a_model_that_knows_the_request_is_shown_each_problem_with_its_own_wrong_answer() -> None:
    groups = [group(0, 1, 0), group(1, 0, 0), group(2, 0, 1), group(3, 1, 1)]
    asked = mutation_question(PrincipleList(("a",)), groups, PROBLEMS, 1.0, contrast=False)
    blocks = asked.split("Input: ")[1:]
    assert [b.splitlines()[:3] for b in blocks] == [
        ["problem 0", "Answer: answer 0.1", "Expected: target 0"],
        ["problem 2", "Answer: answer 2.0", "Expected: target 2"],
    ], "mixed outcomes alone, each with its own wrong answer"


def test_problems_that_always_fail_stand_in_and_without_a_mistake_nothing_is_asked() -> None:
    failed = mutation_question(PrincipleList(), [group(0, 0, 0), group(1, 1, 1)], PROBLEMS[:2], 1.0)
    assert "Bad answer: answer 0." in failed and "Good answer" not in failed
    assert "problem 0" in failed and "problem 1" not in failed and "Principles:\n-\n" in failed
    assert mutation_question(PrincipleList(), [group(0, 1, 1)], PROBLEMS[:1], 1.0) == ""


def test_a_crossover_shows_the_winners_with_what_they_alone_won() -> None:
    programs = [PrincipleList(("a",), key=0), PrincipleList(("b", "c"), key=1), PrincipleList(("d",), key=2)]
    played = [
        [group(0, 1, 1), group(1, 0, 0), group(2, 1, 1), group(3, 0, 0)],  # wins 0
        [group(0, 0, 0), group(1, 1, 0), group(2, 1, 1), group(3, 0, 0)],  # wins 1
        [group(0, 0, 0), group(1, 0, 0), group(2, 1, 1), group(3, 0, 0)],  # wins nothing alone
    ]
    asked, winners = crossover_question(programs, 0, played, PROBLEMS)
    assert winners == [0, 1], "the third program won nothing, so its rating is not fused"
    assert "Other principles B:\nB.G0: b\nB.G1: c\nThese did best on:\nproblem 1" in asked
    assert "G0: d" not in asked and "problem 2" not in asked and "problem 0" not in asked
    nobody = crossover_question(programs, 1, [played[2], played[1], played[2]], PROBLEMS)
    assert nobody == ("", []), "no other winner"
    assert crossover_question(programs, 2, played, PROBLEMS) == ("", []), "the best won no problem alone"


def test_who_won_a_problem_does_not_depend_on_the_range_of_rewards() -> None:
    programs = [PrincipleList(("a",), key=0), PrincipleList(("b",), key=1)]
    played = [[group(0, 0.004, 0.004), group(1, 0, 0)], [group(0, 0, 0), group(1, 0.004, 0.004)]]
    assert crossover_question(programs, 0, played, PROBLEMS[:2])[1] == [], "draws on a scale to 1"
    assert crossover_question(programs, 0, played, PROBLEMS[:2], span=0.01)[1] == [0, 1]
