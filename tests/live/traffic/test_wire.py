"""Rows of requests: our words and those of others, every refusal naming row and field, receipts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet_client.client import feedback_of, inference_of
from whet_client.records import DEEPEST, KINDS, Feedback, Inference, checked_inference
from whet_live.traffic.importers import read_files
from whet_live.traffic.long_numbers import read_json
from whet_live.traffic.schema import MOST_ROWS, RowsRefused, parse_feedback, read_inferences
from whet_live.traffic.write import Clash, IdConflict

MICROS = 1_767_323_045_000_000


def test_what_a_record_writes_is_read_again() -> None:
    asked = Inference(
        prompt="p", version=2, inputs={"q": ["a", 1]}, output="x", model="m", cost=1, latency=0.5, session="s",
        metadata={"k": None}, time=MICROS,
    )  # fmt: skip
    said = Feedback(
        kind="rating", target="e", target_kind="episode", value=4, text="ok", source="annotator", time=MICROS
    )
    assert read_inferences({"inferences": [asked.as_json()]}) == [asked]
    assert parse_feedback({"feedback": [said.as_json()]}) == [said]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"kind": "thumb", "inference": "i", "value": True}, ("thumb", 1.0, "inference", "i")),
        ({"kind": "rating", "inference_id": "i", "value": 4}, ("rating", 4.0, "inference", "i")),
        ({"kind": "score", "name": "ok", "inference": "i", "value": True}, ("score", 1.0, "inference", "i")),
        ({"kind": "copy", "episode": "e"}, ("copy", 1.0, "episode", "e")),
        ({"kind": "comment", "session_id": "s", "text": "odd"}, ("comment", None, "session", "s")),
        ({"kind": "dwell", "response_id": "r", "value": 12.5}, ("dwell", 12.5, "response", "r")),
        ({"kind": "share", "target": "i", "value": None}, ("share", 1.0, "inference", "i")),
        ({"metric_name": "m", "value": 0.5, "inference_id": "i"}, ("score", 0.5, "inference", "i")),
        ({"span_id": "i", "name": "n", "annotator_kind": "HUMAN", "result": {"label": "bad"}}, ("label", None, "inference", "i")),
        ({"run_id": "i", "key": "thumbs", "score": 0}, ("thumb", 0.0, "inference", "i")),
        ({"run_id": "i", "key": "thumbs", "score": -1}, ("thumb", 0.0, "inference", "i")),
        ({"inference_id": "i", "rating": 5}, ("rating", 5.0, "inference", "i")),
        ({"inference_id": "i", "rating": 8, "scale": "0..10"}, ("rating", 4.2, "inference", "i")),
        ({"inference_id": "i", "rating": 8, "scale": "score"}, ("score", 8.0, "inference", "i")),
        ({"kind": "rating", "target": "i", "value": 8, "scale": "0..10"}, ("rating", 4.2, "inference", "i")),
        ({"kind": "rating", "target": "i", "value": 2, "scale": "6..1"}, ("rating", 4.2, "inference", "i")),
        ({"kind": "rating", "target": "i", "value": 2, "scale": "stars"}, ("rating", 2.0, "inference", "i")),
        ({"kind": "rating", "target": "i", "value": 2, "scale": None}, ("rating", 2.0, "inference", "i")),
    ],
)  # fmt: skip
def test_feedback_in_every_spelling(row: dict[str, Any], expected: tuple[Any, ...]) -> None:
    (found,) = parse_feedback({"feedback": [row]})
    assert (found.kind, found.value, found.target_kind, found.target) == expected


def test_ratings_of_one_request_that_are_on_no_known_scale_are_refused_together() -> None:
    rows = [{"inference_id": "i", "id": f"f{n}", "rating": value} for n, value in enumerate((4, 8, 5))]
    with pytest.raises(RowsRefused) as error:
        parse_feedback({"feedback": rows})
    assert [(row.index, row.id) for row in error.value.rows] == [(0, "f0"), (1, "f1"), (2, "f2")]
    stated = parse_feedback({"feedback": [{**row, "scale": "1..10"} for row in rows]})
    assert {one.kind for one in stated} == {"rating"} and max(one.value or 0 for one in stated) < 5


def test_ids_and_times_that_are_missing_are_made_and_keys_are_ids() -> None:
    first, second, third = parse_feedback({"feedback": [
        {"kind": "copy", "target": "i"}, {"kind": "copy", "target": "i"},
        {"kind": "copy", "target": "i", "key": "order 7", "time": "2026-01-02T04:04:05+01:00"},
    ]})  # fmt: skip
    assert first.id != second.id and third.id == "order 7" and third.time == MICROS


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, r"inferences\[0\]: prompt is missing"),
        ({"prompt": ""}, r"inferences\[0\]: prompt is empty"),
        ({"prompt": 3}, "prompt must be a text; this is 3"),
        ({"prompt": "a|b"}, r"has a \|"),
        ({"prompt": "p" * 256}, "prompt has 256 characters, at most 255"),
        ({"prompt": "p", "version": -1}, "version must be a whole number"),
        ({"prompt": "p", "version": 2.0}, "version must be a whole number"),
        ({"prompt": "p", "version": True}, "version must be a whole number"),
        ({"prompt": "p", "cost": -0.1}, "cost must be a number from 0"),
        ({"prompt": "p", "cost": float("nan")}, "cost must be a number"),
        ({"prompt": "p", "latency": "fast"}, "latency must be a number"),
        ({"prompt": "p", "latency": 10**400}, "latency must be a number"),
        ({"prompt": "p", "input_tokens": 1.5}, "input_tokens must be a whole number"),
        ({"prompt": "p", "inputs": []}, "inputs must be an object"),
        ({"prompt": "p", "inputs": {"a": "x" * 256_000}}, "inputs has 256009 characters as JSON"),
        ({"prompt": "p", "inputs": {"a": float("inf")}}, "inputs is not JSON"),
        ({"prompt": "p", "inputs": {"a": {1: 2}}}, "the key 1 is no text"),
        ({"prompt": "p", "inputs": {"a": "\ud800"}}, "half a surrogate"),
        ({"prompt": "p", "output": "a\x00"}, "output has a NUL"),
        ({"prompt": "p", "output": "x" * 256_001}, "output has 256001 characters"),
        ({"prompt": "p", "metadata": {"a": "x" * 16_000}}, "metadata has"),
        ({"prompt": "p", "user": "u" * 201}, "user has 201 characters"),
        ({"prompt": "p", "id": ""}, "id is empty"),
        ({"prompt": "p", "time": 5}, "time: '5' is no date"),
        ({"prompt": "p", "time": "yesterday"}, "is no date"),
        ({"prompt": "p", "time": "1999-12-31T00:00:00Z"}, "between the years 2000 and 2100"),
        ({"prompt": "p", "modle": "m"}, 'no field "modle". Did you mean "model"'),
        ({"prompt": "p", "prompt_name": "q"}, "prompt is given twice"),
    ],
)  # fmt: skip
def test_an_inference_that_cannot_be_is_refused_naming_the_field(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_inferences({"inferences": [row]})


@pytest.mark.parametrize("time", [datetime(2026, 11, 29, tzinfo=UTC), 1_795_000_000.5, None, "now"])
def test_a_time_that_is_no_number_of_microseconds_is_refused_with_the_unit(time: Any) -> None:
    with pytest.raises(UsageError, match="microseconds since 1970; this is"):
        checked_inference(Inference("p", time=time))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"target": "i"}, r"feedback\[0\]: kind is missing. Write one of rating, thumb"),
        ({"kind": "copy"}, r"feedback\[0\]: target is missing"),
        ({"kind": "thumbs", "target": "i"}, 'is no kind of feedback. Did you mean "thumb"'),
        ({"kind": ["thumb"], "target": "i"}, "is no kind of feedback"),
        ({"kind": "thumb", "target": "i"}, "value: a thumb .* needs one"),
        ({"kind": "rating", "target": "i", "value": 0}, "value must be a number from 1 to 5; this is 0"),
        ({"kind": "rating", "target": "i", "value": True}, "value must be a number"),
        ({"kind": "comment", "target": "i"}, "text: a comment .* needs one"),
        ({"kind": "comment", "target": "i", "text": "x", "value": 3}, "value: a comment has none"),
        ({"kind": "label", "target": "i", "text": "x"}, "label: a label .* needs one"),
        ({"kind": "choice", "target": "i", "value": 1}, "names the other inference"),
        ({"kind": "choice", "target": "i", "label": "j", "value": 0.3}, "value must be 0, 0.5 or 1; this is 0.3"),
        ({"kind": "choice", "target": "i", "label": "i", "value": 1}, "label: a choice is between two inferences"),
        ({"kind": "thumb", "target": "i", "value": 0.3}, "value is 0.3; a thumb is"),
        ({"kind": "comment", "target": "i", "text": "x" * 32_001}, "text has 32001 characters"),
        ({"kind": "copy", "target": 7}, "target must be a text"),
        ({"kind": "copy", "target": "i", "source": "boss"}, "source: 'boss' is none of user"),
        ({"kind": "copy", "target": "i", "target_kind": "run"}, "target_kind: 'run' is none of"),
        ({"kind": "copy", "target": "i", "inference": "j"}, "names two targets"),
        ({"kind": "copy", "inference": "i", "episode": "j"}, "names two targets"),
        ({"inference_id": "i", "score": "x" * 10_000}, "x"),
        ({"inference_id": "i", "key": "k"}, "says nothing"),
        ({"inference_id": "i", "rating": 8}, r'feedback\[0\]: "rating" is 8 in this request; expected: stars from 1 to 5'),
        ({"inference_id": "i", "rating": 8, "scale": "1..5"}, r"expected: stars from 1 to 5\. Correct one of them\.$"),
        ({"inference_id": "i", "rating": 8, "scale": "ten"}, r"feedback\[0\]: scale: 'ten' is no scale"),
        ({"kind": "rating", "target": "i", "value": 8, "scale": "ten"}, r"feedback\[0\]: scale: 'ten' is no scale"),
        ({"kind": "rating", "target": "i", "value": 11, "scale": "1..10"}, r'"rating" is 11 .* a scale from 1 \(worst\) to 10'),
        ({"kind": "rating", "target": "i", "value": True, "scale": "1..10"}, "value must be a number"),
        ({"kind": "rating", "target": "i", "scale": "1..10"}, "value: a rating .* needs one"),
        ({"kind": "rating", "target": "i", "value": 1, "scale": "thumbs"}, "'thumbs' is no scale of a rating"),
        ({"kind": "score", "target": "i", "value": 8, "name": "n", "scale": "1..10"}, "scale: a score has none; a scale belongs"),
    ],
)  # fmt: skip
def test_feedback_that_cannot_be_is_refused_naming_the_field(row: dict[str, Any], reason: str) -> None:
    if "score" in row:
        assert len(parse_feedback({"feedback": [row]})[0].label or "") == 200
        return
    with pytest.raises(UsageError, match=reason):
        parse_feedback({"feedback": [row]})


@pytest.mark.parametrize("key", ["metadata", "inputs"])
def test_what_is_nested_too_deeply_for_the_database_and_the_answers_is_refused(key: str) -> None:
    value: dict[str, Any] = {"list": [0] * 500}
    for _ in range(DEEPEST - 2):
        value = {"a": value}
    read_inferences({"inferences": [{"prompt": "p", key: value}]})
    with pytest.raises(UsageError, match=rf"inferences\[0\]: {key} is nested more than 64 levels deep"):
        read_inferences({"inferences": [{"prompt": "p", key: {"a": [value]}}]})


@pytest.mark.parametrize(
    "body", [None, [], {}, {"feedback": {}}, {"feedback": None}, "x", {"inferences": []}]
)
def test_a_request_of_another_shape_is_refused(body: Any) -> None:
    with pytest.raises(UsageError, match=r'must be an object \{"feedback": \[\.\.\.\]\}'):
        parse_feedback(body)


def test_too_many_rows_and_rows_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="1001 rows, at most 1000"):
        parse_feedback({"feedback": [{}] * (MOST_ROWS + 1)})
    with pytest.raises(UsageError, match=r"inferences\[1\] must be an object; this is '7'"):
        read_inferences({"inferences": [{"prompt": "p"}, 7]})


def test_a_conflict_names_its_first_id() -> None:
    clashes = [Clash("a", "thumb=1", "thumb=0"), Clash("b", "x", "y")]
    assert 'The id "a" is taken (and 1 more)' in str(IdConflict(clashes))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([
    "kind", "target", "value", "text", "label", "name", "inference_id", "episode", "source", "user", "id", "time",
    "metadata", "rating", "score", "comment", "metric_name", "span_id", "result", "prompt", "version", "inputs",
])  # fmt: skip


@given(st.lists(st.dictionaries(NAMES, JSON | st.sampled_from([*KINDS, "i"]), max_size=6), max_size=3))
def test_whatever_comes_is_read_or_refused(rows: list[dict[str, Any]]) -> None:
    for read, body in ((parse_feedback, {"feedback": rows}), (read_inferences, {"inferences": rows})):
        try:
            read(body)
        except UsageError as error:
            assert str(error)


@pytest.mark.parametrize("wrong", ["a\n", "a\tb", "a\x7f", "a\x85"])
def test_an_id_that_no_address_can_hold_is_refused_where_whets_own_form_names_it(wrong: str) -> None:
    ways = {
        "inferences[0]: id": lambda: read_inferences({"inferences": [{"prompt": "p", "id": wrong}]}),
        "inferences[0]: session": lambda: read_inferences(
            {"inferences": [{"prompt": "p", "session": wrong}]}
        ),
        "feedback[0]: id": lambda: parse_feedback(
            {"feedback": [{"kind": "copy", "target": "t", "id": wrong}]}
        ),
        "feedback[0]: target": lambda: parse_feedback({"feedback": [{"kind": "copy", "target": wrong}]}),
        "feedback[0]: user": lambda: parse_feedback(
            {"feedback": [{"kind": "copy", "target": "t", "user": wrong}]}
        ),
        "inference: id": lambda: inference_of({"prompt": "p", "id": wrong}, {}),
        "feedback: target": lambda: feedback_of({"rating": 3}, "inference", wrong),
    }
    for where, read in ways.items():
        with pytest.raises(UsageError) as refused:
            read()
        assert str(refused.value).startswith(f"{where} holds a control character: ")


@pytest.mark.parametrize("wrong", ["a\nb", "a\tb", "a\x7fb", "a\x85b"])
def test_such_an_id_in_the_row_of_another_tool_gets_spaces_and_a_mark(wrong: str, tmp_path: Path) -> None:
    row, path = {"span_id": "s", "user_id": wrong, "score": 1}, tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), "utf-8")
    for (one,) in (parse_feedback({"feedback": [row]}), read_files([path]).feedback):
        assert one.user is not None and one.user.startswith("a b#") and one.metadata["cut"] == ["user"]


def test_a_whole_number_below_64_bits_is_kept_as_a_text() -> None:
    lowest = -(2**63)
    for number, kept in ((lowest, lowest), (lowest - 1, str(lowest - 1)), (-(10**19), str(-(10**19)))):
        body = read_json(json.dumps({"inferences": [{"prompt": "p", "inputs": {"n": number}}]}))
        (one,) = read_inferences(body)
        assert one.inputs == {"n": kept} and ("cleaned" in one.metadata) == (number != kept)


def test_the_page_shows_every_kind_with_its_range() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "feedback.md").read_text("utf-8")
    table = page.partition("## Kinds")[2].partition("The first seven")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\|", table, re.MULTILINE)
    shown = {name: [float(number) for number in re.findall(r"\d+(?:\.\d+)?", value)] for name, value in rows}
    assert list(shown) == list(KINDS)
    for name, numbers in shown.items():
        kind = KINDS[name]
        ends = [kind.low, kind.high] if kind.needs == "value" and kind.high < 1e6 else []
        assert [min(numbers), max(numbers)] == ends if numbers else not ends
