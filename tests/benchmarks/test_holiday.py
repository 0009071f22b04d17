"""Weeks without the owner: what the report would find missing, and two days of the story on a real server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.holiday.__main__ import effect_of, judge, weeks_of, written_tokens
from benchmarks.holiday.story import DayCount, Holiday, HolidayPlan, HolidayResult
from benchmarks.holiday.world import PROMPT, DeskWorld, answer_with

GATE = {"before": 0.2, "after": 0.4, "wins": 20, "losses": 0, "n": 100}


def change(version: int, tokens: int, **evidence: Any) -> dict[str, Any]:
    """A move of production to a version with one instruction of so many tokens."""
    instructions = [{"id": f"i{version}", "tokens": tokens}]
    made = {"message": "1 requirement", "evidence": evidence, "instructions": instructions}
    actor = "learner" if version > 1 else "owner"
    return {
        "day": version,
        "move": {"new": version, "actor": actor, "reason": ""},
        "version": made,
        "experiment": None,
    }


def good_weeks() -> HolidayResult:
    """Weeks in which everything went well."""
    return HolidayResult(
        days=[DayCount(100, 90, 20, 60, 80, 2, 8)] * 10, changes=[change(1, 4), change(2, 12, gate=GATE)],
        alerts=[(10, {"kind": "model", "text": "another system"})], rows=5, stored=5, audit_whole=True,
    )  # fmt: skip


PLAN = HolidayPlan(days=10, system_day=9)


def test_good_weeks_show_everything() -> None:
    result = good_weeks()
    assert judge(result, PLAN) == []
    assert written_tokens(result) == 16 and [week.visits for week in weeks_of(result.days)] == [700, 300]
    assert effect_of(result.changes[1]) == "20% to 40% right at the gate (20 better, 0 worse of 100)"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"days": [DayCount(100, 20, 20, 60, 80, 2, 8)] * 10}, "not better"),
        ({"days": [DayCount(100, 90, 20, 60, 80, 2, 16)] * 10}, "as long as"),
        ({"changes": [change(1, 4)]}, "never changed"),
        ({"changes": [change(1, 4), change(2, 12)]}, "version 2 has no reason or no measured effect"),
        ({"alerts": []}, r"on the days \[\]"),
        ({"alerts": good_weeks().alerts * 2}, r"on the days \[10, 10\]"),
        ({"stored": 4}, "5 rows were sent and 4 are stored"),
        ({"audit_whole": False}, "audit log"),
    ],
)
def test_what_is_missing_is_said(other: dict[str, Any], said: str) -> None:
    wrong = " ".join(judge(replace(good_weeks(), **other), PLAN))
    assert re.search(said, wrong), wrong


def test_the_second_system_does_not_know_what_the_first_one_knew() -> None:
    world = DeskWorld()
    ((topic, value),) = world.known.items()
    assert [answer_with(PROMPT, f"question 1 about the {topic}", n, world.known) for n in (0, 1)] == [
        value,
        "unknown",
    ]


@pytest.mark.long
def test_two_days_on_a_real_server(tmp_path: Path) -> None:
    result = Holiday(tmp_path, HolidayPlan(days=2, visits=16, hours=12, policies=(), system_day=1)).run()
    assert result.rows == result.stored > 32 and result.audit_whole
    assert [(day, body["kind"]) for day, body in result.alerts] == [(2, "model")]
