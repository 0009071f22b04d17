"""Selectors of rows inside methods that train: what they ask about, what that costs, and where they are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")
pytest.importorskip("trueskill", reason="ratings need trueskill: pip install 'whet[train]'")

from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.method import configure
from whet.prompt import Prompt
from whet.run import Budget
from whet.testing.runs import MeteredRun
from whet.types import Request

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
MENU = ["a", "b", "good", "c"]
SETTINGS: dict[str, dict[str, Any]] = {
    "dsp": {"steps": 6, "group": 3, "questions": 3, "lr": 1.0, "checks": 1, "keyword": 0.0},
    "espl": {"steps": 6, "group": 3, "problems": 3, "mode": "rl", "lr": 1.0, "checks": 1},
    "prewrite": {"steps": 6, "group": 4, "examples": 3, "lr": 1.0, "rewrites": 2, "checks": 1},
    "prl": {"steps": 6, "group": 4, "examples": 3, "lr": 1.0, "prompts": 1, "checks": 1},
}
MENUS: dict[str, Sequence[str]] = {
    "dsp": MENU,
    "espl": ["yes", "no", "perhaps"],
    "prewrite": MENU,
    "prl": [f"<think>t</think><answer>{text}</answer>" for text in MENU],
}


def answers(request: Request) -> str:
    """Right with a good text on rows with an even number; else wrong: so half of the rows say nothing about a text."""
    text = request.messages[-1].content
    number = int("".join(c for c in text if c.isdigit()) or 1)
    return "yes" if "good" in text and number % 2 == 0 else "no"


async def search(name: str, limits: Budget | None = None, **settings: Any) -> MeteredRun:
    made = small(answers, 40)
    run = MeteredRun({"task": made.model, "optimizer": made.model}, limits=limits)
    method = get_method(name)
    policy: Any = Scribe(lambda conversation: MENUS[name], gain=2.0)
    await method.coroutine(run, made.env, policy, START, configure(method, {**SETTINGS[name], **settings}))
    return run


def steps(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("rows", ["dynamic", "mopps", "easy-first"])
async def test_no_selector_exceeds_a_limit(name: str, rows: str) -> None:
    for most in (60, 150):
        run = await search(name, Budget(task_calls=most), rows=rows, resamples=5)
        assert 0 < run.spent["task"] <= most


async def test_dynamic_sampling_learns_from_rows_that_differ() -> None:
    plain = await search("dsp")
    dynamic = await search("dsp", rows="dynamic", resamples=5)
    assert dynamic.spent["task"] > plain.spent["task"]
    idle = [sum(step["equal_groups"] for step in steps(run)[:3]) for run in (plain, dynamic)]
    assert idle[1] < idle[0]


async def test_rewrites_are_scored_on_rows_that_tell_them_apart() -> None:
    """Half of the rows are answered wrong under every rewrite: with them the best rewrite earns about 1/2, without them 1."""
    plain = [one["best"] for one in steps(await search("prewrite")) if not one["equal_groups"]]
    run = await search("prewrite", rows="dynamic", resamples=9)
    dynamic = [one["best"] for one in steps(run) if not one["equal_groups"]]
    assert plain and min(plain) < 1 and dynamic and set(dynamic) == {1.0}


async def test_a_training_ends_when_its_rows_are_used_up() -> None:
    """Twelve steps of three rows would be paid for; dynamic sampling needs more rows a step, and the rest teach nothing more."""
    limits = Budget(task_calls=230)
    plain = await search("dsp", limits, steps=12)
    dynamic = await search("dsp", limits, steps=12, rows="dynamic", resamples=5)
    learned = [[step for step in steps(run) if "reward" in step] for run in (plain, dynamic)]
    assert len(learned[1]) < len(learned[0]) == len(steps(plain)) == len(steps(dynamic))
    assert dynamic.spent["task"] <= 230


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("prewrite", {"rows": "erpo"}, "a rewrite is about all rows"),
        ("prl", {"rows": "erpo"}, "a prompt is about all rows"),
        ("retroformer", {"rows": "mopps"}, "retroformer tries each row first"),
    ],
)
async def test_a_selector_that_would_do_nothing_is_refused_before_anything_is_paid(
    name: str, settings: dict[str, Any], reason: str
) -> None:
    made, method = small(answers, 12), get_method(name)
    run = MeteredRun({"task": made.model})
    config = dataclasses.replace(configure(method, {"steps": 1}), **settings)
    with pytest.raises(UsageError, match=reason):
        await method.coroutine(run, made.env, Scribe(lambda conversation: MENU), START, config)
    assert not run.spent
