"""The audit log: who did what, in a chain of hashes that shows every later change; and the registry held to it.

A row's hash covers its own columns and the hash of the row before, so an altered, removed, added or moved row breaks the
chain from there on. Someone who can write to the database can compute the whole chain anew: note an `AuditCheckpoint` elsewhere
from time to time (`whet prompts audit` prints it) and verify against that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, select

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.types import content_hash
from whet_live.database import Database, insert_into, iso, time_of
from whet_live.registry.registry_tables import audit, audit_head, labels, protections, versions
from whet_live.registry.values import prompt_from_messages

FIRST = "0" * 64
"""The hash that the first row names as the hash before it."""
_BATCH = 5000
_MADE, _IMPORTED = "version.create", "prompt.import"
_MOVED = ("label.move", "label.rollback", "label.remove")
_PROTECTED = ("label.protect", "label.unprotect")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done. `at` is in microseconds (UTC); `details` are JSON values."""

    seq: int
    at: int
    actor: str
    action: str
    subject: str
    details: Mapping[str, Any]
    hash: str

    def as_json(self) -> dict[str, Any]:
        """The entry with its time as text."""
        return {**asdict(self), "at": iso(self.at)}


@dataclass(frozen=True, slots=True)
class AuditCheckpoint:
    """The end of the log at some moment: `seq:hash`, 0 with zeros for an empty one."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> AuditCheckpoint:
        """The seal that `str` wrote. Raises UsageError."""
        match = re.fullmatch(r"([0-9]+):([0-9a-f]{64})", text.strip())
        if match is None:
            raise UsageError(
                f'"{text[:80]}" is no seal. It reads NUMBER:HASH, as `whet prompts audit` printed it.'
            )
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """Whether the log is whole. `broken` is the number of the first row that is not what it was, `reason` says why."""

    rows: int
    seal: AuditCheckpoint
    broken: int | None = None
    reason: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing was changed."""
        return self.broken is None

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {"whole": self.whole, **asdict(self), "seal": str(self.seal)}


@contextmanager
def audited_transaction(database: Database) -> Iterator[Connection]:
    """A transaction whose changes are written into the log; such changes happen one after the other, in its order."""
    with database.begin() as connection:
        lock(connection)
        yield connection


def lock(connection: Connection) -> AuditCheckpoint:
    """Wait for the end of the log and hold it until the transaction ends; who holds it is the only one to append.

    Call it first in a transaction that locks other rows too: then no two of them can wait for each other.
    """
    head = select(audit_head.c.seq, audit_head.c.hash).with_for_update()
    row = connection.execute(head).one_or_none()
    if row is None:
        new = insert_into(connection, audit_head).values(one=1, seq=0, hash=FIRST)
        connection.execute(new.on_conflict_do_nothing())
        row = connection.execute(head).one()
    return AuditCheckpoint(row.seq, row.hash)


def end_of_log(connection: Connection) -> AuditCheckpoint:
    """The end of the log, without waiting for it."""
    head = connection.execute(select(audit_head.c.seq, audit_head.c.hash)).one_or_none()
    return AuditCheckpoint(0, FIRST) if head is None else AuditCheckpoint(head.seq, head.hash)


def append_entry(
    connection: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    details: Mapping[str, object],
    at: int | None = None,
) -> AuditEntry:
    """Add an entry in the caller's transaction: it stands if and only if what it records stands.

    `action` is a word such as `label.move`, `subject` what it was done to, `at` microseconds (default: now).
    """
    last = lock(connection)
    text = orjson.dumps(details).decode("utf-8")
    seq, moment = last.seq + 1, time_of(connection) if at is None else at
    digest = _hash(seq, moment, actor, action, subject, text, last.hash)
    connection.execute(
        audit.insert().values(
            seq=seq,
            at=moment,
            actor=actor,
            action=action,
            subject=subject,
            details=text,
            previous=last.hash,
            hash=digest,
        )
    )
    connection.execute(audit_head.update().values(seq=seq, hash=digest))
    return AuditEntry(seq, moment, actor, action, subject, details, digest)


def _hash(seq: int, at: int, actor: str, action: str, subject: str, details: str, previous: str) -> str:
    return content_hash([seq, at, actor, action, subject, details, previous])


def entries(connection: Connection, query: Select[Any]) -> list[AuditEntry]:
    """The entries that a query of rows of the log finds, in its order."""
    rows = connection.execute(query)
    return [
        AuditEntry(r.seq, r.at, r.actor, r.action, r.subject, orjson.loads(r.details), r.hash) for r in rows
    ]


def about(connection: Connection, subject: str, actions: Collection[str]) -> list[AuditEntry]:
    """Every entry about a subject that records one of these actions, the oldest first."""
    here = audit.c.subject == subject, audit.c.action.in_(actions)
    return entries(connection, select(audit).where(*here).order_by(audit.c.seq))


def verify(connection: Connection, seal: AuditCheckpoint | None = None) -> AuditVerdict:
    """Check every row and the end of the log, and that the log still holds what an older `seal` says.

    Reads in batches, so that a log of any length is checked in little memory.
    """
    last = AuditCheckpoint(0, FIRST)
    if seal is not None and seal.seq == 0 and seal.hash != FIRST:
        return AuditVerdict(0, last, 0, "the given seal is of no log")
    for row in _rows(connection):
        reason = _fault(row, last)
        if reason is None and seal is not None and row.seq == seal.seq and row.hash != seal.hash:
            reason = "it is another row than the given seal says"
        if reason is not None:
            return AuditVerdict(last.seq, last, row.seq, reason)
        last = AuditCheckpoint(row.seq, row.hash)
    end = end_of_log(connection)
    if end != last:
        return AuditVerdict(last.seq, last, last.seq + 1, f"the log ends here, but it had {end.seq} rows")
    if seal is not None and seal.seq > last.seq:
        return AuditVerdict(
            last.seq, last, last.seq + 1, f"the log ends here, but the given seal is of row {seal.seq}"
        )
    return AuditVerdict(last.seq, last)


def _rows(connection: Connection) -> Iterator[Row[Any]]:
    query: Select[Any] = select(audit).order_by(audit.c.seq).limit(_BATCH)
    page = connection.execute(query).all()
    while page:
        yield from page
        page = connection.execute(query.where(audit.c.seq > page[-1].seq)).all()


def _fault(row: Row[Any], last: AuditCheckpoint) -> str | None:
    """Why a row cannot follow the last one."""
    if row.seq != last.seq + 1:
        return f"row {last.seq + 1} is missing"
    if row.previous != last.hash:
        return "it does not follow the row before it"
    if _hash(row.seq, row.at, row.actor, row.action, row.subject, row.details, row.previous) != row.hash:
        return "its contents were changed"
    return None


# The registry, held to what the log tells: texts and configs of versions, labels, protections


@dataclass
class AuditCheck:
    """The state that the log records: versions that were made here or came in together, labels and protections, each with
    its last row in the log."""

    made: dict[tuple[str, int], tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    imported: list[tuple[int, str, Mapping[str, Any]]] = field(default_factory=list)
    labels: dict[tuple[str, str], tuple[int, int | None]] = field(default_factory=dict)
    protected: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)


def config_hash(config: Mapping[str, object]) -> str:
    """The content hash of a version's config as it is stored, 12 hex digits."""
    return content_hash(orjson.loads(orjson.dumps(dict(config))))[:12]


def import_hash(versions: Iterable[tuple[Prompt, Mapping[str, Any]]]) -> str:
    """The content hash of texts and configs that come in together, in order."""
    return content_hash([[prompt.id, config_hash(config)] for prompt, config in versions])


def held_to_log(connection: Connection, verdict: AuditVerdict) -> AuditVerdict:
    """The verdict on a whole log, once what the registry holds is compared with it."""
    logged = _read_log_end(connection)
    fault = (
        _versions(connection, logged)
        or _imports(connection, logged)
        or _labels(connection, logged)
        or _protections(connection, logged)
    )
    return verdict if fault is None else replace(verdict, broken=fault[0] or verdict.rows, reason=fault[1])


def _read_log_end(connection: Connection) -> AuditCheck:
    logged = AuditCheck()
    rows = select(audit.c.seq, audit.c.action, audit.c.subject, audit.c.details)
    rows = rows.where(audit.c.action.in_((_MADE, _IMPORTED, *_MOVED, *_PROTECTED))).order_by(audit.c.seq)
    with connection.execute(rows.execution_options(yield_per=500)) as entries:
        for seq, action, subject, text in entries:
            details = orjson.loads(text)
            if action == _MADE:
                logged.made[subject, details["version"]] = (seq, details)
            elif action == _IMPORTED and "texts" in details:  # an older log does not record them
                logged.imported.append((seq, subject, details))
            elif action in _MOVED:
                logged.labels[subject, details["label"]] = (seq, details["new"])
            elif action in _PROTECTED:
                logged.protected[subject, details["label"]] = (seq, action == _PROTECTED[0])
    return logged


def _versions(connection: Connection, logged: AuditCheck) -> tuple[int, str] | None:
    stored = select(versions.c.name, versions.c.version, versions.c.messages, versions.c.config)
    left = dict(logged.made)
    with connection.execute(stored.execution_options(yield_per=500)) as rows:
        for name, number, messages, config in rows:
            seq, details = left.pop((name, number), (0, {}))
            which = f"version {number} of {name}"
            if seq and prompt_from_messages(messages).id != details["prompt"]:
                return seq, f"{which} does not have the text that it tells of"
            if "config" in details and config_hash(config) != details["config"]:
                return seq, f"{which} does not have the config that it tells of"
    return next(
        ((seq, f"version {n} of {name}, which it tells of, is gone") for (name, n), (seq, _) in left.items()),
        None,
    )


def _imports(connection: Connection, logged: AuditCheck) -> tuple[int, str] | None:
    for seq, name, details in logged.imported:
        first, end = details["first"], details["first"] + details["added"]
        stored = select(versions.c.messages, versions.c.config).order_by(versions.c.version)
        stored = stored.where(versions.c.name == name, versions.c.version >= first, versions.c.version < end)
        contents = [(prompt_from_messages(row.messages), row.config) for row in connection.execute(stored)]
        if import_hash(contents) != details["texts"]:
            return (
                seq,
                f"versions {first} to {end - 1} of {name} do not have the texts and configs that came in",
            )
    return None


def _labels(connection: Connection, logged: AuditCheck) -> tuple[int, str] | None:
    stored = {(row.name, row.label): row.version for row in connection.execute(select(labels))}
    for name, label in sorted({*stored, *logged.labels}):
        seq, version = logged.labels.get((name, label), (0, None))
        if stored.get((name, label)) != version:
            now, then = (_place(number) for number in (stored.get((name, label)), version))
            return seq, f'the label "{label}" of {name} {now}, and the log says that it {then}'
    return None


def _place(version: int | None) -> str:
    return "is not there" if version is None else f"stands on version {version}"


def _protections(connection: Connection, logged: AuditCheck) -> tuple[int, str] | None:
    stored = {(row.name, row.label) for row in connection.execute(select(protections))}
    for name, label in sorted({*stored, *logged.protected}):
        seq, protected = logged.protected.get((name, label), (0, False))
        if ((name, label) in stored) != protected:
            state = "protected" if protected else "not protected"
            return seq, f'the log says that the label "{label}" of {name} is {state}, and it is not so'
    return None
