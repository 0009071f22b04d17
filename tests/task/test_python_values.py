"""Lists and objects in the cells of CSV files, as Python and NumPy write them."""

from __future__ import annotations

from typing import Any

import pytest

from whet.errors import UsageError
from whet.task.target_objects import read_python_values


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (["['a', 'b']", "['c']"], ['["a", "b"]', '["c"]']),
        (["{'team': 'x', 'ok': True, 'n': None}"], ['{"team": "x", "ok": true, "n": null}']),
        (["['a']", "[1]", None], ['["a"]', "[1]", None]),
        (["['it''s']", '["it\'s"]'], ['["its"]', '["it\'s"]']),
    ],
)
def test_values_of_python_become_json(values: list[Any], read: list[Any]) -> None:
    assert read_python_values(values)[0] == read
    assert read_python_values(values)[1] in values


@pytest.mark.parametrize(
    "values",
    [
        ['["a", "b"]', '["c"]'],
        ["[1, 2]"],
        ["[draft] one", "[final] two"],
        ["['a']", "b"],
        ["[__import__('os')]"],
        ["[{1, 2}]"],
        ["[1 2 3]"],
        [["a"], {"b": 1}, 3, None],
        [],
    ],
)
def test_other_values_stay_as_they_are(values: list[Any]) -> None:
    assert read_python_values(values) == (values, "")


def test_lists_of_numpy_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\['a' 'b'\].* is a list as NumPy writes it, without commas"):
        read_python_values(["['a' 'b']", "['c']"])
