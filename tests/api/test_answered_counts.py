"""Of how many rows of the sealed test a prompt has an answer, where the provider kept some of the other prompt's away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.cli import show


class Lossy(Counted):
    """A model that gives no answer to six sealed rows under a careful prompt."""

    def __call__(self, messages: list[whet.Message]) -> str:
        asked = " ".join(message.content for message in messages)
        if "careful" in asked.lower() and any(f"Dish {n} was lovely" in asked for n in range(40, 46)):
            raise whet.ProviderError("HTTP 503", status=503)
        return super().__call__(messages)


def test_a_baseline_that_answered_all_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealed = rows(60)
    data = {"train": sealed[:80], "validation": sealed[80:120], "test": sealed[160:205]}
    result = whet.optimize(
        PROMPT,
        data=data,
        reward=right,
        lm=Lossy(),
        optimizer_lm=writer,
        method=whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1),
        budget=whet.Budget(calls=2000),
        root=tmp_path,
        seed=1,
    )
    before, after = result.baseline.test, result.best.test
    assert before is not None and after is not None and result["improvement"]["missing"] == 6
    assert (before.answered, before.of, before.n, before.compared) == (45, 45, 39, 39)
    assert (after.answered, after.of, after.n, after.compared) == (39, 45, 39, None)
    values: Any = {**result.to_dict(), "run": str(result.run)}
    show.result(values)
    shown = capsys.readouterr().out.splitlines()
    assert next(line for line in shown if line.startswith("baseline")).endswith("39 of 45 answered by both")
    assert next(line for line in shown if line.startswith("best")).endswith("39 of 45 answered")
    assert str(before).endswith("(39 of 45 answered by both)") and str(after).endswith("(39 of 45 answered)")
    assert "39 of 45 examples answered" in (result.run / "report.html").read_text("utf-8")


class Refusing(Counted):
    """A model whose provider refuses the start prompt with each sealed row."""

    def __call__(self, messages: list[whet.Message]) -> str:
        asked = " ".join(message.content for message in messages)
        if "Sort the review." in asked and any(f"Dish {n} was" in asked for n in range(40, 60)):
            raise whet.ProviderError("HTTP 400: this template is not supported", status=400)
        return super().__call__(messages)


def test_a_start_prompt_that_the_provider_refuses_is_said_to_be_refused(tmp_path: Path) -> None:
    sealed = rows(60)
    result = whet.optimize(
        PROMPT,
        data={"train": sealed[:80], "validation": sealed[80:120], "test": sealed[160:205]},
        reward=right,
        lm=Refusing(),
        optimizer_lm=writer,
        method=whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1),
        budget=whet.Budget(calls=2000),
        root=tmp_path,
        seed=1,
    )
    start = "45 of 45 rollouts of the baseline prompt"
    refused = next(one for one in result["warnings"] if one.startswith(start))
    assert "HTTP 400: this template is not supported. The provider refused these requests" in refused
    assert (
        "name the account (credit, a limit, access), put that right and run the same command again" in refused
    )
    assert "If they name the requests, change the prompt, the rows or an option of the model" in refused
    assert "when the provider answers" not in result["improvement"]["reason"]
    assert result["improvement"]["reason"].endswith("the warnings hold its words, and say what to do.")
