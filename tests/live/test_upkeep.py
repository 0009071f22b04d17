"""Upkeep of live prompts: what is joined, shortened, left out, and what gives way to its contrary."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from whet.instructions.answers import Known
from whet.instructions.compact import compact, is_shorter
from whet.instructions.effects import Effects, Round
from whet.prompt import Prompt
from whet.prompt.events import Add, Merge, Restore
from whet.prompt.instructions import Ledger, estimate_tokens, fold_events
from whet.run import MemoryRun
from whet.types import Completion, Request
from whet_live.learner.gating import GUARD, WHOLE, require_no_loss
from whet_live.learner.learner_store import EMPTY, STALE, PromptUpdate
from whet_live.learner.terms import InstructionTerms, as_stages_see
from whet_live.learner.upkeep import COMPACT, MERGE, WITHOUT, UpkeepView, describe_step, generate_upkeep
from whet_live.registry import Version

LONG = "In each and every answer that you give, always name the price of 5 items in euros."
SHORT = "Name the price of 5 items in euros."


def ledger_of(*texts: str, author: str = "optimizer") -> tuple[list[Any], Ledger]:
    """Instructions i1, i2, ... by an author, as events and as the ledger."""
    events = [
        Add(id=f"i{n}", text=text, author=author, tokens=estimate_tokens(text), at="2026")
        for n, text in enumerate(texts, 1)
    ]
    return events, fold_events(events)


def view(*texts: str, updates: tuple[PromptUpdate, ...] = (), effects: Effects | None = None) -> UpkeepView:
    """What a step sees of instructions that a model wrote."""
    return UpkeepView(ledger_of(*texts)[1], effects or Effects(), updates)


def done(step: str, *ids: str, outcome: str = EMPTY) -> PromptUpdate:
    """A step that was made and saw these instructions."""
    plan = {"step": step, "seen": [f"{key} 2026" for key in ids]}
    return PromptUpdate("u", "p", 1, "propose", outcome, (), 0, plan=plan)


class Writer:
    """A model that shortens LONG and compares by the words it is told to be the same."""

    address, simulated, local, can_generate = "scripted/writer", True, True, True

    def __init__(self, new: str = SHORT, same: bool = True) -> None:
        self.new, self.same = new, same
        self.asked: list[str] = []

    async def generate(self, request: Request) -> list[Completion]:
        """Answer in the form that is asked for."""
        text = request.messages[-1].content
        form = next(iter(dict((request.schema or {})["properties"])))  # type: ignore[call-overload]
        self.asked.append(form)
        keys = re.findall(r"^\[(\w+)\]", text, re.MULTILINE)
        if form == "rewrites":
            rows = [{"instruction_id": key, "text": self.new} for key in keys]
            return [Completion(json.dumps({"rewrites": rows}))]
        groups = [{"ids": keys, "best": keys[0], "merged": None}] if self.same else []
        return [Completion(json.dumps({"duplicates": groups, "contradictions": []}))]

    async def close(self) -> None:
        """Nothing is open."""


# Which step is next


def test_steps_come_in_order_and_once_for_what_stands() -> None:
    texts = ["one thing", "another thing", "a third thing"]
    assert view(*texts).plan(4, True) is None, "too little is new"
    assert view(*texts).plan(0, True) is None, "never"
    first = view(*texts).plan(3, True)
    assert first == {"step": MERGE, "seen": ["i1 2026", "i2 2026", "i3 2026"]}
    every = ("i1", "i2", "i3")
    merged = done(MERGE, *every)
    assert view(*texts, updates=(merged,)).plan(3, False) is None, "without a gate nothing else is done"
    second = view(*texts, updates=(merged,)).plan(3, True)
    assert second is not None and second["step"] == COMPACT
    third = view(*texts, updates=(done(COMPACT, *every), merged)).plan(3, True)
    assert third is not None and third["step"] == WITHOUT and third["ids"] == ["i2"], "the dearest"
    tried = (done(WITHOUT, "i2"), done(COMPACT, *every), merged)
    assert view(*texts, updates=tried).plan(3, True)["ids"] == ["i3"]  # type: ignore[index]
    all_tried = (done(WITHOUT, *every), *tried)
    assert view(*texts, updates=all_tried).plan(3, True) is None
    again = view(*texts, updates=all_tried).plan(3, True, due=["i1"])
    assert again is not None and again["ids"] == ["i1"], "a review that is due"


def test_a_step_whose_version_no_longer_stood_is_made_again() -> None:
    texts = ["one thing", "another thing", "a third thing"]
    plan = view(*texts, updates=(done(MERGE, "i1", "i2", "i3", outcome=STALE),)).plan(3, True)
    assert plan is not None and plan["step"] == MERGE


def test_what_answered_many_violations_is_tried_without_last() -> None:
    effects = Effects()
    effects.add(Round(100, {}, {"i1": 20, "i2": 1}))
    effects.add(Round(100, {"i1": "one thing", "i2": "two thing"}, {}))
    updates = (done(COMPACT, "i1", "i2"), done(MERGE, "i1", "i2"))
    plan = view("one thing", "two thing", updates=updates, effects=effects).plan(2, True)
    assert plan is not None and plan["ids"] == ["i2"]


def test_what_a_person_wrote_or_locked_is_no_part_of_it() -> None:
    _, ledger = ledger_of("one thing", "another thing", "a third thing")
    locked = as_stages_see(ledger, {"i1": InstructionTerms(locked=True)})
    assert UpkeepView(locked, Effects(), ()).plan(3, True) is None
    _, written = ledger_of("one thing", "another thing", "a third thing", author="ann")
    assert UpkeepView(as_stages_see(written, {}), Effects(), ()).plan(1, True) is None


# What a step does


def test_two_that_say_the_same_become_one_and_a_locked_text_stays() -> None:
    events, ledger = ledger_of("Be short.", "Keep it short.")
    base = Version("p", 1, Prompt.parse("<!-- whet:begin -->\n- Be short.\n- Keep it short.\n<!-- whet:end -->\n"),
                   {"instructions": tuple(events)}, {}, None, "ann", "", 0)  # fmt: skip
    seen = as_stages_see(ledger, {"i2": InstructionTerms(locked=True)})
    run = MemoryRun({"optimizer": Writer()})
    update = replace(done(MERGE), plan={"step": MERGE, "seen": []})
    made = asyncio.run(generate_upkeep(run, update, base, "instructions", seen, calls=5, at="2027"))
    assert made == [
        Merge(id="i2", others=("i1",), text="Keep it short.", tokens=ledger["i2"].tokens, author="optimizer", at="2027")
    ]  # fmt: skip
    after = fold_events([*events, *made])
    assert [one.text for one in after.active] == ["Keep it short."]
    assert (after.successor("i1"), after.successor("i2"), after.successor("i9")) == ("i2", "i2", "i9")
    assert describe_step(events, made).startswith("1 instruction joined to others that say the same (")
    back = fold_events([*events, *made, Restore(id="i1")])
    assert [one.id for one in back.active] == ["i2", "i1"], "a merge can be undone"


@pytest.mark.parametrize(
    ("writer", "wanted"),
    [
        (Writer(), {"i1": SHORT}),
        (Writer(same=False), {}),
        (Writer(new="Name the price in euros."), {}),
        (Writer(new=LONG.replace("always ", "")), {}),
    ],
    ids=["the same in fewer words", "not the same to the model", "a number is lost", "hardly shorter"],
)
def test_a_shorter_text_is_used_where_it_says_the_same(writer: Writer, wanted: dict[str, str]) -> None:
    run = MemoryRun({"optimizer": writer})
    assert asyncio.run(compact(run, [Known("i1", LONG)], most=4)) == wanted
    assert is_shorter(LONG, SHORT) and not is_shorter(SHORT, LONG)


def test_nothing_is_asked_beyond_the_calls() -> None:
    writer = Writer()
    many = [Known(f"i{n}", LONG) for n in range(30)]
    asyncio.run(compact(MemoryRun({"optimizer": writer}), many, most=2))
    assert len(writer.asked) == 2


# What the gate lets pass


@pytest.mark.parametrize(
    ("whole", "passes"),
    [
        ({"low": -0.08, "wins": 0, "losses": 0}, True),
        ({"low": -0.12, "wins": 0, "losses": 0}, False),
        ({"low": -0.05, "wins": 1, "losses": 2}, False),
        ({"low": -0.05, "wins": 2, "losses": 2}, True),
        ({"low": -0.05, "wins": 2, "losses": 0, GUARD: -0.1}, False),
        ({"low": -0.05, "wins": 2, "losses": 0, GUARD: 0.0}, True),
    ],
)
def test_upkeep_passes_where_nothing_is_lost(whole: dict[str, float], passes: bool) -> None:
    verdict = require_no_loss({WHOLE: {"n": 60, "difference": 0.0, **whole}, "promoted": False}, 0.1)
    assert verdict["promoted"] is passes
    assert ("Nothing is lost" in verdict["reason"]) is passes
