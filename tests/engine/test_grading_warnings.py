"""Warnings on how answers were graded, in the result of an evaluation and in the plan of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError
from whet.rewards import build_reward


async def evaluate(folder: Path, reward: object, targets: list[Any], answer: str) -> whet.Evaluation:
    rows = [{"input": f"q{n}", "target": target} for n, target in enumerate(targets)]
    return await whet.aevaluate(
        "{{input}}",
        data=rows,
        reward=reward,
        lm=lambda messages: answer,
        split="validation",
        run=folder / "run",
    )


def warnings_with(result: whet.Evaluation, text: str) -> list[str]:
    return [warning for warning in result.warnings if text in warning]


async def test_a_right_number_with_a_word_that_multiplies_is_said(tmp_path: Path) -> None:
    result = await evaluate(tmp_path, {"number": {"last": True}}, [2] * 6, "About 2 million.")
    (warning,) = warnings_with(result, "multiplies in some language")
    assert result.score.mean == 1.0
    assert 'such as "About 2 million.", count as right for a number with "million"' in warning
    assert "reward: {number: {multiples: {million: 1000000}}}" in warning


@pytest.mark.parametrize(
    ("options", "answer"), [({"multiples": {}}, "2 million"), ({}, "2 apples"), ({}, "3 million"), ({}, "2")]
)
async def test_no_other_number_is_warned_of(tmp_path: Path, options: dict[str, object], answer: str) -> None:
    result = await evaluate(tmp_path, {"number": {"last": True, **options}}, [2] * 6, answer)
    assert not warnings_with(result, "multiplies in some language")


@pytest.mark.parametrize(
    ("answer", "warned"), [("It is 5 g.", True), ("It is 5 kg.", False), ("5kg", False), ("5", False)]
)
async def test_another_word_than_the_unit_is_said(tmp_path: Path, answer: str, warned: bool) -> None:
    result = await evaluate(tmp_path, {"number": {"last": True, "unit": "kg"}}, [5] * 6, answer)
    texts = warnings_with(result, 'the word "g" behind their number, and not the unit kg')
    assert result.score.mean == 1.0 and len(texts) == warned


async def test_a_percent_sign_that_would_make_answers_right_is_said(tmp_path: Path) -> None:
    result = await evaluate(tmp_path, {"number": {"last": True}}, ["60%"] * 6, "0.6")
    (warning,) = warnings_with(result, "percent: true")
    assert (
        result.score.mean == 0.0
        and 'such as "0.6", are the target if a percent sign divides by 100' in warning
    )


async def test_a_target_inside_of_a_word_is_said_with_the_mean_without_it(tmp_path: Path) -> None:
    result = await evaluate(tmp_path, "contains", ["no"] * 6, "I know")
    (warning,) = warnings_with(result, "only inside of a longer word")
    assert result.score.mean == 1.0 and result.parts == {"inside_a_word": 1.0}
    assert "the mean would be 0.000 in place of 1.000" in warning and "{contains: {words: true}}" in warning


async def test_contains_with_words_takes_words_alone(tmp_path: Path) -> None:
    inside = await evaluate(tmp_path / "a", {"contains": {"words": True}}, ["no"] * 6, "I know")
    alone = await evaluate(tmp_path / "b", {"contains": {"words": True}}, ["no"] * 6, "No, I do not.")
    assert (inside.score.mean, alone.score.mean) == (0.0, 1.0)
    assert not warnings_with(inside, "longer word") and not warnings_with(alone, "longer word")


async def test_a_part_that_some_answers_lack_is_said(tmp_path: Path) -> None:
    def reward(example: dict[str, Any], output: str) -> dict[str, object]:
        return {"reward": 1.0, "short": 1.0, **({} if example["input"] == "q0" else {"clear": 0.5})}

    rows = {"train": [{"input": f"t{n}"} for n in range(9)], "test": [{"input": f"q{n}"} for n in range(4)]}
    result = await whet.aevaluate(
        "{{input}}",
        data=rows,
        reward=reward,
        lm=lambda m: "x",
        split="test",
        run=tmp_path,
    )
    (warning,) = warnings_with(result, "have no part")
    assert result.parts == {"short": 1.0, "clear": 0.375}
    assert warning.startswith(
        "1 of 4 rollouts of the test prompt have no part clear. They count as 0 in its mean, which is 0.375"
    )
    assert "of the others alone it is 0.500" in warning


def test_contains_with_words_and_strict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Leave one out"):
        build_reward({"contains": {"words": True, "strict": True}}, tmp_path, "task.yaml:1")


@pytest.mark.parametrize(
    ("reward", "targets", "warned"),
    [
        ("contains", ["male", "female"] * 3, True),
        ({"contains": {"words": True}}, ["male", "female"] * 3, False),
        ({"contains": {"strict": True}}, ["male", "female"] * 3, False),
        ("contains", ["red", "red wine"] * 3, False),
        ("contains", ["yes", "no"] * 3, False),
    ],
)
async def test_targets_inside_of_other_targets_are_said_before(
    tmp_path: Path, reward: object, targets: list[str], warned: bool
) -> None:
    result = await evaluate(tmp_path, reward, targets, "nothing")
    texts = warnings_with(result, 'The answer "female" counts as right where the target is "male"')
    assert len(texts) == warned


@pytest.mark.parametrize(
    ("query", "ordered", "warned"),
    [
        ("SELECT a FROM t ORDER BY a DESC", False, True),
        ("SELECT a FROM t order  by a LIMIT 3", False, True),
        ("SELECT a FROM t ORDER BY a DESC", True, False),
        ("SELECT a FROM t ORDER BY a LIMIT 1", False, False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False, False),
        ("SELECT 'order by' FROM t", False, False),
    ],
)
async def test_queries_whose_order_is_left_aside_are_said_before(
    tmp_path: Path, query: str, ordered: bool, warned: bool
) -> None:
    reward = {"sql": {"setup": "CREATE TABLE t(a INT)", "ordered": ordered}}
    result = await evaluate(tmp_path, reward, [query] * 3, query)
    assert len(warnings_with(result, "ORDER BY")) == warned


@pytest.mark.parametrize(("time", "warned"), [(" 14:30", True), (" 00:00:00", False), ("", False)])
async def test_times_that_are_left_aside_are_said_before(tmp_path: Path, time: str, warned: bool) -> None:
    result = await evaluate(tmp_path, "date", [f"2024-03-05{time}"] * 3, "2024-03-05 15:30")
    assert result.score.mean == 1.0 and len(warnings_with(result, "hold a time of the day")) == warned


async def test_empty_lists_as_targets_are_said_before(tmp_path: Path) -> None:
    result = await evaluate(tmp_path, "list", [["a"], ["b"], ["a"], [], ["b"], ["a"]], "none")
    (warning,) = warnings_with(result, "an empty list")
    assert "Of 6 targets, 1, such as that of row" in warning


@pytest.mark.parametrize(
    ("reply", "scale", "warned"),
    [
        ("0.8", [0, 100], True),
        ('{"explanation": "x", "score": 0.8}', [0, 10], True),
        ("80", [0, 100], False),
        ("1", [0, 100], False),
        ("0.8", [0, 1], False),
    ],
)
@pytest.mark.parametrize("several", [False, True])
async def test_scores_of_another_scale_are_said(
    reply: str, scale: list[int], warned: bool, several: bool, tmp_path: Path
) -> None:
    judge = {"judge": {"rubric": "Is it good?", "scale": scale}}
    result = await whet.aevaluate(
        "{{input}}",
        data=[{"input": f"q{n}", "target": None} for n in range(20)],
        reward=[judge, {"checklist": {"items": [{"check": {"max_words": 9}}]}}] if several else judge,
        lm=lambda messages: "an answer",
        judge_lm=lambda messages: reply,
        run=tmp_path / "run",
    )
    texts = warnings_with(result, "lie between 0 and 1")
    assert len(texts) == warned
    assert not warned or ("such as 0.8" in texts[0] and f"its scale from 0 to {scale[1]}" in texts[0])


@pytest.mark.parametrize(
    ("prompt", "answer", "line"),
    [
        ("Question: {{input}}\nAnswer:", "5\n\nQuestion: How many then?\nAnswer: 7", "Question:"),
        ("\u95ee\u9898\uff1a{{input}}", "5\n\u95ee\u9898\uff1a\u591a\u5c11\uff1f\n7", "\u95ee\u9898\uff1a"),
        ("Question: {{input}}\nAnswer:", "Question: the same.\nIt is 5.", ""),
        ("The {{input}} counts.", "It is so.\nThe number is 5.", ""),
    ],
)
async def test_answers_that_write_further_rows_are_said(
    prompt: str, answer: str, line: str, tmp_path: Path
) -> None:
    rows = [{"input": f"q{n}", "target": 5} for n in range(6)]
    result = await whet.aevaluate(
        prompt, data=rows, reward={"number": {"last": True}}, lm=lambda messages: answer, run=tmp_path / "run"
    )
    said = warnings_with(result, "go on with a line of the prompt")
    assert [f'"{line}"' in text and f'stop: ["\\n{line}"]' in text for text in said] == (
        [True] if line else []
    )
