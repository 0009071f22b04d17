"""What the registry holds, held to what the audit log tells: texts and configs of versions, labels, protections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import orjson
from sqlalchemy import Connection, select

import whet.live.registry.registry_store as registry_store
from whet.live.registry.audit import AuditVerdict
from whet.live.registry.registry_tables import audit, labels, protections, versions
from whet.prompt import Prompt
from whet.types import content_hash

Key: TypeAlias = tuple[str, str]
"""The name of a prompt, or `*`, and a label."""
_MADE, _IMPORTED = "version.create", "prompt.import"
_MOVED = ("label.move", "label.rollback", "label.remove")
_PROTECTED = ("label.protect", "label.unprotect")


@dataclass
class AuditCheck:
    """The state that the log records: versions that were made here or came in together, labels and protections, each with
    its last row in the log."""

    made: dict[tuple[str, int], tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    imported: list[tuple[int, str, Mapping[str, Any]]] = field(default_factory=list)
    labels: dict[Key, tuple[int, int | None]] = field(default_factory=dict)
    protected: dict[Key, tuple[int, bool]] = field(default_factory=dict)


def config_hash(config: Mapping[str, Any]) -> str:
    """The content hash of a version's config as it is stored, 12 hex digits."""
    return content_hash(orjson.loads(orjson.dumps(dict(config))))[:12]


def import_hash(versions: Iterable[tuple[Prompt, Mapping[str, Any]]]) -> str:
    """The content hash of texts and configs that come in together, in order."""
    return content_hash([[prompt.id, config_hash(config)] for prompt, config in versions])


def held_to_log(connection: Connection, verdict: AuditVerdict) -> AuditVerdict:
    """The verdict on a whole log, once what the registry holds is compared with it."""
    logged = _logged(connection)
    fault = (
        _versions(connection, logged)
        or _imports(connection, logged)
        or _labels(connection, logged)
        or _protections(connection, logged)
    )
    return verdict if fault is None else replace(verdict, broken=fault[0] or verdict.rows, reason=fault[1])


def _logged(connection: Connection) -> AuditCheck:
    logged = AuditCheck()
    rows = select(audit.c.seq, audit.c.action, audit.c.subject, audit.c.details)
    rows = rows.where(audit.c.action.in_((_MADE, _IMPORTED, *_MOVED, *_PROTECTED))).order_by(audit.c.seq)
    with connection.execute(rows.execution_options(yield_per=500)) as entries:
        for seq, action, subject, text in entries:
            details = orjson.loads(text)
            if action == _MADE:
                logged.made[subject, details["version"]] = (seq, details)
            elif action == _IMPORTED and "texts" not in details:
                continue  # written before the log recorded them
            elif action == _IMPORTED:
                logged.imported.append((seq, subject, details))
            elif action in _MOVED:
                logged.labels[subject, details["label"]] = (seq, details["new"])
            else:
                logged.protected[subject, details["label"]] = (seq, action == _PROTECTED[0])
    return logged


def _versions(connection: Connection, logged: AuditCheck) -> tuple[int, str] | None:
    stored = select(versions.c.name, versions.c.version, versions.c.messages, versions.c.config)
    left = dict(logged.made)
    with connection.execute(stored.execution_options(yield_per=500)) as rows:
        for name, number, messages, config in rows:
            seq, details = left.pop((name, number), (0, {}))
            which = f"version {number} of {name}"
            if seq and registry_store.prompt_of(messages).id != details["prompt"]:
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
        contents = [
            (registry_store.prompt_of(row.messages), row.config) for row in connection.execute(stored)
        ]
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
