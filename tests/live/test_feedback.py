"""Feedback rows in every spelling, and rows that cannot be used."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet import learn
from whet.errors import UsageError
from whet.feedback.rows import LONGEST, FeedbackRow, read_feedback, read_row

PHOENIX = {
    "span_id": "67f6740bbe1ddc3f",
    "name": "correctness",
    "annotator_kind": "HUMAN",
    "result": {"label": "incorrect", "score": 0, "explanation": "The total is wrong."},
    "metadata": {"model": "m"},
    "identifier": "ann",
}
LANGSMITH = {
    "id": "aa-1",
    "run_id": "bb-2",
    "key": "helpfulness",
    "score": 0.2,
    "comment": "Too long.",
    "correction": {"answer": "Short."},
    "feedback_source": {"type": "api"},
    "created_at": "2026-01-02T03:04:05",
}


def said(row: dict[str, Any]) -> dict[str, Any]:
    """What a row says, without what it does not."""
    found = read_row(row)
    names = [
        n
        for n in FeedbackRow.__dataclass_fields__
        if n not in ("id", "metadata", "where", "cut", "liked", "column", "out_of", "word", "signed")
    ]
    return {n: getattr(found, n) for n in names if getattr(found, n) is not None}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"input": "q", "output": "a", "comment": "c"}, {"input": "q", "output": "a", "comment": "c"}),
        ({"Question": "q", "Answer": "a", "Rating": "4", "Notes": "c"},
         {"input": "q", "output": "a", "rating": 4.0, "comment": "c"}),
        (PHOENIX, {"label": "incorrect", "rating": 0.0, "explanation": "The total is wrong.", "source": "HUMAN",
                   "user": "ann", "about": "67f6740bbe1ddc3f"}),
        ({"spanId": "s", "annotatorKind": "LLM", "name": "n", "label": "correct", "score": 1},
         {"label": "correct", "rating": 1.0, "source": "LLM", "about": "s"}),
        ({"attributes.input.value": "q", "attributes.output.value": "a", "annotation.label": "bad"},
         {"input": "q", "output": "a", "label": "bad"}),
        (LANGSMITH, {"rating": 0.2, "comment": "Too long.", "corrected": "Short.", "source": "api", "about": "bb-2",
                     "time": "2026-01-02T03:04:05"}),
        ({"run_id": "r", "key": "tone", "value": "rude", "score": None}, {"label": "rude", "about": "r"}),
        ({"key": "stars", "value": 3}, {"rating": 3.0}),
        ({"rating": "5 stars"}, {"rating": 5.0}),
        ({"rating": "4 out of 5"}, {"rating": 4.0}),
        ({"rating": "4 von 5 Sternen"}, {"rating": 4.0}),
        ({"rating": "3 - Neither agree nor disagree"}, {"rating": 3.0}),
        ({"rating": "3 or 4"}, {"comment": "3 or 4"}),
        ({"rating": "2 things were wrong"}, {"comment": "2 things were wrong"}),
        ({"metric_name": "comment", "value": "Too long.", "inference_id": "i"}, {"comment": "Too long.", "about": "i"}),
        ({"metric_name": "demonstration", "value": [{"type": "text", "text": "Short."}], "inference_id": "i"},
         {"corrected": "Short.", "about": "i"}),
        ({"metric_name": "task_success", "value": False, "episode_id": "e"}, {"rating": 0.0, "about": "e"}),
        ({"item.input": "q", "sample.output_text": "a", "rating": "Bad", "output_feedback": "Too long."},
         {"input": "q", "output": "a", "rating": 0.0, "comment": "Too long."}),
        ({"item": {"input": "q"}, "sample": {"output_text": "a"}, "rating": "Good"},
         {"input": "q", "output": "a", "rating": 1.0}),
        ({"input": "q", "output": "a", "grader_results": [{"name": "g", "passed": True, "reason": "ok"},
                                                          {"name": "h", "score": 0, "reason": "No source."}]},
         {"input": "q", "output": "a", "label": "fail", "explanation": "No source."}),
        ({"input": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "thumb": "👎"},
         {"input": "s\nq", "rating": 0.0}),
        ({"rating": "★★★"}, {"rating": 3.0}),
        ({"rating": "4/5"}, {"rating": 4.0}),
        ({"rating": "so so"}, {"label": "so so"}),
        ({"rating": "it was much too long"}, {"comment": "it was much too long"}),
        ({"feedback": "thumbs down"}, {"comment": "thumbs down"}),
        ({"passed": True}, {"rating": 1.0}),
        ({"inputs": {"question": "q"}, "outputs": {"a": 1, "b": 2}, "comment": "c"},
         {"input": "q", "output": '{"a": 1, "b": 2}', "comment": "c"}),
    ],
)  # fmt: skip
def test_spellings(row: dict[str, Any], expected: dict[str, Any]) -> None:
    assert said(row) == expected


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({"dataType": "NUMERIC", "value": 4, "stringValue": None}, {"rating": 4.0}),
        ({"dataType": "BOOLEAN", "value": 1, "stringValue": "True"}, {"rating": 1.0, "liked": True}),
        ({"dataType": "BOOLEAN", "value": 0}, {"rating": 0.0, "liked": False}),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "good"}, {"rating": None, "label": "good"}),
        ({"dataType": "TEXT", "value": 0, "stringValue": "Say the price."}, {"comment": "Say the price."}),
        (
            {"dataType": "CATEGORICAL", "value": 0, "stringValue": "bad", "comment": "Too long."},
            {"comment": "Too long."},
        ),
    ],
)
def test_scores_of_langfuse_say_what_their_type_says(score: dict[str, Any], expected: dict[str, Any]) -> None:
    row = read_row({"id": "s1", "traceId": "t1", "name": "quality", "source": "ANNOTATION", **score})
    assert {name: getattr(row, name) for name in expected} == expected
    assert row.about == "t1" and row.metadata["metric_name"] == "quality"


def test_unknown_columns_are_kept() -> None:
    assert read_row({"comment": "c", "Build Number": 7, "metadata": {"a": 1}}).metadata == {
        "build_number": 7,
        "metadata": {"a": 1},
    }


def test_ids_are_given_or_made_from_the_content() -> None:
    assert read_row({"id": 7, "comment": "c"}).id == "7"
    made = read_row({"comment": "c"}).id
    assert made == read_row({"comment": "c"}).id != read_row({"comment": "d"}).id
    one, two = (read_row({"id": 7, "comment": text}) for text in "cd")
    assert one.id == two.id and one.key != two.key


@pytest.mark.parametrize(
    ("ratings", "liked"),
    [
        ([1, 0], [True, False]),
        ([-1, 1, 0], [False, True, None]),
        ([5, 3, 1], [True, None, False]),
        ([10, 3], [True, False]),
        ([95, 20], [True, False]),
        ([1], [None]),
        (["4/10", "5/10"], [False, False]),
        ([0], [False]),
        (["Good", "Bad"], [True, False]),
        (["-1", "0", "1"], [False, None, True]),
        (["+1", "-1"], [True, False]),
        (["+1", "+1"], [True, True]),
        (["-2", "-1", "+1", "+2"], [False, False, True, True]),
    ],
)
def test_what_a_rating_means_follows_from_the_scale_of_the_file(ratings: list[Any], liked: list[Any]) -> None:
    rows = [{"id": n, "rating": rating} for n, rating in enumerate(ratings)]
    assert [row.liked for row in read_feedback(rows)] == liked


@pytest.mark.parametrize(
    ("ratings", "good", "bad", "liked"),
    [
        (["hilfreich", "unnütz"], ["Hilfreich"], [], [True, False]),
        (["hilfreich", "unnütz"], [], ["unnütz"], [True, False]),
        (["positive", "neutral", "negative"], ["positive"], ["negative"], [True, None, False]),
        (["no", "yes"], ["no"], [], [True, False]),
        (["dislike", "like", "THUMBS_UP", "thumbs-down"], [], [], [False, True, True, False]),
        (["so so", "odd", "fair"], [], [], [None, None, None]),
    ],
)
def test_words_are_ordered_by_formats_and_by_the_user(
    ratings: list[str], good: list[str], bad: list[str], liked: list[Any]
) -> None:
    rows = [{"id": n, "rating": rating} for n, rating in enumerate(ratings)]
    assert [row.liked for row in read_feedback(rows, good=good, bad=bad)] == liked


@pytest.mark.parametrize(
    ("ratings", "good", "bad", "said"),
    [
        (
            ["top", "flop"],
            [],
            [],
            "The values of 'rating' are 'top' and 'flop', and nothing says which one is good.",
        ),
        (["top", "flop", "so so"], ["top"], [], "'top', 'flop', 'so so': more than two"),
        (["top", "flop"], ["topp"], [], "is no value of a rating. Its words: 'flop', 'top'"),
        (["top", "flop"], ["top"], ["top"], "both name 'top'"),
    ],
)
def test_two_words_that_nothing_orders_are_refused(
    ratings: list[str], good: list[str], bad: list[str], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        read_feedback([{"rating": rating} for rating in ratings], good=good, bad=bad)
    assert said in str(error.value)


def test_an_explanation_of_a_value_that_the_user_calls_good_is_no_critique(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("Answer: {q}\n")
    rows = [{"rating": "top", "explanation": "Short."}, {"rating": "flop", "explanation": "Too long."}]
    learned = learn(tmp_path / "p.md", rows, good="top", dry_run=True)
    assert [group["texts"] for group in learned["groups"]] == [["Too long."]]
    with pytest.raises(UsageError, match="good=top or good=flop"):
        learn(tmp_path / "p.md", rows, dry_run=True)


def test_metrics_have_scales_of_their_own() -> None:
    rows = [
        {"id": 1, "metric_name": "stars", "value": 2, "inference_id": "a"},
        {"id": 2, "metric_name": "stars", "value": 5, "inference_id": "b"},
        {"id": 3, "metric_name": "ok", "value": 1, "inference_id": "a"},
        {"id": 4, "metric_name": "ok", "value": 0, "inference_id": "b"},
    ]
    assert [row.liked for row in read_feedback(rows)] == [False, True, True, False]


def test_rows_about_the_same_answer_lend_each_other_input_and_output() -> None:
    rows = [
        {"inference_id": "i", "input": "q", "output": "a", "rating": 0},
        {"inference_id": "i", "metric_name": "demonstration", "value": "b"},
        {"inference_id": "j", "metric_name": "comment", "value": "c"},
    ]
    assert [(r.input, r.output) for r in read_feedback(rows)] == [("q", "a"), ("q", "a"), (None, None)]


def test_equal_rows_count_once_and_one_id_names_one_row() -> None:
    found = read_feedback([{"id": 1, "comment": "c"}, {"id": 1, "comment": "c"}, {"id": 1, "comment": "d"}])
    assert [row.comment for row in found] == ["c", "d"] and len({row.id for row in found}) == 2


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"comment": "a"}\n\n{"comment": "b"}\n')
    (tmp_path / "b.json").write_text('[\n{"comment": "c"}]')
    (tmp_path / "c.csv").write_bytes(
        '\ufeffinput,comment,rating\r\nq,"d, with\r\ncomma",\r\n\r\nq,e,2\r\n'.encode()
    )
    found = read_feedback([tmp_path / "a.jsonl", str(tmp_path / "b.json"), tmp_path / "c.csv"])
    assert [row.comment for row in found] == ["a", "b", "c", "d, with\r\ncomma", "e"]
    assert [row.where.rpartition("/")[2] for row in found] == [
        "a.jsonl:1",
        "a.jsonl:3",
        "b.json:2",
        "c.csv:2",
        "c.csv:5",
    ]
    assert found[-1].rating == 2.0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("f.jsonl", '{"input": "q", "output": "a"}', "f.jsonl:1: the row says nothing"),
        ("f.jsonl", '{"comment": "c"}\n{"comment": 3}', "f.jsonl:2: comment must be a text"),
        ("f.jsonl", '{"comment": true}', "f.jsonl:1: comment must be a text"),
        ("f.jsonl", '{"rating": [1]}', "f.jsonl:1: the rating must be a number"),
        ("f.jsonl", '{"metric_name": "x"}', "f.jsonl:1: the metric"),
        ("f.jsonl", "{comment}", "f.jsonl:1: not valid JSON"),
        ("f.jsonl", "[1]", "f.jsonl:1: a line must be one object"),
        ("f.jsonl", "", "f.jsonl:1: there are no rows"),
        ("f.csv", "comment\n", "f.csv:1: there are no rows"),
        ("f.csv", "comment,comment\na,b\n", 'f.csv:1: the column "comment" appears twice'),
        ("f.csv", "comment,rating\na\n", "f.csv:2: 1 cell"),
        ("f.csv", 'comment\n"a\n', "f.csv:2: not valid CSV"),
        ("f.csv", "input,comment\nq,ok\n,\nq,\n", "f.csv:4: the row says nothing"),
        ("f.txt", "x", "feedback files end in"),
    ],
)
def test_bad_rows_are_refused_with_the_place(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=re.escape(said)):
        read_feedback([tmp_path / name])


NUMBERS = {
    "1e-05": 1e-05,
    "1e+16": 1e16,
    "-2.5E3": -2500.0,
    ".5": 0.5,
    "1.": 1.0,
    "+0.25": 0.25,
    "4.5 / 5": 4.5,
    "": None,
    "NaN": None,
    "<NA>": None,
}


@pytest.mark.parametrize("column", ["score", "Rating", "annotation.score"])
def test_numbers_of_tables_are_read_as_programs_write_them(tmp_path: Path, column: str) -> None:
    rows = "".join(f"{n},c{n},{cell}\n" for n, cell in enumerate(NUMBERS))
    (tmp_path / "f.csv").write_text(f"id,comment,{column}\n{rows}")
    found = read_feedback([tmp_path / "f.csv"])
    assert [(row.rating, row.label) for row in found] == [(number, None) for number in NUMBERS.values()]


@pytest.mark.parametrize("cell", ["inf", "-inf", "Infinity", "1e999", "0,5", "50%", "1,000.5", "3-4"])
@pytest.mark.parametrize("name", ["f.csv", "f.jsonl"])
def test_numbers_that_are_none_or_may_be_two_are_refused(tmp_path: Path, name: str, cell: str) -> None:
    table = f'question,answer,score\nq,a,0.5\nq,a,"{cell}"\n'
    lines = "".join(json.dumps({"output": "a", "score": score}) + "\n" for score in (1, 1, cell))
    (tmp_path / name).write_text(table if name == "f.csv" else lines)
    with pytest.raises(UsageError) as error:
        read_feedback([tmp_path / name])
    assert f"{name}:3: the rating {cell!r} is no plain number. Write one such as 0.5 or 4" in str(error.value)


def test_words_in_a_column_of_scores_are_labels_still() -> None:
    assert read_row({"score": "4th"}).label == "4th" and read_row({"score": "info"}).label == "info"


def test_cells_that_programs_write_for_no_value_are_empty_and_said(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(
        "input,output,score,comment,user,label\nq,NULL,1,NaN,nan,\nq,a,2,Odd.,u,NaN\n"
    )
    notes: list[str] = []
    first, second = read_feedback([tmp_path / "f.csv"], notes)
    assert (first.output, first.rating, first.comment, first.user) == ("NULL", 1.0, None, None)
    assert (second.comment, second.user, second.label) == ("Odd.", "u", "NaN")
    said = [note.partition("f.csv:")[2] for note in notes]
    assert said == [
        "2: 'output' is the text NULL here, in 1 row. It is read as a text; leave the cell empty where there is no value",
        "2: 'comment' is the text NaN here, in 1 row. It is read as an empty cell; leave the cell empty where there is no value",
        "2: 'user' is the text nan here, in 1 row. It is read as an empty cell; leave the cell empty where there is no value",
        "3: 'label' is the text NaN here, in 1 row. It is read as a text; leave the cell empty where there is no value",
    ]


def test_missing_cells_of_a_data_frame_say_nothing() -> None:
    row = read_row({"output": "a", "score": 1.0, "comment": math.nan, "user": None, "label": math.nan})
    assert (row.rating, row.comment, row.label) == (1.0, None, None)


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "feedback.jsonl").write_text("{}")
    with pytest.raises(UsageError, match=r"feedback\.jsonl"):
        read_feedback([tmp_path / "feedbck.jsonl"])


def test_long_texts_are_cut_and_say_so() -> None:
    row = read_row({"comment": "x" * (LONGEST + 1)})
    assert row.cut and row.comment == "x" * LONGEST


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "input",
        "output",
        "comment",
        "rating",
        "score",
        "value",
        "metric_name",
        "key",
        "result",
        "id",
        "label",
        "user",
    ]
)


@given(st.dictionaries(KEYS | st.text(max_size=8), JSONS, max_size=6))
def test_any_row_is_read_or_refused(row: dict[str, Any]) -> None:
    try:
        found = read_feedback([row])
    except UsageError as error:
        assert str(error).startswith("row 1: ")
        return
    assert isinstance(found[0].id, str) and found[0].id
    json.dumps(found[0].key)
