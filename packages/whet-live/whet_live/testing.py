"""The conformance suite for databases of the live part, on each back end.

    class TestMine(DatabaseConformance):
        def place(self) -> str:
            return "postgresql://user@host/empty"

Every test is an ordinary function; no plugin is needed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from whet.testing.storages import EACH, THREADS, Storage, StorageConformance, in_threads

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from whet_live.database import Database

__all__ = ["DatabaseConformance"]


class DatabaseConformance(StorageConformance):
    """Conformance tests for the database of the live part: blocks are written completely or not at all, and snapshots can be
    read. `place` is the address of an empty database."""

    def place(self) -> str:
        """The address of an empty database: an SQLite file."""
        return f"sqlite:///{super().place()}"

    def connect(self, place: str) -> Database:
        """The database at an address, with its tables."""
        from whet_live.database import open_database

        return open_database(place)

    def open(self, place: Any) -> Storage:
        """Rows of a table as a storage."""
        return _Rows(self.connect(place))

    def test_a_block_that_raises_leaves_nothing(self) -> None:
        with _opened(self) as (database, table):
            try:
                with database.begin() as connection:
                    _put(connection, table, "key", b"1")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            assert _keys(database, table) == []

    def test_a_reader_sees_one_moment(self) -> None:
        with _opened(self) as (database, table), database.read() as reading:
            from sqlalchemy import func, select

            count = select(func.count()).select_from(table)
            assert reading.execute(count).scalar() == 0
            with database.begin() as connection:
                _put(connection, table, "key", b"1")
            assert reading.execute(count).scalar() == 0, "a snapshot changed while it was read"
            assert _keys(database, table) == ["key"]

    def test_what_is_read_before_it_is_written_is_not_overwritten(self) -> None:
        from sqlalchemy import select

        with _opened(self) as (database, table):
            with database.begin() as connection:
                _put(connection, table, "count", b"0")
            row = table.c.key == "count"

            def add(number: int) -> None:
                for _ in range(EACH):
                    with database.begin() as connection:
                        now = connection.execute(select(table.c.value).where(row).with_for_update()).scalar()
                        time.sleep(0.001)
                        new = str(int(bytes(now or b"0")) + 1).encode()
                        connection.execute(table.update().where(row).values(value=new))

            in_threads(add)
            with database.read() as connection:
                total = connection.execute(select(table.c.value).where(row)).scalar()
            assert bytes(total or b"") == str(THREADS * EACH).encode(), f"{total!r} of {THREADS * EACH} steps"

    def test_a_broken_constraint_is_an_error_that_leaves_nothing(self) -> None:
        from sqlalchemy.exc import IntegrityError

        with _opened(self) as (database, table):
            try:
                with database.begin() as connection:
                    connection.execute(
                        table.insert(), [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]
                    )
            except IntegrityError:
                assert _keys(database, table) == []
            else:
                raise AssertionError("two rows have the same key")


class _Rows:
    """A table of keys and values in a database."""

    def __init__(self, database: Database) -> None:
        self._database, self._table = database, _table(database)

    def get(self, key: str) -> bytes | None:
        """The value of the row."""
        from sqlalchemy import select

        with self._database.read() as connection:
            value = connection.execute(select(self._table.c.value).where(self._table.c.key == key)).scalar()
        return None if value is None else bytes(value)

    def put(self, key: str, value: bytes) -> None:
        """A new row, unless there is one."""
        with self._database.begin() as connection:
            _put(connection, self._table, key, value)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class _opened:
    """A database and its table of keys and values, closed at the end."""

    def __init__(self, suite: DatabaseConformance) -> None:
        self._database = suite.connect(suite.place())

    def __enter__(self) -> tuple[Database, Table]:
        return self._database, _table(self._database)

    def __exit__(self, *raised: object) -> None:
        self._database.close()


def _table(database: Database) -> Table:
    """The table of the suite, made where it is missing."""
    from sqlalchemy import Column, LargeBinary, MetaData, Table, Text

    columns = (Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))
    table = Table("conformance", MetaData(), *columns)
    with database.begin() as connection:
        table.create(connection, checkfirst=True)
    return table


def _put(connection: Connection, table: Table, key: str, value: bytes) -> None:
    from whet_live.database import insert_into

    connection.execute(insert_into(connection, table).values(key=key, value=value).on_conflict_do_nothing())


def _keys(database: Database, table: Table) -> list[str]:
    from sqlalchemy import select

    with database.read() as connection:
        return [str(key) for key in connection.execute(select(table.c.key)).scalars()]
