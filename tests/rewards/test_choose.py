"""Which reward a column of targets gets."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from whet.rewards import choose_reward

LONG = "これはとても長い日本語の文で、短いラベルではありません"
NUMBER, TEXT = {"number": {"last": True}}, {"exact_match": {"normalise": True}}


@pytest.mark.parametrize(
    ("targets", "spec"),
    [
        (["a", "b"] * 5, "exact_match"),
        ([True, False] * 5, "exact_match"),
        (["1", "2", "3"] * 4, "exact_match"),  # grades
        ([18.0, 5.5, 3.0, 1.0], NUMBER),
        (["18", "$1,234.00", "7 %"], NUMBER),
        (["1.234,50", "12,5"], {"number": {"last": True, "decimal": ","}}),
        (["007", "012", "101"], TEXT),  # ids
        (['{"a": 1}', '{"a":2}'], "json"),
        ([{"a": 1}, {"a": 2}], "json"),
        ([[{"a": 1}, {"a": 2}], [], [{"a": 3}]], "list"),
        ([[[0, 3, "PER"]], [[1, 2, "ORG"], [4, 9, "PER"]]], "list"),
        (["1/2", "3/4", "5"], NUMBER),
        (["x^2+1", "3/4", r"\frac{1}{2}", "7"], "math_equal"),
        ([r"\text{Evelyn}", r"\frac{3}{4}", "p - q"], "math_equal"),
        (["(3,-4)", "(0, 1]", "5"], "math_equal"),
        ([["x+1", "1+x"], ["2"]], "math_equal"),
        ([r"\frac{1}{2}", "3/4"], NUMBER),
        (["A-1", "B-2", "3-1"], TEXT),  # codes and scores, which the parser reads too
        (["N/A", "2x"], TEXT),
        (["x^2+1", "Paris"], TEXT),
        (["x^2", "the square of x, or nothing at all"], "f1"),
        (['["a"]', '["a","b"]'], "list"),
        ([["a", "b"], ["b"], ["a"], ["b", "a"]] * 3, "list"),
        (["a;b", "a", "b", "b;a"] * 3, {"list": {"separator": ";"}}),
        (["Paris, France", "Rome, Italy"], TEXT),
        ([["Paris", "paris"], ["Rome"]], TEXT),  # accepted answers
        (["2024-01-05", "5 March 2024"], {"date": {"last": True}}),
        ([datetime.date(2024, 1, 5)], {"date": {"last": True}}),
        (["13/05/2024", "03/04/2024"], {"date": {"last": True, "first": "day"}}),
        (["03/13/2024", "03/04/2024"], {"date": {"last": True, "first": "month"}}),
        (["03/04/2024", "05/06/2024"], TEXT),  # nobody can know
        (["Paris", "Rome", "Oslo"], TEXT),
        (["+", "-", "*", "/", "<="], "exact_match"),
        (["(100)", "(101)", "(250)"], "exact_match"),  # perhaps negative: brackets count
        (["A", "B", "C", "D", "AB"], "exact_match"),  # an article is an answer
        (["U.S.", "US", "Peru"], "exact_match"),  # punctuation tells two apart
        (["返金", "技術", "請求"], TEXT),
        ([LONG, LONG + "ね"], "f1"),
        (["one sentence of more than five words", "and another one of more words"], "f1"),
    ],
)
def test_the_reward_fits_the_targets(targets: list[Any], spec: Any) -> None:
    choice = choose_reward(targets)
    assert choice.spec == spec and choice.reason


def test_mathematics_without_sympy_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    choice = choose_reward(["x^2+1", "3/4"])
    assert choice.spec == TEXT and "numbers: pip install 'whet[verifiers]'" in choice.reason


def test_labels_come_with_their_reward() -> None:
    assert choose_reward(["b", "a"] * 5).labels == ("a", "b")
    assert choose_reward(["x", "y"], labels=["x", "y"]).labels == ("x", "y")
    assert choose_reward(["x", "y"] * 5, labels=[]).spec == TEXT
    assert "1,234 is read as 1234" in choose_reward(["1,234", "7"]).reason
    assert "03/04/2024 may be two dates" in choose_reward(["03/04/2024"]).reason
