"""Proposals: filed on a version, decided by somebody else, one instruction at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt
from whet.prompt.events import Add, Effect, Event, Expire, Measure, Merge, Resolve, Rewrite
from whet.types import Message
from whet_live.database import Database
from whet_live.registry import Decision, PromptEdit, Proposal, Registry

TEXT = "Answer {{question}}.\n<!-- whet:begin -->\n- Be polite.\n- Answer at length.\n<!-- whet:end -->\n"
APPROVE = Decision("approve", "good")

BRIEF = Add(
    id="i3", text="Be brief.", author="learner", critiques=("too long",), evidence=("f1", "f2"), sources=2
)
UNITS = Add(id="i4", text="Use SI units.", author="learner", evidence=("f3",), sources=1)
DROP = Resolve(keep="i3", drop="i2", reason="i3 says the contrary")


@pytest.fixture
def registry(database: Database) -> Registry:
    """A registry with one prompt in production."""
    found = Registry(database)
    found.create("p", Prompt.parse(TEXT), author="ann", label="production")
    return found


@pytest.fixture(scope="module")
def undecided(database_to_read: Database) -> tuple[Registry, Proposal]:
    """A registry with a proposal on which no test decides."""
    registry = Registry(database_to_read)
    registry.create("p", Prompt.parse(TEXT), author="ann", label="production")
    return registry, propose(registry)


def propose(
    registry: Registry, *events: Event, author: str = "learner", label: str | None = "production"
) -> Proposal:
    return registry.propose(
        "p@production", PromptEdit(events or (BRIEF, DROP, UNITS)), author=author, message="from feedback", label=label,
        gate={"promoted": True}, evidence={"rows": 3}, run={"kind": "learner"},
    )  # fmt: skip


def rules(registry: Registry, address: str = "p") -> list[str]:
    return [i.text for _, i in registry.get(address).instructions]


def test_a_proposal_shows_what_it_does_to_each_instruction(registry: Registry) -> None:
    found = propose(registry)
    assert (found.state, found.base, found.label, found.version) == ("open", 1, "production", None)
    brief, units = found.units
    assert brief.change is not None and (brief.change.before, brief.change.after) == (None, "Be brief.")
    assert [(c.id, c.before, c.after) for c in brief.also] == [("i2", "Answer at length.", None)]
    assert (brief.instruction.critiques, brief.instruction.evidence) == (("too long",), ("f1", "f2"))
    assert (units.id, units.also) == ("i4", ())
    assert "- Be brief." in found.prompt.region_text()
    assert rules(registry) == ["Be polite.", "Answer at length."]
    shown = found.as_json()
    assert (shown["gate"], shown["evidence"], shown["run"]) == (
        {"promoted": True},
        {"rows": 3},
        {"kind": "learner"},
    )
    assert [part["after"] for part in shown["instructions"]] == ["Be brief.", "Use SI units."]
    assert registry.proposal(found.id) == found


def test_approving_makes_the_version_and_moves_the_label(registry: Registry) -> None:
    done = registry.decide(propose(registry).id, APPROVE, actor="ann")
    assert (done.state, done.decider, done.reason, done.version) == ("approved", "ann", "good", 2)
    made = registry.get("p@production")
    assert (made.version, made.author, made.proposal, made.parent) == (2, "learner", done.id, 1)
    assert made.evidence == {"rows": 3, "gate": {"promoted": True}}
    assert rules(registry) == ["Be polite.", "Be brief.", "Use SI units."]
    assert made.ledger("instructions")["i3"].sources == 2
    move = registry.moves("p").items[0]
    assert (move.actor, move.proposal, move.new) == ("ann", done.id, 2)


def test_a_proposal_that_says_what_a_newer_version_says_is_approved(registry: Registry) -> None:
    found = propose(registry)
    registry.create("p", found.prompt, author="carl")
    done = registry.decide(found.id, APPROVE, actor="ann")
    made = registry.get("p@production")
    assert (done.state, made.version, made.parent, made.proposal) == ("approved", 3, 1, found.id)
    assert made.ledger("instructions")["i3"].sources == 2
    with pytest.raises(UsageError, match="Nothing is added"):
        registry.create("p", found.prompt, author="carl")


def test_instructions_are_kept_one_by_one(registry: Registry) -> None:
    decision = Decision("approve", "only units", kept=("i4",))
    done = registry.decide(propose(registry).id, decision, actor="ann")
    assert done.kept == ("i4",)
    assert rules(registry) == ["Be polite.", "Answer at length.", "Use SI units."]
    left_out = registry.get("p").ledger("instructions")["i3"]
    assert (left_out.status, left_out.reason) == ("rejected", "only units")


def test_a_kept_part_brings_what_it_does_to_others(registry: Registry) -> None:
    registry.decide(propose(registry).id, Decision("approve", kept=("i3",)), actor="ann")
    assert rules(registry) == ["Be polite.", "Be brief."]


def test_rewrites_merges_and_ends_are_parts_too(registry: Registry) -> None:
    effect = Effect((5, 10), (1, 10), 0.4, 0.1, 0.7)
    found = propose(
        registry,
        Rewrite(id="i1", text="Be polite and warm.", author="learner"),
        Measure(id="i1", effect=effect),
        Expire(id="i2", reason="nobody needs it"),
    )
    assert [(u.id, u.instruction.effect) for u in found.units] == [("i1", effect), ("i2", None)]
    registry.decide(found.id, Decision("approve", kept=("i1",)), actor="ann")
    assert rules(registry) == ["Be polite and warm.", "Answer at length."]
    merged = propose(registry, Merge(id="i1", others=("i2",), text="Be warm and thorough."))
    assert [(c.id, c.after) for c in merged.units[0].also] == [("i2", None)]
    registry.decide(merged.id, APPROVE, actor="ann")
    assert rules(registry) == ["Be warm and thorough."]


@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_what_is_left_of_a_proposal_must_change_something(registry: Registry, verdict: str) -> None:
    found = propose(registry)
    with pytest.raises(UsageError, match=r"Nothing of the proposal is left|new text of an instruction"):
        registry.decide(found.id, Decision(verdict, kept=()), actor="ann")
    assert registry.proposal(found.id).state == "open"
    assert registry.labels("p") == {"latest": 1, "production": 1}


def test_the_author_does_not_approve(registry: Registry) -> None:
    found = propose(registry, author="bob")
    with pytest.raises(UsageError, match="somebody else approves"):
        registry.decide(found.id, APPROVE, actor="bob")
    assert registry.proposal(found.id).state == "open"
    edit = Decision("edit", "shorter", texts={"i3": "- Be very brief."})
    with pytest.raises(UsageError, match="somebody else approves"):
        registry.decide(found.id, edit, actor="bob")
    assert registry.labels("p") == {"latest": 1, "production": 1}
    assert registry.decide(found.id, Decision("reject", "changed my mind"), actor="bob").state == "rejected"


def test_a_rejection_needs_a_reason_and_changes_nothing(registry: Registry) -> None:
    found = propose(registry)
    with pytest.raises(UsageError, match="needs a reason"):
        registry.decide(found.id, Decision("reject", "  "), actor="ann")
    assert registry.decide(found.id, Decision("reject", "wrong"), actor="ann").reason == "wrong"
    assert registry.labels("p") == {"latest": 1, "production": 1}


def test_a_decided_proposal_stays_decided(registry: Registry) -> None:
    found = propose(registry)
    registry.decide(found.id, Decision("reject", "wrong"), actor="ann")
    for attempt in (APPROVE, Decision("reject", "again"), Decision("edit", texts={"i3": "x"})):
        with pytest.raises(UsageError, match="rejected already, by ann"):
            registry.decide(found.id, attempt, actor="bob")


def test_a_proposal_on_what_no_longer_stands_is_out_of_date(registry: Registry) -> None:
    first, second = propose(registry), propose(registry, UNITS.__class__(id="i3", text="Cite sources."))
    registry.decide(first.id, APPROVE, actor="ann")
    with pytest.raises(UsageError, match="stands on version 2 by now"):
        registry.decide(second.id, APPROVE, actor="ann")
    registry.rollback("p", "production", actor="ann")
    assert registry.decide(second.id, APPROVE, actor="ann").version == 3
    assert rules(registry) == ["Be polite.", "Answer at length.", "Cite sources."]


def test_a_proposal_whose_label_was_taken_away_is_out_of_date(registry: Registry) -> None:
    asked = registry.request_move("p", "staging", 1, actor="bob")
    found = propose(registry)
    registry.remove_label("p", "production", actor="ann")
    assert "taken away" in registry.out_of_date(found) and not registry.out_of_date(asked)
    with pytest.raises(UsageError, match="production of p was taken away after the proposal was made"):
        registry.decide(found.id, APPROVE, actor="ann")
    assert registry.labels("p") == {"latest": 1}
    assert registry.decide(asked.id, APPROVE, actor="eve").state == "approved"
    later = registry.request_move("p", "production", 1, actor="bob")
    assert registry.decide(later.id, APPROVE, actor="eve").state == "approved"


def test_a_proposal_without_a_label_only_makes_a_version(registry: Registry) -> None:
    done = registry.decide(propose(registry, label=None).id, APPROVE, actor="ann")
    assert done.version == 2
    assert registry.labels("p") == {"latest": 2, "production": 1}


def test_an_edit_is_made_at_once_where_the_label_is_free(registry: Registry) -> None:
    found = propose(registry)
    done = registry.decide(found.id, Decision("edit", "shorter", texts={"i3": "Be very brief."}), actor="ann")
    assert (done.state, done.version, done.successor) == ("edited", 2, None)
    assert rules(registry) == ["Be polite.", "Be very brief.", "Use SI units."]
    assert registry.get("p").author == "ann"
    assert registry.get("p").ledger("instructions")["i3"].critiques == ("too long",)


def test_an_edit_for_a_protected_label_needs_somebody_else(registry: Registry) -> None:
    registry.protect("p", "production", actor="root")
    found = propose(registry)
    edit = Decision("edit", "shorter", texts={"i3": "Be very brief."}, kept=("i3",))
    done = registry.decide(found.id, edit, actor="ann")
    assert (done.state, done.version) == ("edited", None)
    successor = registry.proposal(str(done.successor))
    assert (successor.author, successor.gate, successor.label) == ("ann", None, "production")
    with pytest.raises(UsageError, match="somebody else approves"):
        registry.decide(successor.id, APPROVE, actor="ann")
    registry.decide(successor.id, APPROVE, actor="bob")
    assert rules(registry) == ["Be polite.", "Be very brief."]


def test_a_whole_text_can_be_proposed_edited_and_approved(registry: Registry) -> None:
    found = registry.propose("p", PromptEdit(prompt=Prompt.parse("Short.")), author="bob", label="production")
    assert found.units == ()
    with pytest.raises(UsageError, match="no instructions to choose from"):
        registry.decide(found.id, Decision("approve", kept=("i1",)), actor="ann")
    registry.decide(found.id, Decision("edit", prompt=Prompt.parse("Shorter.")), actor="ann")
    assert registry.get("p").prompt.source == "Shorter."


def test_a_prompt_without_a_fence_gets_one_when_instructions_come(registry: Registry) -> None:
    registry.create("bare", Prompt.parse("Answer.\r\n"), author="ann", label="production")
    found = registry.propose(
        "bare", PromptEdit((Add(id="i1", text="Be brief."),)), author="learner", label="production"
    )
    registry.decide(found.id, APPROVE, actor="ann")
    made = registry.get("bare").prompt.source
    assert made.startswith("Answer.\r\n") and "- Be brief." in made
    chat = Prompt.from_messages((Message("system", "Be kind."), Message("user", "{{q}}")))
    registry.create("chat", chat, author="ann", label="production")
    with pytest.raises(UsageError, match="messages have no fence"):
        registry.propose("chat", PromptEdit((Add(id="i1", text="Be brief."),)), author="learner")


@pytest.mark.parametrize(
    ("events", "error", "said"),
    [
        ((Add(id="i1", text="x1"),), UsageError, "cannot be given to a new instruction"),
        ((Rewrite(id="i9", text="x1"),), UsageError, 'no instruction "i9"'),
        ((Add(id="i3", text="a {{slot}}"),), EditRejected, "slot in double braces"),
        ((Add(id="i3", text="<!-- whet:end -->"),), EditRejected, "fence marker"),
        ((Add(id="i3", text="x1", status="proposed"),), UsageError, "changes nothing"),
        ((Expire(id="i1"), Expire(id="i2")), EditRejected, "empty"),
    ],
)
def test_events_that_do_not_fit_are_refused(
    registry: Registry, events: tuple[Event, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        propose(registry, *events)
    assert registry.proposals().items == []


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision("aprove"), 'Did you mean "approve"'),
        (Decision("approve", kept=("i9",)), 'no instruction "i9"'),
        (Decision("edit", texts={"i9": "x"}), 'no instruction "i9"'),
        (Decision("edit", texts={"i3": "a {{slot}}"}), "slot in double braces"),
        (Decision("edit"), "needs the new text"),
        (Decision("approve", "r" * 4001), "at most 4000"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    undecided: tuple[Registry, Proposal], decision: Decision, said: str
) -> None:
    registry, found = undecided
    with pytest.raises(UsageError, match=said):
        registry.decide(found.id, decision, actor="ann")
    assert registry.proposal(found.id).state == "open"
    assert registry.labels("p") == {"latest": 1, "production": 1}


def test_moving_a_protected_label_is_requested_and_approved_by_a_third(registry: Registry) -> None:
    registry.create("p", Prompt.parse("Two."), author="ann")
    registry.protect("*", "production", actor="root")
    asked = registry.request_move("p", "production", 2, actor="bob", reason="tested", evidence={"won": 0.98})
    assert (asked.base, asked.target, asked.author) == (1, 2, "bob")
    for actor, said in (("bob", "bob made this proposal"), ("ann", "ann wrote version 2")):
        with pytest.raises(UsageError, match=said):
            registry.decide(asked.id, APPROVE, actor=actor)
    for decision in (Decision("edit", texts={"i1": "x"}), Decision("approve", kept=("i1",))):
        with pytest.raises(UsageError, match="request to move a label"):
            registry.decide(asked.id, decision, actor="cem")
    assert registry.decide(asked.id, APPROVE, actor="cem").version == 2
    assert registry.labels("p")["production"] == 2
    with pytest.raises(UsageError, match="stands on version 2 already"):
        registry.request_move("p", "production", 2, actor="bob")


def test_only_the_author_takes_a_proposal_back(registry: Registry) -> None:
    found = propose(registry)
    with pytest.raises(UsageError, match="only its author"):
        registry.withdraw(found.id, actor="ann")
    assert registry.withdraw(found.id, actor="learner", reason="newer feedback").state == "withdrawn"
    with pytest.raises(UsageError, match="withdrawn already"):
        registry.decide(found.id, APPROVE, actor="ann")


def test_proposals_come_in_pages_by_state_and_prompt(registry: Registry) -> None:
    registry.create("other", Prompt.parse("x"), author="ann")
    keys = [propose(registry, Add(id="i3", text=f"Rule {n}.")).id for n in range(5)]
    registry.propose("other@latest", PromptEdit(prompt=Prompt.parse("y")), author="bob")
    registry.decide(keys[0], Decision("reject", "no"), actor="ann")
    assert [p.id for p in registry.proposals(state="open", name="p").items] == keys[:0:-1]
    page = registry.proposals(name="p", limit=2)
    rest = registry.proposals(name="p", limit=9, before=page.after)
    assert [p.id for p in (*page.items, *rest.items)] == keys[::-1]
    with pytest.raises(UsageError, match='Did you mean "open"'):
        registry.proposals(state="opne")
    with pytest.raises(UsageError, match="no proposal"):
        registry.proposal("nothing")


def test_a_proposal_that_is_bad_json_is_refused(registry: Registry) -> None:
    bad: Any = {"x": {1}}
    deep = {"x": json.loads("[" * 64 + "]" * 64)}
    for key in ("evidence", "gate", "run", "config"):
        with pytest.raises(UsageError, match="no JSON object"):
            registry.propose("p", PromptEdit((BRIEF,)), author="bob", **{key: bad})
        with pytest.raises(UsageError, match="is nested more than 64 levels deep"):
            registry.propose("p", PromptEdit((BRIEF,)), author="bob", **{key: deep})
