"""A run says in words when its optimizer model writes the same text again and again."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.api import Progress
from whet.rl.language import MOST_REPEATS


@pytest.mark.parametrize("method", ["opro", "evoprompt"])
@pytest.mark.parametrize("varies", [False, True])
def test_an_optimizer_that_repeats_itself_is_named(method: str, varies: bool, tmp_path: Path) -> None:
    numbers, lines = itertools.count(), list[str]()

    def write(messages: Any) -> str:
        return f"<INSTRUCTION>Say it in {next(numbers) % 997 if varies else 'the same'} words.</INSTRUCTION>"

    def answer(messages: Any) -> str:
        return "yes" if "q1" in str(messages) else "no"

    progress = Progress(say=lines.append)
    result = whet.optimize(
        "<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}",
        data=[{"input": f"q{n}", "target": "yes"} for n in range(40)],
        reward="exact_match",
        lm=answer,
        optimizer_lm=write,
        method=method,
        budget=whet.Budget(calls=900),
        run=tmp_path / "run",
        progress=progress,
    )
    said = [text for text in result.warnings if "the same text" in text and "times in a row" in text]
    assert bool(said) != varies
    assert any("times in a row" in line for line in lines) != varies
    if not varies:
        assert MOST_REPEATS <= result.usage.calls["optimizer"] < 3 * MOST_REPEATS, (
            "asked no more, far below the limit"
        )
        assert f"After {MOST_REPEATS} of them, the search asked it no more." in said[0]
