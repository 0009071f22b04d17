"""The tables of the ledger of openings: in an SQLite file of this machine or of a shared folder, or in a team's PostgreSQL.

Both keep the same tables and the same promise: a transaction that writes is alone with the ledger from its first line to its
end, so that no two runs get the same number. The writes of a block are durable at its end, or undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from whet.engine.state_place import STATE, StateDatabase, state_place
from whet.errors import StorageError

if TYPE_CHECKING:
    from psycopg import Connection

LEDGER = "openings.sqlite"
WAIT_SECONDS = 20.0
"""The longest wait while another process writes to the file."""
_TABLES = {
    "openings": (
        "CREATE TABLE IF NOT EXISTS openings(run TEXT PRIMARY KEY, time REAL NOT NULL, number INTEGER NOT NULL, "
        "alpha REAL NOT NULL)"
    ),
    "rows": (
        "CREATE TABLE IF NOT EXISTS rows(hash TEXT NOT NULL, run TEXT NOT NULL, split TEXT NOT NULL, "
        "PRIMARY KEY (hash, run, split)) WITHOUT ROWID"
    ),
    "members": (
        "CREATE TABLE IF NOT EXISTS members(family TEXT NOT NULL, run TEXT NOT NULL, opening TEXT NOT NULL, "
        "PRIMARY KEY (family, run)) WITHOUT ROWID"
    ),
    "reserved": "CREATE TABLE IF NOT EXISTS reserved(run TEXT PRIMARY KEY, time REAL NOT NULL, place TEXT NOT NULL)",
    "compared": "CREATE TABLE IF NOT EXISTS compared(run TEXT PRIMARY KEY, digest TEXT NOT NULL)",
    "policies": "CREATE TABLE IF NOT EXISTS policies(run TEXT PRIMARY KEY, policy TEXT NOT NULL)",
    "verdicts": "CREATE TABLE IF NOT EXISTS verdicts(run TEXT PRIMARY KEY, promoted INTEGER NOT NULL)",
}
Rows = list[tuple[Any, ...]]


class LedgerUnavailable(StorageError):
    """The ledger of openings is locked or cannot be written: without it there is no verdict."""


class LedgerTables(Protocol):
    """The tables within one transaction. Statements are those of SQLite, with `?` for each value: `openings.rowid` is the order
    in which openings were settled."""

    def find(self, sql: str, *values: object) -> Rows:
        """The rows that a statement selects."""
        ...

    def find_each(self, sql: str, hashes: Iterable[str], *values: object) -> Rows:
        """The rows that a statement selects for each hash, which fills the first `?` of `hash = ?`."""
        ...

    def add(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement that inserts, for each of the rows."""
        ...

    def change(self, sql: str, *values: object) -> None:
        """Execute a statement that updates or deletes."""
        ...


class SQLiteTables:
    """The tables in a file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def find(self, sql: str, *values: object) -> Rows:
        """The rows that a statement selects."""
        return self._db.execute(sql, values).fetchall()

    def find_each(self, sql: str, hashes: Iterable[str], *values: object) -> Rows:
        """The rows that a statement selects for each hash."""
        return [row for digest in dict.fromkeys(hashes) for row in self._db.execute(sql, (digest, *values))]

    def add(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement that inserts, for each of the rows."""
        self._db.executemany(sql, rows)

    def change(self, sql: str, *values: object) -> None:
        """Execute a statement that updates or deletes."""
        self._db.execute(sql, values)


class PostgreSQLTables:
    """The tables in a database. Hashes travel together: a round trip for each row would take minutes over a slow line."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def find(self, sql: str, *values: object) -> Rows:
        """The rows that a statement selects."""
        return self._connection.execute(_for_postgresql(sql), values).fetchall()

    def find_each(self, sql: str, hashes: Iterable[str], *values: object) -> Rows:
        """The rows that a statement selects for any of the hashes."""
        together = sql.replace("hash = ?", "hash = ANY(?)", 1)
        return self.find(together, list(dict.fromkeys(hashes)), *values)

    def add(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement that inserts, for each of the rows."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_for_postgresql(sql), rows)

    def change(self, sql: str, *values: object) -> None:
        """Execute a statement that updates or deletes."""
        self._connection.execute(_for_postgresql(sql), values)


def _for_postgresql(sql: str) -> Any:
    """A statement of this package in the words of PostgreSQL and its driver."""
    return sql.replace("?", "%s").replace("openings.rowid", "openings.seq")


@contextmanager
def writing_ledger() -> Iterator[LedgerTables]:
    """The ledger in one transaction: two processes, on any machines, never get the same number. Raises
    LedgerUnavailable; UsageError for a place that is none."""
    place = _place()
    if isinstance(place, StateDatabase):
        try:
            with place.writing() as connection:
                yield PostgreSQLTables(connection)
        except StorageError as error:
            raise _unavailable(error) from None
        return
    with _file_errors(place), closing(_open_file(place)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.values():
            db.execute(statement)
        yield SQLiteTables(db)
        db.execute("COMMIT")


@contextmanager
def reading_ledger() -> Iterator[LedgerTables | None]:
    """The ledger as it stands, None before anything was written. Raises LedgerUnavailable; UsageError for a place
    that is none."""
    place = _place()
    if isinstance(place, StateDatabase):
        try:
            with place.reading() as connection:
                yield None if connection is None else PostgreSQLTables(connection)
        except StorageError as error:
            raise _unavailable(error) from None
        return
    with _file_errors(place):
        if not (place / LEDGER).exists():
            yield None
            return
        with closing(_connect(place / LEDGER)) as db:
            there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            for name in (
                _TABLES.keys() - there
            ):  # an earlier version wrote the file: to a reader what it lacks is empty
                db.execute(_TABLES[name].replace("CREATE TABLE", "CREATE TEMP TABLE"))
            yield SQLiteTables(db)


def _place() -> Path | StateDatabase:
    """The place of the ledger. Raises LedgerUnavailable where no place is named and the user has no home directory."""
    try:
        return state_place()
    except RuntimeError as error:
        raise LedgerUnavailable(
            f"There is no place for the ledger of openings ({error}). Set {STATE} to a folder."
        ) from error


def _unavailable(error: StorageError) -> LedgerUnavailable:
    """The error of a database as an error of the ledger; an error of the ledger stays as it is."""
    if isinstance(error, LedgerUnavailable):
        return error
    return LedgerUnavailable(
        f"The ledger of openings of test rows cannot be used ({error}). Restore the connection (`whet doctor` examines it), or "
        f"correct {STATE}."
    )


@contextmanager
def _file_errors(folder: Path) -> Iterator[None]:
    """Raise failures of the file as LedgerUnavailable."""
    try:
        yield
    except (OSError, RuntimeError, sqlite3.Error) as error:
        locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        reason = f"another process has locked it for {WAIT_SECONDS:g} s" if locked else str(error)
        raise LedgerUnavailable(
            f"{folder / LEDGER}, which counts openings of test rows, cannot be written ({reason}). "
            f"End the process that locks the file, or set {STATE} to a writable folder."
        ) from error


def _open_file(folder: Path) -> sqlite3.Connection:
    """The file, made where it is not there yet."""
    path = folder / LEDGER
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)
