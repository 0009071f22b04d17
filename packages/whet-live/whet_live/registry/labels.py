"""Labels: what an application fetches by, moved, rolled back, and protected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from sqlalchemy import Connection, select

import whet_live.registry.audit as audit
import whet_live.registry.registry_store as registry_store
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_live.database import ListPage, newest_first
from whet_live.registry.files import (
    FileImport,
    LineageSource,
    PromptFiles,
    add_prompt,
    from_file,
    from_run,
    read_prompt_files,
    read_protected,
    write_prompt,
    write_protected,
)
from whet_live.registry.names import ANY_PROMPT, Address, check_actor, check_label, check_text
from whet_live.registry.provenance import behind_version, may_approve, other_names
from whet_live.registry.registry_store import MOVE, REMOVE, ROLLBACK
from whet_live.registry.registry_tables import label_moves, labels, protections
from whet_live.registry.values import Move, Version, slot_warnings
from whet_live.registry.versions import Origin, VersionStore, add_version, current_version


@dataclass(frozen=True, slots=True)
class ChangeActor:
    """The actor who moves a label, the reason, and the proposal."""

    actor: str
    reason: str = ""
    proposal: str | None = None


class LabelledPrompts(VersionStore):
    """Prompts with their versions and labels in a database."""

    def create(
        self,
        name: str,
        prompt: Prompt,
        *,
        author: str,
        message: str = "",
        config: Mapping[str, object] | None = None,
        label: str | None = None,
        **origin: Unpack[Origin],
    ) -> Version:
        """Add the next version of a prompt; the first one makes the prompt. `label` is put on it at once.

        `origin` may hold `parent`, the version it was made from (default: the newest), whose config and instructions'
        history are carried on where nothing else is given; `run` and `evidence`, JSON objects; `ledgers`, events by
        region that lead to the text. Raises UsageError for bad names and sizes, an unknown parent, the text and config of
        the newest version, and a protected label.
        """
        with self.change() as connection:
            made = add_version(
                connection, name, prompt, author=author, message=message, config=config, **origin
            )
            if label is None:
                return made
            where = self._free(connection, name, check_label(label))
            put_label(connection, MOVE, where, made.version, ChangeActor(author, message))
            return registry_store.read_version(connection, Address(name, version=made.version))

    def create_from_run(
        self, name: str, folder: Path, *, author: str, message: str = "", label: str | None = None
    ) -> Version:
        """Add the best prompt of a finished run, with the run, the gate's verdict and the history of its instructions.

        The parent is the version that the run began with, where it is one of this prompt. Raises UsageError for a folder
        without a proven prompt, and for a label when the gate did not promote the prompt.
        """
        source = from_run(folder)
        if label is not None and source.refused:
            raise UsageError(f"{folder}: the label {label} is not set. {source.refused}")
        return self._create_from(
            name, source, author=author, message=message or f"from {folder.name}", label=label
        )

    def create_from_file(
        self, name: str, path: Path, *, author: str, message: str = "", label: str | None = None
    ) -> Version:
        """Add the prompt of a file, with the history of its instructions from the ledger beside it. Raises UsageError."""
        source = from_file(path)
        return self._create_from(
            name, source, author=author, message=message or f"from {path.name}", label=label
        )

    def _create_from(
        self, name: str, source: LineageSource, *, author: str, message: str, label: str | None
    ) -> Version:
        parent = None
        with self.database.read() as connection:
            if source.based_on:
                parent = registry_store.version_with(connection, name, source.based_on)
        return self.create(
            name, source.prompt, author=author, message=message, label=label, parent=parent,
            run=source.run, evidence=source.evidence, ledgers=source.ledgers, config=source.config,
        )  # fmt: skip

    def export(self, folder: Path, names: Sequence[str] = ()) -> list[str]:
        """Write prompts (default: all) with all versions, labels and their protection as files below a folder; returns their
        names. Only an export of all prompts holds the labels that are protected on every prompt.

        Raises UsageError for an unknown name, StorageError when the disk refuses.
        """
        written = []
        protected = self.protections()
        with self.database.read() as connection:
            for name in names or registry_store.prompt_names(connection):
                last = registry_store.known_prompt(connection, name)
                history = [
                    registry_store.read_version(connection, Address(name, version=n))
                    for n in range(1, last + 1)
                ]
                own = [label for prompt, label in protected if prompt == name]
                write_prompt(folder, history, registry_store.read_labels(connection, name), own)
                written.append(name)
        if written and not names:
            write_protected(folder, [label for prompt, label in protected if prompt == ANY_PROMPT])
        return written

    def import_folder(
        self,
        folder: Path,
        *,
        actor: str,
        labels: bool = False,
        beside: Callable[[Connection, PromptFiles], None] | None = None,
    ) -> list[FileImport]:
        """Add what `export` wrote: all of it or nothing. What is there already is left alone.

        Labels and their protection are set on new prompts, on others only with `labels`, and so is what `beside` reads from the
        files of a prompt in the same transaction. The protection on every prompt is set in a registry without prompts, else only
        with `labels`. Nothing here takes a protection away. Raises UsageError for files that cannot be used,
        versions that differ from those here, and protected labels.
        """
        check_actor(actor)
        prompts, everywhere = read_prompt_files(folder), read_protected(folder)
        done = []
        with self.change() as connection:
            at_first = not registry_store.prompt_names(connection)
            for prompt_files in prompts:
                current = current_version(connection, prompt_files.name)
                is_new = current is None
                row = add_prompt(connection, prompt_files, actor)
                if row.added:
                    row = replace(row, warnings=tuple(slot_warnings(current, prompt_files.versions[-1][0])))
                for label, version in prompt_files.labels.items() if is_new or labels else ():
                    if registry_store.read_labels(connection, prompt_files.name).get(label) != version:
                        where = self._free(connection, prompt_files.name, label)
                        put_label(
                            connection, MOVE, where, version, ChangeActor(actor, f"import from {folder.name}")
                        )
                if is_new or labels:
                    _protect_all(connection, prompt_files.name, prompt_files.protected, actor)
                    if beside is not None:
                        beside(connection, prompt_files)
                    row = replace(row, labels=prompt_files.labels, protected=tuple(prompt_files.protected))
                done.append(row)
            if everywhere and (at_first or labels):
                _protect_all(connection, ANY_PROMPT, everywhere, actor)
                done.append(FileImport(ANY_PROMPT, 0, 0, {}, protected=tuple(everywhere)))
        return done

    def labels(self, name: str) -> dict[str, int]:
        """The version of each label of a prompt, `latest` included. Raises UsageError for an unknown name."""
        with self.database.read() as connection:
            return registry_store.read_labels(connection, name)

    def move_label(self, name: str, label: str, version: int, *, actor: str, reason: str = "") -> Move:
        """Put a label on a version. A label that stands there already is left alone, and nothing is written down (the
        move's number is 0).

        Raises UsageError for an unknown version and for a protected label, which moves by approval only
        (`request_move`).
        """
        with self.change() as connection:
            where = self._free(connection, name, check_label(label))
            return put_label(connection, MOVE, where, version, ChangeActor(actor, reason))

    def remove_label(self, name: str, label: str, *, actor: str, reason: str = "") -> Move:
        """Take a label away. Raises UsageError for a label that is not there or protected."""
        with self.change() as connection:
            where = self._free(connection, name, check_label(label))
            if label not in registry_store.read_labels(connection, name):
                raise UsageError(f'{name} has no label "{label}".')
            return put_label(connection, REMOVE, where, None, ChangeActor(actor, reason))

    def rollback(self, name: str, label: str, *, actor: str, reason: str = "") -> Move:
        """Move a label back to the version that had it before. Each repetition goes one version further back.

        A protected label needs no approval for this, but nobody puts it back on what they shaped and nobody else approved
        since. Raises UsageError for that, and when there is no such version.
        """
        check_label(label)
        with self.change() as connection:
            registry_store.known_prompt(connection, name)
            version = registry_store.version_before(connection, name, label)
            if registry_store.is_protected(connection, name, label):
                provenance = behind_version(connection, Address(name, label), version, actor)
                if why := may_approve(actor, provenance, other_names(connection, actor)):
                    raise UsageError(
                        f"{why}, and {label} of {name} is protected: somebody else rolls it back, or approves the move: "
                        f"whet prompts promote {name} {version} --label {label} --request."
                    )
            return put_label(connection, ROLLBACK, Address(name, label), version, ChangeActor(actor, reason))

    def moves(
        self, name: str, label: str | None = None, *, before: int | None = None, limit: int = 50
    ) -> ListPage[Move]:
        """Every move of a prompt's labels, the newest first. Raises UsageError for an unknown name."""
        query = newest_first(label_moves.c.number, before, limit, name=name, label=label)
        with self.database.read() as connection:
            registry_store.known_prompt(connection, name)
            page = [Move(**row._mapping) for row in connection.execute(query)]
        return ListPage.of(page, limit, lambda move: move.number)

    def recent_moves(self, limit: int = 50) -> Sequence[Move]:
        """The newest moves of labels of all prompts, the newest first. Raises UsageError for a limit that no page has."""
        query = newest_first(label_moves.c.number, None, limit).limit(limit)
        with self.database.read() as connection:
            return [Move(**row._mapping) for row in connection.execute(query)]

    def protect(self, name: str, label: str, *, actor: str) -> None:
        """From now on the label moves by approval only: on this prompt or, with the name `*`, on every prompt."""
        with self.change() as connection:
            _protect_all(connection, name, [label], actor)

    def protect_first(self, name: str, label: str, *, actor: str) -> bool:
        """Protect a label (`protect`), unless it was ever protected or freed before; whether it was done now. So a default
        never undoes what somebody decided."""
        with self.change() as connection:
            row = _protection(connection, name, label, actor)
            decided = audit.about(connection, name, ("label.protect", "label.unprotect"))
            if any(label in one.details.values() for one in decided):
                return False
            _protect(connection, row, actor)
            return True

    def unprotect(self, name: str, label: str, *, actor: str) -> None:
        """Take a protection back. One for every prompt is taken back for every prompt. Raises UsageError."""
        with self.change() as connection:
            row = _protection(connection, name, label, actor)
            gone = protections.delete().filter_by(**row).returning(protections.c.label)
            if not connection.execute(gone).all():
                raise UsageError(f'The label "{label}" of {name} is not protected.')
            audit.append_entry(
                connection, actor=actor, action="label.unprotect", subject=name, details={"label": label}
            )

    def protections(self) -> list[tuple[str, str]]:
        """(name or `*`, label) of every protection."""
        with self.database.read() as connection:
            query = select(protections).order_by(protections.c.name, protections.c.label)
            return [(row.name, row.label) for row in connection.execute(query)]

    def is_protected(self, name: str, label: str) -> bool:
        """Whether a label moves by approval only."""
        with self.database.read() as connection:
            return registry_store.is_protected(connection, name, label)

    def _free(self, connection: Connection, name: str, label: str) -> Address:
        """The version of a label that anybody may move. Raises UsageError for a protected one."""
        registry_store.known_prompt(connection, name)
        if registry_store.is_protected(connection, name, label):
            raise UsageError(
                f'The label "{label}" of {name} is protected: it moves when somebody else approves. Leave it out where a '
                f"version is added, then request the move: whet prompts promote {name} VERSION --label {label} --request. "
                "Somebody else than its author then says: whet prompts approve ID."
            )
        return Address(name, label)


def _protection(connection: Connection, name: str, label: str, actor: str) -> dict[str, str]:
    check_actor(actor)
    if name != ANY_PROMPT:
        registry_store.known_prompt(connection, name)
    return {"name": name, "label": check_label(label)}


def _protect_all(connection: Connection, name: str, labels: Sequence[str], actor: str) -> None:
    """Protect those of a prompt's labels that are not protected yet."""
    for label in labels:
        row = _protection(connection, name, label, actor)
        if connection.execute(select(protections).filter_by(**row)).first() is None:
            _protect(connection, row, actor)


def _protect(connection: Connection, row: Mapping[str, str], actor: str) -> None:
    connection.execute(protections.insert().values(row))
    details = {"label": row["label"]}
    audit.append_entry(connection, actor=actor, action="label.protect", subject=row["name"], details=details)


def put_label(
    connection: Connection, kind: str, where: Address, version: int | None, by: ChangeActor
) -> Move:
    """Move the label `where` without asking whether it is protected; nothing is written where it stands there already."""
    row: dict[str, Any] = {
        "kind": kind,
        "name": where.name,
        "label": where.label,
        "new": version,
        "actor": check_actor(by.actor),
        "reason": check_text(by.reason, "reason"),
        "proposal": by.proposal,
    }
    if version is not None:
        registry_store.version_number_of(connection, Address(where.name, version=version))
        query = select(labels).filter_by(name=where.name, label=where.label)
        standing = connection.execute(query).first()
        if standing is not None and standing.version == version:
            return Move(number=0, old=version, at=standing.changed, **row)
    return registry_store.set_label(connection, row)
