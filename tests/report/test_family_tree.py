"""The tree of a search: a line for each parent that has a score, and the way to the best prompt apart."""

from __future__ import annotations

from typing import Any

from whet.reporting.candidates import lineage
from whet.reporting.family_tree import family_tree
from whet.reporting.record import Record, ReportedCandidate

WORTH = {"start": 0.2, "a": 0.4, "b": 0.3, "ab": 0.6, "c": None, "d": 0.5}
PARENTS = {"a": ("start",), "b": ("start",), "ab": ("a", "b"), "c": ("ab",), "d": ("c", "b", "gone")}


def record(names: str) -> Record:
    known = names.split()
    candidates = {
        name: ReportedCandidate(at, name, name, PARENTS.get(name, ()), "", 10 * at, validation=WORTH[name])
        for at, name in enumerate(known)
    }
    result: dict[str, Any] = {"best": {"id": known[-1]}}
    return Record("run", {}, result, candidates, calls=60)


def picture(names: str) -> str | None:
    made = record(names)
    html = family_tree(made, lineage(made))
    return None if html is None else str(html)


def test_each_parent_has_a_line_and_the_way_to_the_best_is_thicker() -> None:
    html = picture("start a b c d ab")
    assert html is not None
    wide = html.partition('id="tree-wide-desc"')[2].partition("</svg>")[0]
    assert wide.count('class="incumbent-line"') == 2  # start - a - ab
    assert (
        wide.count('class="raw-line"') == 3
    )  # start - b, b - ab, b - d; c has no score, and nobody knows `gone`
    assert wide.count('class="mark best"') == 3 and wide.count('class="candidate-mark"') == 2
    assert "5 candidates" in html and html.count("<svg") == 4


def test_a_search_without_branches_has_no_tree() -> None:
    assert picture("start a b") is None and picture("start") is None
