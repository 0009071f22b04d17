"""Conformance suites for storages: the completion cache and the database of the live part, on each back end.

    class TestMine(DatabaseConformance):
        def place(self) -> str:
            return "postgresql://user@host/empty"

`StorageConformance` is what both keep: bytes by key. Every test is an ordinary function; no plugin is needed.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from whet.engine.cache import Cache

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from whet.live.database import Database

KEYS = ("plain", "with space/slash|bar", "é漢\U0001f600", "' OR 1=1 --", "k" * 500)
VALUES = (b"text", b"", b"\x00\xff\x00", bytes(range(256)) * 4096)
THREADS, EACH = 4, 25


class Storage(Protocol):
    """Bytes by key. What is put under a key first stays there."""

    def get(self, key: str) -> bytes | None:
        """What is stored, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Store a value; others see it after `close` at the latest."""
        ...

    def close(self) -> None:
        """Write what is left and release everything. Calling it twice is harmless."""
        ...


class StorageConformance:
    """What every storage keeps, on each back end. Each test has a place of its own that is empty."""

    def place(self) -> Any:
        """An empty place to store in: a path, an address."""
        return Path(tempfile.mkdtemp(prefix="whet-storage-")) / "storage"

    def open(self, place: Any) -> Storage:
        """A storage at a place; several may be open at once."""
        raise NotImplementedError("Override `open`.")

    def test_what_is_put_can_be_read_at_once_and_later(self) -> None:
        place = self.place()
        storage = self.open(place)
        pairs = [(f"{key}{i}", value) for key in KEYS for i, value in enumerate(VALUES)]
        for key, value in pairs:
            storage.put(key, value)
        assert [storage.get(key) for key, _ in pairs] == [value for _, value in pairs]
        storage.close()
        again = self.open(place)
        assert [again.get(key) for key, _ in pairs] == [value for _, value in pairs]
        again.close()

    def test_what_is_absent_is_none(self) -> None:
        place = self.place()
        for _ in range(2):
            storage = self.open(place)
            assert storage.get("absent") is None
            storage.put("present", b"1")
            assert storage.get("absent") is None and storage.get("Present") is None
            storage.close()

    def test_the_first_value_of_a_key_stays(self) -> None:
        place = self.place()
        for value in (b"first", b"second"):
            storage = self.open(place)
            storage.put("key", value)
            storage.close()
        storage = self.open(place)
        assert storage.get("key") == b"first"
        storage.close()

    def test_writers_at_the_same_time_lose_nothing(self) -> None:
        place = self.place()
        first = self.open(place)
        first.put("begin", b"1")
        first.close()

        def write(number: int) -> None:
            storage = self.open(place)
            for i in range(EACH):
                storage.put(f"{number}-{i}", f"{number} {i}".encode())
            storage.close()

        in_threads(write)
        storage = self.open(place)
        for number in range(THREADS):
            for i in range(EACH):
                assert storage.get(f"{number}-{i}") == f"{number} {i}".encode(), f"{number}-{i} is lost"
        storage.close()

    def test_two_places_do_not_mix(self) -> None:
        one, other = self.open(self.place()), self.open(self.place())
        one.put("key", b"one")
        one.close()
        assert other.get("key") is None
        other.close()

    def test_can_be_closed_twice(self) -> None:
        storage = self.open(self.place())
        storage.put("key", b"1")
        storage.close()
        storage.close()


class CacheConformance(StorageConformance):
    """What the cache of completions keeps besides: losing it costs money, never truth."""

    def open(self, place: Any) -> Storage:
        """whet's own cache in a file."""
        return Cache(place)

    def damage(self, place: Any) -> None:
        """Make the place unreadable."""
        Path(place).write_bytes(b"no database, and longer than the header of one. " * 40)

    def test_a_damaged_cache_is_no_cache(self) -> None:
        place = self.place()
        self.damage(place)
        storage = self.open(place)
        assert storage.get("key") is None
        storage.put("key", b"1")
        storage.close()


class DatabaseConformance(StorageConformance):
    """What the database of the live part keeps besides: blocks that are written whole or not at all, snapshots that are
    read. `place` is the address of an empty database."""

    def place(self) -> str:
        """The address of an empty database: an SQLite file."""
        return f"sqlite:///{super().place()}"

    def connect(self, place: str) -> Database:
        """The database at an address, with its tables."""
        from whet.live.database import open_database

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
    from whet.live.database import insert_into

    connection.execute(insert_into(connection, table).values(key=key, value=value).on_conflict_do_nothing())


def _keys(database: Database, table: Table) -> list[str]:
    from sqlalchemy import select

    with database.read() as connection:
        return [str(key) for key in connection.execute(select(table.c.key)).scalars()]


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work(number)` in several threads at once. Raises what the first of them raised."""
    errors: list[BaseException] = []

    def one(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
