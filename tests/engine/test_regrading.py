"""A reward that says something else of the same answer is noticed before the search is paid."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.methods import opro

OPRO = opro.Config(steps=2, samples=2, examples=10, finalists=1)
JUDGED = {"judge": {"rubric": "The label is right.", "scale": [0, 1], "reference": "ignore"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def optimize(**changes: Any) -> Any:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": writer}
    return whet.optimize(PROMPT, **{**words, "method": OPRO, "budget": whet.Budget(calls=1000), **changes})


def said(result: Any) -> list[str]:
    return [warning for warning in result.warnings if "the second time" in warning]


class Changing:
    """A judge that gives the scores in turn whenever it is asked the same."""

    simulated = True
    version = 1

    def __init__(self, scores: tuple[str, ...]) -> None:
        self._asked, self._scores = Counter[str](), scores

    def __call__(self, messages: list[whet.Message]) -> str:
        asked = re.sub(r"\[\[/?[0-9a-f]{12}\]\]", "", messages[-1].content)
        self._asked[asked] += 1
        return (
            f'{{"explanation": "so", "score": {self._scores[(self._asked[asked] - 1) % len(self._scores)]}}}'
        )


def test_a_random_reward_is_named_with_row_and_values_before_the_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = itertools.count()
    model = Counted()
    seen: list[int] = []

    def drifting(example: dict[str, Any], output: str) -> float:
        return (next(values) % 1000) / 1000

    def told(messages: list[whet.Message], request: Any = None) -> str:
        if not seen:
            seen.append(capsys.readouterr().err.count("the second time"))
        return writer(messages, request)

    result = optimize(reward=drifting, lm=model, optimizer_lm=told)
    (warning,) = said(result)
    assert "The reward drifting gave the same answer to row " in warning
    assert "differed in 8 of 8 answers" in warning and "not on random numbers" in warning
    assert seen == [1], "it is said before the first text of the search is asked for"


def test_an_evaluation_names_a_random_reward_too() -> None:
    values = itertools.count()

    def drifting(example: dict[str, Any], output: str) -> float:
        return (next(values) % 1000) / 1000

    model = Counted()
    words: dict[str, Any] = {"data": rows(), "lm": model, "split": "train"}
    (warning,) = said(whet.evaluate(PROMPT, reward=drifting, **words))
    assert "The reward drifting gave the same answer to row " in warning
    assert "differed in 8 of 8 answers" in warning and "not on random numbers" in warning
    assert model.calls == 32, "the same answers are graded, and none is asked for again"
    assert not said(whet.evaluate(PROMPT, reward=right, **words))


def test_a_reward_that_says_the_same_is_graded_eight_times_more() -> None:
    graded: list[str] = []

    def counting(example: dict[str, Any], output: str) -> float:
        graded.append(example["input"])
        return right(example, output)

    data = {"train": rows(4), "validation": rows(10)[16:], "test": rows(20)[40:]}
    result = optimize(data=data, reward=counting, lm=lambda messages: "unclear", method="random_search")
    assert said(result) == []
    first = [graded.count(row["input"]) for row in data["validation"]]
    assert sum(first) % len(first) == 8


def test_a_part_of_a_sum_that_is_chance_is_found_beside_a_judge() -> None:
    values = itertools.count()

    def drifting(example: dict[str, Any], output: str) -> float:
        return next(values) * 0.37 % 1.0  # no value twice, in whatever order the rows are graded

    judge = Changing(("1",))
    result = optimize(
        reward=[{"weight": 0.5, **JUDGED}, {"weight": 0.5, "program": {"function": drifting}}],
        judge_lm=judge,
        budget=whet.Budget(),
    )
    (warning,) = said(result)
    assert "drifting" in warning


@pytest.mark.parametrize(("scores", "warnings"), [(("1", "0"), 1), (("0.5", "0.6"), 0)])
def test_the_noise_of_a_judge_is_said_where_it_is_large(scores: tuple[str, ...], warnings: int) -> None:
    judge = Changing(scores)
    result = optimize(reward=JUDGED, judge_lm=judge, budget=whet.Budget(judge_calls=400))
    assert len(said(result)) == warnings
    assert all("samples: 3" in warning for warning in said(result))
