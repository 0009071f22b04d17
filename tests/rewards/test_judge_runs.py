"""Judges in whole runs against a real local server: paid once, counted, resumed without a new call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.api import aoptimize
from whet.errors import UsageError
from whet.run import Budget
from whet.task import load_task
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import serving
from whet.types import Message, Request

YAML = """name: t
prompt: prompt.md
data: data.jsonl
models: {task: openai/m, judge: openai/j}
reward:
  - judge: {rubric: rubric.md, weight: 2, reference: ignore}
  - checklist: {rubric: "Be kind. Be short.", weight: 1}
  - checklist: {items: [{check: {max_words: 5}}], part: form}
  - yes_no: {question: "Is it short?", negated: "Is it long?"}
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "task.yaml").write_text(YAML)
    (folder / "rubric.md").write_text("The answer names a city.")
    (folder / "prompt.md").write_text("<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}\n")
    rows = [json.dumps({"input": f"question {n}"}) for n in range(20)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    return folder


def answer(request: Request) -> str:
    """The task model and the judge in one server, told apart by what they are asked."""
    asked = request.messages[0].content
    if "checklist for answers" in asked:
        return json.dumps(
            {"items": [{"item": "Must be kind", "weight": 2}, {"item": "Must be short", "weight": 1}]}
        )
    if "list of items" in asked:
        found = [{"number": n, "reason": "Because.", "met": n == 1} for n in (1, 2)]
        return json.dumps({"items": found})
    if "by a rubric" in asked:
        return 'Here you are: {"explanation": "The answer must name a city.", "score": 3}'
    if "yes or no" in asked:
        return "yes" if "short?" in request.messages[1].content else "no"
    return "Some answer."


def options(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    return {
        "method": "random_search",
        "base_url": url,
        "run": folder.parent / "run",
        "budget": Budget(calls=250),
        **more,
    }


async def test_a_run_with_judges_is_counted_and_resumed_without_a_new_call(task: Path) -> None:
    faults = Faults(error_500=0.03, malformed=0.03)
    async with serving(answer, faults=faults, settings=ServerBehaviour(seed=3)) as server:
        result = await aoptimize(task, **options(task, server.base_url))
        sent = len(server.ledger.entries)
        paid = sum(result["usage"]["calls"].values())
        assert paid + sum(result["usage"]["refused"].values()) == sent <= 250
        assert result["usage"]["calls"]["judge"] > result["usage"]["calls"]["task"]
        (task.parent / "run" / "result.json").unlink()
        again = await aoptimize(task, **options(task, server.base_url))
        assert len(server.ledger.entries) == sent
        assert again["best"] == result["best"] and again["usage"]["calls"] == result["usage"]["calls"]
    test = result["baseline"]["test"]["mean"]
    assert test == pytest.approx(2 * 0.5 + 2 / 3 + 1 + 1)


async def test_the_items_of_a_checklist_are_asked_for_once(task: Path) -> None:
    extractions = 0

    def counting(request: Request) -> str:
        nonlocal extractions
        extractions += "checklist for answers" in request.messages[0].content
        return answer(request)

    async with serving(counting) as server:
        await aoptimize(task, **options(task, server.base_url))
    assert extractions == 1


def test_a_limit_on_judge_calls_counts_one_call_for_a_row_without_a_target(tmp_path: Path) -> None:
    """12 test rows twice and 5 validation rows twice take 39 calls with room for repeats; 78 were wanted, as if each answer was
    compared with a target in both orders."""
    calls = [0]

    def judge(messages: list[Message]) -> str:
        calls[0] += 1
        return '{"explanation": "e", "score": 4}'

    def optimize(limit: int, **row: str) -> Any:
        return whet.optimize(
            "Say {{input}}",
            data=[{"input": f"row {i}", **row} for i in range(40)],
            reward={"judge": {"rubric": "It is kind."}},
            lm=lambda messages: f"well {messages[-1].content}",
            optimizer_lm=lambda messages: "<PROMPT>Be kind.</PROMPT>",
            judge_lm=judge,
            method="opro",
            budget=whet.Budget(judge_calls=limit, calls=400),
            root=tmp_path / f"{limit}{len(row)}",
        )

    assert optimize(50)["usage"]["calls"]["judge"] == calls[0] <= 50
    with pytest.raises(UsageError, match="Give at least 78"):
        optimize(50, target="well")


async def test_a_judge_that_never_makes_sense_is_refused_with_its_words(task: Path) -> None:
    def babble(request: Request) -> str:
        return "Who knows." if "by a rubric" in request.messages[0].content else answer(request)

    async with serving(babble) as server:
        with pytest.raises(
            UsageError, match=r"could not be read, twice: 'Who knows\.'.* judge with judge_lm=provider/name"
        ):
            await aoptimize(task, **options(task, server.base_url))


async def test_limits_on_judge_calls_hold_and_name_the_least(task: Path) -> None:
    async with serving(answer) as server:
        with pytest.raises(UsageError, match=r"budget\.judge_calls=10 is too small"):
            await aoptimize(task, **options(task, server.base_url, budget=Budget(calls=250, judge_calls=10)))
        assert not server.ledger.entries
        result = await aoptimize(
            task, **options(task, server.base_url, budget=Budget(calls=250, judge_calls=120))
        )
        assert result["usage"]["calls"]["judge"] <= 120


def test_a_changed_rubric_file_is_another_task(task: Path) -> None:
    before = load_task(task).fingerprint
    (task / "rubric.md").write_text("The answer names a river.")
    assert load_task(task).fingerprint != before
