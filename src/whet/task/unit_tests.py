"""Rows whose answers unit tests can check: which column holds the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.errors import UsageError
from whet.rewards.verifiers.python_tests import PythonTests
from whet.task.imported_data import ImportedData
from whet.types import Example

PYTHON_TESTS = "python_tests"


def with_named_tests(material: ImportedData, inputs: Sequence[str], chosen: list[str]) -> ImportedData | None:
    """The rows with their column of tests (`tests`, `test_list`, `test`) called as the reward python_tests calls it; None where
    no such column beside the `inputs`, or more than one, holds tests in Python in each row."""
    every, wanted = material.all_rows(), PythonTests.tests
    named = [name for name in (every[0] if every else ()) if name.startswith("test") and name not in inputs]
    columns = [name for name in named if all(_holds_tests(row, name) for row in every)]
    if wanted in columns:
        columns = [wanted]
    if len(columns) != 1 or (columns != [wanted] and any(wanted in row for row in every)):
        return None
    (name,) = columns
    chosen.append(
        f"reward: {PYTHON_TESTS} (the share of a row's tests that pass), because each row has tests in the column {name}"
    )
    if name == wanted:
        return material
    chosen.append(f"the column {name} is called {wanted}, as the reward {PYTHON_TESTS} calls it")
    rows = {
        split: [{wanted if key == name else key: value for key, value in row.items()} for row in part]
        for split, part in material.rows.items()
    }
    return replace(material, rows=rows)


def _holds_tests(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(name)
    if not value or not isinstance(value, str | list):
        return False
    try:
        PythonTests(tests=name).check(Example("", {}, row=row))
    except UsageError:
        return False
    return True
