"""The audit log: a chain that shows every change made to it, and that writers cannot fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Executable, Table, delete, insert, select, update

from whet.errors import UsageError
from whet.prompt import Prompt
from whet_live.database import Database, open_database
from whet_live.registry import AuditCheckpoint, Registry
from whet_live.registry.audit import AuditVerdict, append_entry, held_to_log, verify
from whet_live.registry.registry_tables import (
    audit,
    audit_head,
    label_moves,
    labels,
    prompts,
    protections,
    versions,
)

LENGTH = 6


class Undo(Exception):
    """Takes the transaction back."""


@pytest.fixture
def registry(database: Database) -> Registry:
    """A registry whose log has six rows."""
    write(database, LENGTH)
    return Registry(database)


def write(database: Database, count: int) -> None:
    for number in range(count):
        with database.begin() as connection:
            append_entry(
                connection, actor="ann", action="test.do", subject=f"thing {number}", details={"n": number}
            )


def change(registry: Registry, work: Callable[[Connection], Any]) -> None:
    with registry.database.begin() as connection:
        work(connection)


def test_a_whole_log_is_whole_and_has_a_seal(registry: Registry) -> None:
    found = registry.verify_audit()
    assert (found.whole, found.rows, found.seal.seq) == (True, LENGTH, LENGTH)
    assert AuditCheckpoint.parse(str(found.seal)) == found.seal
    newest = registry.audit(limit=2)
    assert [e.seq for e in newest.items] == [6, 5]
    assert newest.items[0].as_json()["details"] == {"n": 5}
    assert [e.seq for e in registry.audit(before=int(newest.after or 0)).items] == [4, 3, 2, 1]
    assert [e.seq for e in registry.audit(subject="thing 2").items] == [3]
    assert registry.audit(actor="nobody").items == []


def test_an_empty_log_is_whole(database: Database) -> None:
    registry = Registry(database)
    assert registry.verify_audit().whole
    assert registry.verify_audit(registry.verify_audit().seal).whole


COLUMNS = {"at": 1, "actor": "eve", "action": "other", "subject": "other", "details": '{"n":9}'}


def test_a_changed_column_is_found_in_its_row(registry: Registry) -> None:
    for column, value in COLUMNS.items():
        for row in (1, 4, LENGTH):
            with pytest.raises(Undo), registry.database.begin() as connection:
                connection.execute(update(audit).where(audit.c.seq == row).values({column: value}))
                found = verify(connection)
                assert (found.broken, found.reason) == (row, "its contents were changed")
                raise Undo


@pytest.mark.parametrize("row", [1, 3, 5])
def test_a_removed_row_is_missed(registry: Registry, row: int) -> None:
    change(registry, lambda c: c.execute(audit.delete().where(audit.c.seq == row)))
    assert registry.verify_audit().as_json()["broken"] == row + 1
    assert registry.verify_audit().reason == f"row {row} is missing"


def test_a_cut_end_is_missed(registry: Registry) -> None:
    change(registry, lambda c: c.execute(audit.delete().where(audit.c.seq >= 5)))
    found = registry.verify_audit()
    assert (found.broken, found.rows) == (5, 4)
    assert "it had 6 rows" in found.reason


def test_a_row_that_is_hashed_anew_breaks_the_next_one(registry: Registry) -> None:
    forge(registry, 3)
    found = registry.verify_audit()
    assert (found.broken, found.reason) == (4, "it does not follow the row before it")


def forge(registry: Registry, row: int) -> None:
    """Give a row another actor and a hash that fits."""
    from whet_live.registry.audit import _hash

    def work(connection: Connection) -> None:
        old = connection.execute(select(audit).where(audit.c.seq == row)).one()
        new = {**old._mapping, "actor": "eve"}
        new["hash"] = _hash(
            *(new[k] for k in ("seq", "at", "actor", "action", "subject", "details", "previous"))
        )
        connection.execute(update(audit).where(audit.c.seq == row).values(new))

    change(registry, work)


def test_a_chain_that_is_computed_anew_is_found_with_an_older_seal(registry: Registry) -> None:
    seal = registry.verify_audit().seal

    def rewrite(connection: Connection) -> None:
        rows = connection.execute(select(audit).order_by(audit.c.seq)).all()
        connection.execute(audit.delete())
        connection.execute(audit_head.delete())
        for row in rows:
            append_entry(
                connection, actor="eve", action=row.action, subject=row.subject, details={}, at=row.at
            )

    change(registry, rewrite)
    assert registry.verify_audit().whole
    found = registry.verify_audit(seal)
    assert (found.broken, found.reason) == (6, "it is another row than the given seal says")


def test_a_log_that_was_cut_with_its_end_is_found_with_an_older_seal(registry: Registry) -> None:
    seal = registry.verify_audit().seal

    def cut(connection: Connection) -> None:
        last = connection.execute(select(audit).where(audit.c.seq == 2)).one()
        connection.execute(audit.delete().where(audit.c.seq > 2))
        connection.execute(update(audit_head).values(seq=2, hash=last.hash))

    change(registry, cut)
    assert registry.verify_audit().whole
    assert registry.verify_audit(seal).broken == 3


@settings(max_examples=40, deadline=None)
@given(
    row=st.integers(1, LENGTH),
    column=st.sampled_from(["at", "actor", "action", "subject", "details", "previous", "hash", "seq"]),
    value=st.one_of(st.integers(0, 2**40), st.text('0123456789abcdef {}:"', max_size=70)),
)
def test_no_change_of_one_cell_goes_unseen(
    sqlite_registry: Registry, row: int, column: str, value: Any
) -> None:
    with pytest.raises(Undo), sqlite_registry.database.begin() as connection:
        old = connection.execute(select(audit.c[column]).where(audit.c.seq == row)).scalar_one()
        if isinstance(old, int) != isinstance(value, int) or (column == "seq" and value <= LENGTH):
            value = old
        connection.execute(update(audit).where(audit.c.seq == row).values({column: value}))
        assert verify(connection).whole is (value == old)
        raise Undo


@pytest.fixture
def sqlite_registry(sqlite_url: str) -> Any:
    """A registry in SQLite whose log has six rows."""
    database = open_database(sqlite_url)
    write(database, LENGTH)
    yield Registry(database)
    database.close()


def test_a_version_whose_text_was_changed_or_that_is_gone_is_found(database: Database) -> None:
    registry = Registry(database)
    for text in ("Be polite.", "Be brief."):
        registry.create("p", Prompt.parse(text), author="ann")
    assert registry.verify_audit().whole

    def told() -> tuple[int | None, str]:
        found = registry.verify_audit()
        return found.broken, found.reason

    second = (versions.c.name == "p") & (versions.c.version == 2)
    change(
        registry, lambda c: c.execute(update(versions).where(second).values(messages=[["auto", "Be evil."]]))
    )
    assert told() == (2, "version 2 of p does not have the text that it tells of")
    change(registry, lambda c: c.execute(delete(versions).where(second)))
    assert told() == (2, "version 2 of p, which it tells of, is gone")


CONFIG = {"b": 1, "a": 0.1, "big": 1e22, "word": "é", "deep": {"z": [1.0, None], "y": True}}


def changed_registry(database: Database) -> Registry:
    """A registry in which everything happened that the log tells of beside texts; the log is whole."""
    registry = Registry(database)
    registry.create("p", Prompt.parse("Be polite."), author="ann", config=CONFIG, label="production")
    registry.create("p", Prompt.parse("Be brief."), author="ann", label="production")
    registry.create("q", Prompt.parse("Be kind."), author="ann", label="staging")
    registry.rollback("p", "production", actor="ann")
    registry.remove_label("q", "staging", actor="ann")
    registry.protect("*", "production", actor="root")
    registry.protect("q", "staging", actor="root")
    registry.unprotect("q", "staging", actor="root")
    assert registry.verify_audit().whole
    return registry


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (
            update(versions)
            .where(versions.c.version == 1, versions.c.name == "p")
            .values(config={"model": "other"}),
            "version 1 of p does not have the config that it tells of",
        ),
        (
            update(versions).where(versions.c.name == "q").values(config={"model": "other"}),
            "version 1 of q does not have the config that it tells of",
        ),
        (
            update(labels).values(version=2),
            'the label "production" of p stands on version 2, and the log says that it stands on version 1',
        ),
        (
            delete(labels),
            'the label "production" of p is not there, and the log says that it stands on version 1',
        ),
        (
            insert(labels).values(name="q", label="staging", version=1, changed=0),
            'the label "staging" of q stands on version 1, and the log says that it is not there',
        ),
        (
            insert(labels).values(name="q", label="mine", version=1, changed=0),
            'the label "mine" of q stands on version 1, and the log says that it is not there',
        ),
        (delete(protections), 'the log says that the label "production" of * is protected, and it is not so'),
        (
            insert(protections).values(name="q", label="staging"),
            'the log says that the label "staging" of q is not protected, and it is not so',
        ),
    ],
    ids=["config", "no config", "moved", "taken away", "put back", "new", "freed", "protected"],
)
def test_what_the_log_does_not_tell_of_is_found(database: Database, tamper: Executable, said: str) -> None:
    registry = changed_registry(database)
    change(registry, lambda connection: connection.execute(tamper))
    found = registry.verify_audit()
    assert not found.whole and found.reason == said


def test_what_is_imported_is_held_to_the_log_too(database: Database, tmp_path: Path) -> None:
    registry = changed_registry(database)
    registry.export(tmp_path)
    with database.begin() as connection:
        for table in (labels, label_moves, protections, versions, prompts, audit, audit_head):
            connection.execute(delete(table))
    registry.import_folder(tmp_path, actor="bob")
    assert registry.verify_audit().whole and registry.labels("p")["production"] == 1
    with database.begin() as connection:  # as an older version wrote it
        append_entry(
            connection,
            actor="bob",
            action="prompt.import",
            subject="p",
            details={"added": 2, "first": 1, "digest": "d"},
        )
    assert registry.verify_audit().whole
    second = (versions.c.name == "p") & (versions.c.version == 2)
    for tamper, said in (
        (
            update(versions).where(second).values(messages=[["auto", "Be evil."]]),
            "versions 1 to 2 of p do not have",
        ),
        (
            update(versions).where(second).values(config={"model": "other"}),
            "versions 1 to 2 of p do not have",
        ),
        (update(labels).values(version=2), "stands on version 2"),
    ):
        with pytest.raises(Undo), database.begin() as connection:
            connection.execute(tamper)
            assert said in held_to_log(connection, AuditVerdict(1, AuditCheckpoint(1, ""))).reason
            raise Undo
    assert registry.verify_audit().whole


def test_a_transaction_that_is_undone_leaves_no_gap(registry: Registry) -> None:
    with pytest.raises(Undo), registry.database.begin() as connection:
        append_entry(connection, actor="ann", action="test.do", subject="x", details={})
        raise Undo
    write(registry.database, 1)
    assert registry.verify_audit().rows == LENGTH + 1


def test_threads_do_not_fork_the_chain(database: Database) -> None:
    threads = [threading.Thread(target=write, args=(database, 8)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Registry(database).verify_audit()
    assert (found.whole, found.rows) == (True, 48)


WRITER = """
import sys
from whet_live.database import open_database
from whet_live.registry.audit import append_entry
database = open_database(sys.argv[1])
for number in range(15):
    with database.begin() as connection:
        append_entry(connection, actor=sys.argv[2], action="test.do", subject="x", details={"n": number})
database.close()
"""


def test_processes_do_not_fork_the_chain(database_url: str) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, database_url, f"writer {n}"], stderr=subprocess.PIPE, text=True
        )
        for n in range(2)
    ]
    said = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 2, said
    database = open_database(database_url)
    found = Registry(database).verify_audit()
    assert (found.whole, found.rows) == (True, 30)
    database.close()


def test_every_change_of_the_registry_is_in_the_log(database: Database) -> None:
    from whet.prompt import Prompt
    from whet_live.registry import Decision, PromptEdit

    registry = Registry(database)
    registry.create("p", Prompt.parse("One."), author="ann", label="production")
    registry.protect("p", "production", actor="root")
    proposal = registry.propose(
        "p", PromptEdit(prompt=Prompt.parse("Two.")), author="bob", label="production"
    )
    registry.decide(proposal.id, Decision("approve", "fine"), actor="ann")
    registry.rollback("p", "production", actor="dan")
    asked = registry.request_move("p", "production", 2, actor="cem")
    registry.decide(asked.id, Decision("reject", "not now"), actor="ann")
    registry.unprotect("p", "production", actor="root")
    actions = [(e.actor, e.action) for e in reversed(registry.audit().items)]
    assert actions == [
        ("ann", "version.create"), ("ann", "label.move"), ("root", "label.protect"), ("bob", "proposal.create"),
        ("bob", "version.create"), ("ann", "proposal.approved"), ("ann", "label.move"), ("dan", "label.rollback"),
        ("cem", "move.request"), ("ann", "proposal.rejected"), ("root", "label.unprotect"),
    ]  # fmt: skip
    assert {e.subject for e in registry.audit().items} == {"p"}
    assert registry.verify_audit().whole


@pytest.mark.parametrize("text", ["", "5", "5:zz", f"-1:{'0' * 64}", f"1:{'G' * 64}", f"x:{'0' * 64}"])
def test_what_is_no_seal_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no seal"):
        AuditCheckpoint.parse(text)


def test_the_tables_of_the_log_are_those_that_are_checked() -> None:
    assert isinstance(audit, Table) and {c.name for c in audit.c} == {
        "seq", "at", "actor", "action", "subject", "details", "previous", "hash"
    }  # fmt: skip
