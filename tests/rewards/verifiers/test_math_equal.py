"""Answers as mathematics: equal forms are equal, different numbers are not, and hostile formulas are refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.verifiers.grading import grade

from whet._util.confined import Limits, run_confined
from whet.errors import UsageError
from whet.rewards.verifiers.math_equal import _PROCESS, MathEqual, _Pair
from whet.rewards.verifiers.math_reading import Unread, read_formula

pytest.importorskip("sympy")
Written = tuple[Fraction, list[str]]


def combine(children: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    """Two values and an operation, each written in several ways."""

    def join(sign: str, left: Written, right: Written) -> Written:
        (a, left_forms), (b, right_forms) = left, right
        pairs = list(zip(left_forms, right_forms, strict=True))
        if sign == "+":
            return a + b, [f"({x} + {y})" for x, y in pairs]
        if sign == "-":
            return a - b, [rf"\left({x} - ({y})\right)" for x, y in pairs]
        if sign == "*" or not b:
            return a * b, [f"{pairs[0][0]} * {pairs[0][1]}", rf"{{{pairs[1][0]}}} \cdot {{{pairs[1][1]}}}"]
        return a / b, [f"(({pairs[0][0]})/({pairs[0][1]}))", rf"\dfrac{{{pairs[1][0]}}}{{{pairs[1][1]}}}"]

    return st.builds(join, st.sampled_from("+-*/"), children, children)


NUMBERS = st.fractions(-50, 50, max_denominator=20).map(
    lambda q: (q, [f"({q.numerator}/{q.denominator})", rf"(\frac{{{q.numerator}}}{{{q.denominator}}})"])
)
WRITTEN = st.recursive(NUMBERS, combine, max_leaves=6)


@settings(max_examples=60)
@given(WRITTEN, WRITTEN)
def test_what_is_written_with_numbers_is_its_exact_value(one: Written, other: Written) -> None:
    for text in one[1]:
        assert read_formula(text).node.value == one[0]
    verdict = MathEqual().find_fault(one[1][0], [other[1][1]])
    assert (verdict == "") == (one[0] == other[0])


@given(st.text(alphabet=r"0123456789xe+-*/^!_(){}[]|,.=<>$%\ frac sqrt", max_size=60))
def test_every_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        read_formula(text)
    except Unread as error:
        assert str(error)


SAME = [
    ("0.5", r"\frac12"), ("75 \\times 10^{-2}", "3/4"), (r"2\frac{1}{2}", "5/2"), (r"-2\frac{1}{2}", "-2.5"), ("2^{10}", "1024"),
    ("1,234", "1234"), (r"1{,}234", "1234"), ("5!", "120"), (r"|{-3}|", "3"), ("[0, 1)", "[0,1.0)"), 
    ("(1, 2)", r"\left(1,\,2\right)"), (r"\{1, 2\}", "{2,1}"), ("1, 2", r"\{2,1\}"), ("x = 5", "5"), ("x > 3", "3 < x"),
    (r"2 \pm \sqrt{3}", r"\{2-\sqrt3, 2+\sqrt3\}"),
    (r"(-\infty, 3] \cup [5, \infty)", r"[5,\infty) \cup (-\infty,3]"), (r"\text{(B)}", r"\text{(B)}"), (r"\text{B}", "B"),
    ("5", r"5\text{ cm}"), (r"5 \text{cm}^2", r"5\text{ cm}^{2}"), ("30", r"30^\circ"), ("$7", r"\$7"), ("7%", r"7\%"),
    (r"So it is $\frac{6}{4}$.", "3/2"), (r"\boxed{7}, since 3 + 4 = 7", "7"), ("<answer>7</answer>", "7"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\\frac{6}{2}&4\end{pmatrix}"), ("x_{1}", "x_1"),
    ("Answer: 2", "2"), ("Final answer: 2", "2"), ("**2**", "2"), 
    ("It is `2`.", "2"), ("A pen is $1 and a cup $2, so 1+2 = 3 in all.\n#### 3", "3"), ("As $x = 3$:\nFinal answer: 9", "9"),
    ("A cup is $2.\nSo it is 1.5", "1.5"), ("#### 2", "2"), ("So the final answer is 2.", "2"),
    ("1 + 1 = 2\nThe answer is **-2**.", "-2"), ("**Answer:** x = 2", "2"), ("\u7b54\u6848\u662f**2**\u3002", "2"), 
    ("La r\u00e9ponse : 1/2", "0.5"), ("2 1/3", "7/3"), ("It is -2 1/3", r"-\frac{7}{3}"),
    ("3 cm", r"3\text{ cm}"), ("3cm", r"3\text{ cm}"), ("It is **3 cm^2**.", r"3\text{ cm}^2"), ("So it is 3 m.", r"3\text{ m}"),
    ("It is -2", "-2"), ("So x = 2.", "2"), ("It costs $7.", r"\$7"), (r"Area: 3 \text{ cm}", r"3\text{ cm}"),
    (r"3\text{ cm}", "3 cm"), (r"\boxed{3\,\mathrm{cm}}", "3cm"), (r"\frac{1}{2}\text{ kg}", r"\frac{1}{2} kg"), ("3 cm", "3 cm"),
    ("xy", "$yx$"), ("yes", r"\text{yes}"), ("115 000", "115,000"), (r"1\ 234~567", "1 234 567"), ("It is 1\u202f234.", "1234"),
    (r"10,\!080", "10080"), (r"\text{East}", r"\text{east}"), ("**East**.", r"\text{east}"), ("C", r"\text{(C)}"),
    ("(C)", r"\text{(C)}"),
    ("[-2, 7]", r"x \in [-2,7]"), (r"x \in [-2,7]", "[-2,7]"), ("2516", "2516_8"), ("2516_8", "2516_{8}"),
    ("1/6", r"0.1\overline{6}"),
    ("1 : 2", "1:2"), (r"$\boxed{5}$, $\boxed{3}$.", "3, 5"), (r"\boxed{7}, \boxed{7}", "7"), (r"\fbox{7}", "7"),
    (r"1-\frac{1}{\mathrm{e}}", "1-1/e"), ("1-1/e", r"1-\frac{1}{\mathrm{e}}"), (r"\mathrm{i}^2", "-1"),
    (r"\boxed{\text{13}}", "13"), (r"\{4,3,2,1\}", r"\{1,3\} \cup \{2,4\}"), (r"(-\infty,5]", r"x \le 5"),
    (r"5 \ge x", r"(-\infty,5]"), ("x > 3", r"(3,\infty)"),
    (r"0 \le x < 1", "[0,1)"), ("[0, 1)", "1 > x >= 0"), ("x > 3", r"x \in (3,\infty)"), (r"x \in (3,\infty)", "3 < x"),
    ("$5", "5"), ("\u20ac 18,90", "18.90"), ("18,90 \u20ac", "18.9"), ("It costs $18.90.", "18.90"), ("18,90", "\u20ac18.90"),
    ("1.234,50 \u20ac", r"\$1{,}234.50".replace(r"\$", "\u20ac")), ("-$5", "-5"), ("US$ 5", r"\$5"), ("\u20b91,00,000", "100000"),
    (r"$\boxed 7$", "7"), (r"\boxed7.", "7"), (r"\boxed\frac12", "1/2"), (r"\boxed 3, \boxed 5", "3, 5"), (r"$\boxed x$", "x"),
    ("x = 6/2 = 3", "3"), (r"The area is $A = 3\cdot 4 = 12$.", "12"), (r"\boxed{3+4=7}", "7"), ("So 3+4=7", "7"),
    ("f(3)=12", "12"),
    (r"P(A)=\frac{2}{4}=\frac{1}{2}", "1/2"), ("$|AB|=12$", "12"), ("P(X=2)=1/4", "1/4"), (r"$\angle ABC = 30$", "30"),
    (r"\text{Area} = 12", "12"), ("Total = 5 * 3 = 15", "15"), ("x = 22/7 = 3.14", "3.14"), ("f(x) = x^2", "x^2"),
    ("f'(2)=4", "4"),
    ("y = 2x + 1", "y=2x+1"), ("L = 2*5 = 10 cm", r"10\text{ cm}"), ("2^{10} = 1024", "1024"), ("AB = 5", "5"),
    ("(1 000, 2)", "(1000,2)"), ("1 125/1000", "9/8"), (r"1 \frac{125}{1000}", "9/8"),
]  # fmt: skip
DIFFERENT = [
    ("0.333", r"\frac13"), ("1 + 1e-30", "1"), ("[0, 1)", "[0, 1]"), ("(2, 1)", "(1, 2)"), ("(1, 2)", r"\{1, 2\}"),
    (r"\{1, 2, 3\}", r"\{1, 2\}"), ("1, 1", r"\{1, 2\}"), ("1234.5", "1,234"), (r"\text{B}", r"\text{C}"), ("5%", "0.05"),
    (r"5 \text{m}", r"5 \text{cm}"), (r"5 \text{cm}", "5"), ("\u20ac5", r"\$5"), ("", "1"), ("0.1 + 0.2", "0.30000000000000004"),
    ("The answer is < 2", "2"), ("The answer is 2, not 3", "2"), ("The ratio is 1:2", "2"), ("2 5/3", "11/3"), ("2 1/3^2", "7/3"),
    
    ("18,90", "18.90"), (r"\boxed 42", "4"), ("\u20ac5 and \u20ac6", "5"),
    ("exec(2)", "2"), ("Answer: 2\nSo it is $3$.", "2"), ("It is 3 kg", r"3\text{ g}"), ("3 cm", "3"),
    (r"3\text{ m}", "3 cm"), (r"3\text{ cm}", "3 m"), (r"2\text{ cm}", "3 cm"), ("100 mm", "10 cm"), ("3", "3 cm"),
    ("So the cost xy = 2", "2"), ("2x+3=7", "7"), ("x+3 = 7", "7"), ("2x=6", "6"), ("|x|=3", "3"),
    ("x = 3 = 4", "3"), ("10", "x+y=10"),
    ("The answer is 2 3", "3"), ("Answer: 2\nAnswer: 3", "2"), ("Answer: 2 because of that", "2"), 
    ("(D)", r"\text{(C)}"), ("2516_7", "2516_8"), ("2516_8", "2516"), (r"x \in [-2,7)", r"x \in [-2,7]"),
    ("0.333", r"0.\overline{3}"), (r"1+\frac{1}{\mathrm{e}}", "1-1/e"), (r"\text{14}", "13"), ("1,2,3", r"\{1,3\} \cup \{2,4\}"),
    (r"(-\infty,5)", r"x \le 5"), ("x >= 3", r"(3,\infty)"), ("0 < x < 2", "(0,1)"), ("x < x + 1", r"(-\infty,\infty)"),
    ("1 < 2", "(1,2)"),
    ("2:1", "1:2"), (r"\boxed{5}, \boxed{3}", "3"), (r"\boxed{3}. So \boxed{5}", "3, 5"), ("1 2 3", "123"),
    ("12 34", "1234"), ("1 0000", "10000"), ("The answer minus - 2", "-2"), ("ab cd + 1", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "target"), SAME)
async def test_equal_forms_are_equal(answer: str, target: str) -> None:
    assert (await grade("math_equal", answer, {}, target)).critique is None


@pytest.mark.parametrize(("answer", "target"), DIFFERENT)
async def test_different_answers_are_different(answer: str, target: str) -> None:
    assert (await grade("math_equal", answer, {}, target)).value == 0.0


ENDS = ["{}", "Answer: {}", "#### {}", "So the final answer is **{}**.", "First 1/2, then 3.\nIt is {}."]


@given(st.integers(0, 99), st.fractions(0, 99, max_denominator=9), st.sampled_from(ENDS))
def test_an_answer_is_right_by_the_number_that_it_ends_with(target: int, said: Fraction, end: str) -> None:
    whole, part = divmod(said.numerator, said.denominator)
    mixed = f"{whole} {part}/{said.denominator}" if whole and part else str(said)
    for written in (str(said), mixed):
        assert (MathEqual().find_fault(end.format(written), [str(target)]) == "") == (said == target)


@pytest.mark.parametrize("target", ["yes", "no yes"])
async def test_a_word_is_no_product(target: str) -> None:
    with pytest.raises(UsageError, match="is a word"):
        await grade("math_equal", "sey", {}, target)
    assert (await grade("math_equal", r"\text{yes}", {}, r"\text{yes}")).value == 1.0


async def test_expressions_are_equal_where_sympy_proves_it() -> None:
    """Each item of a tuple is compared with its counterpart, all in one process."""
    graded = await grade(
        "math_equal", r"((x+1)^2, \sqrt{8}, 2x + 2y = 4)", {}, r"(x^2+2x+1, 2\sqrt2, x = 2 - y)"
    )
    assert graded.critique is None
    pairs = [
        _Pair(*(read_formula(text).node for text in pair)) for pair in (("x+1", "x-1"), ("3.14159", r"\pi"))
    ]
    question = {"pairs": [pair.to_json() for pair in pairs], "relative": 0.0}
    assert run_confined(_PROCESS, question, Limits())["same"] == [False, False]


@pytest.mark.long
async def test_forms_of_every_kind_are_equal_where_sympy_proves_it() -> None:
    answer = [
        "√12", r"\sin^2 x + \cos^2 x", r"\log_2 8", r"\ln(e^2)", "|x-1|", r"e^{i\pi}", r"\binom52", "xy",
        r"\frac{1}{\sqrt2}", "x²",
    ]  # fmt: skip
    target = ["2 sqrt(3)", "1", "3", "2", "|1-x|", "-1", "10", "y*x", r"\frac{\sqrt{2}}{2}", "x x"]
    graded = await grade("math_equal", f"({', '.join(answer)})", {}, f"({', '.join(target)})")
    assert graded.critique is None
    wrong = [(r"\sqrt{8}", "2.8284271247461903"), ("i", "1"), (r"\sqrt{x^2}", "x")]
    pairs = [_Pair(*(read_formula(text).node for text in pair)) for pair in wrong]
    question = {"pairs": [pair.to_json() for pair in pairs], "relative": 0.0}
    assert not any(
        run_confined(_PROCESS, question, Limits())["same"]
    )  # SymPy draws points: |x| - x may be undecided
    near = await grade({"math_equal": {"relative": 1e-3}}, "(3.1416, 100.05)", {}, r"(\pi, 100)")
    assert near.value == 1.0


ATTACKS = {
    "power of powers": ("9**9**9", "bits"),
    "power of powers, raised": ("9^{9^{9^{9}}}", "bits"),
    "factorial": ("99999999!", "factorial"),
    "factorial of factorials": ("3!!!", "factorials follow"),
    "exponent": ("1e999999999", "exponent"),
    "many digits": ("1" * 500, "digits"),
    "long": ("1+" * 5000 + "1", "characters"),
    "many signs": ("1+" * 900 + "1", "signs"),
    "parentheses": ("(" * 900, "nested"),
    "closed parentheses": ("(" * 300 + "1" + ")" * 300, "nested"),
    "roots": (r"\sqrt{" * 200 + "2" + "}" * 200, "nested"),
    "towers": ("2^" * 300 + "2", "nested"),
    "code": ("__import__('os').system('id')", '"_" is not read'),
    "code in letters": ("exec(1)", '"exec" is no name'),
    "attributes": ("x.__class__", "no sign between"),
    "division by zero": ("1/0", "divides by zero"),
    "words": (r"5 \text{ or } 6", "words"),
    "many pairs": (", ".join(f"x+{n}" for n in range(60)), "pairs"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attacks_earn_nothing_and_are_named(attack: str) -> None:
    answer, says = ATTACKS[attack]
    target = ", ".join(f"x-{n}" for n in range(1, 60)) if "pairs" in attack else "x^2 + 1"
    graded = await grade({"math_equal": {"timeout": 0.4, "memory": 512}}, answer, {}, target)
    assert graded.value == 0.0 and says in str(graded.critique), graded.critique


@pytest.mark.long
@pytest.mark.parametrize("answer", ["9^(9^(9*sqrt(1)))", "(x+y)^9999*(x-y)^9999 + 1"])
async def test_what_takes_sympy_too_long_is_refused(answer: str) -> None:
    graded = await grade({"math_equal": {"timeout": 0.4, "memory": 512}}, answer, {}, "x^2 + 1")
    assert graded.value == 0.0 and "refused" in str(graded.critique), graded.critique


async def test_what_cannot_be_compared_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"row7 is no formula: .*nobody"):
        await grade("math_equal", "1", {}, "nobody knows")
    with pytest.raises(UsageError, match="relative"):
        await grade({"math_equal": {"relative": -1}}, "1", {}, "1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'whet\[verifiers\]'"):
        await grade("math_equal", "1", {}, "1")
