"""The front in the report: the verdict on each objective, every point with what the gate says, and hostile names as text."""

from __future__ import annotations

from typing import Any

from tests.report.runs import HOSTILE
from whet.reporting.front import objectives
from whet.reporting.record import Record


def point(name: str, accuracy: float, length: float, gate: str) -> dict[str, Any]:
    means = {"accuracy": accuracy, "length": length}
    shown = {
        n: {"goal": "max", "mean": m, "difference": 0.1, "low": 0.0, "high": 0.2} for n, m in means.items()
    }
    return {
        "id": name,
        "prompt": f"Prompt {name} {HOSTILE}",
        "gate": gate,
        "holds": True,
        "validation": shown,
    }


VERDICT = {"goal": "max", "baseline": 0.5, "best": 0.7, "difference": 0.2, "low": 0.1, "high": 0.3}
RESULT: dict[str, Any] = {
    "baseline": {"id": "start"},
    "objectives": {"accuracy": {**VERDICT, "bound": "at most 0.05 worse", "verdict": "better"}},
    "front": [point("a1", 0.7, 90.0, "promoted"), point("b2", 0.5, 40.0, "not tested")],
    "dominated": [
        {"id": "start", "validation": {"accuracy": {"mean": 0.4}, "length": {"mean": 95.0}}},
        {"id": "c3", "validation": {"accuracy": {"mean": 0.45}, "length": {"mean": 99.0}}},
    ],
}


def shown(**changes: Any) -> str:
    section = objectives(Record("run", {}, {**RESULT, **changes}, place="run"))
    return "" if section is None else str(section.html())


def test_every_point_is_drawn_with_what_the_gate_says_of_it() -> None:
    page = shown()
    assert "accuracy against length" in page and page.count("candidate-mark") == 2, "one point and its legend"
    assert "promoted: the sealed test shows it" in page and "not tested on the sealed rows" in page
    assert page.count("mark baseline") == 2 and "another prompt dominates it" in page
    assert "at most 0.05 worse" in page and "+0.2" in page
    assert "whet show run --choose NAME" in page and "<script" not in page


def test_the_table_says_which_demand_a_point_breaks_and_no_difference_of_the_start_to_itself() -> None:
    start, broken = point("start", 0.4, 95.0, "baseline"), point("b2", 0.5, 40.0, "not tested")
    broken["holds"] = broken["validation"]["length"]["holds"] = False
    page = shown(front=[start, broken], objectives={})
    assert "no: length" in page and page.count("+0 to +0.2") == 2
    assert page.count("+0 to +0.2") == shown(front=[broken], objectives={}).count("+0 to +0.2")


def test_a_run_without_objectives_has_no_such_section_and_one_objective_no_picture() -> None:
    assert shown(front=[]) == ""
    one = point("a1", 0.7, 90.0, "promoted")
    del one["validation"]["length"]
    assert "<svg" not in shown(front=[one], dominated=[])
