"""What promotes: another model than the writer judges, and no gain pays for what guard rows lose."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.reader import answer
from tests.live.tasks import BAD, GOOD, LM, PROMPT, write_reviews

from whet.feedback.sources import self_judged
from whet.prompt import Prompt
from whet.stats import decide
from whet.testing.server import serving
from whet_client.records import Feedback, Inference
from whet_live import open_live
from whet_live.learner import pipeline
from whet_live.learner.context import LearnerConfig
from whet_live.learner.gating import GateConfig, apply_guard, gate
from whet_live.learner.learner import Learner
from whet_live.learner.learner_store import LearnerSettings, PromptUpdate

WRITER = "openai/reader"
HELPS = "Weigh the evidence carefully, mind the tone, and answer with a single word."


def test_a_model_is_known_by_its_address_without_its_options() -> None:
    assert "openai/a" in self_judged("openai/a?seed=1", "openai/a")
    assert self_judged("openai/a", "openai/b") == ""
    assert self_judged("openai/a", None) == ""
    assert self_judged("none", None) == ""


async def lesson_of(tmp_path: Path) -> PromptUpdate:
    """What becomes of three complaints in the mode auto, with a task folder on which what they want is better."""
    live = open_live(f"sqlite:///{tmp_path / 'whet.db'}")
    live.registry.create("shop/p", Prompt.parse(PROMPT), author="ann", label="production")
    for user in "abc":
        shown = Inference("shop/p", 1, {"input": f"asked by {user}"}, "An answer.", user=user)
        live.traffic.add([shown], [Feedback("comment", shown.id, text=HELPS, user=user)])
    bench = GateConfig(write_reviews(tmp_path, prompt=PROMPT), LM, root=tmp_path / "runs")
    rules = {"quorum": 3, "share": 0, "probation": 0}
    async with serving(answer) as server:
        teaching = LearnerConfig(WRITER, server.base_url, gates={"*": bench}, root=tmp_path / "runs")
        learner = Learner(live.database, live.registry, live.traffic, config=teaching)
        learner.configure("shop/p", LearnerSettings("auto", rules=rules), actor="root")
        lesson = await learner.step("shop/p")
    live.close()
    assert lesson is not None
    return lesson


@pytest.mark.parametrize(
    ("judge", "outcome"), [(WRITER, "proposed"), ("openai/another", "staged"), (None, "staged")]
)
async def test_only_another_judge_promotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str | None, outcome: str
) -> None:
    async def judged(*args: Any) -> dict[str, Any]:
        verdict = await gate(*args)
        assert verdict["judge"] is None, "the reward of this task asks no model"
        return {**verdict, "judge": judge}

    monkeypatch.setattr(pipeline, "gate", judged)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    lesson = await lesson_of(tmp_path)
    assert lesson.outcome == outcome
    assert ("is the model that wrote" in lesson.reason) == (judge == WRITER)
    assert lesson.gate is not None and lesson.gate["promoted"] == (judge != WRITER)


def test_no_gain_elsewhere_pays_for_guard_rows() -> None:
    old, new = [0.5] * 80, [1.0] * 60 + [0.0] * 20
    whole = decide(old, new, 0.0, 1.0)
    assert whole.promoted
    worse = apply_guard(whole, decide(old[60:], new[60:], 0.0, 1.0))
    assert not worse.promoted and worse.high < 0 and "20 guard rows" in worse.reason
    unsure = apply_guard(whole, decide(old[-3:], new[-3:], 0.0, 1.0))
    assert not unsure.promoted and unsure.high > 0
    assert apply_guard(whole, decide(old[:9], new[:9], 0.0, 1.0)) is whole


def test_the_gate_judges_the_guard_rows_of_a_task_by_themselves(tmp_path: Path) -> None:
    task = write_reviews(tmp_path, prompt=PROMPT)
    lines = [json.loads(line) for line in (task / "data.jsonl").read_text().splitlines()]
    (task / "data.jsonl").write_text("".join(json.dumps({**line, "guard": True}) + "\n" for line in lines))
    bench, start = GateConfig(task, LM, root=tmp_path / "runs"), Prompt.parse(PROMPT)
    better = start.edit("".join(f"- {line}\n" for line in GOOD))
    worse = start.edit(f"- {BAD}\n")
    assert asyncio.run(gate(bench, start, better, 1))["promoted"]
    assert "guard rows" in asyncio.run(gate(bench, better, worse, 2))["reason"]
