"""The simulated months of a live prompt, in small."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.lifecycle import NAME, SHORT, WORDINGS, Desk

from whet.prompt.events import Add
from whet.prompt.instructions import estimate_tokens
from whet_live.learner.learner_store import LearnerSettings, PromptUpdate
from whet_live.registry import Decision, PromptEdit


def test_contradicted_instructions_leave_and_nothing_that_helps_does(tmp_path: Path) -> None:
    desk = Desk(tmp_path, seed=1, upkeep=3)
    desk.policy = {"date": "amber", "time": "basil"}
    desk._write_task(0)
    desk.serve(60)
    desk.learn()
    assert desk.serve(20) == 1.0
    desk.policy["date"] = "cedar"
    desk._write_task(1)
    desk.serve(60)
    desk.learn()
    ended = desk.state()
    assert desk.serve(20) == 1.0
    assert (ended["instructions"], ended["contrary"], ended["doubles"], desk.lost) == (2, 0, 0, 0)
    events = desk.registry.get("desk").ledgers["instructions"]
    assert {event.kind for event in events} >= {"add", "resolve"}
    assert desk.registry.verify_audit().whole
    desk.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A desk in the mode auto whose prompt holds three instructions of a model, two of which say the same; its reader misses
    nothing."""
    monkeypatch.setattr("benchmarks.lifecycle.MISSES", 0.0)
    made = Desk(tmp_path, seed=1, upkeep=2)
    made.policy = {"date": "amber", "time": "basil"}
    made._write_task(0)
    duties = (("date", "amber", 0), ("date", "amber", 2), ("time", "basil", 1))
    texts = [WORDINGS[n].format(topic=topic, value=value) for topic, value, n in duties]
    events = tuple(
        Add(id=f"i{n}", text=text, author="optimizer", tokens=estimate_tokens(text))
        for n, text in enumerate(texts, 2)
    )
    filed = made.registry.propose(NAME, PromptEdit(events), author="ann", label="production")
    made.registry.decide(filed.id, Decision("approve"), actor="eve")
    rules = {"quorum": 3, "share": 0, "upkeep": 2}
    made.learner.configure(NAME, LearnerSettings("auto", rules=rules), actor="ann")
    yield made
    made.close()


def step(desk: Desk) -> PromptUpdate:
    """One step of the learner, which does something."""
    update = asyncio.run(desk.learner.step(NAME))
    assert update is not None
    return update


def test_what_says_the_same_is_joined_then_shortened_and_what_does_nothing_leaves(desk: Desk) -> None:
    joined = step(desk)
    assert (joined.outcome, joined.plan and joined.plan["step"]) == ("moved", "merge")
    assert joined.reason.startswith("Nothing is lost: 0 better, 0 worse of 60")
    assert len(desk.standing) == 3, "the one by hand, and one of each duty"
    shorter = step(desk)
    assert (shorter.outcome, shorter.plan and shorter.plan["step"]) == ("moved", "compact")
    date, time = SHORT.format(topic="date", value="amber"), SHORT.format(topic="time", value="basil")
    assert desk.standing == ["Be polite.", date, time]
    assert [step(desk).outcome for _ in range(2)] == ["refused", "refused"], "each is needed"
    assert asyncio.run(desk.learner.step(NAME)) is None, "each is tried once"
    del desk.policy["time"]
    desk._write_task(1)
    key = next(str(one["id"]) for one in desk.learner.instructions(NAME) if one["text"] == time)
    desk.learner.set_terms(NAME, key, review="2020-01-01", actor="eve")
    gone = step(desk)
    assert (gone.outcome, gone.plan and gone.plan["ids"]) == ("moved", [key])
    assert desk.standing == ["Be polite.", date]
    version = desk.registry.get(NAME)
    assert version.evidence is not None and version.evidence["gate"]["tolerance"] == 0.1
    assert version.message == f"{key} left out ({version.message.split('(')[1]}"
    assert desk.learner.restore(NAME, key, actor="eve", reason="back").version == version.version + 1
    assert desk.standing == ["Be polite.", date, time]
    assert desk.registry.verify_audit().whole


def test_on_a_protected_label_a_person_decides(desk: Desk) -> None:
    desk.registry.protect(NAME, "production", actor="ann")
    update = step(desk)
    assert (update.outcome, update.reason) == (
        "proposed",
        "a person decides: the label production is protected",
    )
    assert asyncio.run(desk.learner.step(NAME)) is None, "one at a time"
    filed = desk.registry.proposal(str(update.proposal))
    assert filed.gate is not None and filed.gate["promoted"]
    desk.registry.decide(filed.id, Decision("approve"), actor="bob")
    assert len(desk.standing) == 3


def test_a_locked_instruction_is_neither_joined_nor_shortened_nor_tried(desk: Desk) -> None:
    for one in desk.learner.instructions(NAME):
        desk.learner.set_terms(NAME, str(one["id"]), locked=True, actor="eve")
    assert asyncio.run(desk.learner.step(NAME)) is None
    assert len(desk.standing) == 4
