"""Versions of prompts and the audit log. Both only ever grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypedDict, Unpack

import orjson
from sqlalchemy import Connection

import whet_live.registry.audit as audit
import whet_live.registry.registry_store as registry_store
from whet.errors import UsageError
from whet.prompt import Prompt, unified_diff
from whet.prompt.ledger import changes
from whet_client.media import is_known
from whet_client.records import checked_depth
from whet_live.database import Database, ListPage, iso, newest_first, one_more, time_of
from whet_live.registry.audit import AuditCheckpoint, AuditEntry, AuditVerdict, config_hash, held_to_log
from whet_live.registry.ledgers import check_ledgers, events_added, ledgers_of
from whet_live.registry.names import (
    DEFAULT_LABEL,
    Address,
    check_actor,
    check_name,
    check_role,
    check_text,
    parse_address,
)
from whet_live.registry.provenance import AUTHOR, Provenance, merge_names, of_events
from whet_live.registry.registry_tables import audit as audit_rows
from whet_live.registry.registry_tables import versions
from whet_live.registry.values import ChangedSetting, Difference, Ledgers, Summary, Version

LONGEST_PROMPT, LONGEST_CONFIG = 1_000_000, 100_000


class Origin(TypedDict, total=False):
    """The origin of a version."""

    parent: int | None
    """The version that it was made from; None: the newest."""
    run: Mapping[str, object] | None
    """The run folder or file."""
    evidence: Mapping[str, object] | None
    """The measurements."""
    ledgers: Ledgers | None
    """By region, the events that lead to its text."""
    proposal: str | None
    """The id of the proposal that brought it."""
    provenance: Provenance | None
    """The people who shaped the version besides its author, by role."""


class VersionStore:
    """Reads prompts and their versions from a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, address: str) -> Version:
        """The version that `prompts:/NAME@LABEL`, `prompts:/NAME/3`, `NAME@LABEL` or `NAME:LABEL` means.

        Without a label or number it is `production`; `latest` is the newest. Raises UsageError when there is none.
        """
        place = parse_address(address)
        with self.database.read() as connection:
            return registry_store.read_version(connection, place)

    def current(self, name: str) -> Version | None:
        """The version that applications get: that in production, else the newest; None where there is no such prompt."""
        with self.database.read() as connection:
            return current_version(connection, name)

    def exists(self, name: str) -> bool:
        """Whether there is a prompt of that name."""
        with self.database.read() as connection:
            return registry_store.newest(connection, name) is not None

    def prompts(
        self, query: str = "", *, label: str | None = None, after: str | None = None, limit: int = 50
    ) -> ListPage[Summary]:
        """Prompts in the order of their names: those whose name contains `query` in any case and on which `label`
        stands (`latest` stands on every one). `after` continues a page."""
        with self.database.read() as connection:
            rows = registry_store.summaries(connection, query, label, after, one_more(limit))
        return ListPage.of(rows, limit, lambda row: row.name)

    def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> ListPage[Version]:
        """Versions of a prompt, the newest first; `before` continues a page. Raises UsageError for an unknown name."""
        query = newest_first(versions.c.version, before, limit, name=name)
        with self.database.read() as connection:
            standing = registry_store.read_labels(connection, name)
            page = [registry_store.version_from_row(row, standing) for row in connection.execute(query)]
        return ListPage.of(page, limit, lambda one: one.version)

    def diff(self, before: str, after: str) -> Difference:
        """Two versions (addresses) beside each other."""
        old, new = self.get(before), self.get(after)
        regions = [region for region in new.ledgers if region in old.ledgers]
        by_region = {region: changes(old.ledger(region), new.ledger(region)) for region in regions}
        return Difference(
            old,
            new,
            unified_diff(old.prompt, new.prompt),
            {r: c for r, c in by_region.items() if c},
            tuple(_changed_settings(old.config, new.config)),
        )

    def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> ListPage[AuditEntry]:
        """The entries of the audit log, the newest first: about a prompt (`subject`), by somebody (`actor`)."""
        query = newest_first(audit_rows.c.seq, before, limit, subject=subject, actor=actor)
        with self.database.read() as connection:
            return ListPage.of(audit.entries(connection, query), limit, lambda entry: entry.seq)

    def verify_audit(self, seal: AuditCheckpoint | None = None) -> AuditVerdict:
        """Whether the audit log is whole and still holds what an older seal says. The verdict names the first row that is wrong.

        A version whose text or config differs from the log is wrong too, and so is a label or a protection that is not where
        the log says.
        """
        with self.database.read() as connection:
            verdict = audit.verify(connection, seal)
            return held_to_log(connection, verdict) if verdict.whole else verdict

    def change(self) -> AbstractContextManager[Connection]:
        """A transaction that changes the registry; changes happen one after the other, in the order of the audit log."""
        return audit.audited_transaction(self.database)


def _changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ChangedSetting]:
    """The keys of two configs whose JSON values differ, in the order of the new config, those that are gone last."""
    for key in [*new, *(key for key in old if key not in new)]:
        if key not in old or key not in new or config_hash({key: old[key]}) != config_hash({key: new[key]}):
            yield ChangedSetting(key, key in old, old.get(key), key in new, new.get(key))


def current_version(connection: Connection, name: str) -> Version | None:
    """`VersionStore.current` inside a transaction."""
    if registry_store.newest(connection, name) is None:
        return None
    standing = registry_store.read_labels(connection, name)
    number = standing.get(DEFAULT_LABEL, standing["latest"])
    return registry_store.read_version(connection, Address(name, version=number))


def add_version(
    connection: Connection,
    name: str,
    prompt: Prompt,
    *,
    author: str,
    message: str = "",
    config: Mapping[str, object] | None = None,
    **origin: Unpack[Origin],
) -> Version:
    """`create` inside a transaction of `change`."""
    check_name(name)
    check_actor(author)
    check_prompt(prompt)
    ledgers: Ledgers = origin.get("ledgers") or {}
    base = _base(connection, name, origin.get("parent"))
    settings = check_json(config if config is not None or base is None else base.config, "config")
    if origin.get("proposal") is None:
        _refuse_same(connection, name, prompt, settings or {}, ledgers)
    check_ledgers(prompt, ledgers)
    before = base.ledgers if base is not None else {}
    new = [
        event for region, events in ledgers.items() for event in events_added(before.get(region, ()), events)
    ]
    ledgers = {**before, **ledgers}
    moment = time_of(connection)
    columns = {
        "config": settings,
        "parent": None if base is None else base.version,
        "author": author,
        "message": check_text(message, "message"),
        "created": moment,
        "run": check_json(origin.get("run"), "run"),
        "evidence": check_json(origin.get("evidence"), "evidence"),
        "proposal": origin.get("proposal"),
        "provenance": merge_names({AUTHOR: [author]}, of_events(new), origin.get("provenance")),
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
    audit.append_entry(
        connection, actor=author, action="version.create", subject=name, details=details, at=moment
    )
    return registry_store.read_version(connection, Address(name, version=number))


def _base(connection: Connection, name: str, parent: int | None) -> Version | None:
    """The version that a new version is made from; None for a new prompt. Raises UsageError for a version that does not exist."""
    last = registry_store.newest(connection, name)
    if last is None:
        if parent is not None:
            raise UsageError(f"{name} is new; it has no version {parent} to be made from.")
        return None
    return registry_store.read_version(connection, Address(name, version=last if parent is None else parent))


def _refuse_same(
    connection: Connection, name: str, prompt: Prompt, config: Mapping[str, object], ledgers: Ledgers
) -> None:
    """Raise UsageError if text, config and given ledgers are those of the newest version."""
    last = registry_store.newest(connection, name)
    if last is None:
        return
    latest = registry_store.read_version(connection, Address(name, version=last))
    same = latest.prompt == prompt and config_hash(latest.config) == config_hash(config)
    if same and all(tuple(latest.ledgers.get(one, ())) == tuple(events) for one, events in ledgers.items()):
        raise UsageError(f"This is version {last} of {name} already, with the same config. Nothing is added.")


def check_prompt(prompt: Prompt) -> None:
    """Raise UsageError for a prompt that cannot be stored."""
    for message in prompt.messages:
        check_role(message.role, alone=len(prompt.messages) == 1)
    if (lost := next((mark for mark in prompt.marks if not is_known(mark)), None)) is not None:
        raise UsageError(
            f"The prompt holds {lost[:28]}...]], and there is no content with this hash. Give the content as a data URL: "
            "[[whet:image:data:image/png;base64,...]]."
        )
    text = "".join(m.content for m in prompt.portable.messages)
    if len(text) > LONGEST_PROMPT:
        beside = ", its images, sounds and files included" if prompt.marks else ""
        raise UsageError(
            f"The prompt has {len(text):,} characters{beside}; at most {LONGEST_PROMPT:,} are allowed."
        )
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(
            "The prompt holds half a surrogate pair, which no file can hold. Correct its encoding."
        )
    Prompt.from_messages(prompt.messages)


def _refuse_value(value: object) -> object:
    raise TypeError(f"{value!r} is no JSON value")


def check_json(value: Mapping[str, object] | None, what: str) -> dict[str, object] | None:
    """An object that can be stored as JSON; an empty one for no config. Raises UsageError."""
    if value is None:
        return {} if what == "config" else None
    try:
        json.dumps(dict(value), allow_nan=False, default=_refuse_value)
        size = len(orjson.dumps(dict(value)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The {what} is no JSON object: {error}.") from error
    checked_depth(value, f"The {what}")
    if size > LONGEST_CONFIG and what == "config":
        raise UsageError(f"The config has {size:,} bytes; at most {LONGEST_CONFIG:,} are allowed.")
    return dict(value)
