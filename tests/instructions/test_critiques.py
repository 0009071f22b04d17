"""What the reader is shown of a roll-out, and how the calls of a run are spread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.instructions.optimizer import critiques

from whet.instructions.budget import LEAST, LearningBudget
from whet.instructions.critiques import CritiqueBatch, collect_critiques, of_people
from whet.types import Example, Rollout, Usage


def row(key: str, target: Any = None, **more: Any) -> Example:
    return Example(
        key, {"input": f"Question {key}"}, target, {"input": f"Question {key}", **more}, f"Question {key}"
    )


def rollout(key: str, reward: float = 0.0, critique: str | None = None, error: str | None = None) -> Rollout:
    return Rollout("p", key, f"Answer {key}", reward, critique=critique, error=error)


def test_each_line_of_a_critique_is_one_and_equal_ones_are_shown_once() -> None:
    rows = [row("a"), row("b")]
    rollouts = [rollout("a", critique="- Too long.\n2) No price.\n\n---"), rollout("b", critique="Too long.")]
    result = collect_critiques(rollouts, rows, 1.0)
    assert [c.text for c in result.critiques] == ["Too long.", "No price."]
    assert result.answers == ((0, 1), (0,))


def test_whole_rows_know_the_right_answers_where_they_are_few_and_wanted_again_and_again() -> None:
    def labels(rows: list[Example], critique: str | None = None) -> tuple[str, ...]:
        return collect_critiques([rollout("1", critique=critique)], rows, 1.0).critiques[0].labels

    labelled = [row(str(n), "bad" if n % 3 else "good") for n in range(9)]
    assert labels(labelled) == ("bad", "good")
    assert labels(labelled, "Too long.") == (), "a critique in words is no row"
    assert labels([row(str(n), str(n // 2)) for n in range(9)]) == (), "each twice"
    assert labels([row(str(n)) for n in range(9)]) == ()


def test_answers_of_full_reward_and_calls_that_failed_say_nothing() -> None:
    rows = [row("a"), row("b"), row("c")]
    rollouts = [
        rollout("a", 1.0, "Lovely."), rollout("b", 0.2, "Too long."), rollout("c", error="provider: HTTP 500"),
    ]  # fmt: skip
    result = collect_critiques(rollouts, rows, 1.0)
    assert [c.text for c in result.critiques] == ["Too long."]
    assert result.rewards == (1.0, 0.2)


@pytest.mark.parametrize("critique", [None, "", 'Wrong: expected "Paris".'])
def test_where_no_critique_teaches_anything_the_row_is_shown(critique: str | None) -> None:
    result = collect_critiques([rollout("a", critique=critique)], [row("a", "Paris")], 1.0)
    (shown,) = [c.text for c in result.critiques]
    assert "Question a" in shown and "Answer a" in shown and "Paris" in shown


def test_comments_of_people_on_answers_in_the_data_are_critiques_of_no_roll_out() -> None:
    people = of_people(
        [
            row("a", output="x", comment="zu lang"),
            row("b", comment="no output"),
            row("c", output="y", comment=3),
        ]
    )
    assert [(c.text, c.source) for c in people] == [("zu lang", "row a")]
    result = collect_critiques([], [row("a")], 1.0, people)
    assert result.answers == ((),)


def test_as_many_answers_are_read_as_the_calls_can_hold() -> None:
    rollouts = CritiqueBatch(
        tuple(critiques(*(f"{n} " * 50 for n in range(10)))), tuple((n,) for n in range(10)), (0.5,) * 10
    )
    part = rollouts.within(350)
    assert part.counted == len(part.critiques) == 3
    assert rollouts.within(10**6).counted == 10
    assert rollouts.within(1).counted == 1


def budget(rollouts: int | None, asks: int | None) -> LearningBudget:
    return LearningBudget(env=None, rollouts=rollouts, asks=asks, batch=40, rounds=12)  # type: ignore[arg-type]


@pytest.mark.parametrize(("total", "asks"), [(90, 12), (450, 30), (450, 8), (2000, 40), (20, 3), (5, 1)])
def test_both_budgets_last_to_the_end_while_critiques_come(total: int, asks: int) -> None:
    plan, spent, used = budget(total, asks), 0, 0
    for _ in range(200):
        size = plan.next_round(spent)
        if not size:
            break
        used += size
        texts = critiques(*(f"round {plan.round} critique {n}" for n in range(4 * size)))
        answers = CritiqueBatch(tuple(texts), tuple((n % size,) for n in range(4 * size)), (0.5,) * size)
        calls = plan.calls(spent)
        assert calls is not None and 0 < calls <= asks - spent
        spent += min(calls, 1 + len(texts) // 24)
        plan.note_round(answers, 5)
        assert not plan.may_stop(True)
    assert spent <= asks and used <= total
    assert used > total / 2 or spent == asks


def test_drafts_use_up_the_calls_while_roll_outs_bring_critiques() -> None:
    plan, rounds = budget(285, 20), 0
    plan.whole = True
    while plan.next_round(rounds):
        rounds += 1
        plan.note_round(CritiqueBatch(tuple(critiques("a")), ((0,),), (0.5,)), 1)
    assert rounds >= 13, "of 20 calls, one a draft"


@pytest.mark.parametrize(
    ("spent", "repairs", "packs", "calls"),
    [(20, 0, 0, 1), (20, 1, 0, 2), (20, 2, 0, 3), (28, 2, 0, 1), (0, 0, 0, 16), (0, 0, 99, 16)],
)
def test_a_round_has_calls_for_repairs_but_for_the_last_one(
    spent: int, repairs: int, packs: int, calls: int
) -> None:
    plan = budget(450, 30)
    plan.next_round(spent)
    plan.round = 1 if not spent else 3
    assert plan.calls(spent, repairs, packs) == calls


@pytest.mark.parametrize(("packs", "calls"), [(20, 7), (61, 8)])
def test_fewer_calls_are_kept_for_the_end_where_a_roll_out_brings_much_more_than_they_can_read(
    packs: int, calls: int
) -> None:
    plan = budget(100, 12)
    plan.next_round(0)
    plan.rollouts = 50
    assert plan.calls(0, 0, packs) == calls


def test_silence_about_a_trial_does_not_end_the_search() -> None:
    """The prompt without some instructions was answered rightly twice; whether the whole one is, is not known yet."""
    limited = budget(400, 20)
    for trial in (True, True, False, False):
        assert not limited.may_stop(False)
        limited.trial = trial
        limited.note_round(CritiqueBatch((), (), (1.0,) * LEAST), 0)
    assert limited.may_stop(False)


def test_without_limits_it_ends_when_nothing_is_learned_and_in_silence() -> None:
    plan = budget(None, None)
    assert plan.next_round(0) == 40 and plan.calls(0) is None
    assert plan.may_stop(True) and not plan.may_stop(False)
    limited = budget(400, 20)
    for _ in range(2):
        limited.note_round(CritiqueBatch((), (), (1.0,) * LEAST), 0)
    assert limited.may_stop(False)


def test_what_was_right_is_counted_by_label_and_some_of_it_shown() -> None:
    rows = [row(str(n), "bad" if n % 3 else "good") for n in range(9)]
    rollouts = [rollout(str(n), float(n not in (1, 3))) for n in range(9)]
    tally = collect_critiques(rollouts, rows, 1.0).tally
    counted, confused = tally.split("\n\n")
    first, _, *shown = counted.splitlines()
    assert first == 'Of 9 answers, 7 were right (wanted "bad" 5 of 6, "good" 2 of 3).'
    assert len(shown) == 6 and all(line.startswith("- Input: Question ") for line in shown)
    assert sum("Wanted: good" in line for line in shown) == 2, "labels by turns"
    assert not any("Question 1 " in line or "Question 3 " in line for line in shown)
    assert confused.splitlines()[0].endswith("(2 in all):"), "one number for what was wrong"
    assert collect_critiques([], rows, 1.0).tally == ""


def test_without_targets_only_the_number_of_right_answers_is_told() -> None:
    result = collect_critiques([rollout("a", 1.0), rollout("b", 0.2, "Too long.")], [row("a"), row("b")], 1.0)
    assert result.tally == "Of 2 answers, 1 was right."


def test_what_wrong_answers_have_in_common_is_counted() -> None:
    """Copies of the input, answers that were cut off, and what was said again and again: how a small model fails."""
    rows = [row(key, f"un{key}") for key in ("done", "sent", "seen", "made")]
    rows = [replace(one, values={"input": one.id}) for one in rows]
    texts = {"done": "Done.", "sent": "no", "seen": "no", "made": "The word is"}
    rollouts = [
        Rollout("p", key, text, float(key == "seen"), cut=key == "made") for key, text in texts.items()
    ]
    tally = collect_critiques([*rollouts, replace(rollouts[1], sample=1)], rows, 1.0, (), 0.0).tally
    assert "Of 5 answers, 1 was right" in tally
    assert "Of the wrong answers, those that only repeat the input: 1." in tally
    assert "The length of an answer is limited: of these answers, 1 was cut off." in tally
    assert 'Wrong answers that came more than once: "no" (2 times).' in tally


def test_how_long_an_answer_may_be_is_told_where_answers_were_cut_off() -> None:
    """The number of tokens is that of the answers that were cut off, which all end at it; a number that differs is no limit."""
    rows = [row(key, key) for key in ("paris", "rome", "oslo")]
    rollouts = [
        Rollout("p", key, "The capital is", 0.0, usage=Usage(output_tokens=3), cut=True)
        for key in ("paris", "rome")
    ]
    whole = Rollout("p", "oslo", "oslo", 1.0, usage=Usage(output_tokens=1))
    told = "An answer may have 3 tokens at most: of these answers, 2 were cut off there."
    assert told in collect_critiques([*rollouts, whole], rows, 1.0, (), 0.0).tally
    longer = replace(rollouts[1], usage=Usage(output_tokens=7))
    assert "tokens at most" not in collect_critiques([rollouts[0], longer, whole], rows, 1.0, (), 0.0).tally
    assert "cut off" not in collect_critiques([whole], rows, 1.0, (), 0.0).tally
