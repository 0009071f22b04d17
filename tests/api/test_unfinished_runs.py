"""A run that takes another folder because an unfinished one differs says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, right, rows
from whet.errors import ProviderError


class Failing:
    """A model that fails while `broken`."""

    version = "1"
    broken = True

    def __call__(self, messages: Any) -> str:
        if self.broken:
            raise OSError("gone")
        return "positive"


def test_what_an_unfinished_run_differs_in_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Failing()
    words: dict[str, Any] = {
        "data": rows(),
        "reward": right,
        "lm": model,
        "name": "reviews",
        "root": tmp_path,
    }
    words |= {"method": "random_search", "budget": whet.Budget(calls=200)}
    with pytest.raises(ProviderError):
        whet.optimize(PROMPT, **words)
    capsys.readouterr()
    model.broken = False
    whet.optimize(PROMPT.replace("Sort", "Grade"), **words)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "is not finished" in line]
    assert "reviews-random_search-0 is not finished. This is another run, in" in said
    assert "the task, which was edited: prompt" in said
