"""Answers before and after a change, which a proposal shows to whoever decides about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.reader import WANTS
from tests.live.tasks import LM, PROMPT, write_reviews
from tests.live.test_learner import World

from whet.task import load_task
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.learner.gating import GateConfig
from whet_live.registry import Decision

HELPS = WANTS["tone"]
pytestmark = pytest.mark.usefixtures("reader")


def probes_of(world: World, *users: str) -> Any:
    """The probes of the proposal that follows from three wishes."""
    world.say(HELPS, *(users or ("a", "b", "c")))
    lesson = world.step()
    assert lesson is not None and lesson.outcome == "proposed"
    evidence = world.registry.proposal(str(lesson.proposal)).evidence
    assert evidence is not None
    return evidence["probes"]


def test_with_a_task_they_are_rows_of_its_validation_split_that_the_gate_paid_for(
    database: Database, tmp_path: Path
) -> None:
    folder = write_reviews(tmp_path, rows=60, prompt=PROMPT)
    data = folder / "data.jsonl"
    rows = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    guarded = load_task(folder).validation[-1].id
    told = [row | ({"guard": True} if row["id"] == guarded else {}) for row in rows]
    data.write_text("\n".join(map(json.dumps, told)) + "\n", "utf-8")
    task = load_task(folder)
    bench = GateConfig(folder, LM, root=tmp_path / "runs")
    world = World(database, tmp_path, gates={"*": bench}, lm="openai/never-asked")
    found = probes_of(world)
    assert (found["of"], found["model"].replace("%2C", ","), found["simulated"]) == (
        "the task reviews",
        LM,
        True,
    )
    chosen = [task.validation[-1], *task.validation[:3]]
    assert [row["inputs"] for row in found["rows"]] == [dict(example.values) for example in chosen]
    assert all(row["before"] and row["after"] for row in found["rows"])


def test_without_a_task_the_model_answers_inputs_of_recent_traffic(
    database: Database, tmp_path: Path
) -> None:
    world = World(database, tmp_path, lm=LM)
    world.traffic.add([Inference("shop/p", 1, {"other": "x"}, "!", id="unfit", user="z")], [])
    found = probes_of(world, *"abcdef")
    assert (found["of"], found["model"].replace("%2C", ","), found["simulated"]) == (
        "recent traffic",
        LM,
        True,
    )
    about = [row["about"] for row in found["rows"]]
    assert len(about) == 4 and set(about) <= {f"i{n}" for n in range(1, 7)}
    assert all(row.keys() == {"about", "before", "after"} for row in found["rows"]), (
        "inputs stay where they are"
    )
    asked = {str(row.inference.user) for key in about if (row := world.traffic.inference(key))}
    assert len(asked) == 4, "nobody who sends a lot chooses the questions"


def test_they_stay_with_the_proposal(database: Database, tmp_path: Path) -> None:
    world = World(database, tmp_path, lm=LM)
    probes_of(world)
    (waiting,) = world.registry.proposals(state="open").items
    made = world.registry.decide(waiting.id, Decision("approve"), actor="ann").version
    evidence = world.registry.get(f"shop/p/{made}").evidence
    assert evidence is not None and "requirements" in evidence and "probes" not in evidence


@pytest.mark.parametrize(
    ("lm", "why"),
    [
        (None, "neither a task"),
        ("scripted/nothing-of-that-name", "did not answer"),
        ("scripted/labels?words=a&harmful=b&harm=2", "did not answer"),
    ],
)
def test_where_there_are_none_the_reason_is_kept_and_the_proposal_filed(
    database: Database, tmp_path: Path, lm: str | None, why: str
) -> None:
    found = probes_of(World(database, tmp_path, lm=lm))
    assert found["rows"] == [] and why in found["reason"]


def test_inputs_that_do_not_fill_the_text_are_not_asked_about(database: Database, tmp_path: Path) -> None:
    world = World(database, tmp_path, lm=LM)
    for user in "abc":
        shown = Inference("shop/p", 1, {"question": "?"}, "!", id=f"q-{user}", user=user)
        world.traffic.add([shown], [])
    world.traffic.add(
        [], [Feedback("comment", f"q-{user}", text=HELPS, user=user, id=f"said-{user}") for user in "abc"]
    )
    lesson = world.step()
    assert lesson is not None and lesson.outcome == "proposed"
    evidence = world.registry.proposal(str(lesson.proposal)).evidence
    assert evidence is not None and "No recent input of shop/p" in evidence["probes"]["reason"]
