"""Tokens and dollars that no provider said are estimates, and every face of a result says so."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.cli.show import show_dollars
from whet.models.callable import CallableModel
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving
from whet.types import Completion, Message, Request, Usage

ROWS = [{"id": str(i), "input": f"Message {i}", "target": "refund"} for i in range(24)]
DATA = {"train": ROWS[:4], "validation": ROWS[4:12], "test": ROWS[12:]}
SILENT = ServerBehaviour(habits=("no_usage",))
WARNING = "openai/m reported no plausible usage for"
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


async def test_a_run_and_its_control_say_it_once_with_the_calls_of_both(tmp_path: Path) -> None:
    async with serving(answer, settings=SILENT) as server:
        result = await whet.aoptimize(
            "Which team?", data=DATA, reward="exact_match", lm=LM, optimizer_lm=LM, base_url=server.base_url,
            method="random_search", control="random_search", budget=whet.Budget(calls=120), run=tmp_path / "run",
        )  # fmt: skip
    both = result.usage.estimated["task"]
    assert both == sum(result.usage.calls[role] for role in ("task",))
    (said,) = (warning for warning in result.warnings if WARNING in warning and "role task" in warning)
    assert f"for {both} calls" in said


FUNCTION = r"silent_function@\w+ reported no plausible usage .* role task\. For these calls, a quarter of the characters"


@pytest.mark.parametrize("tokens", [None, 10**8])
async def test_the_tokens_of_a_function_are_marked_and_warned_of_where_a_limit_uses_them(
    tmp_path: Path, tokens: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    result = await whet.aoptimize(
        "Which team?", data=DATA, reward="exact_match", lm=silent_function, optimizer_lm=silent_function,
        method="random_search", budget=whet.Budget(calls=60, tokens=tokens), run=tmp_path / "run",
    )  # fmt: skip
    assert result.usage.estimated == {role: n for role, n in result.usage.calls.items() if n}
    assert result.usage.input_tokens > 0
    warned = [text for text in result.warnings if re.search(FUNCTION, text)]
    assert len(warned) == (tokens is not None)
    assert "for a function that reports no tokens, a quarter of the characters" in capsys.readouterr().err
    assert show_dollars(result["usage"]) == ", tokens estimated"


@pytest.mark.parametrize(
    ("returned", "estimated"),
    [
        ("refund", True),
        ({"text": "refund", "usage": None}, True),
        (Completion("refund"), True),
        (Completion("refund", usage=Usage(9, 1)), False),
        ({"text": "refund", "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, False),
    ],
)
async def test_what_a_function_does_not_report_is_an_estimate_and_never_nothing(
    returned: Any, estimated: bool
) -> None:
    request = Request([Message("user", "a" * 36)])
    (answered,) = await CallableModel(lambda messages: returned).generate(request)
    assert answered.usage == Usage(9, 2 if estimated else 1, estimated=estimated)


def silent_function(messages: Any) -> str:
    return "refund"
