"""The example with tools loads, and its targets are what its tools say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.environments.worlds import Scripted

from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.run import MemoryRun
from whet.task import load_task
from whet.types import Example, Request

TASK = load_task(Path(__file__).resolve().parents[2] / "examples" / "order-desk")
ROWS: dict[str, Example] = {e.text or "": e for e in (*TASK.train, *TASK.validation, *TASK.test)}


def call(name: str, value: str) -> str:
    key = {"price": "item", "shipping": "place", "calculate": "expression"}[name]
    return f"<tool>{json.dumps({'name': name, 'arguments': {key: value}})}</tool>"


def clerk(request: Request) -> str:
    """A model that works as it should: it looks everything up, calculates, and answers."""
    row = ROWS[request.messages[1].content].row
    items = list(row["items"].items())
    results = [m.content for m in request.messages[3::2]]
    if len(results) < len(items):
        return call("price", items[len(results)][0])
    goods = " + ".join(f"{count} * {price}" for (_, count), price in zip(items, results, strict=False))
    if len(results) == len(items):
        return call("shipping", row["place"])
    if len(results) == len(items) + 1:
        total = sum(count * float(price) for (_, count), price in zip(items, results, strict=False))
        free = total >= 150 and row["place"] != "abroad"
        return call("calculate", goods if free else f"{goods} + {results[-1]}")
    return f"<answer>{results[-1]}</answer>"


async def test_the_targets_are_what_the_tools_say() -> None:
    model = Scripted(clerk)
    env = Environment(model, TASK.reward, TASK.train, TASK.validation)  # type: ignore[arg-type]
    rollouts = await multiturn(env, TASK.world).evaluate(
        MemoryRun({"task": model}), TASK.prompt, list(ROWS.values())
    )
    assert len(rollouts) == 60 and {(r.reward, r.error) for r in rollouts} == {(1.0, None)}
    assert max(r.parts["turns"] for r in rollouts) == 6 and not any(r.parts["tool_errors"] for r in rollouts)


async def test_a_guess_without_tools_earns_nothing() -> None:
    model = Scripted(lambda request: "<answer>10.00</answer>")
    env = Environment(model, TASK.reward, TASK.train, TASK.validation)  # type: ignore[arg-type]
    rollouts = await multiturn(env, TASK.world).evaluate(MemoryRun({"task": model}), TASK.prompt, TASK.train)
    assert {r.reward for r in rollouts} == {0.0}
