"""A wording that earned less than an earlier one gives way to it, and is not what the next one is made of."""

from __future__ import annotations

from typing import Any

from tests.instructions.optimizer import critiques, entry, form, numbered, run_with

from whet.instructions.critiques import CritiqueBatch
from whet.instructions.effects import Round
from whet.instructions.falls import find_better
from whet.instructions.manager import InstructionManager
from whet.prompt import Prompt
from whet.prompt.instructions import LayoutEntry

START = Prompt.parse("<!-- whet:begin -->\n<!-- whet:end -->\nNoun: {{noun}}")
WORDINGS = [
    "Write the plural of the noun.",
    "Write the plural of the noun in lower case.",
    "Write the plural of the noun in full.",
    "Write the plural of the noun and nothing else.",
]


def rows(right: int, answers: int = 20, *, row: bool = True) -> CritiqueBatch:
    """A roll-out with so many right answers; every wrong one brings its row, or else a comment."""
    wrong = answers - right
    shown = critiques(*(f"Input: {n}\nAnswered: x" for n in range(wrong)), row=row)
    rewards = (0.0,) * wrong + (1.0,) * right
    full = (False,) * wrong + (True,) * right
    names = tuple(f"row {n}" for n in range(answers))
    of = tuple((n,) for n in range(wrong))
    return CritiqueBatch(tuple(shown), of, rewards, rows=names, full=full)


async def learn(*right: int, row: bool = True) -> tuple[list[str], list[str]]:
    """The wording that stood in each roll-out with so many right answers, the last one too, and the requests for another one."""
    manager, stood, asked = InstructionManager(START, consolidates=False), [], list[str]()

    def answer(stage: str, text: str) -> Any:
        if stage != "read":
            return {}
        asked.append(text)
        known = next(iter(manager.standing()), None)
        return form(entry(tuple(numbered(text)), known, WORDINGS[len(asked) - 1]))

    for count in right:
        stood.append("".join(manager.standing().values()))
        run, _ = run_with(answer)
        await manager.step(run, rows(count, row=row), None, "now")
    return [*stood, "".join(manager.standing().values())], asked


async def test_a_wording_that_earned_less_gives_way_before_another_is_asked_for() -> None:
    stood, asked = await learn(0, 4, 12, 3, 12)
    assert stood == ["", *WORDINGS[:3], WORDINGS[1], WORDINGS[3]]
    assert len(asked) == 4, "the roll-out that fell took no call"
    assert WORDINGS[2] in asked[-1], "the reader sees what did worse"


async def test_a_wording_that_earned_as_much_but_for_chance_stays() -> None:
    stood, asked = await learn(0, 4, 12, 10)
    assert stood == ["", *WORDINGS[:3], WORDINGS[3]]
    assert len(asked) == 4


async def test_instructions_beside_which_answers_got_worse_leave_and_those_that_were_lost_return() -> None:
    """Two instructions of whole rows earn less than the first alone, whose place a merge gave to the second meanwhile."""
    manager, stood = InstructionManager(START), list[list[str]]()

    def answer(stage: str, text: str) -> Any:
        if stage == "consolidate":
            return {"duplicates": [["i2", "i1"]], "contradictions": []}
        return form(entry(tuple(numbered(text)), None, WORDINGS[len(stood) - 1])) if stage == "read" else {}

    for count in (2, 12, 1):
        stood.append(list(manager.standing().values()))
        run, _ = run_with(answer)
        await manager.step(run, rows(count), None, "now")
    assert stood == [[], [WORDINGS[0]], [WORDINGS[0], WORDINGS[1]]]
    assert list(manager.standing().values()) == [WORDINGS[0]]
    assert "merge" in [event.kind for event in manager.events]
    assert manager.list_dropped() == [
        f"{WORDINGS[1]} (more answers were right without it: 1 of 20 right with it)"
    ]


BOTH = {"i1", "i2"}


def test_sets_of_instructions_are_compared_where_whole_rows_demanded_what_differs() -> None:
    right, wrong = (1.0,) * 12, (0.0,) * 12
    two = Round(12, {"i1": "a", "i2": "b"}, {}, right)
    fallen = Round(12, {"i1": "c"}, {}, wrong)
    assert find_better([two, fallen], {"i1"}).shown == {"i1": "c"}, "i2 is what people demanded"
    assert find_better([two, fallen], BOTH).shown == {"i1": "a", "i2": "b"}
    assert find_better([Round(12, {"i1": "a"}, {}, right), two, fallen], {"i1"}).shown == {"i1": "a"}


def test_lines_that_are_no_instruction_are_compared_too() -> None:
    right, wrong = (1.0,) * 12, (0.0,) * 12
    line = (LayoutEntry(text="One word."),)
    before, fallen = Round(12, {}, {}, right, layout=line), Round(12, {"i1": "a"}, {}, wrong)
    assert find_better([before, fallen], {"i1"}).layout == line
    assert find_better([before, fallen], ()).shown == {"i1": "a"}


async def test_a_line_that_gave_way_returns_where_it_earned_more() -> None:
    """A start of which most answers are right, and a reader that puts a long text in the place of its line."""
    start = Prompt.parse("<!-- whet:begin -->\nAnswer with one word.\n<!-- whet:end -->\nNoun: {{noun}}")
    manager, asked = InstructionManager(start), list[str]()

    def answer(stage: str, text: str) -> Any:
        if stage != "read":
            return {}
        asked.append(text)
        return form(entry(tuple(numbered(text)), "t1" if len(asked) == 1 else None, WORDINGS[len(asked) - 1]))

    stood = [manager.prompt.region_text()]
    for count in (12, 2, 12):
        run, _ = run_with(answer)
        await manager.step(run, rows(count), None, "now")
        stood.append(manager.prompt.region_text())
    assert stood[:3] == ["Answer with one word.", WORDINGS[0], "Answer with one word."]
    assert f"{WORDINGS[0]} (more answers were right without it: 2 of 20 right with it" in asked[1]


def test_rollouts_of_the_same_wording_count_together() -> None:
    lucky, rest, fallen = (
        Round(len(rewards), {"i1": text}, {}, rewards)
        for text, rewards in (("a", (1.0,) * 4), ("a", (0.0,) * 20), ("b", (0.0,) * 8 + (1.0,)))
    )
    assert find_better([lucky, fallen], BOTH).shown == {"i1": "a"}
    assert find_better([lucky, rest, fallen], BOTH).shown == {"i1": "b"}
