"""The people who shaped a change: kept with every proposal and version, and held against whoever would approve it.

Provenance is names by role. What a version was made from counts as well, back to clean ground: a version that somebody else
approved, or the one on which the label stands already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, Text, cast, func, select

from whet.errors import UsageError
from whet.prompt.events import Event, Merge, Resolve
from whet.search.copies import normalize_wording
from whet_live.database import identities
from whet_live.registry.names import Address
from whet_live.registry.registry_store import read_labels
from whet_live.registry.registry_tables import proposals, versions
from whet_live.registry.values import APPROVED

PROPOSER, AUTHOR, ACCEPTER, MERGER = "proposer", "author", "accepter", "merger"
IMPORTER, STARTER, SOURCE = "importer", "starter", "source"
Provenance = Mapping[str, Sequence[str]]
"""Names by role."""
THIS = "this proposal"

_DEEDS = {
    PROPOSER: ("made", ""),
    AUTHOR: ("wrote", ""),
    ACCEPTER: ("accepted a demand that", " rests on"),
    MERGER: ("joined instructions of", ""),
    IMPORTER: ("imported", ""),
    STARTER: ("started the experiment behind", ""),
    SOURCE: ("sent feedback that", " rests on"),
}


def may_approve(actor: str, provenance: Mapping[str, Provenance], others: Collection[str] = ()) -> str | None:
    """Why somebody may not approve, as in "eve wrote version 3"; None where they may. `provenance` holds that of each thing
    that the change is made of, by what the thing is called.

    The user of an app who has the name of an account is that account. Names that differ only in case, blanks, width or
    invisible characters are one. `others` are the actor's other names (`other_names`).
    """
    who = {normalize_wording(name) for name in (actor, *others)}
    for thing, roles in provenance.items():
        for role, names in roles.items():
            if any(normalize_wording(name) in who for name in names):
                deed, rest = _DEEDS[role]
                return f"{actor} {deed} {thing}{rest}"
    return None


def other_names(connection: Connection, actor: str) -> list[str]:
    """Other names of a person: the address with which the account signs in at the identity provider, and the account that
    signs in with the address `actor`."""
    name = actor.strip().lower()
    query = select(identities.c.user, identities.c.email)
    query = query.where((func.lower(identities.c.user) == name) | (identities.c.email == name))
    return [other for row in connection.execute(query) for other in row]


def merge_names(*parts: Provenance | None) -> dict[str, list[str]]:
    """All names of several provenances, by role."""
    roles: dict[str, list[str]] = {}
    for part in parts:
        for role, names in (part or {}).items():
            roles[role] = list(dict.fromkeys([*roles.get(role, ()), *(name for name in names if name)]))
    return {role: roles[role] for role in _DEEDS if roles.get(role)}


def of_events(events: Iterable[Event]) -> dict[str, list[str]]:
    """The people who wrote the events of a ledger, and those who joined instructions."""
    parts = ({MERGER if isinstance(event, Merge | Resolve) else AUTHOR: [event.author]} for event in events)
    return merge_names(*parts)


def without_sources(provenance: Provenance) -> dict[str, list[str]]:
    """Provenance without the names of users: they are kept only as long as somebody may still have to be refused."""
    return merge_names({role: names for role, names in provenance.items() if role != SOURCE})


def read_provenance(value: Any) -> dict[str, list[str]]:
    """Provenance as a file holds it; nothing where it holds none. Raises UsageError."""
    if not isinstance(value or {}, Mapping):
        raise UsageError("the provenance must be an object of names by role.")
    for role, names in (value or {}).items():
        if role not in _DEEDS or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise UsageError(
                f'the provenance cannot hold "{str(role)[:40]}"; its roles are {", ".join(_DEEDS)}.'
            )
    return merge_names(value)


def behind_version(connection: Connection, where: Address, version: int, actor: str) -> dict[str, Provenance]:
    """The provenance of a version and of those that it was made from, back to clean ground as `actor` has it: what the actor
    alone approved is none. `where` names the prompt and the label that is to stand there."""
    approved = select(proposals.c.version, proposals.c.decider)
    approved = approved.where(proposals.c.name == where.name, proposals.c.state == APPROVED)
    own = {normalize_wording(name) for name in (actor, *other_names(connection, actor))}
    others = [row for row in connection.execute(approved) if normalize_wording(row.decider) not in own]
    known = {row.version for row in others} | {read_labels(connection, where.name).get(str(where.label), 0)}
    columns = versions.c.version, versions.c.parent, versions.c.author, versions.c.provenance
    query = select(*columns).where(versions.c.name == where.name, versions.c.version <= version)
    rows = {row.version: row for row in connection.execute(query)}
    behind: dict[str, Provenance] = {}
    number: int | None = version
    while number is not None and number not in known:
        row = rows[number]
        behind[f"version {number}"] = row.provenance or {AUTHOR: [row.author]}
        number = row.parent
    return behind


def replace_source(connection: Connection, user: str, by: str) -> None:
    """Take the name of a user out of every provenance, because their data is deleted. Who deletes it stands in their place, so
    that nobody makes themselves clean."""
    name = normalize_wording(user)
    for table, keys in ((versions, (versions.c.name, versions.c.version)), (proposals, (proposals.c.id,))):
        quoted = cast(table.c.provenance, Text).contains(orjson.dumps(name).decode(), autoescape=True)
        for row in connection.execute(select(table.c.provenance, *keys).where(quoted)).all():
            roles = dict(row.provenance)
            if name in roles.get(SOURCE, ()):
                roles[SOURCE] = [by if role == name else role for role in roles[SOURCE]]
                here = [key == row._mapping[key] for key in keys]
                connection.execute(table.update().where(*here).values(provenance=merge_names(roles)))
