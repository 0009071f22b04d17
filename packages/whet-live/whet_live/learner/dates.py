"""Carries out what a person ordered for instructions: dates on which they leave or return, and the return of one that has left.

On a label that moves freely, this makes a version and moves the label. On a protected label, it files a proposal, which somebody
else than the person who set the dates must approve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from whet.prompt.events import Restore
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import write_ledger
from whet.types import content_hash
from whet_live.database import iso
from whet_live.learner import learner_store
from whet_live.learner.context import AUTHOR, LearnerContext, region_of
from whet_live.learner.learner_store import LearnerSettings, PromptUpdate
from whet_live.learner.leases import Lease
from whet_live.learner.terms import events_of_dates, read_terms
from whet_live.registry import Address, PromptEdit, Version
from whet_live.registry.labels import ChangeActor, put_label
from whet_live.registry.ledgers import manageable
from whet_live.registry.proposals import file_proposal
from whet_live.registry.provenance import ACCEPTER, Provenance
from whet_live.registry.registry_store import MOVE, is_protected, read_labels, read_version
from whet_live.registry.versions import add_version

DATES = "dates"
"""The step of upkeep that carries dates out."""


@dataclass(frozen=True)
class Carried:
    """The result of a change that a person ordered: the version on which the label stands now, or the proposal that waits."""

    version: int | None = None
    proposal: str | None = None

    def as_json(self) -> dict[str, object]:
        """The values as JSON."""
        return asdict(self)


def apply_dates(
    context: LearnerContext, name: str, settings: LearnerSettings, lease: Lease
) -> PromptUpdate | None:
    """Carry out the dates of a prompt's instructions that are due, once for each version. None if nothing is due."""
    base = context.base(name, settings)
    if base is None:
        return None
    region = region_of(base, settings)
    ledger, today, now = base.ledger(region), context.today(), context.database.read_time()
    with context.database.read() as connection:
        terms = read_terms(connection, name, region, ledger)
        known = learner_store.read_updates(connection, name)
    events = events_of_dates(ledger, terms, today, AUTHOR, iso(now))
    plan = {
        "step": DATES,
        "out": [event.id for event in events if not isinstance(event, Restore)],  # type: ignore[attr-defined]
        "back": [event.id for event in events if isinstance(event, Restore)],
    }
    done = any(one.base == base.version and one.plan == plan for one in known)
    if not events or done:
        return None
    setters = [terms[key].actor for key in (*plan["out"], *plan["back"])]
    message = (
        f"{_describe(plan['out'], 'leaves', 'leave')}{_describe(plan['back'], 'is back', 'are back')}by date"
    )
    key = content_hash([name, base.version, plan, now])
    update = PromptUpdate(key, name, base.version, settings.mode, learner_store.OPEN, (), now, plan=plan)
    with context.registry.change() as connection:
        lease.check(connection)
        if read_labels(connection, name).get(settings.label) != base.version:
            return None
        learner_store.open_update(connection, update)
        change = PromptEdit(tuple(events), region)
        carried = carry_out(
            connection, base, change, settings.label, ChangeActor(AUTHOR, message), {ACCEPTER: setters}
        )
        outcome = learner_store.MOVED if carried.proposal is None else learner_store.PROPOSED
        return learner_store.close_update(
            connection, update, outcome, reason=message, version=carried.version, proposal=carried.proposal
        )


def _describe(ids: Sequence[str], one: str, several: str) -> str:
    return f"{', '.join(ids)} {one if len(ids) == 1 else several} " if ids else ""


def restore(
    context: LearnerContext, name: str, settings: LearnerSettings, base: Version, key: str, by: ChangeActor
) -> Carried:
    """Put an instruction that has left back into the prompt, as a person orders. Raises UsageError for an instruction that is
    in the prompt, or that is unknown."""
    region = region_of(base, settings)
    event = Restore(id=key, reason=by.reason, author=by.actor, at=iso(context.database.read_time()))
    fold_events([*base.ledgers.get(region, ()), event])
    message = by.reason or f"{key} is back"
    with context.registry.change() as connection:
        current = read_version(connection, Address(name, version=base.version))
        change = PromptEdit((event,), region)
        return carry_out(connection, current, change, settings.label, ChangeActor(by.actor, message))


def carry_out(
    connection: Connection,
    base: Version,
    change: PromptEdit,
    label: str,
    by: ChangeActor,
    provenance: Provenance | None = None,
) -> Carried:
    """Apply a change to the version under a label. A free label moves to the new version; for a protected label, the change is
    proposed."""
    name = base.name
    if is_protected(connection, name, label):
        filed = file_proposal(
            connection, f"{name}/{base.version}", change, author=by.actor, message=by.reason, label=label,
            evidence={"upkeep": {"reason": by.reason}}, provenance=provenance,
        )  # fmt: skip
        return Carried(proposal=filed.id)
    events = (*base.ledgers.get(change.region, ()), *change.events)
    prompt = write_ledger(manageable(base.prompt), fold_events(events), change.region)
    made = add_version(
        connection, name, prompt, author=by.actor, message=by.reason, parent=base.version, ledgers={change.region: events},
        provenance=provenance,
    )  # fmt: skip
    put_label(connection, MOVE, Address(name, label), made.version, by)
    return Carried(version=made.version)
