"""Versions of prompts and the audit log: what is only ever added to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

import orjson
from sqlalchemy import Connection, select

import whet.live.registry.audit as audit
import whet.live.registry.registry_store as registry_store
from whet.client.records import checked_depth
from whet.errors import UsageError
from whet.live.database import Database, iso, now
from whet.live.registry.audit import AuditEntry, AuditVerdict, Seal, config_hash, held_to_log
from whet.live.registry.ledgers import added, check_ledgers, ledgers_of
from whet.live.registry.names import Address, check_actor, check_name, check_role, check_text, parse_address
from whet.live.registry.provenance import AUTHOR, Provenance, joined, of_events
from whet.live.registry.registry_tables import versions
from whet.live.registry.values import Difference, Ledgers, ListPage, Summary, Version
from whet.prompt import Prompt, unified_diff
from whet.prompt.ledger import changes

LONGEST_PROMPT, LONGEST_CONFIG = 1_000_000, 100_000
MOST = 500
"""The most rows of a page."""


class Origin(TypedDict, total=False):
    """Where a version comes from: its parent, the run or file, what was measured, events by region that lead to its text,
    the proposal that brought it, and who else than its author shaped it."""

    parent: int | None
    run: Mapping[str, Any] | None
    evidence: Mapping[str, Any] | None
    ledgers: Ledgers | None
    proposal: str | None
    provenance: Provenance | None


class VersionStore:
    """Prompts with their versions in a database, to be read."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, address: str) -> Version:
        """The version that `prompts:/NAME@LABEL`, `prompts:/NAME/3`, `NAME@LABEL` or `NAME:LABEL` means.

        Without a label or number it is `production`; `latest` is the newest. Raises UsageError when there is none.
        """
        place = parse_address(address)
        with self.database.read() as connection:
            return registry_store.read_version(connection, place)

    def exists(self, name: str) -> bool:
        """Whether there is a prompt of that name."""
        with self.database.read() as connection:
            return registry_store.newest(connection, name) is not None

    def prompts(
        self, query: str = "", *, label: str | None = None, after: str | None = None, limit: int = 50
    ) -> ListPage[Summary]:
        """Prompts in the order of their names: those whose name contains `query` in any case and on which `label`
        stands. `after` continues a page."""
        count = checked(limit)
        with self.database.read() as connection:
            rows = registry_store.summaries(connection, query, label, after, count + 1)
        return ListPage(rows[:count], rows[count - 1].name if len(rows) > count else None)

    def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> ListPage[Version]:
        """Versions of a prompt, the newest first; `before` continues a page. Raises UsageError for an unknown name."""
        count = checked(limit)
        with self.database.read() as connection:
            standing = registry_store.labels_of(connection, name)
            query = select(versions).where(versions.c.name == name).order_by(versions.c.version.desc())
            if before is not None:
                query = query.where(versions.c.version < before)
            rows = connection.execute(query.limit(count + 1)).all()
        page = [registry_store.version_of(row, standing) for row in rows]
        return ListPage(page[:count], str(page[count - 1].version) if len(page) > count else None)

    def diff(self, before: str, after: str) -> Difference:
        """Two versions (addresses) beside each other."""
        old, new = self.get(before), self.get(after)
        regions = [region for region in new.ledgers if region in old.ledgers]
        by_region = {region: changes(old.ledger(region), new.ledger(region)) for region in regions}
        return Difference(
            old, new, unified_diff(old.prompt, new.prompt), {r: c for r, c in by_region.items() if c}
        )

    def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> ListPage[AuditEntry]:
        """What was done, the newest first: to a prompt (`subject`), by somebody (`actor`)."""
        count = checked(limit)
        with self.database.read() as connection:
            entries = audit.entries(connection, subject=subject, actor=actor, before=before, limit=count + 1)
        return ListPage(entries[:count], str(entries[count - 1].seq) if len(entries) > count else None)

    def verify_audit(self, seal: Seal | None = None) -> AuditVerdict:
        """Whether the audit log is whole, and still holds what an older seal says; names the first row that is not.

        A version whose text or config is not the one that the log records is a change as well, and so is a label or a
        protection that does not stand where the log says.
        """
        with self.database.read() as connection:
            verdict = audit.verify(connection, seal)
            return held_to_log(connection, verdict) if verdict.whole else verdict

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A transaction that changes the registry; changes happen one after the other, in the order of the audit log."""
        with self.database.begin() as connection:
            audit.lock(connection)
            yield connection


def add_version(
    connection: Connection,
    name: str,
    prompt: Prompt,
    *,
    author: str,
    message: str = "",
    config: Mapping[str, Any] | None = None,
    **origin: Unpack[Origin],
) -> Version:
    """What `create` does, inside a transaction of `change`."""
    check_name(name)
    check_actor(author)
    check_prompt(prompt)
    base = _base(connection, name, prompt, config, origin.get("parent"))
    settings = check_json(config if config is not None or base is None else base.config, "config")
    ledgers: Ledgers = origin.get("ledgers") or {}
    check_ledgers(prompt, ledgers)
    before = base.ledgers if base is not None else {}
    new = [event for region, events in ledgers.items() for event in added(before.get(region, ()), events)]
    ledgers = {**before, **ledgers}
    moment = now()
    columns = {
        "config": settings,
        "parent": None if base is None else base.version,
        "author": author,
        "message": check_text(message, "message"),
        "created": moment,
        "run": check_json(origin.get("run"), "run"),
        "evidence": check_json(origin.get("evidence"), "evidence"),
        "proposal": origin.get("proposal"),
        "provenance": joined({AUTHOR: [author]}, of_events(new), origin.get("provenance")),
    }
    number = registry_store.write_version(
        connection, name, prompt, ledgers_of(prompt, ledgers, author, iso(moment)), columns
    )
    details = {
        "version": number,
        "prompt": prompt.id,
        "config": config_hash(settings or {}),
        **{k: columns[k] for k in ("parent", "message", "proposal")},
    }
    audit.append(connection, actor=author, action="version.create", subject=name, details=details, at=moment)
    return registry_store.read_version(connection, Address(name, version=number))


def _base(
    connection: Connection, name: str, prompt: Prompt, config: Mapping[str, Any] | None, parent: int | None
) -> Version | None:
    """The version that a new one is made from, None for a new prompt. Raises UsageError when nothing would be new."""
    last = registry_store.newest(connection, name)
    if last is None:
        if parent is not None:
            raise UsageError(f"{name} is new; it has no version {parent} to be made from.")
        return None
    base = registry_store.read_version(connection, Address(name, version=last if parent is None else parent))
    latest = registry_store.read_version(connection, Address(name, version=last))
    if latest.prompt == prompt and latest.config == dict(base.config if config is None else config):
        raise UsageError(f"This is version {last} of {name} already, with the same config. Nothing is added.")
    return base


def check_prompt(prompt: Prompt) -> None:
    """Raise UsageError for a prompt that cannot be stored."""
    for message in prompt.messages:
        check_role(message.role, alone=len(prompt.messages) == 1)
    text = "".join(m.content for m in prompt.messages)
    if len(text) > LONGEST_PROMPT:
        raise UsageError(f"The prompt has {len(text):,} characters; at most {LONGEST_PROMPT:,} are allowed.")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(
            "The prompt holds half a surrogate pair, which no file can hold. Correct its encoding."
        )
    Prompt.from_messages(prompt.messages)


def check_json(value: Mapping[str, Any] | None, what: str) -> dict[str, Any] | None:
    """An object that can be stored as JSON; an empty one for no config. Raises UsageError."""
    if value is None:
        return {} if what == "config" else None
    try:
        size = len(orjson.dumps(dict(value)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The {what} is no JSON object: {error}.") from error
    checked_depth(value, f"The {what}")
    if size > LONGEST_CONFIG and what == "config":
        raise UsageError(f"The config has {size:,} bytes; at most {LONGEST_CONFIG:,} are allowed.")
    return dict(value)


def checked(limit: int) -> int:
    """The number of rows of a page. Raises UsageError."""
    if not 1 <= limit <= MOST:
        raise UsageError(f"A page has 1 to {MOST} rows, not {limit}.")
    return limit
