"""Edits at an anchor: what is changed, what is dropped, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from whet.search.anchored_edits import AnchoredEdit, rank_edits, read_edit

TEXT = "One.\nTwo, two.\nThree."


@pytest.mark.parametrize(
    ("op", "anchor", "text", "edited"),
    [
        ("append", "", "Four.", "One.\nTwo, two.\nThree.\nFour."),
        ("insert_after", "Two", "Four.", "One.\nTwo, two.\nFour.\nThree."),
        ("insert_after", "Three.", "Four.", "One.\nTwo, two.\nThree.\nFour."),
        ("replace", "Two, two", "2", "One.\n2.\nThree."),
        ("replace", "o", "0", "One.\nTw0, two.\nThree."),
        ("delete", ", two", "", "One.\nTwo.\nThree."),
        ("delete", "Two, two.", "", "One.\nThree."),
        ("delete", "Three.", "", "One.\nTwo, two."),
        ("replace", "Four", "4", None),
        ("insert_after", "Four", "4", None),
        ("delete", "Four", "", None),
    ],
)
def test_an_edit_changes_the_first_place_with_its_anchor_and_nothing_else(
    op: str, anchor: str, text: str, edited: str | None
) -> None:
    assert AnchoredEdit(op, text, anchor).of(TEXT) == edited


def test_an_empty_text_gets_its_first_line() -> None:
    assert AnchoredEdit("append", "One.").of("") == "One."


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ({"op": "append", "text": " One. "}, AnchoredEdit("append", "One.")),
        ({"op": "delete", "anchor": "One"}, AnchoredEdit("delete", "", "One")),
        ({"op": "replace", "anchor": "One", "text": "1"}, AnchoredEdit("replace", "1", "One")),
        ({"op": "append", "text": ""}, None),
        ({"op": "replace", "anchor": "One", "text": ""}, None),
        ({"op": "replace", "text": "1"}, None),
        ({"op": "delete"}, None),
        ({"op": "burn", "anchor": "One", "text": "1"}, None),
        ({"op": 1, "anchor": ["One"]}, None),
        ({}, None),
    ],
)
def test_operations_are_read_or_dropped(operation: dict[str, Any], read: AnchoredEdit | None) -> None:
    assert read_edit(operation) == read


def test_edits_with_most_support_come_first_and_equal_ones_count_together() -> None:
    a, b, c = (AnchoredEdit("append", text) for text in ("A b.", "B", "C"))
    again = AnchoredEdit("append", "a  B.")
    assert rank_edits([[a, b], [c, c], [again]]) == [a, b, c]
    assert rank_edits([[b, c], [c], []]) == [c, b]
    assert rank_edits([]) == []
