"""Locks, dates and the return of instructions, as a person orders them."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.live.reader import WANTS

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Expire, Restore, event_to_json, from_json
from whet.prompt.instructions import apply_event, fold_events
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.learner.context import LearnerConfig
from whet_live.learner.learner import Learner
from whet_live.learner.learner_store import LearnerSettings
from whet_live.learner.terms import InstructionTerms, read_dates, read_review
from whet_live.registry import Decision, PromptEdit, Registry
from whet_live.traffic import Traffic

TEXT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n- Wish people a merry winter.\n<!-- whet:end -->\n"
FREE = {"quorum": 3, "share": 0, "probation": 0}


class Shop:
    """A prompt in production with two instructions, and a calendar (simulated)."""

    def __init__(self, database: Database, root: Path, reader: str | None = None) -> None:
        self.day = date(2026, 7, 1)
        self.registry, self.traffic = Registry(database), Traffic(database)
        config = LearnerConfig(reader, root=root / "runs", today=lambda: self.day)
        self.learner = Learner(database, self.registry, self.traffic, None, config)
        self.registry.create("shop", Prompt.parse(TEXT), author="ann", label="production")
        self.learner.configure("shop", LearnerSettings(rules=FREE), actor="root")

    def on(self, day: str) -> list[str]:
        """The instructions in production after a step on that day."""
        self.day = date.fromisoformat(day)
        self.step()
        return [one.text for _, one in self.registry.get("shop").instructions]

    def step(self):  # type: ignore[no-untyped-def]
        """One step."""
        return asyncio.run(self.learner.step("shop"))

    def say(self, text: str, *users: str) -> None:
        """Each user comments on an answer of their own, of the version in production."""
        version = self.registry.get("shop").version
        for user in users:
            shown = Inference("shop", version, {"q": "?"}, "An answer.", user=user)
            self.traffic.add([shown], [Feedback("comment", shown.id, text=text, user=user)])


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Shop:
    """A shop without a reader."""
    return Shop(database, tmp_path)


@pytest.fixture
def heard(database: Database, tmp_path: Path, reader: str) -> Shop:
    """A shop with a reader."""
    return Shop(database, tmp_path, reader)


# Dates


def test_an_instruction_of_a_season_leaves_and_comes_back_every_year(shop: Shop) -> None:
    shop.learner.set_terms("shop", "i2", dates="12-01..01-06", actor="eve", reason="the season")
    assert shop.on("2026-07-02") == ["Be polite."]
    assert shop.on("2026-11-30") == ["Be polite."]
    assert shop.on("2026-12-01") == ["Be polite.", "Wish people a merry winter."]
    assert shop.on("2027-01-06") == ["Be polite.", "Wish people a merry winter."]
    assert shop.on("2027-01-07") == ["Be polite."]
    assert shop.on("2027-12-24") == ["Be polite.", "Wish people a merry winter."]
    entries = shop.registry.audit(subject="shop").items
    assert (
        next(one.details["reason"] for one in entries if one.action == "label.move") == "i2 is back by date"
    )
    (ordered,) = [one for one in entries if one.action == "instruction.dates"]
    assert (ordered.actor, ordered.details["terms_reason"], ordered.details["last_day"]) == (
        "eve",
        "the season",
        "01-06",
    )
    gone = [event for event in shop.registry.get("shop").ledgers["instructions"] if isinstance(event, Expire)]
    assert {(one.author, "set by eve" in one.reason) for one in gone} == {("learner", True)}
    assert shop.registry.verify_audit().whole


def test_a_season_comes_back_although_a_version_without_its_instruction_stands_there_already(
    shop: Shop,
) -> None:
    without = TEXT.replace("- Wish people a merry winter.\n", "")
    shop.registry.create("shop", Prompt.parse(without), author="ann")
    shop.learner.set_terms("shop", "i2", dates="12-01..01-06", actor="eve")
    assert shop.on("2026-07-02") == ["Be polite."]
    assert shop.registry.get("shop").version == 3, "and not the version of ann, which nobody approved"
    assert shop.on("2026-12-01") == ["Be polite.", "Wish people a merry winter."]


def test_a_date_is_carried_out_once_and_where_learning_is_off_as_well(shop: Shop) -> None:
    shop.learner.configure("shop", LearnerSettings("off"), actor="root")
    shop.learner.set_terms("shop", "i1", dates="..2026-07-31", actor="eve")
    assert len(shop.on("2026-07-31")) == 2
    assert shop.on("2026-08-01") == ["Wish people a merry winter."]
    assert shop.step() is None and shop.registry.labels("shop")["latest"] == 2
    assert [one["outcome"] for one in shop.learner.status("shop")["updates"]] == ["moved"]  # type: ignore[attr-defined]
    assert shop.learner.due() == ["shop"], "without any feedback"


def test_on_a_protected_label_somebody_else_than_who_set_the_date_approves(shop: Shop) -> None:
    shop.registry.protect("shop", "production", actor="root")
    shop.learner.set_terms("shop", "i2", dates="2026-12-01..", actor="eve")
    update = shop.step()
    assert update.outcome == "proposed" and shop.step() is None
    with pytest.raises(UsageError, match="eve accepted a demand"):
        shop.registry.decide(update.proposal, Decision("approve"), actor="eve")
    shop.registry.decide(update.proposal, Decision("approve"), actor="bob")
    assert [one.text for _, one in shop.registry.get("shop").instructions] == ["Be polite."]


def test_a_date_that_was_rejected_is_not_proposed_again_for_the_same_version(shop: Shop) -> None:
    shop.registry.protect("shop", "production", actor="root")
    shop.learner.set_terms("shop", "i2", dates="2026-12-01..", actor="eve")
    shop.registry.decide(shop.step().proposal, Decision("reject", "we keep it"), actor="bob")
    assert shop.step() is None


def test_dates_that_were_taken_back_let_the_instruction_return(shop: Shop) -> None:
    shop.learner.set_terms("shop", "i2", dates="2027-01-01..", actor="eve")
    assert len(shop.on("2026-08-01")) == 1
    shop.learner.set_terms("shop", "i2", dates="..", actor="eve")
    assert len(shop.on("2026-08-01")) == 2


def test_a_review_is_said_on_its_day_and_changes_nothing(shop: Shop) -> None:
    shop.learner.set_terms("shop", "i1", review="2026-09-01", actor="eve")
    shop.day = date(2026, 8, 31)
    assert [one["review_due"] for one in shop.learner.instructions("shop")] == [False, False]
    assert len(shop.on("2026-09-01")) == 2
    assert [one["review_due"] for one in shop.learner.instructions("shop")] == [True, False]


@given(st.dates(date(2020, 1, 1), date(2030, 12, 31)), st.dates(), st.dates())
def test_of_a_season_and_its_complement_one_holds_on_every_day(today: date, one: date, other: date) -> None:
    first, last = one.isoformat()[5:], other.isoformat()[5:]
    day = today.isoformat()
    inside = InstructionTerms(first_day=first, last_day=last).stand_on(day)
    crosses = first > last
    between = first <= day[5:] <= last
    assert inside == ((not last < day[5:] < first) if crosses else between)


@pytest.mark.parametrize(
    "text",
    ["", "2026-12-01", "a..b", "2026-13-01..", "12-01..", "12-01..2027-01-06", "2026-12-02..2026-12-01", "02-30..03-01",
     "1..2..3", "２０２６-12-01.."],
)  # fmt: skip
def test_dates_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_dates(text)


def test_a_review_has_a_year() -> None:
    assert (read_review(""), read_review("2027-01-01")) == ("", "2027-01-01")
    with pytest.raises(UsageError, match="has a year"):
        read_review("01-01")


# Locks


def test_nothing_rewords_a_locked_instruction_and_nothing_takes_its_place(heard: Shop) -> None:
    heard.say("Too long.", "a", "b", "c")
    proposal = heard.registry.proposal(heard.step().proposal)
    heard.registry.decide(proposal.id, Decision("approve"), actor="ann")
    heard.learner.set_terms("shop", "i3", locked=True, actor="eve", reason="legal")
    heard.say("Way too chatty.", "d", "e", "f")
    assert heard.step() is None, "a locked instruction is not reworded"
    heard.say("Could you say more?", *"ghijklm")
    update = heard.step()
    assert update.outcome == "empty", "its contrary does not enter"
    assert any("locked" in reason for flag in update.flags for reason in flag["reasons"])
    for one in update.requirements:
        heard.learner.decide("shop", f"requirement {one.key}", True, actor="ann")
    update = heard.step()
    assert update is None or update.outcome == "empty", "not even where a person accepts it"
    assert WANTS["short"] in [one.text for _, one in heard.registry.get("shop").instructions]


def test_a_lock_that_came_while_an_update_was_made_stops_it(
    heard: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard.say("Too long.", "a", "b", "c")
    heard.registry.decide(heard.step().proposal, Decision("approve"), actor="ann")
    heard.say("Way too chatty.", "d", "e", "f")
    from whet_live.learner import pipeline

    true = pipeline.examine_events

    def lock_then(*parts):  # type: ignore[no-untyped-def]
        heard.learner.set_terms("shop", "i3", locked=True, actor="eve")
        return true(*parts)

    monkeypatch.setattr(pipeline, "examine_events", lock_then)
    update = heard.step()
    assert (update.outcome, update.reason) == ("stale", "locked meanwhile: i3")


def test_terms_are_of_one_instruction_and_not_of_another_one_with_its_id(shop: Shop) -> None:
    before = shop.registry.get("shop").version
    shop.registry.create("shop", Prompt.parse(TEXT.replace("<!-- whet:end", "- Name the price.\n<!-- whet:end")), author="ann",
                         label="production")  # fmt: skip
    created = {one["id"]: one["created"] for one in shop.learner.instructions("shop")}
    shop.learner.set_terms("shop", "i3", locked=True, actor="eve")
    other = shop.registry.get(f"shop/{before}")
    assert ("instructions", "i3") in shop.learner.terms(shop.registry.get("shop"))
    assert shop.learner.terms(other) == {} and created["i3"]


def test_terms_of_what_is_not_there_are_refused(shop: Shop) -> None:
    with pytest.raises(UsageError, match='no instruction "i9"'):
        shop.learner.set_terms("shop", "i9", locked=True, actor="eve")
    with pytest.raises(UsageError):
        shop.learner.set_terms("nowhere", "i1", locked=True, actor="eve")
    shop.registry.remove_label("shop", "production", actor="ann")
    with pytest.raises(UsageError, match="has the label production"):
        shop.learner.instructions("shop")


# Undo


def test_an_instruction_that_left_stands_again_when_a_person_says_so(shop: Shop) -> None:
    edit = PromptEdit((Expire(id="i1", reason="nobody misses it", author="learner"),))
    shop.registry.decide(
        shop.registry.propose("shop", edit, author="learner", label="production").id,
        Decision("approve"),
        actor="ann",
    )
    done = shop.learner.restore("shop", "i1", actor="eve", reason="we do")
    assert done.version == 3 and done.proposal is None
    texts = {one["text"]: (one["status"], one["reason"]) for one in shop.learner.instructions("shop")}
    assert texts["Be polite."] == ("active", "we do")
    with pytest.raises(UsageError, match="only an expired"):
        shop.learner.restore("shop", "i1", actor="eve")
    shop.registry.protect("shop", "production", actor="root")
    gone = shop.registry.propose("shop", PromptEdit((Expire(id="i2"),)), author="learner", label="production")
    shop.registry.decide(gone.id, Decision("approve"), actor="ann")
    waiting = shop.learner.restore("shop", "i2", actor="eve")
    assert waiting.version is None and shop.registry.proposal(str(waiting.proposal)).author == "eve"


def test_a_restoration_is_an_event_like_any_other() -> None:
    event = Restore(id="i1", reason="needed", author="eve", at="2027")
    assert from_json(json.loads(json.dumps(event_to_json(event)))) == event
    with pytest.raises(UsageError):
        apply_event(fold_events([]), event)
