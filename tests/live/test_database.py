"""The database: one behaviour on SQLite and PostgreSQL, migrated by whoever comes first."""

from __future__ import annotations

import importlib
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, select, text
from sqlalchemy.exc import IntegrityError

import whet_live
from whet.errors import StorageError, UsageError
from whet_client.ids import now
from whet_live.database import Database, Json, insert_into, iso, metadata, microseconds, new_id, open_database
from whet_live.database.engine import FOLDER, revisions

own = MetaData()
things = Table("things", own, Column("id", Integer, primary_key=True), Column("value", Json))


@pytest.fixture
def table(database: Database) -> Table:
    """A small table beside those of the package."""
    with database.begin() as connection:
        own.create_all(connection)
    return things


def load_all_tables() -> None:
    """Import every module of tables that there is."""
    root = Path(whet_live.__path__[0])
    names = [".".join(path.relative_to(root).with_suffix("").parts) for path in root.rglob("*_tables.py")]
    assert len(names) >= 5
    for name in names:
        importlib.import_module(f"whet_live.{name}")


def is_no_index_of_words(name: str | None, kind: str, parents: Any) -> bool:
    """What the metadata can describe: not an index of words, which each database makes in its own way."""
    return not (name or "").startswith("feedback_words")


def test_the_migrations_make_the_tables_of_the_metadata(database: Database) -> None:
    load_all_tables()
    with database.begin() as connection:
        opts = {"compare_type": True, "include_name": is_no_index_of_words}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, metadata) == []


def test_the_migrations_are_one_chain_and_named_after_their_files() -> None:
    found = [
        importlib.import_module(f"whet_live.database.migrations.versions.{name}") for name in revisions()
    ]
    assert [module.revision for module in found] == revisions()
    assert [module.down_revision for module in found] == [None, *revisions()[:-1]]
    assert all((FOLDER / "versions" / f"{name}.py").is_file() for name in revisions())


def test_a_block_that_raises_leaves_nothing(database: Database, table: Table) -> None:
    with pytest.raises(ZeroDivisionError), database.begin() as connection:
        connection.execute(table.insert().values(id=1, value={"a": [1, None]}))
        raise ZeroDivisionError
    with database.begin() as connection:
        connection.execute(table.insert().values(id=2, value={"b": "\x00 é 漢"}))
    with database.read() as connection:
        assert [tuple(row) for row in connection.execute(select(table))] == [(2, {"b": "\x00 é 漢"})]


def test_readers_see_one_moment_and_do_not_wait(database: Database, table: Table) -> None:
    with database.read() as reading:
        assert reading.execute(select(func.count()).select_from(table)).scalar() == 0
        with database.begin() as writing:
            writing.execute(table.insert().values(id=1))
        assert reading.execute(select(func.count()).select_from(table)).scalar() == 0
    with database.read() as reading:
        assert reading.execute(select(func.count()).select_from(table)).scalar() == 1


def test_insert_can_keep_what_is_there_or_replace_it(database: Database, table: Table) -> None:
    with database.begin() as connection:
        new = insert_into(connection, table).values(id=1, value="first")
        connection.execute(new)
        again = insert_into(connection, table).values(id=1, value="second")
        assert connection.execute(again.on_conflict_do_nothing().returning(table.c.id)).all() == []
        assert connection.execute(select(table.c.value)).scalar() == "first"
        connection.execute(
            again.on_conflict_do_update(index_elements=[table.c.id], set_={"value": again.excluded.value})
        )
        assert connection.execute(select(table.c.value)).scalar() == "second"


def test_a_broken_constraint_is_told_as_such(database: Database, table: Table) -> None:
    with pytest.raises(IntegrityError), database.begin() as connection:
        connection.execute(table.insert(), [{"id": 1}, {"id": 1}])


def test_writers_of_many_threads_all_get_their_turn(database: Database, table: Table) -> None:
    def add(first: int) -> None:
        for number in range(10):
            with database.begin() as connection:
                connection.execute(table.insert().values(id=first + number))

    threads = [threading.Thread(target=add, args=(100 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(table)).scalar() == 80


OPENER = """
import sys
from whet_live.database import open_database
open_database(sys.argv[1]).close()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_start_together_migrate_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        url = request.getfixturevalue("postgresql_url")
        opened = open_database(url)
        with opened.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        opened.close()
    command = [sys.executable, "-c", OPENER, url]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 2, said
    opened = open_database(url)
    with opened.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1
    opened.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_file_that_is_gone(tmp_path: Path, replaced: bool) -> None:
    """An operator who deletes or restores the file under a server is told; nobody gets a receipt for what is lost."""
    path = tmp_path / "whet.db"
    opened = open_database(f"sqlite:///{path}")
    path.rename(tmp_path / "moved.db")
    if replaced:
        open_database(f"sqlite:///{path}").close()
    with (
        pytest.raises(StorageError, match="was removed or replaced"),
        opened.begin() as connection,
    ):
        connection.execute(text("DELETE FROM alembic_version"))
    if not replaced:
        (tmp_path / "moved.db").rename(path)
        with opened.begin() as connection:
            assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1
    opened.close()


def test_tables_of_a_newer_version_are_refused(database: Database, database_url: str) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_future'"))
    with pytest.raises(UsageError, match=r"newer version \(its tables are 9999_future"):
        open_database(database_url)


def test_tables_of_before_the_first_release_are_refused_with_what_to_do(
    database: Database, database_url: str
) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0007_readings'"))
    with pytest.raises(UsageError, match=r"before whet 0\.1 .*0007_readings.*whet prompts export") as caught:
        open_database(database_url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:secret@h/db", 'begins with "mysql"'),
        ("nonsense", "Write sqlite:///FILE"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////no/such/folder/whet.db", "cannot be opened"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_a_storage_error_without_the_password() -> None:
    pytest.importorskip("psycopg", reason="psycopg talks to PostgreSQL")
    with pytest.raises(StorageError, match="cannot be used") as caught:
        open_database("postgres://user:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "whet.db").write_text("something else, longer than the header of a database file. " * 40)
    with pytest.raises(StorageError, match="cannot be used"):
        open_database(f"sqlite:///{tmp_path / 'whet.db'}")


def test_the_address_comes_from_the_environment_or_is_a_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WHET_DATABASE_URL", raising=False)
    open_database().close()
    assert stat.S_IMODE((tmp_path / "whet.db").stat().st_mode) == 0o600
    monkeypatch.setenv("WHET_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    open_database().close()
    assert (tmp_path / "other.db").exists()


def test_sqlite_is_durable_and_checks_foreign_keys(sqlite_url: str) -> None:
    opened = open_database(sqlite_url)
    with opened.read() as connection:
        found: dict[str, Any] = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    opened.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_connection_that_is_in_use_at_the_end_is_closed_when_it_is_given_back(database_url: str) -> None:
    opened = open_database(database_url)
    with opened.read() as connection:
        raw: Any = connection.connection.driver_connection
        opened.close()
        assert connection.execute(text("SELECT 1")).scalar() == 1
    with pytest.raises(Exception, match="closed"):
        raw.execute("SELECT 1")


def test_a_block_inside_a_block_is_a_mistake_of_ours(sqlite_url: str) -> None:
    opened = open_database(sqlite_url)
    with pytest.raises(RuntimeError, match="pass the connection on"), opened.begin(), opened.begin():
        pass
    opened.close()


def test_ids_are_uuids_that_sort_by_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(20_000)]
    after = time.time_ns() // 1_000_000
    assert ids == sorted(set(ids))
    first = UUID(ids[0])
    assert first.version == 7
    assert before - 1 <= first.int >> 80 <= after + 1


@given(st.integers(0, 4_000_000_000_000_000))
def test_times_are_read_as_they_were_written(moment: int) -> None:
    assert microseconds(iso(moment)) == moment


def test_a_time_is_in_microseconds() -> None:
    assert abs(now() - time.time() * 1e6) < 60e6
    assert iso(microseconds("2026-01-31 13:00:00+01:00")) == "2026-01-31T12:00:00.000000Z"
    with pytest.raises(UsageError, match="'yesterday' is no date"):
        microseconds("yesterday")


def test_text_columns_hold_what_json_holds(database: Database) -> None:
    other = Table("others", MetaData(), Column("id", Integer, primary_key=True), Column("value", Text))
    with database.begin() as connection:
        other.create(connection)
        connection.execute(other.insert().values(id=1, value="𝕏 \U0001f600 \u202e"))
        assert connection.execute(select(other.c.value)).scalar() == "𝕏 \U0001f600 \u202e"


def test_a_database_that_only_reads_is_a_failure_of_storage(database: Database) -> None:
    if database.dialect != "postgresql":
        pytest.skip("an SQLite file that is read-only is another test")
    with database.begin() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    other = open_database(database.url.render_as_string(hide_password=False))
    try:
        with pytest.raises(StorageError, match="read-only transaction"):
            other.check_writable()
    finally:
        other.close()
