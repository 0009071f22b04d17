"""Rewards that compare texts: hand-worked numbers, properties, and an independent computation."""

from __future__ import annotations

import asyncio
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.rewards import build_reward, with_timeout
from whet.rewards.checks import Check
from whet.rewards.text import F1, Contains, ExactMatch, Regex, f1_score, normalise, targets_of
from whet.run import MemoryRun
from whet.types import Completion, Example

BACKTRACKING, TRAP = "^(a|a)+$", f"{'a' * 60}!"
WORDS = st.lists(st.sampled_from(["cat", "dog", "the", "a", "sat", "x1", "é"]), max_size=6).map(" ".join)


def example(target: Any) -> Example:
    return Example("e", {"input": "q"}, target)


async def value(reward: Any, answer: str, target: Any = None) -> float:
    graded = await reward.grade(MemoryRun(), example(target), Completion(answer))
    assert reward.low <= graded.value <= reward.high
    assert (graded.critique is None) == (graded.value == 1.0)
    return float(graded.value)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("The  Cat, sat!", "cat sat"),
        ("an A the", "an a the"),
        ("A", "a"),
        ("...", "..."),
        ("**Paris**", "paris"),
        ("C++.", "c++"),
        ("C#", "c#"),
        ("B-", "b-"),
        ("half-life", "halflife"),
        ("<= ", "<="),
        ("3:30, not 330", "3:30 not 330"),
        ("1,5", "1,5"),
        ("theatre another", "theatre another"),
        ("U.S.A.", "usa"),
        ("it's 3.5%", "its 3.5%"),
        ("-5 and 2-3 and 1,234.50", "-5 and 2-3 and 1234.50"),
        ("\tÉtude\n№", "étude no"),
    ],
)
def test_normalise_by_hand(text: str, form: str) -> None:
    assert normalise(text) == form


SIGNS = [
    *[("+", "-"), ("<=", "=="), ("C++", "C"), ("C#", "C"), ("5%", "5"), ("3:30", "330"), ("1,5", "15")],
    *[("A", "..."), ("A", "The"), ("A", "?"), ("B+", "B"), ("B-", "B"), ("*", "?"), ("AC/DC", "ACDC")],
]


@pytest.mark.parametrize("reward", [ExactMatch(normalise=True), F1()])
@pytest.mark.parametrize("pair", [*SIGNS, *(pair[::-1] for pair in SIGNS), ("ab", "a*b"), ("ab", "a_b")])
async def test_signs_tell_answers_apart(reward: Any, pair: tuple[str, str]) -> None:
    assert await value(reward, *pair) == 0.0


@pytest.mark.parametrize("reward", [ExactMatch(normalise=True), F1()])
@pytest.mark.parametrize("text", ["<=", "C++", "C#", "5%", "3:30", "A", "The", "B+", "B-", "AC/DC", "a*b"])
async def test_marks_around_an_answer_do_not(reward: Any, text: str) -> None:
    marks = ["{}", "{}.", '"{}"', "({})"] + ["**{}**", "`{}`"] * ("*" not in text)
    assert [await value(reward, mark.format(text), text) for mark in marks] == [1.0] * len(marks)


@given(st.text())
def test_normalising_forms_have_single_spaces_and_no_upper_case_or_quotes(text: str) -> None:
    form = normalise(text)
    assert form == " ".join(form.split()) and not re.search(r"[A-Z]", form)
    assert not re.search(r"[\"'!?;()\[\]{}]", normalise(f"word {text}"))


@pytest.mark.parametrize(
    ("answer", "target", "f1"),
    [
        ("the black cat", "a black dog", Fraction(1, 2)),
        ("a b c", "b c d e", Fraction(2, 3)),  # the article goes: 2 of 2, 2 of 4
        ("cat cat", "cat", Fraction(2, 3)),
        ("cat cat dog", "cat dog dog", Fraction(2, 3)),
        ("", "", Fraction(1)),
        ("the", "a", Fraction(0)),
        ("...", "A", Fraction(0)),
        ("?", "+", Fraction(0)),
        ("", "cat", Fraction(0)),
        ("dog", "cat", Fraction(0)),
        ("Cat!", "cat", Fraction(1)),
    ],
)
def test_f1_by_hand(answer: str, target: str, f1: Fraction) -> None:
    assert f1_score(answer, target) == pytest.approx(float(f1))


@given(WORDS, WORDS)
def test_f1_is_twice_the_common_words_over_all_words(answer: str, target: str) -> None:
    """Another formula for the same number: 2 |A & B| / (|A| + |B|), counted by removing matched words."""
    given_words, wanted = (normalise(text, any_article=True).split() for text in (answer, target))
    left, common = list(wanted), 0
    for word in given_words:
        if word in left:
            left.remove(word)
            common += 1
    total = len(given_words) + len(wanted)
    expected = Fraction(2 * common, total) if total else Fraction(1)
    assert f1_score(answer, target) == pytest.approx(float(expected))


def test_marks_in_place_of_blanks_separate_words() -> None:
    assert f1_score("ሰላም", "ሰላም፡ዓለም") == pytest.approx(2 / 3)
    assert f1_score("བཀྲ་ཤིས", "བཀྲ་ཤིས་བདེ་ལེགས") == pytest.approx(2 / 3)
    assert normalise("བཀྲ་ཤིས།") == normalise("བཀྲ་ཤིས") and f1_score("།", "x") == 0.0
    assert normalise("well-known") == "wellknown", "a hyphen joins"


@given(st.text(), st.text())
def test_f1_lies_in_range_is_symmetric_and_1_for_equal_texts(a: str, b: str) -> None:
    assert 0.0 <= f1_score(a, b) <= 1.0
    assert f1_score(a, b) == pytest.approx(f1_score(b, a))
    assert f1_score(a, a) == 1.0


@given(WORDS, st.randoms(use_true_random=False))
def test_f1_ignores_the_order_of_words(text: str, rng: Any) -> None:
    words = text.split()
    assert f1_score(" ".join(rng.sample(words, len(words))), text) == 1.0


@pytest.mark.parametrize(
    ("target", "texts"),
    [
        ("a", ["a"]),
        (5, ["5"]),
        (True, ["true"]),
        (None, ["null"]),
        ([], ["[]"]),
        (["a", 2], ["a", "2"]),
        ({"é": 1}, ['{"é": 1}']),
    ],
)
def test_targets_are_texts(target: Any, texts: list[str]) -> None:
    assert targets_of(example(target)) == texts


@pytest.mark.parametrize(
    ("reward", "answer", "target", "expected"),
    [
        (ExactMatch(), " Paris\n", "paris", 1.0),
        (ExactMatch(), "Paris.", "paris", 0.0),
        (ExactMatch(), "STRASSE", "straße", 1.0),
        (ExactMatch(), "5", 5, 1.0),
        (ExactMatch(), "b", ["a", "B"], 1.0),
        (ExactMatch(), "[]", [], 1.0),
        (ExactMatch(strict=True), "Paris", "paris", 0.0),
        (ExactMatch(strict=True), "paris ", "paris", 0.0),
        (ExactMatch(strict=True), "paris", "paris", 1.0),
        (ExactMatch(normalise=True), "The Paris!", "paris", 1.0),
        (ExactMatch(normalise=True), "Hepatitis", "Hepatitis A", 0.0),
        (ExactMatch(normalise=True), "Vitamin A.", "vitamin A", 1.0),
        (ExactMatch(normalise=True), "1020", "10-20", 0.0),
        (ExactMatch(normalise=True), "10 \u2013 20", "10-20", 1.0),
        (ExactMatch(normalise=True), "510", "5'10\"", 0.0),
        (ExactMatch(normalise=True), "1'000", "1000", 1.0),
        (ExactMatch(normalise=True), "a = b", "a != b", 0.0),
        *(
            (ExactMatch(normalise=True), answer, target, 0.0)
            for answer, target in (
                ("5", ".5"),
                ("5", "-.5"),
                ("$50", "$.50"),
                ("05", ".05"),
                ("p < 05", "p < .05"),
                ("\u0665", "\u066b\u0665"),
                ("\u0663\u0665", "\u0663\u066b\u0665"),
                ("5", "5\u2030"),
                ("12", "1;2"),
                ("15", "1\u00b75"),
                ("$5", "-$5"),
                ("\u20ac5", "\u2212\u20ac5"),
                ("1e5", "1e-5"),
                ("\u00bd", "\u2212\u00bd"),
                ("\u03c0", "-\u03c0"),
                ("a=b", "a=-b"),
                ("13", "1\u20143"),
                ("13", "1..3"),
                ("13", "1\u30013"),
                ("13", "1(3)"),
            )
        ),
        *(
            (ExactMatch(normalise=True), answer, target, 1.0)
            for answer, target in (
                ("0.5", ".5"),
                ("1-3", "1 \u2014 3"),
                ("\u2014\u0414\u0430", "\u0434\u0430"),
                ("- item", "item"),
                ("3.5", "\u0663\u066b\u0665"),
                ("3500", "3\u066c500"),
            )
        ),
        (F1(), "5", ".5", 0.0),
        (ExactMatch(), "don\u2019t", "don't", 1.0),
        (ExactMatch(), "istanbul", "İstanbul", 1.0),
        (ExactMatch(), "Yanl\u0131\u015f", "YANLI\u015e", 1.0),
        (
            Contains(),
            "\u0391\u03c1\u03bd\u03b7\u03c4\u03b9\u03ba\u03cc.",
            "\u0391\u03a1\u039d\u0397\u03a4\u0399\u039a\u039f",
            1.0,
        ),
        (ExactMatch(strict=True), "Yanl\u0131\u015f", "YANLI\u015e", 0.0),
        (Contains(), "I don\u2019t know.", "don't know", 1.0),
        (F1(), "A cat.", ["dog", "the cat"], 1.0),
        (F1(), "black cat", ["a dog", "black cats", "black"], 2 / 3),
        (Contains(), "It is PARIS, I think", "paris", 1.0),
        (Contains(), "It is Rome", ["paris", "rome"], 1.0),
        (Contains(strict=True), "PARIS", "Paris", 0.0),
        (Contains(text="please"), "Yes, Please", None, 1.0),
        (Contains(text="please"), "Yes", "yes", 0.0),
        (Contains(), "nonsense", "", 0.0),
        (Contains(), "nonsense", ["paris", " "], 0.0),
        (Contains(), " ", "", 1.0),
        (Regex(r"\d+"), "no digits", None, 0.0),
        (Regex(r"\d+"), "7", None, 1.0),
        (Regex(r"\d+"), "first 3, then 12", "12", 1.0),
        (Regex(r"\d+"), "first 3, then 12", "3", 0.0),
        (ExactMatch(normalise=True), "5 %", "5%", 1.0),
        (ExactMatch(normalise=True), "5\u202f%", "5%", 1.0),
        (ExactMatch(normalise=True), "20 \u00b0C", "20\u00b0C", 1.0),
        (ExactMatch(normalise=True), "5", "5%", 0.0),
        (F1(), "about 5 %", "about 5%", 1.0),
        (Contains(), "got 25 here", "5", 0.0),
        (Contains(), "got 5kg here", "5", 1.0),
        (Contains(), "5.", "5", 1.0),
        (Contains(), "1.5", "5", 0.0),
        (Contains(), "It is -5.", "5", 0.0),
        (Contains(), "It is \u2212$5.", "5", 0.0),
        (Contains(), "10-5 and A-5", "5", 1.0),
        (Contains(), "- 5", "5", 1.0),
        (Contains(strict=True), "-5", "5", 1.0),
        (ExactMatch(), "**42**\u3002", 42, 1.0),
        (ExactMatch(strict=True), "**42**", 42, 0.0),
        (Contains(), "5,000", "5", 0.0),
        (Contains(), "5.00 in all", "5", 1.0),
        (Contains(), "$1,500.00", "1,500", 1.0),
        (Contains(), "5.001", "5", 0.0),
        (Contains(), "3.14159", "3.14", 0.0),
        (Contains(), "v3.14", "3.14", 1.0),
        (Contains(), "a5b", "5", 1.0),
        (Contains(text="20"), "2024", None, 0.0),
        (Contains(strict=True), "2024", "20", 1.0),
        (Regex(r"#### (-?\d+)"), "so #### -4", -4, 1.0),
        (Regex(r"a(b)?"), "a", "b", 0.0),
        (Regex(r"answer: (\d+)|#### (\d+)"), "#### 7", "7", 1.0),
        (Regex(r"\d*"), "42", "42", 1.0),
        (Regex(r"[A-D]?"), "B", "B", 1.0),
        (Regex(r".*"), "yes", "yes", 1.0),
        (Regex(r"#*\s*(\d*)"), "#### 42 ", "42", 1.0),
        (Regex(r"\[(.*?)\]"), "[a], or []", "a", 0.0),
        (Regex(r"(\w+)$"), "the answer is YES", " yes ", 1.0),
        (Regex(r"\\frac{d}"), "a \\frac{d} b", None, 1.0),
        (Regex(r"\\frac{d}"), "a \\frac b", None, 0.0),
        (Regex(r"[[:alpha:]]"), "a", None, 0.0),
        (Regex("caf\u00e9$"), "cafe\u0301", None, 1.0),
        (Regex("cafe\u0301$"), "caf\u00e9", None, 1.0),
        (Regex("^[a-z\u00e9]{4}$"), "cafe\u0301", None, 1.0),
        (Regex("(e\u0301t.)"), "\u00e9te\u0301", "\u00e9t\u00e9", 1.0),
        (Regex("x\u00b2"), "x2", None, 0.0),
        (Regex(r"(?x) (\d+) # {e}, ["), "7", "7", 1.0),
    ],
)
async def test_values_by_hand(reward: Any, answer: str, target: Any, expected: float) -> None:
    assert await value(reward, answer, target) == pytest.approx(expected)


async def test_a_critique_names_both_and_stays_short() -> None:
    graded = await ExactMatch().grade(MemoryRun(), example('say "hi"'), Completion("x" * 5000))
    assert graded.critique is not None
    assert '"say \\"hi\\""' in graded.critique and len(graded.critique) < 260


@pytest.mark.parametrize(
    "reward",
    [
        {"regex": {"pattern": BACKTRACKING}},
        {"checklist": {"items": [{"item": "the form", "check": {"regex": BACKTRACKING}}]}},
    ],
)
async def test_a_pattern_that_backtracks_ends_with_the_row_within_the_limit(reward: Any) -> None:
    built = with_timeout(build_reward([reward], Path(), "task.yaml:1"), 0.3)
    waited, ticks = asyncio.ensure_future(built.grade(MemoryRun(), example("a"), Completion(TRAP))), 0
    while not waited.done():
        await asyncio.sleep(0)
        ticks += 1
    assert ticks > 100, "the event loop goes on meanwhile"
    with pytest.raises(UsageError, match=r"for row e: no match .* within 0\.3 s.*reward_timeout"):
        await waited


def test_unusable_options_are_refused() -> None:
    with pytest.raises(UsageError, match="not a regular expression: missing"):
        Regex("(")
    with pytest.raises(UsageError, match="every answer contains that"):
        Contains(text="")


def test_only_rewards_that_compare_need_a_target() -> None:
    assert [sorted(r.needs) for r in (ExactMatch(), F1(), Contains())] == [["target"]] * 3
    assert [sorted(r.needs) for r in (Contains(text="a"), Regex("a"))] == [[], []]


@pytest.mark.parametrize("kind", ["regex", "no_regex"])
def test_a_search_that_nobody_waits_for_ends(kind: str) -> None:
    """A thread cannot be ended from outside: it would take a processor for as long as the process lives."""
    with pytest.raises(TimeoutError):
        Check(kind, "^(a|aa)+$").fault("a" * 80 + "b", 0.05)
    with pytest.raises(TimeoutError):
        Regex("^(a|aa)+$")._extract("a" * 80 + "b", 0.05)


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("18", ".18"), ("50", "$.50"), ("5", "1/5"), ("1", "1 / 5"), ("10", "10^6"), ("6", "10^6"), ("5", "1e5"), ("1e5", "1e50"),
        ("5", "٠٫٥"), ("5", "٥٬٠٠٠"), ("5", "5½"), ("12", "12²"), ("5", "5⁄2"), ("5", "．５"), ("5", "5 1/2"), ("-5", "-50"),
        ("-5", "2-5"), (".5", "1.5"), ("5", "5 · 10^3"), ("5", "\\frac{1}{5}"),
    ],
)  # fmt: skip
async def test_a_number_is_not_contained_in_another_one(target: str, answer: str) -> None:
    assert await value(Contains(), answer, target) == 0.0


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("5", "It is 5."), ("5", "...5"), ("5", "5.00"), ("05", "12/05/2024"), ("12", "12/05/2024"), ("2024", "12/05/2024"),
        ("-5", "x = -5."), (".5", "0.5"), ("0.5", ".5"), ("1e5", "1E5"), ("5", "x^5"), ("18", "18-20"), ("20", "18-20"),
        ("1,000", "1000"), ("0.5", "٠٫٥"), ("7", "5/6, 7"), ("5", "**5**"), ("18", "answer:18"),
    ],
)  # fmt: skip
async def test_a_number_of_its_own_is_contained(target: str, answer: str) -> None:
    assert await value(Contains(), answer, target) == 1.0


def test_a_pattern_that_every_answer_has_is_refused() -> None:
    for pattern in (r"\d*", ".*", "(yes)?"):
        with pytest.raises(UsageError, match="is found in every answer"):
            Regex(pattern).check(example(None))
        Regex(pattern).check(example("7"))
        with pytest.raises(ValueError, match="is found in every answer"):
            Check("regex", pattern)
    Regex("^(yes)?$").check(example(None))
