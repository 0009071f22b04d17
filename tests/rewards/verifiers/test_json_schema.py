"""JSON by a schema: valid or with the place of each violation; nothing remote is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.verifiers.grading import grade

from whet.errors import UsageError

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}, "day": {"format": "date"}},
    "required": ["id"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ('{"id": 3, "tags": ["a"], "day": "2026-01-31"}', ""),
        ('Here it is:\n```json\n{"id": 3}\n```', ""),
        ('{"id": 3}, as [1] says', ""),
        ('{"id": "3"}', '["id"]'),
        ('{"id": 3, "tags": ["a", 5]}', '["tags"][1]'),
        ('{"id": 3, "day": "2026-02-31"}', "date"),
        ("{}", "required"),
        ("[]", "object"),
        ("nothing", "no JSON"),
        ('{"id": NaN}', "no JSON"),
        ("[" * 100_000, "no JSON"),
        (json.dumps({"id": 1, "more": "x" * 1_000_001}), "are read at most"),
    ],
)
async def test_violations_are_named_with_their_place(answer: str, says: str) -> None:
    graded = await grade({"json_schema": {"schema": SCHEMA}}, answer, {})
    assert graded.value == float(not says) and says in (graded.critique or "")


async def test_bare_takes_nothing_else() -> None:
    spec = {"json_schema": {"schema": SCHEMA, "bare": True}}
    assert (await grade(spec, '{"id": 3}', {})).value == 1.0
    assert (await grade(spec, 'Here: {"id": 3}', {})).value == 0.0


async def test_a_schema_of_plain_values_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"enum": [1, "a"]}')
    assert (await grade({"json_schema": {"schema": "s.json"}}, '"a"', {}, folder=tmp_path)).value == 1.0
    assert (await grade({"json_schema": {"schema": "s.json"}}, "2", {}, folder=tmp_path)).value == 0.0


async def test_a_pattern_that_backtracks_is_bounded() -> None:
    schema = {"properties": {"a": {"pattern": r"^(?=(a+)+$)(a|a?)+b\1$"}}}
    graded = await grade({"json_schema": {"schema": schema}}, json.dumps({"a": "a" * 5000 + "!"}), {})
    assert graded.value == 0.0


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "http://127.0.0.1:9/x"}, "outside the schema"),
        ({"$ref": "file:///etc/hostname"}, "outside the schema"),
        ({"type": "foo"}, "no valid JSON Schema"),
        (7, "must be a JSON Schema"),
        ("none.json", "cannot be read"),
    ],
)
async def test_schemas_that_cannot_be_used_are_refused(schema: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        await grade({"json_schema": {"schema": schema}}, "{}", {}, folder=tmp_path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda i: st.lists(i) | st.dictionaries(st.text(), i),
    )
)
async def test_every_json_value_is_valid_under_true_and_under_itself(value: Any) -> None:
    assert (await grade({"json_schema": {"schema": True}}, json.dumps(value), {})).value == 1.0
    assert (await grade({"json_schema": {"schema": {"const": value}}}, json.dumps(value), {})).value == 1.0
