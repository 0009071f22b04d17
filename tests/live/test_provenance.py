"""Who shaped a change, by which road, and that they cannot approve it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Add, Merge
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.erasure import forget_user
from whet_live.experiments import Experiments
from whet_live.learner.context import LearnerConfig
from whet_live.learner.learner import Learner
from whet_live.registry import Decision, PromptEdit, Proposal, Registry
from whet_live.registry.provenance import AUTHOR, SOURCE, may_approve, merge_names
from whet_live.traffic import Traffic

APPROVE = Decision("approve", "good")
PROMPT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"


@pytest.fixture
def registry(database: Database) -> Registry:
    """A prompt of ann's in production, which is protected."""
    made = Registry(database)
    made.create("p", Prompt.parse(PROMPT), author="ann", label="production")
    made.protect("*", "production", actor="root")
    return made


def refused(registry: Registry, proposal: Proposal, actor: str, why: str) -> None:
    """The actor may neither approve nor edit, and learns why and what to do."""
    assert registry.refusal(proposal, actor) == why
    for decision in (APPROVE, Decision("edit", prompt=Prompt.parse("x"))):
        with pytest.raises(UsageError, match=f"{why}; somebody else approves it"):
            registry.decide(proposal.id, decision, actor=actor)
    assert registry.labels("p")["production"] == 1


class Place:
    """The prompt with a learner, whose reader is simulated."""

    def __init__(self, registry: Registry, root: Path) -> None:
        self.registry, self.traffic = registry, Traffic(registry.database)
        config = LearnerConfig("openai/reader", root=root / "runs")
        self.learner = Learner(registry.database, registry, self.traffic, config=config)

    def say(self, words: str, *users: str) -> None:
        """Users comment, each on an answer of their own; one without a name in the feedback is known by the answer."""
        for user in users:
            one = Inference("p", 1, {"q": "?"}, "An answer.", user=user)
            self.traffic.add([one], [Feedback("comment", one.id, text=words, id=f"f-{user}")])

    def learn(self) -> Proposal:
        """The proposal of the next update."""
        update = asyncio.run(self.learner.step("p"))
        assert update is not None and update.proposal is not None
        return self.registry.proposal(update.proposal)


@pytest.fixture
def place(registry: Registry, tmp_path: Path, reader: str) -> Place:
    return Place(registry, tmp_path)


def test_a_name_in_any_spelling_is_found_with_what_it_did() -> None:
    shaped = {"version 3": {AUTHOR: ["ann"]}, "this proposal": {SOURCE: ["Eve", "bob"]}}
    assert may_approve("ＥＶＥ", shaped) == "ＥＶＥ sent feedback that this proposal rests on"
    assert may_approve("ann", shaped) == "ann wrote version 3"
    assert may_approve("eva", shaped) is None
    assert merge_names({AUTHOR: ["a", ""]}, {AUTHOR: ["a", "b"], SOURCE: []}) == {AUTHOR: ["a", "b"]}


def test_who_accepted_a_demand_or_is_a_source_of_it_does_not_approve(place: Place) -> None:
    place.say("Way too chatty.", "eve")
    assert asyncio.run(place.learner.step("p")) is None
    (one,) = place.learner.status("p")["requirements"]
    place.learner.decide("p", f"requirement {one['key']}", True, actor="dan", reason="yes")
    place.learner.decide("p", f"requirement {one['key']}", True, actor="cem", reason="me too")
    proposal = place.learn()
    refused(place.registry, proposal, "dan", "dan accepted a demand that this proposal rests on")
    refused(place.registry, proposal, "cem", "cem accepted a demand that this proposal rests on")
    refused(place.registry, proposal, "Eve", "Eve sent feedback that this proposal rests on")
    assert place.registry.decide(proposal.id, APPROVE, actor="bob").version == 2


def test_who_wrote_the_words_does_not_approve_also_when_somebody_else_accepted_them(place: Place) -> None:
    place.say("Way too chatty.", "a")
    assert asyncio.run(place.learner.step("p")) is None
    (one,) = place.learner.status("p")["requirements"]
    place.learner.write("p", one["key"], "Be terse.", actor="eve")
    proposal = place.learn()
    refused(place.registry, proposal, "eve", "eve wrote this proposal")
    edit = Decision("edit", texts={proposal.units[0].id: "Be brief."})
    successor = place.registry.proposal(str(place.registry.decide(proposal.id, edit, actor="bob").successor))
    for who, why in (("eve", "wrote"), ("bob", "made")):
        refused(place.registry, successor, who, f"{who} {why} this proposal")


def test_names_of_users_go_with_the_approval_or_with_their_data(place: Place) -> None:
    place.say("Way too chatty.", "a1", "b1", "zoe")
    proposal = place.learn()
    assert proposal.provenance[SOURCE] == ["a1", "b1", "zoe"]
    forget_user(place.registry.database, "zoe", actor="eve")
    stored = place.registry.proposal(proposal.id)
    assert "zoe" not in json.dumps(stored.as_json())
    again = place.learn() if stored.state == "withdrawn" and place.say("Too long.", "c1") is None else stored
    place.registry.decide(again.id, APPROVE, actor="bob")
    assert SOURCE not in place.registry.get("p").provenance
    assert SOURCE not in place.registry.proposal(again.id).provenance


def test_who_deletes_their_own_data_does_not_become_clean(registry: Registry) -> None:
    shaped = {SOURCE: ["eve", "zoe"]}
    edit = PromptEdit(prompt=Prompt.parse("Short. {{q}}"))
    proposal = registry.propose("p@production", edit, author="dan", label="production", provenance=shaped)
    forget_user(registry.database, "EVE", actor="eve")
    refused(registry, registry.proposal(proposal.id), "eve", "eve sent feedback that this proposal rests on")
    forget_user(registry.database, "eve", actor="root")
    assert registry.proposal(proposal.id).provenance[SOURCE] == ["root", "zoe"]


def test_authors_of_events_count_and_so_does_who_joins_instructions(registry: Registry) -> None:
    events = (
        Add(id="i2", text="Be brief.", author="eve"),
        Merge(id="i1", others=("i2",), text="Be it.", author="mel"),
    )
    proposal = registry.propose("p@production", PromptEdit(events), author="dan", label="production")
    refused(registry, proposal, "eve", "eve wrote this proposal")
    refused(registry, proposal, "mel", "mel joined instructions of this proposal")


def test_provenance_is_carried_until_somebody_else_approves(registry: Registry) -> None:
    registry.create("p", Prompt.parse("Eve's. {{q}}"), author="eve")
    registry.create("p", Prompt.parse("Eve's, by dan. {{q}}"), author="dan")
    proposal = registry.request_move("p", "production", 3, actor="dan")
    refused(registry, proposal, "eve", "eve wrote version 2")
    own = registry.propose("p/3", PromptEdit(prompt=Prompt.parse("More. {{q}}")), author="dan")
    registry.decide(own.id, APPROVE, actor="eve")
    later = registry.request_move("p", "production", 4, actor="dan")
    refused(registry, later, "eve", "eve wrote version 2")
    staging = registry.request_move("p", "staging", 2, actor="eve")
    registry.decide(staging.id, APPROVE, actor="bob")
    assert registry.refusal(later, "eve") == ""
    assert registry.decide(later.id, APPROVE, actor="eve").version == 4


def test_a_change_of_a_version_that_never_stood_needs_a_third(registry: Registry) -> None:
    """Where the label stands nowhere, a change brings all of its base."""
    registry.create("q", Prompt.parse("Eve's. {{q}}"), author="eve")
    edit = PromptEdit(prompt=Prompt.parse("Eve's! {{q}}"))
    proposal = registry.propose("q/1", edit, author="dan", label="production")
    with pytest.raises(UsageError, match="eve wrote version 1; somebody else approves it"):
        registry.decide(proposal.id, APPROVE, actor="eve")
    assert registry.decide(proposal.id, APPROVE, actor="bob").version == 2


def test_nobody_rolls_back_to_what_only_they_ever_saw(registry: Registry) -> None:
    edit = PromptEdit(prompt=Prompt.parse("Better. {{q}}"))
    registry.decide(
        registry.propose("p@production", edit, author="dan", label="production").id, APPROVE, actor="ann"
    )
    with pytest.raises(
        UsageError, match=r"ann wrote version 1, and production of p is protected: somebody else"
    ):
        registry.rollback("p", "production", actor="ann")
    assert registry.rollback("p", "production", actor="dan").new == 1
    again = registry.request_move("p", "production", 2, actor="dan")
    assert registry.decide(again.id, APPROVE, actor="ann").version == 2, "ann only approved it"


def test_who_imports_does_not_approve_and_names_come_along(registry: Registry, tmp_path: Path) -> None:
    registry.create("p", Prompt.parse("Two. {{q}}"), author="dan", provenance={SOURCE: ["eve"]})
    registry.export(tmp_path)
    (tmp_path / "p").rename(tmp_path / "r")
    for side in (tmp_path / "r").glob("@[0-9]*.json"):
        side.write_text(side.read_text().replace('"name": "p"', '"name": "r"'))
    (tmp_path / "r" / "@labels.json").unlink()
    registry.import_folder(tmp_path, actor="mel")
    proposal = registry.request_move("r", "production", 2, actor="cem")
    reasons = {who: registry.refusal(proposal, who) for who in ("mel", "dan", "eve", "ann", "bob")}
    assert reasons == {
        "mel": "mel imported version 2", "dan": "dan wrote version 2", "ann": "ann wrote version 1", "bob": "",
        "eve": "eve sent feedback that version 2 rests on",
    }  # fmt: skip


@pytest.mark.parametrize("wrong", ["eve", {"king": ["eve"]}, {"author": "eve"}, {"author": [1]}])
def test_a_file_with_another_provenance_is_refused(registry: Registry, tmp_path: Path, wrong: Any) -> None:
    registry.export(tmp_path)
    side = tmp_path / "p" / "@1.json"
    side.write_text(json.dumps({**json.loads(side.read_text()), "provenance": wrong}))
    with pytest.raises(UsageError, match="provenance"):
        registry.import_folder(tmp_path, actor="mel")


def test_who_started_the_experiment_does_not_approve_a_request_that_waited(registry: Registry) -> None:
    registry.create("p", Prompt.parse("Two. {{q}}"), author="dan")
    waiting = registry.request_move("p", "production", 2, actor="dan")
    experiments, traffic = Experiments(registry.database, registry), Traffic(registry.database)
    goal = {"name": "thumb", "window": 1}
    arms = [{"version": 1}, {"version": 2}]
    definition = {
        "prompt": "p",
        "label": "production",
        "arms": arms,
        "control": 1,
        "goal": goal,
        "unit": "user",
    }
    made = experiments.create(definition, author="eve")
    (given,) = experiments.assignments("p")
    for n in range(200):
        version = version_for(given, f"u{n}")
        one = Inference("p", version, user=f"u{n}", experiment=made.id, variant=str(given["revision"]))
        traffic.add([one], [Feedback("thumb", one.id, float(version == 2), user=f"u{n}")])
    (ended,) = experiments.refresh(now=now() + 10**15)
    assert (ended.winner, ended.proposal) == (2, waiting.id)
    refused(registry, registry.proposal(waiting.id), "eve", "eve started the experiment behind this proposal")
    assert registry.decide(waiting.id, APPROVE, actor="bob").version == 2
