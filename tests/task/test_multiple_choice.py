"""Rows of questions with options: which columns hold the options, and how they reach the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.task import NewTaskChoices, read_material, start_task
from whet.task.multiple_choice import find_option_columns, write_options

CAPITALS = {
    "Peru": "Lima",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Cuba": "Havana",
    "Iran": "Tehran",
    "Chad": "N'Djamena",
}


def _questions() -> list[tuple[str, list[str], int]]:
    names = [*CAPITALS.values()]
    made = []
    for at, (land, capital) in enumerate(CAPITALS.items()):
        others = [name for name in names if name != capital][:3]
        made.append((f"Capital of {land}?", [*others[: at % 4], capital, *others[at % 4 :]], at % 4))
    return made


def _start(folder: Path, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    start_task(folder / "task", read_material(str(folder / "rows.jsonl")), NewTaskChoices())
    lines = (folder / "task" / "data.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines], (folder / "task" / "prompt.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (list("ABCD"), list("ABCD")),
        (["option_a", "option_b", "option_c", "option_d"], list("ABCD")),
        (["opa", "opb", "opc", "opd"], list("0123")),
        (["answer1", "answer2", "answer3", "answer4"], list("1234")),
        (["sol_0", "sol_1", "sol_2", "sol_3"], ["sol_0", "sol_1", "sol_2", "sol_3"]),
    ],
)
def test_columns_of_options_are_inputs(tmp_path: Path, names: list[str], called: list[str]) -> None:
    rows = [
        {"question": question, **dict(zip(names, options, strict=True)), "label": called[right]}
        for question, options, right in _questions()
    ]
    made, prompt = _start(tmp_path, rows)
    assert [list(row["input"]) for row in made] == [["question", *names]] * len(rows)
    assert all(f"{name}: {{{{{name}}}}}" in prompt for name in names)


def test_columns_of_measurements_are_no_options() -> None:
    rows = [{"y": str(at % 2), "score_0": at, "score_1": 9 - at, "text": "x"} for at in range(6)]
    assert find_option_columns(["text", "score_0", "score_1"], "y", rows) == []
    many = [f"c{at}" for at in range(8)]
    assert find_option_columns(many, "y", [{"y": "0", **dict.fromkeys(many, "x")}, {"y": "1"}]) == []
    assert find_option_columns(["c0", "c1"], "y", [{"y": "a", "c0": "x"}, {"y": "b"}]) == []
    assert find_option_columns(["part_a", "part_c"], "y", [{"y": "a"}, {"y": "c"}]) == []


@pytest.mark.parametrize("called", ["0123", "1234", "ABCD", "abcd"])
def test_a_list_of_options_is_written_with_what_the_targets_call_them(tmp_path: Path, called: str) -> None:
    rows = [
        {"question": question, "choices": options, "answer": called[right]}
        for question, options, right in _questions()
    ]
    made, prompt = _start(tmp_path, rows)
    for row, (_, options, right) in zip(made, _questions(), strict=True):
        assert row["input"]["choices"].split("\n") == [
            f"{name}. {text}" for name, text in zip(called, options, strict=True)
        ]
        assert f"{row['target']}. {options[right]}" in row["input"]["choices"]
    assert "choices:\n{{choices}}" in prompt


@pytest.mark.parametrize("value", ["names", "pairs"])
def test_options_that_bring_their_names(tmp_path: Path, value: str) -> None:
    rows = [
        {
            "question": question,
            "options": {"text": options, "label": list("ABCD")}
            if value == "pairs"
            else dict(zip("ABCD", options, strict=True)),
            "answer": "ABCD"[right],
        }
        for question, options, right in _questions()
    ]
    made, _ = _start(tmp_path, rows)
    assert made[0]["input"]["options"].split("\n")[0] == f"A. {_questions()[0][1][0]}"


@pytest.mark.parametrize(
    ("values", "targets"),
    [
        ([["Rome", "Lima"], ["Oslo", "Bonn"]], ["Lima", "Oslo"]),  # the targets are options
        ([["2", "1"], ["1", "0"]], [1, 1]),  # the same
        ([["a", "b", "c"], ["d", "e", "f"]], [1, 2]),  # from 0 or from 1?
        ([["a", "b"], ["d", "e"]], [0, 2]),  # no option there
        ([["a", "b"], ["d", "e"]], ["A", None]),
        ([["a", "b"], "text"], ["A", "B"]),
        ([{"choices": ["a", "b"], "labels": [1, 0]}] * 2, ["a", "b"]),  # right and wrong beside the options
        ([{"a": 1, "b": 2}], ["a"]),
        ([["a"]], ["A"]),
        ([], []),
    ],
)
def test_what_says_no_option_stays(values: list[object], targets: list[object]) -> None:
    assert write_options(values, targets) is None


@given(
    st.lists(
        st.tuples(
            st.lists(st.text("xyz ", min_size=1), min_size=2, max_size=6), st.randoms(use_true_random=False)
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["letters", "from 0"]),
)
def test_the_line_of_the_target_holds_the_right_option(rows: list[tuple[list[str], Any]], how: str) -> None:
    places = [draw.randrange(len(options)) for options, draw in rows]
    if how == "from 0":
        places[0] = 0
    targets: list[object] = ["ABCDEF"[at] if how == "letters" else at for at in places]
    lines = write_options([options for options, _ in rows], targets)
    assert lines is not None
    for (options, _), at, target, text in zip(rows, places, targets, lines, strict=True):
        assert text.split("\n")[at] == f"{target}. {options[at]}"


def test_rows_that_are_wrapped_and_answers_among_other_expectations(tmp_path: Path) -> None:
    made, _ = _start(tmp_path, [{"item": {"question": f"q{at}", "answer": f"word {at}"}} for at in range(6)])
    assert made[0] == {"input": "q0", "target": "word 0"}
    mlflow = [
        {
            "inputs": {"question": f"q{at}"},
            "expectations": {"expected_response": f"w{at}", "guidelines": "short"},
        }
        for at in range(6)
    ]
    (tmp_path / "b").mkdir()
    made, _ = _start(tmp_path / "b", mlflow)
    assert made[0] == {"input": {"question": "q0"}, "target": "w0"}
