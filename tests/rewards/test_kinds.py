"""Rewards by kind of target: numbers, JSON, lists, dates. Equal values are equal however they are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whet
from whet._util.words import strip_wrapping
from whet.errors import UsageError
from whet.rewards import build_reward
from whet.rewards.dates import Date
from whet.rewards.fields_of_json import JsonFields
from whet.rewards.item_list import ItemList
from whet.rewards.json_alignment import Alignment
from whet.rewards.month_names import month_names
from whet.rewards.numbers import Number, numbers_in, parse_number
from whet.rewards.text import F1, Contains, ExactMatch, Regex, f1_score
from whet.run import MemoryRun
from whet.types import Completion, Example


async def grade(reward: Any, answer: str, target: Any) -> float:
    example = Example("row7", {"input": "q"}, target)
    if hasattr(reward, "check"):
        reward.check(example)
    graded = await reward.grade(MemoryRun(), example, Completion(answer))
    assert (graded.critique is None) == (graded.value == 1.0)
    return float(graded.value)


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ("18", 18.0),
        ("18.00", 18),
        ("18", "18.0"),
        ("1,8e1", 18),
        ("$1,234.00", 1234),
        ("1.234,00", "1,234"),
        ("1 234,5", 1234.5),
        ("1'234.50", 1234.5),
        ("12,34,567", 1234567),
        ("€ -5", -5),
        ("\u2212 3", -3),
        ("１８", 18),
        ("١٨", 18),
        ("18 %", 18),
        ("0.3", 0.1 + 0.2),
        (".5", 0.5),
    ],
)
async def test_equal_numbers_are_equal(answer: str, target: Any) -> None:
    assert await grade(Number(), answer, target) == 1.0


_AROUND = [
    "**{}**",
    "`{}`",
    "「{}」",
    "„{}“",
    "'{}'",
    "({})",
    "[{}]",
    "$${}$$",
    r"\({}\)",
    r"\[ {} \]",
    "{}。",
    "{}!!",
    "{}؟",
    "**{}**.",
]


@pytest.mark.parametrize("around", _AROUND)
async def test_marks_around_an_answer_change_no_number_and_no_date(around: str) -> None:
    for number in (42, -42, 0.5, 1234):
        assert await grade(Number(), around.format(number), number) == 1.0
        assert await grade(ExactMatch(), around.format(number), number) == 1.0
        assert await grade(Number(), around.format(number), number + 1) == 0.0
    for day in ("2024-03-05", "5 March 2024", "2024年3月5日"):
        assert await grade(Date(), around.format(day), "2024-03-05") == 1.0
        assert await grade(Date(), around.format(day), "2024-03-06") == 0.0


@pytest.mark.parametrize(
    ("answer", "value"), [("= 42", 1.0), ("42,- €", 1.0), ("CHF", 0.0), ("42.-", 1.0), ("42-", 0.0)]
)
async def test_an_equals_sign_and_the_dash_of_a_price_belong_to_no_number(answer: str, value: float) -> None:
    assert await grade(Number(), answer, 42) == value


@pytest.mark.parametrize(
    "answer", ["-(42)", "-**42**", "<42>", "(<42)", "42 or (43)", "(42) (43)", "5°", "**"]
)
async def test_what_changes_a_number_stays(answer: str) -> None:
    assert await grade(Number(), answer, 42) == 0.0


@given(st.text("()*_`'\"$「」\\\\[]42.。 ", max_size=30))
def test_marks_around_a_text_are_taken_away_once_for_all(text: str) -> None:
    inner = strip_wrapping(text)
    assert inner in text and strip_wrapping(inner) == inner


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ("18 apples", 18),
        ("1.2.3", 1.23),
        ("1,23,4", 1234),
        ("-18", 18),
        ("181", 18),
        ("", 0),
        ("1,234", 1.234),
    ],
)
async def test_other_answers_are_wrong(answer: str, target: Any) -> None:
    assert await grade(Number(), answer, target) == 0.0


@pytest.mark.parametrize(
    ("reward", "answer", "target", "value"),
    [
        (Number(last=True), "3 boxes of 6 make **18**.", 18, 1.0),
        (Number(last=True), "18, not 17.", 18, 0.0),
        (Number(last=True), "答えは１８です", 18, 1.0),
        (Number(last=True), "In all 1 234 of them", 1234, 1.0),
        (Number(last=True), "from 3-5", 5, 1.0),
        (Number(last=True), "#### -4", -4, 1.0),
        (Number(last=True), "no idea", 18, 0.0),
        (Number(last=True), "The answer is <18", 18, 0.0),
        (Number(last=True), "It is >= 18.", 18, 0.0),
        (Number(last=True), "\u2264 $18", 18, 0.0),
        (Number(last=True), r"$x \geq 18$", 18, 0.0),
        (Number(last=True), "It is 18 (> 17).", 18, 1.0),
        (Number(last=True), "It is 18 [3].", 18, 1.0),
        (Number(last=True), "It is 18 [3].", 3, 0.0),
        (Number(last=True), "18%[3][4, 5]", 18, 1.0),
        (Number(last=True), "It is **18**. [3-5]", 18, 1.0),
        (Number(last=True, unit="km"), "18 km [3]", 18, 1.0),
        (Number(last=True), "18 [14, 22]", 18, 1.0),
        (Number(last=True), "3 boxes: [18]", 18, 1.0),
        (Number(last=True), "1. [18]", 18, 1.0),
        (Number(last=True), "3 of [18.5]", 18.5, 1.0),
        (Number(last=True), "3 of [2018]", 2018, 1.0),
        (Number(last=True), "18 (\u00b12)", 18, 1.0),
        (Number(last=True), "18 \u00b1 2 kg", 18, 1.0),
        (Number(last=True), "18 \u00b1 2 kg", 2, 0.0),
        (Number(last=True), "18 +/- 2", 18, 1.0),
        (Number(last=True), r"$18 \pm 2$", 18, 1.0),
        (Number(last=True), "x = \u00b118", 18, 0.0),
        (Number(), "18 \u00b1 2", 18, 0.0),
        (Number(last=True), "~18", 18, 1.0),
        (Number(last=True), "so -> 18", 18, 1.0),
        (Number(last=True), "=> 18", 18, 1.0),
        (Number(last=True), "> 18", 18, 1.0),
        (Number(last=True), "3 and <i>18", 18, 1.0),
        (Number(last=True), "3 < x, so x is 18", 18, 1.0),
        (Number(last=True), r"\boxed{5}? No, \boxed{18}. Check: 2 * 9 = 18, 3 * 6 = 17", 18, 1.0),
        (Number(last=True), r"\boxed{\frac{1}{2}}, as 3 of 6", 0.5, 1.0),
        (Number(last=True), "<answer>18</answer> because 3 * 6", 18, 1.0),
        (Number(last=True), "<b>3</b> boxes of <b>6</b> make 18", 18, 1.0),
        (Number(absolute=0.5), "18.4", 18, 1.0),
        (Number(absolute=0.5), "18.6", 18, 0.0),
        (Number(relative=0.01), "101", 100, 1.0),
        (Number(relative=0.01), "102", 100, 0.0),
        (Number(unit="kg"), "18 kg", "18", 1.0),
        (Number(last=True), "1M", 1, 0.0),
        (Number(last=True), "It is $1.5M.", 1500000, 1.0),
        (Number(), "5k", "5000", 1.0),
        (Number(last=True), "1.5M", "1.5M", 1.0),
        (Number(last=True), "18kg and no B2B", 2, 1.0),
        (Number(unit="K"), "300K", 300, 1.0),
        (Number(unit="k"), "300K", 300, 1.0),
        (Number(multiples={}, last=True), "Room 12B", 12, 1.0),
        (Number(multiples={"million": 1e6}, last=True), "About 1 million.", 1, 0.0),
        (Number(multiples={"million": 1e6}, last=True), "About 1.5 Million people", 1500000, 1.0),
        (Number(multiples={"million": 1e6}, last=True), "a $2-million house", 2000000, 1.0),
        (Number(multiples={"million": 1e6}), "2 million", "2 million", 1.0),
        (Number(multiples={"million": 1e6}, last=True), "3 millions", 3, 1.0),
        (Number(multiples={"Mio.": 1000000}), "1,5 Mio.", 1500000, 1.0),
        (Number(multiples={"m": 0.001}), "5m", "0.005", 1.0),
        (Number(multiples={"m": 0.001}), "5M", "0.005", 0.0),
        (Number(last=True), "約3万円です", 30000, 1.0),
        (Number(last=True), "約3万円です", 3, 0.0),
        (Number(), "2億3000万", 230000000, 1.0),
        (Number(), "1.5亿", 150000000, 1.0),
        (Number(), "3千万", 30000000, 1.0),
        (Number(), "１２万３４５６", 123456, 1.0),
        (Number(last=True), "5千米", 5, 1.0),
        (Number(last=True), "100万人中の3万", 30000, 1.0),
        (Number(unit="万"), "3万", 3, 1.0),
        (Number(unit="万", last=True), "約3万", 3, 1.0),
        (Number(unit="EUR"), "EUR 18", 18, 1.0),
        (Number(decimal=","), "1.234", 1234, 1.0),
        (Number(decimal=","), "1,234", 1.234, 1.0),
        (Number(percent=True), "18 %", 0.18, 1.0),
        (Number(percent=True, last=True), "It is 18%.", "0.18", 1.0),
    ],
)
async def test_options_of_numbers(reward: Any, answer: str, target: Any, value: float) -> None:
    assert await grade(reward, answer, target) == value


@pytest.mark.parametrize(
    ("answer", "target", "value"),
    [
        ('{"cafe\u0301": [{"e\u0301": 1}]}', {"caf\u00e9": [{"\u00e9": 1}]}, 1.0),
        ('[{"caf\u00e9": 2}, {"caf\u00e9": 1}]', [{"cafe\u0301": 2}, {"cafe\u0301": 1}], 1.0),
        ('{"cafe": 1}', {"caf\u00e9": 1}, 0.0),
        ('{"CAF\u00c9": 1}', {"caf\u00e9": 1}, 0.0),
    ],
)
async def test_names_of_fields_are_the_same_in_either_form_of_their_letters(
    answer: str, target: Any, value: float
) -> None:
    assert await grade(JsonFields(), answer, target) == value
    assert await grade(ItemList(exact=True), f"[{answer}]", [target]) == value


@pytest.mark.parametrize(
    ("answer", "target", "value"),
    [
        ("true", True, 1.0),
        ("```json\nfalse\n```", False, 1.0),
        ("1", True, 0.0),
        ("42.0", 42, 1.0),
        ('"42"', 42, 0.0),
        ("It is 42.", 42, 0.0),
        ("NaN", 42, 0.0),
        ('{"a": 42}', 42, 0.0),
    ],
)
async def test_json_may_be_a_number_or_a_truth_value(answer: str, target: Any, value: float) -> None:
    assert await grade(JsonFields(), answer, target) == value


async def test_a_critique_says_how_a_multiplied_number_was_read() -> None:
    row = Example("row7", {"input": "q"}, 12)
    wrong = await Number(last=True).grade(MemoryRun(), row, Completion("Room 12B"))
    assert wrong.critique == 'The answer "Room 12B", read as 12000000000, should be 12.'
    plain = await Number(last=True).grade(MemoryRun(), row, Completion("It is 13."))
    assert plain.critique == 'The answer "It is 13." should be 12.'


@pytest.mark.parametrize(
    "multiples", [{"": 10}, {"12": 10}, {"dozen": 12}, {"k": 0}, {"k": True}, {"k": float("inf")}]
)
def test_a_factor_that_is_no_power_of_ten_is_refused(multiples: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="multiples of number"):
        Number(multiples=multiples)


@pytest.mark.parametrize(
    ("reward", "answer", "target", "value"),
    [
        (Number(), "- 42", 42, 1.0),
        (Number(), "- 42", "42", 1.0),
        (Number(), " \u2013 $42", 42, 1.0),
        (Number(), "- 42", -42, 0.0),
        (Number(), "- -42", -42, 1.0),
        (Number(), "-42", -42, 1.0),
        (Number(), "\u221242", -42, 1.0),
        (Number(), "\u2212 42", -42, 1.0),
        (Number(), "- 42", "- 42", 1.0),
        (Number(), "-42", "- 42", 1.0),
        (Number(last=True), "The sums:\n- 41\n- 42", 42, 1.0),
        (Number(last=True), "The sum:\n  - -42", -42, 1.0),
        (Number(last=True), "It is - 42", -42, 1.0),
        (ExactMatch(), "- 42", 42, 1.0),
        (ExactMatch(), "- 42", -42, 0.0),
        (Contains(), "- 41\n- 42", 42, 1.0),
        (Contains(), "- 41\n- 42", -42, 0.0),
    ],
)
async def test_the_dash_of_a_list_is_no_sign(reward: Any, answer: str, target: Any, value: float) -> None:
    assert await grade(reward, answer, target) == value


@pytest.mark.parametrize(
    ("answer", "target", "value"),
    [
        (r"\boxed{\frac{3}{4}}", "3/4", 1.0),
        (r"$3\frac12$", "7/2", 1.0),
        (r"-\frac{1}{2}", -0.5, 1.0),
        ("2/4", "1/2", 1.0),
        ("It is 1/2.", 2, 0.0),
        ("5/10", 10, 0.0),
        ("2½ cups", "2 1/2", 1.0),
        ("In all 3 1/2", 3.5, 1.0),
        ("In 2024 1/2 of them", 0.5, 1.0),
        ("1/3", "0.333", 0.0),
        ("1/0", 0, 0.0),
        ("On 3/4/2024", 2024, 1.0),
        ("1.5 × 10^6", 1.5e6, 1.0),
        (r"1.5 \times 10^{6}", 6, 0.0),
        ("10⁻³", 0.001, 1.0),
        ("2²", 2, 0.0),
        ("2^{10}", 1024, 1.0),
        (r"\$70{,}000", 70000, 1.0),
        (r"1\,234\,567", 1234567, 1.0),
        (r"20\%", 20, 1.0),
        ("١٬٢٣٤٫٥", 1234.5, 1.0),
        ("(5,-3)", -3, 1.0),
        ("(5,-3)", 3, 0.0),
    ],
)
async def test_fractions_powers_and_latex_are_numbers(answer: str, target: Any, value: float) -> None:
    assert await grade(Number(last=True), answer, target) == value


@pytest.mark.parametrize("part", ["1", "1/", "1,", "^1", "½", "1 / ", r"\frac{1}{", "1.5 x "])
def test_long_texts_of_numbers_are_read_in_time(part: str) -> None:
    assert len(list(numbers_in(part * 5000))) <= 5001


@pytest.mark.parametrize("target", [1_000_000_001, 10**19 + 1, -(10**20) - 1, 4_000_000_000_000_000_001])
@pytest.mark.parametrize(
    "reward",
    [
        *(Number(), Number(last=True), ExactMatch(), ExactMatch(normalise=True), F1(), Contains()),
        *(Regex(r"-?\d+"), JsonFields(), JsonFields(strict=True), ItemList(exact=True)),
    ],
)
async def test_whole_numbers_are_exact(reward: Any, target: int) -> None:
    wrap = {"json": '{{"n": {}}}', "list": "[{}]"}.get(reward.name, "{}")
    wanted: Any = {"json": {"n": target}, "list": [target]}.get(reward.name, target)
    values = [await grade(reward, wrap.format(answer), wanted) for answer in (target, target - 1, target + 1)]
    assert values == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("reward", "answer", "target", "value"),
    [
        (Number(relative=1e-9), "1000000000", 1_000_000_001, 1.0),
        (Number(absolute=1), "1000000000", 1_000_000_001, 1.0),
        (Number(), "1000000000", "1000000001", 0.0),
        (Number(), "1000000000.5", "1000000001.4", 0.0),
        (Number(), "1234567890.12", 1234567890.1200001, 1.0),
        (Number(), "0.3", 0.1 + 0.2, 1.0),
        (Number(), "0.33333333", 1 / 3, 0.0),
        (Number(), "0.3333333333", 1 / 3, 1.0),
        (Number(), "2.5e-12", 3.5e-12, 0.0),
    ],
)
async def test_other_numbers_differ_by_rounding_at_most(
    reward: Any, answer: str, target: Any, value: float
) -> None:
    assert await grade(reward, answer, target) == value


@given(st.integers(-(10**12), 10**12), st.sampled_from([",", " ", "'", "\u202f", ""]))
def test_a_number_with_signs_for_thousands_is_itself(number: int, sign: str) -> None:
    assert parse_number(f"{number:,}".replace(",", sign)) == number


@pytest.mark.parametrize("target", ["apples", float("nan"), float("inf"), True, {"a": 1}, None])
def test_a_target_that_is_no_number_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="row row7 is no number"):
        Number().check(Example("row7", {}, target))


def test_a_target_with_a_numeral_is_refused_with_the_option_that_reads_it() -> None:
    with pytest.raises(
        UsageError, match=r"If million multiplies the number, write multiples: \{million: 1000000\}"
    ):
        Number().check(Example("row7", {}, "1.5 million"))


@pytest.mark.parametrize(
    ("answer", "target", "warned"),
    [
        *[
            ("1.5 million people", 1500000, True),
            ("1,5 Millionen", 1500000, True),
            ("12 thousand", "12000", True),
        ],
        *[
            ("15 apples", 150, False),
            ("1.5 million", 1600000, False),
            ("3 of 5", 7, False),
            ("1500 m", 15, False),
        ],
    ],
)
@pytest.mark.parametrize("last", [False, True])
async def test_an_answer_that_is_the_target_but_for_a_numeral_is_warned_of(
    tmp_path: Path, last: bool, answer: str, target: Any, warned: bool
) -> None:
    result = await whet.aevaluate(
        "{{input}}",
        data=[{"input": f"q{n}", "target": target} for n in range(6)],
        reward={"number": {"last": last}},
        lm=lambda messages: answer,
        split="validation",
        run=tmp_path / "run",
    )
    texts = [text for text in result.warnings if "multiples" in text]
    assert result.score.mean == 0.0 and len(texts) == warned
    assert all(f'such as "{answer}"' in text for text in texts)
    assert result.parts == ({"multiplied_by_a_word": 1.0} if warned else {})


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (r"So $\boxed 42$.", 42),
        (r"\boxed7", 7),
        (r"\boxed 7 of 8", 7),
        (r"Not in \boxed a number: not 7 but then 9", 9),
    ],
)
async def test_a_box_without_braces_holds_a_number(answer: str, number: int) -> None:
    assert await grade(Number(last=True), answer, number) == 1.0


@pytest.mark.parametrize("options", [{"absolute": -1.0}, {"decimal": ";"}])
def test_unusable_options_of_numbers_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Number(**options)


@pytest.mark.parametrize("reward", [ExactMatch(), ExactMatch(normalise=True), F1(), Contains()])
async def test_a_target_that_is_a_number_by_its_type_is_compared_as_one(reward: Any) -> None:
    assert [await grade(reward, answer, 18.0) for answer in ("18", "18.00", "$18")] == [1.0, 1.0, 1.0]
    assert await grade(reward, "19", 18) == 0.0 and await grade(reward, "180", 18) == 0.0


async def test_digits_are_not_contained_in_a_longer_number() -> None:
    """18 was found in 18e3 and in 18 000, which the reward `number` reads as one number."""
    for longer in ("18e3", "18E3", "18 000", "18_000", "18'000", "18 x 10^3"):
        assert await grade(Contains(), f"It is {longer}.", "18") == 0.0, longer
    for alone in ("It is 18.", "18 e", "18 x 20", "of 18 100s"):
        assert await grade(Contains(), alone, "18") == 1.0, alone


@pytest.mark.parametrize("reward", [ExactMatch(), ExactMatch(normalise=True), F1()])
async def test_a_text_that_looks_like_a_number_stays_a_text(reward: Any) -> None:
    assert await grade(reward, "007", "7") == 0.0 and await grade(reward, "7", "007") == 0.0
    assert await grade(reward, "007", "007") == 1.0
    assert await grade(reward, "3.5", "35") == 0.0 and await grade(reward, "-5", "5") == 0.0


@pytest.mark.parametrize(
    ("answer", "target", "partial"),
    [
        ('{"a":1}', '{"a": 1}', 1.0),
        ('{"a": 1.0, "b": "X "}', {"b": "x", "a": 1}, 1.0),
        ('```json\n{"a": 1}\n```', {"a": 1}, 1.0),
        ('{"a": 1}\n\nReferences: [1]', {"a": 1}, 1.0),
        ('From {"a": 1} I take [1, 2].', [1, 2], 1.0),
        ('[{"a": 1}, {"a": 2}], see [1].', [{"a": 1}, {"a": 2}], 1.0),
        ('The result is {"a": "1"} as asked.', {"a": 1}, 1.0),
        ('{"a": "one"}', {"a": 1}, 0.0),
        ('{"a": 7}', {"a": "007"}, 0.0),
        ('{"a": "7"}', {"a": "007"}, 0.0),
        ('{"a": 1, "a": 2}', {"a": 2}, 1.0),  # of a key that stands twice the last one counts
        ('{"a": 2, "a": 1}', {"a": 2}, 0.0),
        ('First {"a": 2}, then {"a": 1}', {"a": 1}, 1.0),
        ("[1, 2]", "[1,2]", 1.0),
        ('{"a": 1, "b": 3}', {"a": 1, "b": 2}, 0.5),
        ('{"a": 1}', {"a": 1, "b": {"c": 2}}, 0.5),
        ('{"a": 1, "z": 0}', {"a": 1}, 0.5),
        ('{"a": true}', {"a": 1}, 0.0),
        ('{"a": null}', {"a": "null"}, 0.0),
        ("{'a': 1}", {"a": 1}, 0.0),
        ("none", {"a": 1}, 0.0),
        ('{"a": {"b": 1}}', {"a.b": 1}, 0.0),
        ('{"a[0]": 1}', {"a": [1]}, 0.0),
        ('{"a.b": 1}', {"a.b": 1}, 1.0),
        ('{"a": NaN}', {"a": "NaN"}, 0.0),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}], 1.0),  # all accepted answers as one list
        ('[{"a": 1}]', [{"a": 1}], 1.0),
        ("[[1, 2]]", [1, 2], 0.0),
        ('{"a": [2, 3, 4]}', {"a": [1, 2, 3, 4]}, 0.75),
        ('{"a": [0, 1, 2, 3]}', {"a": [1, 2, 3]}, 0.75),
        ('{"a": [1, 9, 3]}', {"a": [1, 2, 3]}, 1 - 1 / 3),
        ('{"a": [3, 2, 1]}', {"a": [1, 2, 3]}, 1 - 2 / 3),
        ('{"a": [{"n": "b", "q": 2}]}', {"a": [{"n": "a", "q": 1}, {"n": "b", "q": 2}]}, 0.5),
        (
            '{"a": [{"n": "b", "q": 3}, {"n": "c", "q": 3}]}',
            {"a": [{"n": "a", "q": 1}, {"n": "b", "q": 2}, {"n": "c", "q": 3}]},
            0.5,
        ),
        ('{"a": [[2], [3, 4]]}', {"a": [[1], [2], [3, 4]]}, 0.75),
    ],
)
async def test_json_is_compared_by_field(answer: str, target: Any, partial: float) -> None:
    assert await grade(JsonFields(partial=True), answer, target) == partial
    assert await grade(JsonFields(), answer, target) == float(partial == 1.0)


@pytest.mark.parametrize(
    ("answer", "value"), [("[1, 2, 3]", 1.0), ("[0, 1, 2]", 0.0), ("[1, 0, 2]", 0.0), ("[1]", 0.0)]
)
async def test_more_items_are_allowed_behind_the_last_one_only(answer: str, value: float) -> None:
    assert await grade(JsonFields(extra=True), f'{{"a": {answer}}}', {"a": [1, 2]}) == value
    assert (
        await grade(JsonFields(extra=True, partial=True), f'{{"a": {answer}}}', {"a": [1, 2]}) == 1.0
    ) == (value == 1.0)


def test_lists_that_are_nested_or_long_are_compared_in_time() -> None:
    """Each field of one list may be compared with each one of the other, but not for every level or list anew."""
    calls = list[object]()

    def is_right(one: object, other: object) -> bool:
        calls.append(one)
        return one == other

    nested: list[object] = [0]
    for _ in range(90):
        nested = [nested]
    assert list(Alignment(is_right).pairs([1, nested], [nested]))
    assert list(Alignment(is_right).pairs([*range(1, 3_000)], [*range(3_000)]))
    assert list(Alignment(is_right).pairs([*range(3_000)], [*range(3_000, 0, -1)]))
    lists = [[[n, m] for m in range(30)] for n in range(100)]
    assert list(Alignment(is_right).pairs(lists, [one[::-1] for one in lists]))
    assert len(calls) < 300_000


async def test_options_of_json() -> None:
    assert await grade(JsonFields(extra=True), '{"a": 1, "z": 0}', {"a": 1}) == 1.0
    assert await grade(JsonFields(strict=True), '{"a": "X"}', {"a": "x"}) == 0.0
    assert await grade(JsonFields(strict=True), '{"a": "1"}', {"a": 1}) == 0.0
    assert await grade(JsonFields(strict=True), '{"a": 1}', {"a": "1"}) == 0.0
    assert await grade(JsonFields(bare=True), 'It is {"a": 1}', {"a": 1}) == 0.0
    assert await grade(JsonFields(), '{"a": 2}', [{"a": 1}, {"a": 2}]) == 1.0  # accepted answers
    assert await grade(JsonFields(), "[" * 100_000, {"a": 2}) == 0.0
    with pytest.raises(UsageError, match="row row7 is no JSON"):
        JsonFields().check(Example("row7", {}, "{broken"))


async def test_a_critique_of_json_names_the_fields() -> None:
    graded = await JsonFields().grade(
        MemoryRun(), Example("e", {}, {"a": {"b": 1}, "c": 2}), Completion('{"a": {"b": 7}}')
    )
    assert (
        graded.critique
        == 'The field `a.b` is "7"; it should be "1".\nThe field `c` is missing; it should be "2".'
    )


@pytest.mark.parametrize(
    ("answer", "target", "f1"),
    [
        ("billing, login", ["login", "Billing"], 1.0),
        ('["login"]', ["login", "billing"], 2 / 3),
        ("- login\n- billing", "billing;login", 1.0),
        ("The labels: login, billing.", ["login", "billing"], 1.0),
        ('{"labels": ["login"]}', "login", 1.0),
        ("标签：退款、技术", ["退款", "技术"], 1.0),
        ("1; 2", [1.0, 2], 1.0),
        ("[]", [], 1.0),
        ("a, a, b", ["a", "b"], 1.0),
        ("1. red 2. blue", ["blue", "red"], 1.0),
        ("The colours: (1) red; (2) blue, and (3) green.", ["blue", "red", "green"], 2 / 3),
        ("1) 5 2) 7", [5, 7], 1.0),
        ("1. red 3. blue", ["red", "blue"], 0.0),
        ("version 1. 2", ["version 1. 2"], 1.0),
        ("c", ["a", "b"], 0.0),
        ('[[4, 9, "per"], [0,3,"PER"]]', [[0, 3, "PER"], [4, 9, "PER"]], 1.0),
        ("red, green, and blue", ["red", "green", "blue"], 1.0),
        ("rot, grün und blau", ["rot", "grün", "blau"], 1.0),
        ("red and blue", ["red", "blue"], 1.0),
        ("salt and pepper, oil", ["salt and pepper", "oil"], 1.0),
        ("red, not blue", ["red", "blue"], 0.5),
        ("not red", ["red"], 0.0),
        ("C", ["C++"], 0.0),
        ("C++, C#", ["C#", "C++"], 1.0),
        ("1", ["-1"], 0.0),
        (">5", ["<5"], 0.0),
        ("5%", ["5%", "5"], 2 / 3),
        ("**a**; \u2705 b.", ["a", "b"], 1.0),
        ("Here:\n```\na\nb\n```", ["a", "b"], 1.0),
    ],
)
async def test_lists_are_compared_without_order(answer: str, target: Any, f1: float) -> None:
    assert await grade(ItemList(), answer, target) == pytest.approx(f1)
    assert await grade(ItemList(exact=True), answer, target) == float(f1 == 1.0)


@pytest.mark.parametrize(
    ("answer", "f1"),
    [
        ('[{"type": "PER", "name": "bob"}, {"name": "Ann", "type": "PER"}]', 1.0),
        ('{"entities": [{"name": "Ann", "type": "PER"}]}', 2 / 3),
        ('{"name": "Ann", "type": "PER"}\n{"name": "Bob", "type": "PER"}', 1.0),
        ('[{"name": "Ann", "type": "ORG"}]', 0.0),
        ("Ann, Bob", 0.0),
    ],
)
async def test_lists_of_objects_are_compared_by_their_fields(answer: str, f1: float) -> None:
    target = [{"name": "Ann", "type": "PER"}, {"name": "Bob", "type": "PER"}]
    assert await grade(ItemList(), answer, target) == pytest.approx(f1)
    assert await grade(ItemList(), answer, json.dumps(target)) == pytest.approx(f1)


@pytest.mark.parametrize(
    "answer",
    [
        "2024-03-05",
        "2024-03-05T23:30:00Z",
        "20240305",
        "2024/3/5",
        "05.03.2024",
        "5 March 2024",
        "Mar 5, 2024",
        "2024年3月5日",
        "2024년 3월 5일",
        "２０２４-03-05",
        "March 5,2024",
        "Mar-05-2024",
        "2024-3-5T1:00",
        "Tuesday, 2024-03-05",
        "5 March 2024 10:30 PM UTC",
    ],
)
async def test_equal_dates_are_equal(answer: str) -> None:
    assert await grade(Date(), answer, "2024-03-05") == 1.0


@pytest.mark.parametrize(
    "answer", ["March 2024", "5", "may", "", "2024-03-06", "05/03/2024", "2024-02-30", "Tue 05/03/2024"]
)
async def test_what_is_another_date_or_none_or_one_of_two_is_wrong(answer: str) -> None:
    assert await grade(Date(), answer, "2024-03-05") == 0.0


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("de", "Dienstag, 5. März 2024"), ("de", "5. Mär. 2024, 12:30"), ("fr", "5 mars 2024"), ("es", "5 de marzo de 2024"),
        ("ru", "5 марта 2024 г."), ("hu", "2024. március 5."), ("pt-BR", "5º de março de 2024"), ("ar", "٥ مارس ٢٠٢٤"),
        ("de, fr", "5 mars 2024"), ("de fr", "5. märz 2024"), ("tr", "5 Mart 2024 Salı"), ("de", "March 5, 2024"),
        ("fi", "2024-03-05"),
    ],
)  # fmt: skip
async def test_months_have_names_in_the_languages_that_a_task_names(language: str, answer: str) -> None:
    pytest.importorskip("babel")
    assert await grade(Date(language=language), answer, "2024-03-05") == 1.0
    sentence = Date(language=language, last=True)
    assert await grade(sentence, f"2024-03-04? No: {answer}.", "2024-03-05") == 1.0
    if answer[0] != "2" and answer[0] != "M":
        assert await grade(Date(), answer, "2024-03-05") == 0.0


@pytest.mark.parametrize(
    "answer", ["5. März oder April 2024", "31. Februar 2024", "5. März 24", "März 2024", "5. Märzen 2024"]
)
async def test_what_is_no_whole_date_with_a_month_is_none(answer: str) -> None:
    pytest.importorskip("babel")
    assert await grade(Date(language="de"), answer, "2024-03-05") == 0.0


def test_languages_of_months_are_refused_with_a_reason() -> None:
    pytest.importorskip("babel")
    with pytest.raises(UsageError, match='no language "xx"'):
        Date(language="xx")
    with pytest.raises(UsageError, match=r'"listopad\w*" is another month in hr'):
        Date(language="pl, hr")
    with pytest.raises(UsageError, match=r"row7 is no date.*language: de"):
        Date().check(Example("row7", {}, "5. März 2024"))
    Date(language="de").check(Example("row7", {}, "5. März 2024"))


def test_without_babel_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    month_names.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'whet\[dates\]'"):
        Date(language="de")


async def test_options_of_dates() -> None:
    assert await grade(Date(first="day"), "05/03/2024", "2024-03-05") == 1.0
    assert await grade(Date(first="month"), "05/03/2024", "2024-05-03") == 1.0
    assert await grade(Date(), "13/03/2024", "2024-03-13") == 1.0  # only one reading
    assert await grade(Date(last=True), "<answer>2024-03-05</answer>, not 2024-03-06", "2024-03-05") == 1.0
    assert await grade(Date(last=True), "4-5 March 2024", "2004-03-05") == 0.0  # two days, no year 2004
    assert await grade(Date(last=True), "Not 2024-03-04 but March 5, 2024.", "2024-03-05") == 1.0
    with pytest.raises(UsageError, match="row row7 is 2024-03-05 or 2024-05-03"):
        Date().check(Example("row7", {}, "05/03/2024"))
    with pytest.raises(UsageError, match="row row7 is no date"):
        Date().check(Example("row7", {}, "1732091400000"))


@pytest.mark.parametrize(
    ("one", "other"),
    [("今天天气很好", "天气很好"), ("とても美味しいです", "美味しい"), ("วันนี้อากาศดี", "อากาศดี")],
)
def test_f1_of_scripts_without_blanks_counts_characters(one: str, other: str) -> None:
    assert 0.5 < f1_score(one, other) < 1.0
    assert f1_score(one, f"「{one}」。") == 1.0


async def test_a_critique_tells_a_text_from_a_truth_value() -> None:
    row = Example("row7", {"input": "q"}, {"a": True})
    graded = await JsonFields().grade(MemoryRun(), row, Completion('{"a": "true"}'))
    assert graded.critique == 'The field `a` is "true" (a text); it should be "true" (a truth value).'


@pytest.mark.parametrize(
    "form",
    [
        *("<![CDATA[{}]]>", "<answer><![CDATA[{}]]></answer>", "<answer>\n<![CDATA[\n{}\n]]>\n</answer>"),
        *("**<answer>{}</answer>**", "<answer>**{}**</answer>", "So **<answer>**{}**</answer>**, I think."),
    ],
)
async def test_answers_in_tags_may_stand_in_literal_text_of_xml_or_be_emphasised(form: str) -> None:
    cases: list[tuple[Any, str, Any]] = [
        ({"number": {"last": True}}, "72", 72),
        ({"date": {"last": True}}, "2024-05-03", "2024-05-03"),
        ({"list": {"exact": True}}, "a, b", ["a", "b"]),
        ("math_equal", r"\frac{1}{2}", "1/2"),
    ]
    cases += [] if "So" in form else [({"json": {}}, '{"a": [[1]]}', {"a": [[1]]})]
    for spec, written, target in cases:
        reward = build_reward(spec, Path(), "task.yaml:1")
        assert await grade(reward, form.format(written), target) == 1.0, spec
