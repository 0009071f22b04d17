"""A judge that is asked several times at temperature 0 gives equal answers: that is said before it is paid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet

ROWS = [{"input": f"q{n}", "target": "t"} for n in range(6)]


def warnings_of(reward: dict[str, Any], folder: Path, **options: Any) -> list[str]:
    result = whet.evaluate(
        "{{input}}",
        data=ROWS,
        reward=reward,
        lm="ollama/llama3",
        judge_lm={"address": "ollama/llama3", **options},
        run=folder / "run",
        dry_run=True,
        progress=False,
    )
    return [text for text in result.warnings if "samples" in text]


@pytest.mark.filterwarnings("ignore:The reward")
@pytest.mark.parametrize(
    "reward",
    [
        {"judge": {"rubric": "Is it right?", "samples": 3}},
        {"yes_no": {"question": "Is it right?", "samples": 3}},
        [{"f1": 0.5}, {"name": "checklist", "items": ["It is right."], "samples": 3, "weight": 0.5}],
    ],
)
def test_equal_samples_are_said(reward: Any, tmp_path: Path) -> None:
    assert any(
        "samples of one answer are equal" in text for text in warnings_of(reward, tmp_path, temperature=0)
    )


@pytest.mark.parametrize(
    ("samples", "options"), [(1, {"temperature": 0}), (3, {}), (3, {"temperature": 0.5})]
)
def test_different_samples_need_no_word(samples: int, options: dict[str, Any], tmp_path: Path) -> None:
    assert warnings_of({"judge": {"rubric": "Right?", "samples": samples}}, tmp_path, **options) == []
