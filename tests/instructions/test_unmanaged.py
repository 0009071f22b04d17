"""Text of the fence that is no instruction: the reader sees it, and it gives way where several answers want that."""

from __future__ import annotations

from typing import Any

import pytest
from tests.instructions.optimizer import constant, critiques, entry, form, run_with

from whet.instructions.critiques import CritiqueBatch
from whet.instructions.manager import InstructionManager
from whet.instructions.propose import propose_events
from whet.prompt import Prompt
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import render_instructions

START = Prompt.parse(
    "You sort questions.\n<!-- whet:begin -->\nAnswer.\nUse {{question}}.\n<!-- whet:end -->"
)
BARE = "Do not answer the question; name its kind."


def judged(count: int) -> CritiqueBatch:
    return CritiqueBatch(
        tuple(critiques(*(f"critique {n}" for n in range(count)))),
        tuple((n,) for n in range(count)),
        (0.4, 0.6) * 10,
    )


async def learned(answer: Any, count: int) -> tuple[InstructionManager, list[str], list[tuple[str, Any]]]:
    manager = InstructionManager(START)
    run, optimizer = run_with(constant(answer))
    await manager.step(run, judged(count), None, "now")
    assert render_instructions(fold_events(manager.history())) == manager.prompt.region_text()
    return manager, [text for _, text in optimizer.seen], run.logged


@pytest.mark.parametrize(
    ("voices", "region"),
    [
        (3, f"Use {{{{question}}}}.\n- {BARE}"),
        (2, "Answer.\nUse {{question}}."),
    ],
)
async def test_what_several_answers_contradict_leaves_and_what_one_contradicts_stays(
    voices: int, region: str
) -> None:
    answer = form(entry(tuple(range(1, voices + 1)), None, BARE, "t1"))
    manager, questions, logged = await learned(answer, voices)
    assert "[t1] Answer." in questions[0]
    assert manager.prompt.region_text() == region
    names = [name for name, _ in logged]
    assert ("given_way" in names, "conflict" in names) == (voices > 2, voices < 3)


async def test_it_is_taken_in_where_it_is_reworded() -> None:
    better = "Answer with the kind of the question."
    manager, _, logged = await learned(form(entry((1, 2, 3), "t1", better)), 3)
    assert manager.prompt.region_text() == f"Use {{{{question}}}}.\n- {better}"
    assert ("given_way", {"at": "now", "text": "Answer.", "instead": better}) in logged


async def test_a_line_with_a_slot_is_no_line_that_may_leave_and_is_shown_around() -> None:
    _, (question, *_), _ = await learned(form(no_demand=[1]), 1)
    context = question.split("<context>")[1].split("</context>")[0]
    assert "Use {{question}}." in context and "Answer." not in context
    assert "[t2]" not in question


async def test_what_is_found_to_contradict_an_instruction_when_they_are_compared_leaves() -> None:
    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"contradictions": [["t1", "i1"]]}
        return form(entry((1, 2, 3), None, BARE), entry((1,), None, "Be brief."))

    manager = InstructionManager(START)
    run, _ = run_with(reply)
    await manager.step(run, judged(3), None, "now")
    assert manager.prompt.region_text().startswith("Answer.")
    await manager.finish(run, None)
    assert "Answer." not in manager.prompt.region_text().splitlines()


async def test_for_a_person_it_is_text_around_the_instructions() -> None:
    run, optimizer = run_with(constant(form(entry((1,), None, BARE, "context"))))
    proposal = await propose_events(run, START, critiques("no!"))
    assert "Answer." in optimizer.seen[0][1]
    assert proposal.changes == () and [one.first for one in proposal.contradictions] == [BARE]
