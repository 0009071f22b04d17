"""Models in answers, solved: status, feasibility and optimum; hostile models are refused."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.verifiers.grading import grade

from whet.errors import UsageError
from whet.rewards.verifiers.linear_model import LinearModel, NoModel, read_model
from whet.rewards.verifiers.solver import Solver

pytest.importorskip("scipy")
LP = """\
\\ furniture
Maximize
 obj: 3 x + 2 y
Subject To
 c1: x + y <= 4
 c2: -1 <= x - y <= 2
Bounds
 0 <= x <= 3
 y <= 10
General
 x
End
"""
JSON = {
    "maximize": {"x": 3, "y": 2},
    "constraints": [{"terms": {"x": 1, "y": 1}, "<=": 4}, {"terms": {"x": 1, "y": -1}, ">=": -1, "<=": 2}],
    "bounds": {"x": [0, 3], "y": [0, 10]},
    "integer": ["x"],
}


def test_both_forms_are_the_same_model() -> None:
    one, other = read_model(LP), read_model(json.dumps(JSON))
    assert one == other == LinearModel(
        True, {"x": 3.0, "y": 2.0}, 0.0,
        [({"x": 1.0, "y": 1.0}, -math.inf, 4.0), ({"x": 1.0, "y": -1.0}, -1.0, 2.0)],
        {"x": (0.0, 3.0), "y": (0.0, 10.0)}, {"x"},
    )  # fmt: skip


def test_bounds_and_signs_of_the_lp_format() -> None:
    model = read_model(
        "min: 2a - b + 5 st 3 <= a + 2 b\n b = 7 bounds a >= -5\n-inf <= b <= 9\nc free binary d end"
    )
    assert model.constant == 5 and model.objective == {"a": 2.0, "b": -1.0} and not model.maximise
    assert model.rows == [({"a": 1.0, "b": 2.0}, 3.0, math.inf), ({"b": 1.0}, 7.0, 7.0)]
    assert model.bounds == {
        "a": (-5.0, math.inf),
        "b": (-math.inf, 9.0),
        "c": (-math.inf, math.inf),
        "d": (0.0, 1.0),
    }
    assert model.whole == {"d"}


async def test_the_optimum_counts() -> None:
    assert (await grade("solver", f"```lp\n{LP}```", {}, 11)).value == 1.0
    assert (await grade({"solver": {"measure": "sirl"}}, "maximize x*y st x <= 1 end", {}, 1)).value == 0.0


@pytest.mark.long
async def test_sirl_pays_for_the_way_and_status_and_zero_count() -> None:
    wrong = await grade({"solver": {"measure": "sirl"}}, LP, {}, 12)
    assert wrong.value == pytest.approx(1.5 / 2.5) and "optimum 11; it should be 12" in str(wrong.critique)
    assert (await grade("solver", "minimize x subject to x >= 0 end", {}, 0)).value == 1.0
    assert (await grade("solver", "min x st x >= 5\nx <= 4 end", {}, "infeasible")).value == 1.0
    assert (await grade("solver", "max x st x >= 5 end", {}, ["infeasible", "unbounded"])).value == 1.0
    with pytest.raises(UsageError, match="has no optimum: unbounded"):
        await grade({"solver": {"model": "m"}}, '{"x": 0}', {"m": "max x st x >= 0 end"}, None)


@pytest.mark.parametrize(
    ("answer", "value", "says"),
    [
        pytest.param('{"x": 3, "y": 1}', 1.0, "", marks=pytest.mark.long),
        pytest.param('{"x": 2, "y": 1}', 0.6, "is possible", marks=pytest.mark.long),
        ('{"x": 3, "y": 2}', 0.2, "break"),
        ('{"x": 2.5, "y": 1.5}', 0.2, "break"),
        ('{"x": 3}', 0.0, "no number for 1 variable"),
        ("x is 3", 0.0, "no number"),
    ],
)
async def test_an_assignment_is_checked_against_the_model_of_the_row(
    answer: str, value: float, says: str
) -> None:
    graded = await grade({"solver": {"model": "m", "measure": "sirl"}}, answer, {"m": LP})
    assert graded.value == pytest.approx(value) and says in (graded.critique or "")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("", "neither JSON nor the LP format"),
        ("maximize 3 x y st x <= 1", "not expected"),
        ("maximize x^2 st x <= 1", "not expected"),
        ("maximize x st x <= y", "not expected"),
        ("maximize x st x", "a comparison"),
        ("maximize", "no variables"),
        ("maximize 1e999 x st x <= 1", "no number"),
        ('{"maximize": {"x": "__import__"}}', "no number"),
        ('{"maximize": {"x": 1}, "constraints": [{}]}', "needs"),
        ('{"maximize": {"x": 1}, "constraint": []}', '"constraint"'),
        ('{"maximize": {"x": 1}, "offset": 2}', '"offset"'),
        ('{"maximize": {"x": 1}, "constraints": [{"terms": {"x": 1}, "<=": 1, "<": 2}]}', '"<"'),
        ('{"maximize": {"x": 1}, "integer": ["y"]}', "no variable of the model"),
        ("maximize x st " + "x + " * 50_000 + "x <= 1", "characters"),
        ("import os; os.system('id')", "neither"),
    ],
)
async def test_what_is_no_model_is_refused_by_name(answer: str, says: str) -> None:
    graded = await grade("solver", answer, {}, 1)
    assert graded.value == 0.0 and says in str(graded.critique), graded.critique


@pytest.mark.long
async def test_a_model_that_takes_too_long_is_refused() -> None:
    """Knapsacks with many equal items and no whole solution: a search without end."""
    terms = " + ".join(f"{2 * (k % 7) + 2} x{k}" for k in range(60))
    names = "\n".join(f"x{k}" for k in range(60))
    rows = "\n".join(
        " + ".join(f"{2 * ((k * j) % 9) + 2} x{k}" for k in range(60)) + f" = {201 + 2 * j}" for j in range(8)
    )
    graded = await grade({"solver": {"timeout": 0.3}}, f"min {terms} st {rows}\nbinary {names}\nend", {}, 1)
    assert graded.value == 0.0 and graded.critique is not None


async def test_smt_lib_is_checked_by_z3() -> None:
    pytest.importorskip("z3")
    text = "(declare-const x Int)(assert (> (* x x) 2))(assert (< x {}))"
    assert (await grade("solver", text.format(5), {}, "sat")).value == 1.0
    wrong = await grade("solver", "(declare-const x Int)(assert (< x x))", {}, "sat")
    assert wrong.value == 0.0 and "is unsat; it should be sat" in str(wrong.critique)
    assert "Z3 says" in str((await grade("solver", "(assert (> y 1))", {}, "sat")).critique)


async def test_targets_and_rows_that_cannot_be_compared_with_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="row7 is neither a number"):
        await grade("solver", LP, {}, "many")
    with pytest.raises(UsageError, match="row7 holds no linear program"):
        await grade({"solver": {"model": "m"}}, "{}", {"m": "max"}, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"whet\[solver\]"):
        await grade("solver", LP, {}, 1)


NAMES = ("x", "y")
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-5, 9)), min_size=1, max_size=3)


@pytest.mark.long
@settings(max_examples=4)
@given(ROWS, st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
def test_the_optimum_is_that_of_a_search_over_all_whole_points(
    rows: list[tuple[int, int, int]], cost: tuple[int, int]
) -> None:
    written = [{"terms": {"x": a, "y": b}, "<=": c} for a, b, c in rows]
    spec = {
        "minimize": dict(zip(NAMES, cost, strict=True)),
        "constraints": written,
        "bounds": {n: [0, 4] for n in NAMES},
        "integer": list(NAMES),
    }
    model = read_model(json.dumps(spec))
    points = [{"x": x, "y": y} for x, y in product(range(5), repeat=2)]
    kept = [cost[0] * p["x"] + cost[1] * p["y"] for p in points if not model.violations(p)]
    solved = Solver()._optimise(model)
    assert solved["value"] == pytest.approx(min(kept)) if kept else solved["status"] == "infeasible"


@given(st.text(alphabet="max minsubjecto+-*<=>:019.xye[]\\\n", max_size=60))
def test_every_text_is_read_or_refused(text: str) -> None:
    try:
        read_model("max " + text)
    except NoModel as error:
        assert str(error)
