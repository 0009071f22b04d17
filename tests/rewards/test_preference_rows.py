"""What rows of feedback say about preferences: pairs, choices, ratings, thumbs, corrections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.feedback.preferences import read_open_pairs, read_preferences
from whet.rewards.preference import PreferenceLabel, PreferencePair


@pytest.mark.parametrize(
    "row",
    [
        {"input": "q", "chosen": "good", "rejected": "bad"},
        {"question": "q", "output_1": "bad", "output_2": "good", "preferred": 2},
        {"prompt": "q", "response_a": "good", "response_b": "bad", "preference": "A"},
        {"context": "q", "answer_1": "good", "answer_2": "bad", "winner": "answer_1"},
        {"input": "q", "output": "bad", "corrected": "good"},
        {"input": "q", "output_1": "bad", "output_2": "good", "preferred": "2.0"},
        {
            "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}],
            "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}],
        },
    ],
)
def test_a_row_is_a_pair(row: dict[str, Any]) -> None:
    read = read_preferences([row | {"user": "ann"}])
    assert read.judged.pairs == (PreferencePair("q", "good", "bad", "ann"),)
    assert not read.judged.labels and not read.dropped


def test_ratings_of_one_input_are_compared_and_others_are_thumbs() -> None:
    rows = [
        {"input": "q", "output": "a", "rating": 5, "user": "ann"},
        {"input": "q", "output": "b", "rating": 2, "user": "ann"},
        {"input": "q", "output": "c", "rating": 2, "user": "ann"},
        {"input": "r", "output": "d", "rating": 1},
        {"input": "s", "output": "e", "rating": 3},
        {"input": "t", "output": "f", "rating": 4},
        {"input": "t", "output": "g", "rating": 4},
    ]
    read = read_preferences(rows)
    assert read.judged.pairs == (PreferencePair("q", "a", "b", "ann"), PreferencePair("q", "a", "c", "ann"))
    assert read.judged.labels == (
        PreferenceLabel("r", "d", False), PreferenceLabel("t", "f", True), PreferenceLabel("t", "g", True),
    )  # fmt: skip
    assert read.dropped == {"ties": 2, "neither good nor bad": 1}


def rated(*values: object) -> list[Mapping[str, object]]:
    return [{"input": f"q{n}", "output": "a", "rating": value} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "scale", "thumbs"),
    [
        ((1, 2, 3, 4, 5, 6, 7), (1, 7), (3, 3, 1)),
        ((0, 50, 100), (0, 100), (1, 1, 1)),
        ((0, 5, 7, 10), (0, 10), (2, 1, 1)),
        ((1, 5, 6, 10), (1, 10), (2, 2, 0)),
        ((1, 2, 3), (1, 3), (1, 1, 1)),
        ((0, 1, 2), (0, 2), (1, 1, 1)),
        ((2, 3, 4), (1, 5), (1, 1, 1)),
        ((-2, 0, 1), (-2, 2), (1, 1, 1)),
        ((0, 0.5, 0.7), (0, 1), (1, 1, 1)),
        (("3/7", "4/7", "6/7"), (1, 7), (1, 1, 1)),
    ],
)
def test_the_cut_is_the_middle_of_the_scale_that_the_ratings_show(
    values: tuple[object, ...], scale: tuple[float, float], thumbs: tuple[int, int, int]
) -> None:
    read = read_preferences(rated(*values))
    assert (read.scales, read.thumbs) == ((scale,), thumbs)


def test_ratings_that_show_no_scale_are_read_on_the_stated_one() -> None:
    with pytest.raises(UsageError, match=r"The ratings are 5, 6, which shows no scale.*scale=LOW,HIGH"):
        read_preferences(rated(5, 6))
    read = read_preferences(rated(5, 6, 4, 2), scale=(1, 7))
    assert (read.scales, read.thumbs) == (((1, 7),), (2, 1, 1))
    with pytest.raises(UsageError, match="row 2: the rating 8 is outside the scale 1 to 7"):
        read_preferences(rated(5, 8), scale=(1, 7))
    compared: list[Mapping[str, object]] = [
        {"input": "q", "output": "a", "rating": 5},
        {"input": "q", "output": "b", "rating": 6},
    ]
    assert read_preferences(compared).judged.pairs == (PreferencePair("q", "b", "a"),)


def test_what_says_nothing_is_dropped_and_counted() -> None:
    rows: list[Mapping[str, object]] = [
        {"input": "q", "output_1": "a", "output_2": "b", "preferred": "tie"},
        {"input": "q", "output_1": "a", "output_2": "b", "preferred": None},
        {"input": "q", "output_1": "a", "output_2": "a", "preferred": 1},
        {"output": "a", "thumb": "up"},
        {"input": "q", "thumb": "up"},
        {"input": "q", "output": "a", "comment": "Too long."},
        {"input": "q", "chosen": "a", "rejected": "b"},
        {"input": "q", "chosen": "a", "rejected": "b"},
    ]
    read = read_preferences(rows)
    assert len(read.judged) == 1
    assert [*read.dropped.values()] == [1, 1, 1, 1, 1, 1, 1]
    assert read.open_pairs == (("q", "a", "b"),)


def test_the_last_word_of_a_person_about_two_answers_counts() -> None:
    rows = [
        {"input": "q", "chosen": "a", "rejected": "b", "user": "ann"},
        {"input": "q", "chosen": "b", "rejected": "a", "user": "ann"},
        {"input": "q", "chosen": "a", "rejected": "b", "user": "bob"},
    ]
    read = read_preferences(rows)
    assert {(p.better, p.person) for p in read.judged.pairs} == {("b", "ann"), ("a", "bob")}
    assert read.dropped == {"judged again by the same person": 1}
    assert read_preferences(rows, person="bob").judged.pairs == (PreferencePair("q", "a", "b", "bob"),)


def pair(better: str, worse: str, **more: object) -> dict[str, object]:
    return {"input": "q", "chosen": better, "rejected": worse, "user": "ann", **more}


TIED = {"input": "q", "output_1": "a", "output_2": "b", "preferred": "tie", "user": "ann"}


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([pair("a", "b"), pair("b", "a"), pair("a", "b"), pair("c", "d")], ["a", "c"]),
        ([pair("a", "b"), TIED, pair("c", "d")], ["c"]),
        ([pair("a", "b"), TIED, pair("a", "b")], ["a"]),
        ([pair("a", "b"), pair("a", "b")], ["a"]),
        ([pair("a", "b", time="2026-06-02"), pair("b", "a", time="2026-06-01")], ["a"]),
        ([pair("a", "b", time="2026-06-02"), pair("b", "a")], ["b"]),
    ],
)
def test_a_person_may_go_back_to_a_judgement_and_the_latest_one_counts(
    rows: list[dict[str, object]], left: list[str]
) -> None:
    """The first of equal rows was kept in its place, a tie took nothing back, and times were not read."""
    assert [one.better for one in read_preferences(rows).judged.pairs] == left


def test_of_two_thumbs_of_a_person_the_later_one_counts_in_whatever_order_they_are_listed() -> None:
    thumb = {"input": "q", "output": "a", "user": "ann"}
    rows = [
        {**thumb, "thumb": "up", "created_at": "2026-06-02"},
        {**thumb, "thumb": "down", "created_at": "2026-06-01"},
    ]
    assert [label.good for label in read_preferences(rows).judged.labels] == [True]


@pytest.mark.parametrize(
    ("first", "second", "better"),
    [
        ({"thumb": "up"}, {"rating": 2}, ["a"]),
        ({"thumb": "up"}, {"rating": 1}, ["a"]),
        ({"thumb": "down"}, {"rating": 2}, ["b"]),
        ({"thumb": "up"}, {"rating": 5}, []),
        ({"rating": "good"}, {"rating": 4}, ["a"]),
    ],
)
def test_a_thumb_is_an_end_of_the_scale_of_ratings_beside_it(
    first: dict[str, object], second: dict[str, object], better: list[str]
) -> None:
    """A thumb up counted as 1 beside stars from 1 to 5, so that two stars were better."""
    rows = [{"input": "z", "output": "c", "rating": 5}]
    rows += [{"input": "q", "output": "a", **first}, {"input": "q", "output": "b", **second}]
    assert [one.better for one in read_preferences(rows).judged.pairs] == better


def test_a_second_column_of_judgements_is_counted_and_not_used() -> None:
    rows = [
        {"input": "q", "output": "a", "thumb": 0, "rating": 5},
        {"input": "q", "output": "b", "thumb": 1, "rating": 1},
    ]
    read = read_preferences(rows)
    assert [one.better for one in read.judged.pairs] == ["a"]
    assert read.dropped == {"beside another judgement in their row, of which the first column counts": 2}


@pytest.mark.parametrize("verdicts", [[0, 1], ["0", "1"], ["0.0", "1.0"], [0, 0]])
def test_verdicts_that_may_count_from_zero_are_refused(verdicts: list[object]) -> None:
    """0 was read as a tie and 1 as the first, in tables that number answers from 0 as well."""
    rows = [{"input": f"q{n}", "output_1": "a", "output_2": "b", "label": v} for n, v in enumerate(verdicts)]
    with pytest.raises(UsageError, match="the verdict 0 may name the first answer or a tie"):
        read_preferences(rows)
    both = [*rows, {"input": "r", "output_1": "a", "output_2": "b", "label": 2}]
    assert [one.better for one in read_preferences(both).judged.pairs][-1] == "b"


def test_an_id_that_is_there_twice_is_two_rows_unless_they_are_equal() -> None:
    rows = [{"id": 1, "input": f"q{i}", "output": "a", "thumb": "up"} for i in (1, 2, 2)]
    assert len(read_preferences(rows).judged) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"input": "q", "output": "a", "comment": "Too long."}',
            "There is no preference in 1 rows.*comments alone",
        ),
        ('{"input": "q", "output_1": "a", "output_2": "b", "preferred": "tie"}', "dropped: 1 ties"),
        ('{"input": "q", "colour": "blue"}', "f.jsonl:1: the row says nothing.*colour"),
        ('{"input": "q", "chosen": "a"}', "There is no preference in 1 rows .dropped: 1 without an answer"),
        ('{"input": "q", "output_1": "a", "output_2": "b", "preferred": "x"}', "f.jsonl:1: the verdict .*x"),
        ('{"input": "q", "chosen": 3, "rejected": true}', "f.jsonl:1: "),
        ("", "f.jsonl"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_with_their_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_preferences([tmp_path / "f.jsonl"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "input,output,ratng\nq,a,5\n",
            """f.csv:2: .*reads the column 'ratng'. Did you mean "rating".*thumb""",
        ),
        (
            "input,chosn,rejected\nq,a,b\n",
            """reads the column 'chosn'. Did you mean "chosen".*with input, chosen""",
        ),
        (
            "input,chosn,rejectd\nq,a,b\n",
            """'chosn'. Did you mean "chosen".*'rejectd'. Did you mean "rejected".""",
        ),
        ("inptu,output,rating\nq,a,5\n", """without an input.*'inptu'. Did you mean "input"."""),
        ("", "f.csv:1: there are no rows in the file. Write input,chosen,rejected and rows"),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest_known_one(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(UsageError, match=words) as error:
        read_preferences([tmp_path / "f.csv"])
    assert str(error.value).count("Did you mean") == words.count("Did you mean"), "each is said once"


def test_a_table_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("Question,Chosen,Rejected,User\nq,a,b,ann\nr,c,,bob\n")
    read = read_preferences([tmp_path / "f.csv"])
    assert read.judged.pairs == (PreferencePair("q", "a", "b", "ann"),)


_ROW = st.fixed_dictionaries(
    {
        "input": st.sampled_from(["q", "r", "s"]),
        "output": st.sampled_from("abcd"),
        "rating": st.integers(1, 5),
    },
    optional={"user": st.sampled_from(["ann", "bob"])},
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_ROW, min_size=1, max_size=30), st.randoms())
def test_the_order_of_ratings_without_people_does_not_matter(rows: list[dict[str, Any]], rng: Any) -> None:
    for row in rows:
        row.pop("user", None)
    other = rows.copy()
    rng.shuffle(other)
    try:
        one, two = (read_preferences(given) for given in (rows, other))
    except UsageError as error:
        assert "There is no preference" in str(error) or "shows no scale" in str(error)
        return
    assert {*one.judged.pairs} == {*two.judged.pairs}
    assert {*one.judged.labels} == {*two.judged.labels}
    for pair in one.judged.pairs:
        assert pair.better != pair.worse
        assert PreferencePair(pair.query, pair.worse, pair.better) not in one.judged.pairs


def test_questions_are_asked_about_answers_that_nobody_compared(tmp_path: Path) -> None:
    rows = [{"input": "q", "output": text} for text in "abc"] + [
        {"input": "r", "output_1": "d", "output_2": "e"}
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = [PreferencePair("q", "b", "a")]
    assert read_open_pairs([tmp_path / "a.jsonl"], known) == [
        ("q", "a", "c"),
        ("q", "b", "c"),
        ("r", "d", "e"),
    ]
    with pytest.raises(UsageError, match="No input has two answers"):
        read_open_pairs([{"input": "q", "output": "a"}])
    with pytest.raises(UsageError, match="row 1: the row needs an input and an answer"):
        read_open_pairs([{"output": "a"}])
