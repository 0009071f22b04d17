"""Tokens and dollars that no provider said are estimates, and every face of a result says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import whet
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving
from whet.types import Request

ROWS = [{"id": str(i), "input": f"Message {i}", "target": "refund"} for i in range(24)]
DATA = {"train": ROWS[:4], "validation": ROWS[4:12], "test": ROWS[12:]}
SILENT = ServerBehaviour(habits=("no_usage",))
WARNING = "openai/m reported no usage that can be right for"
LM = {"address": "openai/m", "price": {"input": 1.0, "output": 1.0}}


def answer(request: Request) -> str:
    return "refund"


async def evaluated(base_url: str, run: Path) -> Any:
    return await whet.aevaluate(
        "Which team?", data=DATA, reward="exact_match", lm=LM, base_url=base_url, run=run
    )


async def test_an_evaluation_says_that_its_tokens_are_estimated(tmp_path: Path) -> None:
    async with serving(answer, settings=SILENT) as server:
        results = [await evaluated(server.base_url, tmp_path / "run") for _ in range(2)]
    assert results[1]["recorded"], "a recorded result says it too"
    for result in results:
        assert sum(WARNING in warning for warning in result.warnings) == 1
        assert result.usage.estimated == {"task": 8}


async def test_an_optimization_says_it_in_the_result_and_in_the_report(tmp_path: Path) -> None:
    async with serving(answer, settings=SILENT) as server:
        result = await whet.aoptimize(
            "Which team?", data=DATA, reward="exact_match", lm=LM, optimizer_lm=LM, base_url=server.base_url,
            method="random_search", budget=whet.Budget(calls=60), run=tmp_path / "run",
        )  # fmt: skip
    assert sum(WARNING in warning for warning in result.warnings) >= 1
    report = Path(result["run"], "report.html").read_text("utf-8")
    assert WARNING in report and "<small>estimated</small>" in report


async def test_a_run_that_goes_on_knows_what_was_estimated_before(tmp_path: Path) -> None:
    answered: list[str] = []

    def interrupted(request: Request) -> str:
        answered.append(request.messages[-1].content)
        if len(answered) == 4:
            running.cancel()
        return "refund"

    async with serving(interrupted, settings=SILENT) as server:
        running = asyncio.create_task(evaluated(server.base_url, tmp_path / "run"))
        with suppress(asyncio.CancelledError):
            await running
        result = await evaluated(server.base_url, tmp_path / "run")
    assert running.cancelled() and len(answered) == 8
    assert result.usage.estimated == {"task": 8}
    assert sum(WARNING in warning for warning in result.warnings) == 1


async def test_what_a_provider_reports_is_no_estimate(tmp_path: Path) -> None:
    async with serving(answer) as server:
        result = await evaluated(server.base_url, tmp_path / "run")
    assert not result.usage.estimated and not [w for w in result.warnings if WARNING in w]
