"""Text of the fence that is no instruction: the reader sees it, and it gives way where several answers want that."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.instructions.optimizer import constant, critiques, entry, form, run_with

from whet.instructions.critiques import CritiqueBatch
from whet.instructions.manager import InstructionManager
from whet.instructions.propose import propose_events
from whet.instructions.unmanaged import block_of
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


CONTRARY = {"contradictions": [["t1", "i1"]]}
SAME = {"duplicates": [{"ids": ["t1", "i1"], "best": "i1", "merged": None}]}


@pytest.mark.parametrize("compared", [CONTRARY, SAME], ids=["contradicts", "says the same"])
@pytest.mark.parametrize("voices", [2, 3])
async def test_a_line_that_an_instruction_of_three_answers_contradicts_or_repeats_leaves(
    compared: dict[str, Any], voices: int
) -> None:
    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return compared
        return form(entry(tuple(range(1, voices + 1)), None, BARE), entry((1,), None, "Be brief."))

    manager = InstructionManager(START)
    run, _ = run_with(reply)
    await manager.step(run, judged(3), None, "now")
    assert manager.prompt.region_text().startswith("Answer.")
    await manager.finish(run, None)
    assert ("Answer." in manager.prompt.region_text().splitlines()) == (voices < 3)


async def test_for_a_person_it_is_text_around_the_instructions() -> None:
    run, optimizer = run_with(constant(form(entry((1,), None, BARE, "context"))))
    proposal = await propose_events(run, START, critiques("no!"))
    assert "Answer." in optimizer.seen[0][1]
    assert proposal.changes == () and [one.first for one in proposal.contradictions] == [BARE]


EXAMPLES = "Word: foot\nAnswer: Fuß", "Word: guitar\nAnswer: Gitarre"


async def test_demonstrations_are_shown_as_one_text_and_leave_as_one() -> None:
    block = block_of(EXAMPLES)
    start = Prompt.parse(f"<!-- whet:begin -->\nAnswer.\n\n{block}\n<!-- whet:end -->\nWord: {{{{word}}}}")
    run, optimizer = run_with(constant(form(entry((1, 2, 3), None, BARE, "t2"))))
    manager = InstructionManager(start, examples=EXAMPLES)
    await manager.step(run, judged(3), None, "now")
    question = optimizer.seen[0][1]
    assert "[t2] Examples:" in question and "[t3]" not in question and "Gitarre" in question
    assert manager.prompt.region_text() == f"Answer.\n- {BARE}"
    assert render_instructions(fold_events(manager.history())) == manager.prompt.region_text()


FOUR = tuple(f"Word: w{n}\nAnswer: a{n}" for n in range(1, 5))
SHOWING = Prompt.parse(
    f"<!-- whet:begin -->\nAnswer.\n\n{block_of(FOUR)}\n<!-- whet:end -->\nWord: {{{{word}}}}"
)


def shown(manager: InstructionManager) -> list[str]:
    """The words of the examples that stand in the prompt."""
    return re.findall(r"(?m)^Word: (\w\d)$", manager.prompt.region_text())


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (form(misleading=["t2.1", "t2.3"]), ["w2", "w4"]),
        (form(entry((1,), None, BARE, "t2.4")), ["w1", "w2", "w3"]),
        (form(misleading=["t2.1", "t2.2", "t2.3"]), ["w1", "w2", "w3", "w4"]),
        (form(misleading=["t2.9", "t1.1", "i1.1"]), ["w1", "w2", "w3", "w4"]),
    ],
    ids=["two", "as a contradiction", "most of them", "none that there is"],
)
async def test_single_examples_that_mislead_are_named_by_their_ids_and_leave(
    answer: Any, left: list[str]
) -> None:
    run, optimizer = run_with(constant(answer))
    manager = InstructionManager(SHOWING, examples=FOUR)
    await manager.step(run, judged(3), None, "now")
    question = optimizer.seen[0][1]
    assert "   [t2.1] Word: w1\n" in question and "   [t2.4] Word: w4\n" in question
    assert '"misleading": []' in question and 'An id of an example is "t2.1".' in question
    assert shown(manager) == left and "Examples:" in manager.prompt.region_text()
    assert render_instructions(fold_events(manager.history())) == manager.prompt.region_text()


async def test_what_is_left_of_the_examples_is_numbered_anew_and_may_still_leave_as_one() -> None:
    manager = InstructionManager(SHOWING, examples=FOUR)
    for answer in (form(misleading=["t2.2"]), form(entry((1, 2, 3), None, BARE, "t2"))):
        run, optimizer = run_with(constant(answer))
        await manager.step(run, judged(3), None, "now")
    assert "   [t2.2] Word: w3\n" in optimizer.seen[0][1]
    assert manager.prompt.region_text() == f"Answer.\n- {BARE}"


async def test_no_list_for_examples_is_asked_for_where_there_are_none() -> None:
    _, (question, *_), _ = await learned(form(no_demand=[1]), 1)
    assert "misleading" not in question


@pytest.mark.parametrize(
    ("answer", "region"),
    [
        (
            form(entry((1, 2, 3), None, "Name the kind.\nIn one word."), superfluous=["t1"]),
            "Name the kind.\nIn one word.",
        ),
        (
            form(entry((1, 2, 3), None, "Name the kind."), superfluous=["t9", "i1"]),
            "Answer.\n\nName the kind.",
        ),
        (form(superfluous=["t1"], no_demand=[1, 2, 3]), "Answer."),
    ],
    ids=["one", "none that there is", "nothing in its place"],
)
async def test_a_line_is_removed_that_the_wording_of_rows_makes_superfluous(answer: Any, region: str) -> None:
    start = Prompt.parse("Sort.\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{question}}")
    rows = [replace(one, row=True) for one in critiques("row 1", "row 2", "row 3")]
    run, optimizer = run_with(constant(answer))
    manager = InstructionManager(start)
    await manager.step(run, CritiqueBatch(tuple(rows), ((0,), (1,), (2,)), (0.0,) * 3), None, "now")
    question = optimizer.seen[0][1]
    assert "your instruction will stand below them: t1." in question and '"superfluous": []' in question
    assert manager.prompt.region_text() == region
    assert manager.prompt.source.startswith("Sort.\n<!-- whet:begin -->\n")
    assert render_instructions(fold_events(manager.history())) == manager.prompt.region_text()


async def test_comments_are_not_asked_for_superfluous_lines() -> None:
    _, (question, *_), _ = await learned(form(no_demand=[1]), 1)
    assert "superfluous" not in question


UNLIKE = "Give the kind: place, person or number."


@pytest.mark.parametrize(
    ("voices", "region"),
    [
        (3, f"Use {{{{question}}}}.\n- {UNLIKE}"),
        (2, f"Answer.\nUse {{{{question}}}}.\n- {UNLIKE}"),
    ],
)
async def test_a_line_is_reworded_by_a_text_that_holds_nothing_of_it(voices: int, region: str) -> None:
    """The reader names it; where too few answers want that the line stays, and nothing is lost."""
    manager, _, _ = await learned(form(entry(tuple(range(1, voices + 1)), "t1", UNLIKE)), voices)
    assert manager.prompt.region_text() == region


async def test_a_single_instruction_is_compared_with_nothing() -> None:
    def reply(stage: str, text: str) -> Any:
        return form(entry((1, 2, 3), None, BARE)) if stage == "read" else {}

    manager = InstructionManager(START)
    run, optimizer = run_with(reply)
    await manager.step(run, judged(3), None, "now", last=True)
    await manager.finish(run, None)
    assert len(manager.ledger.active) == 1 and optimizer.calls("read") and not optimizer.calls("consolidate")
