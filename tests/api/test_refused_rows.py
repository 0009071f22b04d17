"""A provider refuses most rows of a prompt: what it answered decides nothing about the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.errors import ProviderError

Refuses = Callable[[str, bool], bool]


class Refusing(Counted):
    """The model of the world behind a provider that refuses some requests, by the question and whether the prompt is careful."""

    def __init__(self, refuses: Refuses) -> None:
        super().__init__()
        self.refuses = refuses

    def __call__(self, messages: list[whet.Message]) -> str:
        careful = "careful" in " ".join(m.content for m in messages).lower()
        if self.refuses(messages[-1].content, careful):
            raise ProviderError("The provider refuses this request.", status=400)
        return super().__call__(messages)


def optimize(folder: Path, refuses: Refuses, validation: list[dict[str, Any]]) -> whet.RunResult:
    every = rows(20)
    data = {"train": every[:20], "validation": validation, "test": every[60:]}
    return whet.optimize(
        PROMPT,
        data=data,
        reward=right,
        lm=Refusing(refuses),
        optimizer_lm=writer,
        method=whet.methods.opro.Config(steps=2, samples=2),
        run=folder / "run",
        progress=False,
    )


@pytest.mark.parametrize(("answered", "stays"), [(1, False), (19, False), (20, True)])
def test_a_start_answered_on_few_rows_does_not_stay_by_them(
    tmp_path: Path, answered: int, stays: bool
) -> None:
    """Forty rows, all right with care. Under the start those of dishes with an odd number are right: the provider answers so many
    of them and refuses the rest. Ahead on 19 of the 40 rows at most, a prompt is right on 40 against 19 at worst; by 20 rows,
    half of all, it is level and the start stays."""
    validation = sorted(rows(20)[20:60], key=lambda row: int(row["input"].split()[1]) % 2 == 0)
    shown = {row["input"] for row in validation[:answered]}
    known = {row["input"] for row in validation}

    def refuses(question: str, careful: bool) -> bool:
        asked = question.split("Review: ")[1]
        return not careful and asked in known - shown

    result = optimize(tmp_path, refuses, validation)
    assert result.baseline.validation is not None and result.baseline.validation.n == answered
    assert (result.best.id == result.baseline.id) == stays
    assert stays or "careful" in result.best.prompt.text
