"""Which targets are a closed set of right answers: where fresh rows hardly ever want another one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from whet.instructions.critiques import collect_critiques
from whet.instructions.guard import secrets
from whet.instructions.questions import plain_question, question
from whet.prompt import Prompt
from whet.search.from_zero import DEMONSTRATED, LISTED, proposals
from whet.search.labels import CONFUSIONS, RightAnswers, count_confusions, find_answers, right_answers
from whet.testing.simulated_task import review_world
from whet.types import Example, Rollout

SENTIMENTS = "negative", "neutral", "positive"
MONTHS = ["April", "May", "June", "July", "August", "March"]


def closed(targets: list[str]) -> list[str]:
    return find_answers(targets).complete


@pytest.mark.parametrize("rows", [2, 3, 10])
def test_a_closed_set_stays_closed_with_few_rows_for_each_answer(rows: int) -> None:
    assert closed(list(MONTHS) * rows) == sorted(MONTHS)
    assert closed([*SENTIMENTS[:2]] * max(3, rows)) == [*SENTIMENTS[:2]]


def test_one_rare_answer_of_a_closed_set_does_not_open_it() -> None:
    assert closed([*SENTIMENTS[:2]] * 9 + ["positive"]) == [*SENTIMENTS]


def test_answers_that_each_row_has_for_itself_are_an_open_set() -> None:
    assert find_answers([f"word{n}" for n in "abcdefghijklmnopqrstuvwx"]) == RightAnswers()
    assert closed(["hot", "cold", "hot"]) == [], "three rows say too little"
    assert closed([]) == closed(["hot"] * 9) == closed(["x" * 50, "y" * 50] * 9) == []


def test_a_set_with_frequent_and_single_answers_is_open_and_its_frequent_ones_are_examples() -> None:
    """By the average of rows for each answer, this was a closed set."""
    mixed = ["none"] * 16 + ["some"] * 6 + [f"plural{letter}" for letter in "abcdefgh"]
    assert find_answers(mixed) == RightAnswers(("none", "some"))


def test_the_estimate_is_near_how_many_fresh_rows_want_an_answer_that_no_row_had() -> None:
    """Of draws from a skewed distribution over 200 answers, none is taken for a closed set, and of one over four all are."""
    rng = random.Random(0)
    weights = [1 / (rank + 1) for rank in range(200)]
    for _ in range(50):
        drawn = rng.choices([f"answer {n}" for n in "".join(map(chr, range(300, 500)))], weights, k=40)
        assert not find_answers(drawn).closed
        assert find_answers(rng.choices("abcd", k=40)).closed


def rows_of(targets: list[str]) -> tuple[Example, ...]:
    return tuple(
        Example(f"r{n}", {"input": f"Input {n}"}, target, {}, "") for n, target in enumerate(targets)
    )


START = Prompt.parse("Look.\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n\n{{input}}")
MIXED = ["none"] * 16 + ["some"] * 6 + [f"plural{letter}" for letter in "abcdefgh"]


@pytest.mark.parametrize(
    ("targets", "operators"), [(MIXED, {DEMONSTRATED}), (list(MONTHS) * 2, {DEMONSTRATED, LISTED})]
)
def test_only_a_closed_set_is_listed_in_a_prompt(targets: list[str], operators: set[str]) -> None:
    env = replace(review_world(), train=rows_of(targets), labels={})
    assert right_answers(env).closed == (LISTED in operators)
    assert {operator for operator, _, _ in proposals(env, START, env.train[:6], secrets)} == operators


@pytest.mark.parametrize("form", [plain_question, question])
def test_the_forms_for_the_optimizer_call_an_open_set_examples(form: object) -> None:
    rows = rows_of(MIXED)
    shown = collect_critiques(
        [Rollout("p", row.id, "what?", 0.0) for row in rows[14:20]], rows, 1.0
    ).critiques
    assert callable(form)
    text = form(shown, [], "")
    assert 'Some of the right answers (other inputs may need others): "none", "some".' in text
    assert "Every right answer" not in text
    few = rows_of(list(MONTHS) * 2)
    shown = collect_critiques([Rollout("p", row.id, "what?", 0.0) for row in few[:6]], few, 1.0).critiques
    assert "Every right answer is one of:" in form(shown, [], "")


def test_confusions_count_every_wrong_answer_though_only_the_most_frequent_are_listed() -> None:
    answers = ["yes", "yes", *(f"other {n}" for n in range(CONFUSIONS + 2))]
    rows = {str(n): Example(str(n), {}, "no") for n in range(len(answers))}
    rollouts = [Rollout("p", key, text, 0.0) for key, text in zip(rows, answers, strict=True)]
    lines = count_confusions(rows, rollouts, 1.0)
    assert len(lines) == CONFUSIONS + 1
    assert lines[0] == "- wanted no, answered yes: 2 times"
    assert lines[-1] == "- other wrong answers: 3 times"
    assert "other" not in " ".join(count_confusions(rows, rollouts[:2], 1.0))
