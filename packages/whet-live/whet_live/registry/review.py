"""Proposals: a change waits until somebody else approves it, changes it, or rejects it, one instruction at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from sqlalchemy import Connection

import whet_live.registry.registry_store as registry_store
from whet.errors import UsageError, did_you_mean
from whet_live.database import ListPage, iso, newest_first, time_of
from whet_live.registry.labels import LabelledPrompts
from whet_live.registry.ledgers import kept_events
from whet_live.registry.names import Address, check_actor, check_text
from whet_live.registry.proposals import (
    EDIT,
    REJECT,
    VERDICTS,
    Decision,
    Grounds,
    PromptEdit,
    ask_for_move,
    close,
    edit_of,
    file_proposal,
    finish,
    make,
    open_one,
    read_proposal,
    read_proposals,
    reject,
)
from whet_live.registry.provenance import (
    PROPOSER,
    THIS,
    behind_version,
    may_approve,
    other_names,
    without_sources,
)
from whet_live.registry.registry_tables import proposals
from whet_live.registry.values import APPROVED, EDITED, STATES, WITHDRAWN, Proposal


class Registry(LabelledPrompts):
    """Prompts in a database: immutable versions, labels that move, proposals, and everything that was ever done.

    Every change is one transaction with its entry in the audit log: a reader sees all of it or nothing, also when the
    process is killed in the middle. Threads may share a registry.
    """

    def propose(
        self,
        base: str,
        edit: PromptEdit,
        *,
        author: str,
        message: str = "",
        label: str | None = None,
        **grounds: Unpack[Grounds],
    ) -> Proposal:
        """File a change of the version at the address `base`; `label` moves to the new version when it is approved.

        Raises UsageError for a change that changes nothing or does not fit the version, EditRejected for one outside the
        fence.
        """
        with self.change() as connection:
            return file_proposal(
                connection, base, edit, author=author, message=message, label=label, **grounds
            )

    def request_move(
        self,
        name: str,
        label: str,
        version: int,
        *,
        actor: str,
        reason: str = "",
        evidence: Mapping[str, object] | None = None,
    ) -> Proposal:
        """Ask somebody else to put a label on a version that exists: what a protected label needs. Raises UsageError."""
        with self.change() as connection:
            return ask_for_move(
                connection, Address(name, label), version, actor=actor, reason=reason, evidence=evidence
            )

    def proposal(self, key: str) -> Proposal:
        """A proposal by its id. Raises UsageError for an unknown one."""
        with self.database.read() as connection:
            return read_proposal(connection, key)

    def proposals(
        self, *, state: str | None = None, name: str | None = None, before: str | None = None, limit: int = 50
    ) -> ListPage[Proposal]:
        """Proposals, the newest first: those in a state (open, approved, rejected, edited, withdrawn), of a prompt."""
        if state is not None and state not in STATES:
            raise UsageError(f'There is no state "{state}".{did_you_mean(state, STATES)}')
        query = newest_first(proposals.c.id, before, limit, state=state, name=name)
        with self.database.read() as connection:
            page = read_proposals(connection, connection.execute(query).all())
        return ListPage.of(page, limit, lambda proposal: proposal.id)

    def decide(self, key: str, decision: Decision, *, actor: str) -> Proposal:
        """Approve (in whole or in part), edit or reject an open proposal; returns it as it stands then.

        Approving makes the version and moves the label in one step, when the label still stands where the proposal was
        made. Nobody approves or edits what they shaped (`provenance.may_approve`). An edit is the editor's own: on a
        protected label it becomes a new proposal that somebody else has to approve (`successor`), elsewhere it is made at
        once. Rejecting needs a reason.

        Raises UsageError for a proposal that is decided, out of date, or shaped by the actor, and for parts it does not have.
        """
        check_actor(actor)
        if decision.verdict not in VERDICTS:
            raise UsageError(
                f'There is no verdict "{decision.verdict}".{did_you_mean(decision.verdict, VERDICTS)}'
            )
        check_text(decision.reason, "reason")
        with self.change() as connection:
            proposal = open_one(connection, key)
            if decision.verdict == REJECT:
                reject(connection, proposal, decision, actor)
            else:
                if why := _out_of_date(connection, proposal):
                    raise UsageError(f"{why} Propose it again on what stands there.")
                if reason := _refusal(connection, proposal, actor):
                    raise UsageError(f"{reason}; somebody else approves it.")
                (self._edit if decision.verdict == EDIT else self._approve)(
                    connection, proposal, decision, actor
                )
            return read_proposal(connection, key)

    def withdraw(self, key: str, *, actor: str, reason: str = "") -> Proposal:
        """Take an open proposal back: its author, or whoever replaces it by a newer one. Raises UsageError."""
        check_actor(actor)
        with self.change() as connection:
            proposal = open_one(connection, key)
            if proposal.author != actor:
                raise UsageError(
                    f"{proposal.author} made the proposal; only its author takes it back. Reject it instead."
                )
            close(connection, proposal, WITHDRAWN, actor, {"reason": check_text(reason, "reason")})
            return read_proposal(connection, key)

    def refusal(self, proposal: Proposal, actor: str) -> str:
        """Why somebody may neither approve nor edit a proposal: what they did for it. Empty when they may."""
        with self.database.read() as connection:
            return _refusal(connection, proposal, actor) or ""

    def out_of_date(self, proposal: Proposal) -> str:
        """Why an open proposal can only be rejected: its label stands elsewhere by now, or was taken away. Empty when it
        can be approved."""
        with self.database.read() as connection:
            return _out_of_date(connection, proposal)

    def _approve(self, connection: Connection, proposal: Proposal, decision: Decision, actor: str) -> None:
        if proposal.target is not None:
            if decision.kept is not None:
                raise UsageError("This is a request to move a label; it has no instructions to choose from.")
            target = registry_store.read_version(connection, Address(proposal.name, version=proposal.target))
            finish(connection, proposal, APPROVED, target, actor, decision)
            return
        base = registry_store.read_version(connection, Address(proposal.name, version=proposal.base))
        edit = PromptEdit(proposal.events, proposal.region, None if proposal.events else proposal.prompt)
        if decision.kept is not None:
            if not proposal.events:
                raise UsageError("This proposal is a text as a whole; it has no instructions to choose from.")
            reason = decision.reason or f"left out by {actor}"
            kept = kept_events(proposal.events, decision.kept, actor, iso(time_of(connection)), reason)
            edit = PromptEdit(kept, proposal.region)
        made = make(connection, proposal, base, edit, proposal.author, without_sources(proposal.provenance))
        finish(connection, proposal, APPROVED, made, actor, decision)

    def _edit(self, connection: Connection, proposal: Proposal, decision: Decision, actor: str) -> None:
        if proposal.target is not None:
            raise UsageError("A request to move a label has nothing to edit. Approve or reject it.")
        base = registry_store.read_version(connection, Address(proposal.name, version=proposal.base))
        edit = edit_of(proposal, decision, actor, iso(time_of(connection)))
        if proposal.label is None or not registry_store.is_protected(
            connection, proposal.name, proposal.label
        ):
            made = make(connection, proposal, base, edit, actor, proposal.provenance)
            finish(connection, proposal, EDITED, made, actor, decision)
            return
        successor = file_proposal(
            connection, f"{proposal.name}/{proposal.base}", edit, author=actor,
            message=decision.reason or proposal.message, label=proposal.label, evidence=proposal.evidence,
            run=proposal.run, config=proposal.config, provenance=proposal.provenance,
        )  # fmt: skip
        columns = {"reason": decision.reason, "successor": successor.id}
        close(connection, proposal, EDITED, actor, columns)


def _refusal(connection: Connection, proposal: Proposal, actor: str) -> str | None:
    """Why `actor` may not approve a proposal: that, or a version that its label would get to, is theirs in part."""
    own = {THIS: {PROPOSER: [proposal.author], **proposal.provenance}}
    names = other_names(connection, actor)
    if proposal.label is None:
        return may_approve(actor, own, names)
    where, version = Address(proposal.name, proposal.label), proposal.target or proposal.base
    return may_approve(actor, {**own, **behind_version(connection, where, version, actor)}, names)


def _out_of_date(connection: Connection, proposal: Proposal) -> str:
    if proposal.label is None:
        return ""
    stands = registry_store.read_labels(connection, proposal.name).get(proposal.label)
    if stands is not None:
        if stands == proposal.base:
            return ""
        return (
            f"{proposal.label} of {proposal.name} stands on version {stands} by now; the proposal was made when it stood on "
            f"{proposal.base}."
        )
    moves = registry_store.moves_of(connection, proposal.name, proposal.label, 1)
    if moves and moves[0].at >= proposal.created:
        return f"{proposal.label} of {proposal.name} was taken away after the proposal was made."
    return ""
