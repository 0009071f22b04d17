"""The cache and the database pass the public suites on each back end, and each test notices a broken storage."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.live.conftest import compiled_once, postgresql_template, postgresql_url  # noqa: F401 - fixtures

from whet.engine.cache import Cache
from whet.testing.storages import CacheConformance, StorageConformance
from whet_client.ids import new_id
from whet_live.database import Database
from whet_live.testing import DatabaseConformance


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of the suites lie in the folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class TestCache(CacheConformance):
    """The completion cache: SQLite in a file."""


class TestSQLite(DatabaseConformance):
    """The database of the live part in a file."""


class TestPostgreSQL(DatabaseConformance):
    """The same behaviour in a real PostgreSQL."""

    addresses: ClassVar[list[str]]

    @pytest.fixture(autouse=True)
    def server(self, postgres: Any, postgres_admin: Any, postgresql_template: str) -> Iterator[None]:  # noqa: F811
        names = [f"t{new_id().replace('-', '')}" for _ in range(2)]
        for name in names:
            postgres_admin.execute(f"CREATE DATABASE {name} TEMPLATE {postgresql_template}")
        type(self).addresses = [postgres.get_uri(name) for name in names]
        yield
        for name in names:
            postgres_admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def place(self) -> str:
        return self.addresses.pop()


class Plain:
    """A small sound storage, for its broken relatives below to go wrong: one SQLite table without batches."""

    def __init__(self, place: Path) -> None:
        self.db: sqlite3.Connection | None = sqlite3.connect(place, isolation_level=None, timeout=30)
        self.db.execute("CREATE TABLE IF NOT EXISTS t(key TEXT PRIMARY KEY, value BLOB)")

    def get(self, key: str) -> bytes | None:
        assert self.db is not None
        row = self.db.execute("SELECT value FROM t WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: str, value: bytes) -> None:
        assert self.db is not None
        self.db.execute("INSERT OR IGNORE INTO t VALUES (?, ?)", (key, value))

    def close(self) -> None:
        if self.db is not None:
            self.db.close()
        self.db = None


class Forgets(Plain):
    """What is put is gone after it is closed."""

    def __init__(self, place: Path) -> None:
        super().__init__(Path(":memory:"))


class Strips(Plain):
    def put(self, key: str, value: bytes) -> None:
        super().put(key, value.rstrip(b"\x00"))


class Guesses(Plain):
    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        return super().get(key.lower()) if found is None else found


class Overwrites(Plain):
    def put(self, key: str, value: bytes) -> None:
        assert self.db is not None
        self.db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, value))


class WritesAll(Plain):
    """Keeps everything in memory and writes the whole of it at the end, over what others wrote."""

    def __init__(self, place: Path) -> None:
        self.place = place
        lines = place.read_text().splitlines() if place.exists() else []
        self.rows = {line.split("=")[0]: line.split("=")[1].encode() for line in lines}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.rows.setdefault(key, value)

    def close(self) -> None:
        import time

        time.sleep(0.05)
        self.place.write_text("\n".join(f"{key}={value.decode()}" for key, value in self.rows.items()))


class OnePlace(Plain):
    def __init__(self, place: Path) -> None:
        super().__init__(Path(tempfile.gettempdir()) / "one")


class ClosesOnce(Plain):
    def close(self) -> None:
        assert self.db is not None
        super().close()


class Trusting(Plain):
    """Raises where its file is damaged."""


def suite(storage: type[Plain]) -> CacheConformance:
    """The suite for one of these storages."""

    class Suite(CacheConformance):
        def open(self, place: Any) -> Plain:
            return storage(place)

    return Suite()


class Undurable(Database):
    """A database that commits every statement on its own and reads without a snapshot."""

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self._engine.connect().execution_options(whet_begin="SELECT 1") as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.begin() as connection:
            yield connection


class Deaf(Database):
    """A database that does not say when a constraint is broken."""

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        try:
            with super().begin() as connection:
                yield connection
        except IntegrityError:
            pass


class Live(DatabaseConformance):
    """The suite for a database of another class."""

    kind: type[Database] = Database

    def connect(self, place: str) -> Database:
        database = super().connect(place)
        url = database.url
        database.close()
        return self.kind(url)


BROKEN: list[tuple[type[Plain], str]] = [
    (Forgets, "test_what_is_put_can_be_read_at_once_and_later"),
    (Strips, "test_what_is_put_can_be_read_at_once_and_later"),
    (Guesses, "test_what_is_absent_is_none"),
    (Overwrites, "test_the_first_value_of_a_key_stays"),
    (WritesAll, "test_writers_at_the_same_time_lose_nothing"),
    (OnePlace, "test_two_places_do_not_mix"),
    (ClosesOnce, "test_can_be_closed_twice"),
    (Trusting, "test_a_damaged_cache_is_no_cache"),
]
BROKEN_DATABASES: list[tuple[type[Database], str]] = [
    (Undurable, "test_a_block_that_raises_leaves_nothing"),
    (Undurable, "test_a_reader_sees_one_moment"),
    (Undurable, "test_what_is_read_before_it_is_written_is_not_overwritten"),
    (Deaf, "test_a_broken_constraint_is_an_error_that_leaves_nothing"),
]


def suite_tests(suite: type[StorageConformance]) -> set[str]:
    """The tests that a suite has itself."""
    return {name for name in vars(suite) if name.startswith("test_")}


@pytest.mark.parametrize(("storage", "test"), BROKEN)
def test_the_suite_notices_a_broken_storage(storage: type[Plain], test: str) -> None:
    with pytest.raises((AssertionError, sqlite3.DatabaseError)):
        getattr(suite(storage), test)()


@pytest.mark.parametrize(("kind", "test"), BROKEN_DATABASES)
def test_the_suite_notices_a_broken_database(kind: type[Database], test: str) -> None:
    found = Live()
    found.kind = kind
    with pytest.raises((AssertionError, OperationalError)):
        getattr(found, test)()


def test_each_test_of_the_suites_has_a_broken_storage() -> None:
    assert {test for _, test in BROKEN} == suite_tests(StorageConformance) | suite_tests(CacheConformance)
    assert {test for _, test in BROKEN_DATABASES} == suite_tests(DatabaseConformance)


@pytest.mark.parametrize("test", sorted(suite_tests(StorageConformance)))
def test_the_suite_passes_a_sound_storage(test: str) -> None:
    getattr(suite(Plain), test)()


def test_a_cache_without_a_file_is_no_storage() -> None:
    class NoFile(CacheConformance):
        def open(self, place: Any) -> Cache:
            return Cache(None)

    with pytest.raises(AssertionError):
        NoFile().test_what_is_put_can_be_read_at_once_and_later()


def test_the_undurable_database_is_one(tmp_path: Path) -> None:
    database = Live().connect(f"sqlite:///{tmp_path / 'x.db'}")
    with database.read() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    database.close()
