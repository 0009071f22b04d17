"""Proposals as rows and values, filed and closed inside a transaction of the registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Row, select, tuple_

import whet_live.registry.audit as audit
import whet_live.registry.registry_store as registry_store
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Event, event_to_json, from_json
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import write_ledger
from whet_live.database import new_id, time_of
from whet_live.registry.labels import ChangeActor, put_label
from whet_live.registry.ledgers import edited_events, kept_events, manageable, proposal_units
from whet_live.registry.names import Address, check_actor, check_label, check_text, parse_address
from whet_live.registry.provenance import AUTHOR, STARTER, Provenance, merge_names, of_events, without_sources
from whet_live.registry.registry_tables import proposals, versions
from whet_live.registry.values import OPEN, REJECTED, Proposal, Version, messages_of, prompt_from_messages
from whet_live.registry.versions import add_version, check_json, check_prompt

APPROVE, EDIT, REJECT = "approve", "edit", "reject"
PROBES, GIVEN = "probes", "given"
"""Keys of a proposal's evidence: answers to fixed questions before and after the change; what somebody sent as evidence, as
{"by": NAME, "evidence": ...}, which nobody here measured."""
VERDICTS = (APPROVE, EDIT, REJECT)


class Grounds(TypedDict, total=False):
    """The grounds of a proposal: measurements and statements, the gate's verdict, the run, the people who shaped it beside
    its author, and a config for the version."""

    evidence: Mapping[str, object] | None
    gate: Mapping[str, Any] | None
    run: Mapping[str, Any] | None
    config: Mapping[str, Any] | None
    provenance: Provenance | None


@dataclass(frozen=True)
class PromptEdit:
    """A change of a prompt: events that are added to the ledger of a region, or a whole new text."""

    events: tuple[Event, ...] = ()
    region: str = "instructions"
    prompt: Prompt | None = None


@dataclass(frozen=True)
class Decision:
    """A decision: the verdict with a reason, the instructions that are kept (None: all), and other texts for some of them by
    their ids, or for the whole prompt."""

    verdict: str
    reason: str = ""
    kept: Collection[str] | None = None
    texts: Mapping[str, str] | None = None
    prompt: Prompt | None = None


def file_proposal(
    connection: Connection,
    base: str,
    edit: PromptEdit,
    *,
    author: str,
    message: str = "",
    label: str | None = None,
    **grounds: Unpack[Grounds],
) -> Proposal:
    """`Registry.propose` inside a transaction of `change`."""
    version = registry_store.read_version(connection, parse_address(base))
    prompt = apply_edit(version, edit)
    if _is_same(prompt, version):
        raise UsageError(f"The proposal changes nothing of {version.address}.")
    check_prompt(prompt)
    row = {
        "name": version.name,
        "base": version.version,
        "label": None if label is None else check_label(label),
        "messages": messages_of(prompt),
        "region": edit.region,
        "events": [event_to_json(event) for event in edit.events],
        "author": check_actor(author),
        "message": check_text(message, "message"),
        "evidence": check_json(grounds.get("evidence"), "evidence"),
        "gate": check_json(grounds.get("gate"), "gate verdict"),
        "run": check_json(grounds.get("run"), "run"),
        "config": None if grounds.get("config") is None else check_json(grounds["config"], "config"),
        "provenance": merge_names(of_events(edit.events), grounds.get("provenance")),
    }
    return file(connection, row)


def apply_edit(version: Version, edit: PromptEdit) -> Prompt:
    """The text that an edit leads to. Raises UsageError or EditRejected."""
    if edit.prompt is not None:
        if edit.events:
            raise UsageError("Give events or a text, not both.")
        return edit.prompt
    start = manageable(version.prompt)
    start.region(edit.region)
    before = version.ledgers.get(edit.region, ())
    return write_ledger(start, fold_events([*before, *edit.events]), edit.region)


def _is_same(prompt: Prompt, version: Version) -> bool:
    """Whether a text is the version's, or that with an empty fence."""
    return prompt == version.prompt or (
        not version.prompt.fenced
        and len(version.prompt.messages) == 1
        and prompt == manageable(version.prompt)
    )


def edit_of(proposal: Proposal, decision: Decision, actor: str, at: str) -> PromptEdit:
    """The proposal's change with the texts that the decision gives, at an ISO time."""
    if decision.prompt is not None:
        return PromptEdit((), proposal.region, decision.prompt)
    if not decision.texts or not proposal.events:
        raise UsageError(
            "An edit needs the new text of an instruction of the proposal, or of the whole prompt."
        )
    events = proposal.events
    if decision.kept is not None:
        kept = {*decision.kept, *decision.texts}
        events = kept_events(events, kept, actor, at, decision.reason or f"left out by {actor}")
    return PromptEdit(edited_events(events, decision.texts, actor, at), proposal.region)


def make(
    connection: Connection,
    proposal: Proposal,
    base: Version,
    edit: PromptEdit,
    author: str,
    provenance: Provenance,
) -> Version:
    """The version that a proposal becomes."""
    prompt = apply_edit(base, edit)
    if _is_same(prompt, base):
        raise UsageError("Nothing of the proposal is left. Reject it instead.")
    ledgers = {edit.region: (*base.ledgers.get(edit.region, ()), *edit.events)} if edit.events else None
    return add_version(
        connection, proposal.name, prompt, author=author, message=proposal.message, config=proposal.config, parent=proposal.base,
        run=proposal.run, evidence=_evidence(proposal), ledgers=ledgers, proposal=proposal.id,
        provenance=provenance,
    )  # fmt: skip


def _evidence(proposal: Proposal) -> Mapping[str, object] | None:
    """The evidence of the version. Answers stay with the proposal, because they may quote users."""
    gate = {} if proposal.gate is None else {"gate": dict(proposal.gate)}
    return {
        **{key: value for key, value in (proposal.evidence or {}).items() if key != PROBES},
        **gate,
    } or None


def finish(
    connection: Connection, proposal: Proposal, state: str, made: Version, actor: str, decision: Decision
) -> None:
    """Close a proposal whose version stands, and move its label there."""
    kept = None if decision.kept is None else sorted(decision.kept)
    close(
        connection, proposal, state, actor, {"reason": decision.reason, "kept": kept, "version": made.version}
    )
    if proposal.label is not None:
        by = ChangeActor(actor, decision.reason or proposal.message, proposal.id)
        put_label(connection, registry_store.MOVE, Address(proposal.name, proposal.label), made.version, by)


def reject(connection: Connection, proposal: Proposal, decision: Decision, actor: str) -> None:
    """Close a proposal with the reason why not. Raises UsageError without one."""
    if not decision.reason.strip():
        raise UsageError("A rejection needs a reason: whoever made the proposal learns from it.")
    close(connection, proposal, REJECTED, actor, {"reason": decision.reason})


def ask_for_move(
    connection: Connection,
    where: Address,
    version: int,
    *,
    actor: str,
    reason: str = "",
    evidence: Mapping[str, object] | None = None,
) -> Proposal:
    """File the request to put the label `where` on a version that exists. Raises UsageError where it stands there."""
    label = check_label(str(where.label))
    target = registry_store.read_version(connection, Address(where.name, version=version))
    standing = registry_store.read_labels(connection, where.name)
    if standing.get(label) == version:
        raise UsageError(f"{label} of {where.name} stands on version {version} already.")
    row = {
        "name": where.name,
        "base": standing.get(label, version),
        "label": label,
        "target": version,
        "messages": messages_of(target.prompt),
        "region": "",
        "events": [],
        "author": check_actor(actor),
        "message": check_text(reason, "reason"),
        "evidence": check_json(evidence, "evidence"),
    }
    return file(connection, row)


def open_request(connection: Connection, where: Address, version: int) -> str | None:
    """The id of the request that waits to put a label on a version, the newest."""
    wanted = {"name": where.name, "label": where.label, "target": version, "state": OPEN}
    query = select(proposals.c.id).filter_by(**wanted).order_by(proposals.c.id.desc())
    request_id: str | None = connection.execute(query).scalars().first()
    return request_id


def rest_on_experiment(connection: Connection, key: str, starter: str) -> None:
    """Note on a request that waits who started the experiment that asks for the same."""
    shaped = merge_names(read_proposal(connection, key).provenance, {STARTER: [starter]})
    connection.execute(proposals.update().where(proposals.c.id == key).values(provenance=shaped))


def file(connection: Connection, row: Mapping[str, Any]) -> Proposal:
    """Write a new proposal down; `row` are its columns."""
    moment, key = time_of(connection), new_id()
    shaped = merge_names({AUTHOR: [row["author"]]}, row.get("provenance"))
    values = {**row, "id": key, "state": OPEN, "created": moment, "provenance": shaped}
    connection.execute(proposals.insert().values(values))
    details = {"proposal": key, **{k: row.get(k) for k in ("base", "label", "target", "message")}}
    action = "proposal.create" if row.get("target") is None else "move.request"
    audit.append_entry(
        connection, actor=row["author"], action=action, subject=row["name"], details=details, at=moment
    )
    return read_proposal(connection, key)


def close(
    connection: Connection, proposal: Proposal, state: str, actor: str, columns: Mapping[str, Any]
) -> None:
    """Write down what was decided about an open proposal."""
    moment = time_of(connection)
    closed = proposals.update().where(proposals.c.id == proposal.id, proposals.c.state == OPEN)
    left = without_sources(proposal.provenance)
    connection.execute(closed.values(state=state, decided=moment, decider=actor, provenance=left, **columns))
    details = {"proposal": proposal.id, **columns}
    audit.append_entry(
        connection, actor=actor, action=f"proposal.{state}", subject=proposal.name, details=details, at=moment
    )


def read_proposal(connection: Connection, key: str) -> Proposal:
    """A proposal by its id. Raises UsageError for an unknown one."""
    row = connection.execute(select(proposals).where(proposals.c.id == key)).one_or_none()
    if row is None:
        raise UsageError(f'There is no proposal "{key[:80]}". List them with: whet prompts proposals.')
    return read_proposals(connection, [row])[0]


def open_one(connection: Connection, key: str) -> Proposal:
    """A proposal that waits for a decision. Raises UsageError for an unknown or decided one."""
    proposal = read_proposal(connection, key)
    if proposal.state != OPEN:
        raise UsageError(f"The proposal is {proposal.state} already, by {proposal.decider}.")
    return proposal


def read_proposals(connection: Connection, rows: Sequence[Row[Any]]) -> list[Proposal]:
    """Rows of `proposals` as values, with their parts."""
    wanted = {(row.name, row.base) for row in rows if row.events}
    query = select(versions.c.name, versions.c.version, versions.c.ledger).where(
        tuple_(versions.c.name, versions.c.version).in_(wanted)
    )
    ledgers = {(row.name, row.version): row.ledger for row in connection.execute(query)} if wanted else {}
    return [_value(row, ledgers.get((row.name, row.base), {}).get(row.region, ())) for row in rows]


def _value(row: Row[Any], before: Sequence[Mapping[str, object]]) -> Proposal:
    columns = dict(row._mapping)
    events = tuple(from_json(event) for event in columns.pop("events"))
    kept = columns.pop("kept")
    return Proposal(
        prompt=prompt_from_messages(columns.pop("messages")),
        events=events,
        units=proposal_units([from_json(event) for event in before], events) if events else (),
        kept=None if kept is None else tuple(kept),
        provenance=columns.pop("provenance") or {AUTHOR: [row.author]},
        **columns,
    )
