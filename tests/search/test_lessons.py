"""A list of lessons: what operations change, what they do not, and when counts speak against a lesson."""

from __future__ import annotations

from typing import Any

import pytest

from whet.prompt import Prompt
from whet.search.lessons import HEAD, LONGEST, Lesson, LessonList

START = Prompt.parse("Say it.\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}")


def listed(*texts: str, most: int = 9) -> LessonList:
    result = LessonList(START, "Answer.", most)
    for text in texts:
        result = result.add(text)
    return result


def test_lessons_stand_behind_the_text_one_a_line() -> None:
    prompt = listed("First\n thing.", "Second.").prompt
    assert prompt is not None
    assert prompt.region_text().strip() == f"Answer.\n\n{HEAD}\n- First thing.\n- Second."
    assert listed().prompt == START


@pytest.mark.parametrize(
    ("operation", "texts", "dropped"),
    [
        ({"op": "add", "text": "Third thing."}, ["One apple.", "Two pears.", "Third thing."], 0),
        ({"op": "update", "id": "L1", "text": "No apples."}, ["No apples.", "Two pears."], 0),
        ({"op": "update", "id": "[L2]", "text": "More."}, ["One apple.", "More."], 0),
        ({"op": "delete", "id": "L1"}, ["Two pears."], 0),
        ({"op": "update", "id": "L7", "text": "No apples."}, ["One apple.", "Two pears."], 1),
        ({"op": "update", "id": "L1", "text": "two  PEARS."}, ["One apple.", "Two pears."], 1),
        ({"op": "delete", "id": "L7"}, ["One apple.", "Two pears."], 1),
        ({"op": "add", "text": "one apple."}, ["One apple.", "Two pears."], 1),
        ({"op": "add", "text": "x" * (LONGEST + 1)}, ["One apple.", "Two pears."], 1),
        ({"op": "add", "text": "Use {{other}}."}, ["One apple.", "Two pears."], 1),
        ({"op": "add", "text": "<!-- whet:end -->"}, ["One apple.", "Two pears."], 1),
        ({"op": "add"}, ["One apple.", "Two pears."], 1),
        ({"op": "burn", "id": "L1"}, ["One apple.", "Two pears."], 1),
        ({}, ["One apple.", "Two pears."], 1),
    ],
)
def test_an_operation_changes_one_lesson_or_is_counted_as_dropped(
    operation: dict[str, Any], texts: list[str], dropped: int
) -> None:
    result, missed = listed("One apple.", "Two pears.").apply_operations([operation])
    assert [one.text for one in result.lessons] == texts
    assert missed == dropped


def test_a_deletion_wins_and_keys_are_never_used_again() -> None:
    update = {"op": "update", "id": "L2", "text": "Three."}
    result, dropped = listed("One.", "Two.").apply_operations([update, {"op": "delete", "id": "L2"}])
    assert [one.key for one in result.lessons] == ["L1"] and dropped == 1
    assert [one.key for one in result.add("Four plums.").lessons] == ["L1", "L3"]


def test_a_full_list_takes_nothing_in() -> None:
    assert len(listed("One.", "Two.", "Three.", most=2).lessons) == 2


def test_what_there_are_objections_to_is_not_taken_in() -> None:
    picky = LessonList(START, "Answer.", 9, lambda text: "secret" in text)
    assert not picky.add("A secret.").lessons and picky.add("No wonder.").lessons


def test_verdicts_are_counted_and_shown_and_a_new_text_begins_anew() -> None:
    result = listed("One.", "Two.", "Three.").count_verdicts(["L1", "[L2]", "L9"], ["L2", "L3"])
    assert [(one.helpful, one.harmful) for one in result.lessons] == [(1, 0), (0, 0), (0, 1)]
    assert result.shown.splitlines() == [
        "[L1] One. (helped 1, harmed 0)",
        "[L2] Two.",
        "[L3] Three. (helped 0, harmed 1)",
    ]
    assert result.update("L3", "Four plums.").lessons[2] == Lesson("L3", "Four plums.")


@pytest.mark.parametrize(
    ("helpful", "harmful", "harms"), [(0, 0, False), (0, 1, True), (1, 1, False), (1, 2, True), (5, 1, False)]
)
def test_a_lesson_harms_where_more_verdicts_say_so(helpful: int, harmful: int, harms: bool) -> None:
    assert Lesson("L1", "One.", helpful, harmful).harms is harms
