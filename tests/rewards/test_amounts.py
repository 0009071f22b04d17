"""Numbers with units, in accounts, with percent signs and with words that multiply them; what no reward may take for a value."""

from __future__ import annotations

from typing import Any

import pytest

from whet.errors import UsageError
from whet.rewards import choose_reward
from whet.rewards.dates import readings
from whet.rewards.numbers import Number
from whet.rewards.numerals import powers_of
from whet.rewards.text import Contains, ExactMatch
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward

LAST = Number(last=True)


async def graded(reward: Any, answer: str, target: Any) -> Reward:
    row = Example("row7", {"input": "q"}, target)
    result: Reward = await reward.grade(MemoryRun(), row, Completion(answer))
    return result


@pytest.mark.parametrize(
    "answer",
    [
        "The area is 12 m^2",
        "12 m^2.",
        "12 cm^{2}",
        "$12 \\text{ cm}^2$",
        "\\boxed{12 \\text{ cm}^2}",
        "12 m2",
        "12 t CO2",
        "$12\\ \\text{g CO}_2$",
        "12 m s^{-2}",
        "x_1 = 12",
    ],
)
async def test_an_exponent_or_index_of_a_letter_is_no_value(answer: str) -> None:
    assert (await graded(LAST, answer, "12")).value == 1.0
    assert (await graded(LAST, answer, "13")).value == 0.0


@pytest.mark.parametrize(
    ("answer", "target"),
    [("10^2", 100), ("2024 Q3", 3), ("Rs5", 5), ("x^2 = 9", 9), ("m^2", 2), ("USD1200", 1200)],
)
async def test_other_numbers_behind_letters_and_powers_of_numbers_stay(answer: str, target: int) -> None:
    assert (await graded(LAST, answer, target)).value == 1.0


async def test_contains_finds_no_exponent() -> None:
    assert (await graded(Contains(), "It has 12 m^2.", 2)).value == 0.0
    assert (await graded(Contains(), "It has 12 m^2.", 12)).value == 1.0


@pytest.mark.parametrize("target", ["(1,200)", "$(1,200)", "($1,200.00)", "-1200", -1200])
@pytest.mark.parametrize("answer", ["-1,200", "(1,200)", "A net loss of $(1,200)"])
async def test_brackets_of_accounts_are_a_minus_sign(target: Any, answer: str) -> None:
    LAST.check(Example("row7", {"input": "q"}, target))
    assert (await graded(LAST, answer, target)).value == 1.0
    assert (await graded(LAST, "1,200", target)).value == 0.0


async def test_brackets_around_an_answer_change_nothing_else() -> None:
    assert (await graded(LAST, "(1,200)", "1200")).value == 1.0
    assert (await graded(LAST, "(3)", "3")).value == 1.0
    assert (await graded(LAST, "(3)", "-3")).value == 0.0
    assert (await graded(ExactMatch(), "(1,200)", -1200)).value == 1.0


def test_a_small_target_in_brackets_is_refused() -> None:
    with pytest.raises(UsageError, match=r"may be -500, as accountants write it, or 500 in brackets"):
        LAST.check(Example("row7", {"input": "q"}, "(500)"))


@pytest.mark.parametrize(
    ("answer", "target", "reward", "part"),
    [
        ("0.6", "60%", LAST, True),
        ("60%", "0.6", LAST, True),
        ("It is 60 %.", 0.6, LAST, True),
        ("0.5", "60%", LAST, False),
        ("60", "0.6", LAST, False),
        ("0.6%", "60%", LAST, False),
        ("0.6", "60%", Number(last=True, percent=True), False),
    ],
)
async def test_a_percent_sign_that_would_make_an_answer_right_is_a_part(
    answer: str, target: Any, reward: Number, part: bool
) -> None:
    assert ((await graded(reward, answer, target)).parts == {"hundredth": 1.0}) is part


@pytest.mark.parametrize(
    ("word", "powers"),
    [
        ("million", {6}),
        ("Millionen", {6}),
        ("Mio", {6}),
        ("\u043c\u043b\u043d", {6}),
        ("mn", {6}),
        ("billion", {9, 12}),
        ("min", set()),
        ("km", set()),
        ("mm", set()),
        ("apples", set()),
    ],
)
def test_words_that_multiply_in_some_language(word: str, powers: set[int]) -> None:
    assert powers_of(word) == powers


def test_months_have_their_names_after_words_were_looked_up() -> None:
    assert powers_of("millionen") == {6}
    assert [str(day) for day in readings("5. M\u00e4rz 2024", language="de")] == ["2024-03-05"]


@pytest.mark.parametrize(
    ("targets", "spec"),
    [
        (["1.5 million", "2 million", "300"], {"number": {"last": True, "multiples": {"million": 1000000}}}),
        (["3 Mio.", "1 Mrd."], {"number": {"last": True, "multiples": {"mio": 1000000, "mrd": 1000000000}}}),
        (["1.5k", "2k", "3.5k"], {"number": {"last": True}}),
        (["(1,200)", "1,300", "5"], {"number": {"last": True}}),
        (["1.5 billion", "2 billion"], {"exact_match": {"normalise": True}}),
        (["3 apples", "2 apples"], {"exact_match": {"normalise": True}}),
        (["2024-03-05 14:00", "2024-03-06 15:00"], {"exact_match": {"normalise": True}}),
        (["5 March 2024, 3 pm", "6 March 2024, 4 pm"], {"exact_match": {"normalise": True}}),
        (["2024-03-05 00:00:00", "2024-03-06 00:00:00"], {"date": {"last": True}}),
    ],
)
def test_the_reward_for_a_column_of_amounts_or_times(targets: list[str], spec: object) -> None:
    assert choose_reward(targets).spec == spec


def test_the_choice_says_what_it_takes_a_word_and_brackets_for() -> None:
    assert "billion is 1000000000 or 1000000000000" in choose_reward(["1.5 billion", "2 billion"]).reason
    assert "(1,200) is read as -1200, as accountants write it" in choose_reward(["(1,200)", "5.5"]).reason
