"""The journal of a run: an append-only SQLite database (WAL, synchronous=FULL) with group commit.

Appends go to one writer thread in order, so that after any crash the file holds a prefix of what was
appended. A caller waits only where it must: `commit` waits for the disk (the intent of a paid call, before
it is sent). Everything appended before is durable then too: an answer is in the file before another intent is, in its stead.

Tables: `meta` (header, owner, elapsed seconds), `effects` (position -> recorded value), `results`
(content -> completions, shared by positions that ask the same), `calls` (one row per paid attempt, written before it is sent),
`details` (what a provider says of a call beyond that: cached input, thought, a cost), `events` (what methods log; read by
progress and report). Each row has a checksum; rows of older versions may have none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

import orjson

from whet.errors import RunLocked, StorageError, UsageError, parameter

try:
    import fcntl
except ImportError:  # not a POSIX system: the owner number alone guards the journal
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
_ROWS_A_STEP = 128
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER);
CREATE TABLE IF NOT EXISTS effects(
  key TEXT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, value BLOB,
  role TEXT, calls INTEGER NOT NULL DEFAULT 0, sum INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results(digest TEXT PRIMARY KEY, value BLOB NOT NULL, sum INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls(
  id INTEGER PRIMARY KEY, role TEXT NOT NULL, digest TEXT NOT NULL, session INTEGER NOT NULL,
  state TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost REAL NOT NULL,
  sum INTEGER);
CREATE TABLE IF NOT EXISTS details(
  id INTEGER PRIMARY KEY, cached_input_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, named INTEGER NOT NULL,
  sum INTEGER);
CREATE TABLE IF NOT EXISTS events(
  seq INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, calls INTEGER NOT NULL,
  sum INTEGER);
"""

_ADD_SUM = {
    "meta": "ALTER TABLE meta ADD COLUMN sum INTEGER",
    "effects": "ALTER TABLE effects ADD COLUMN sum INTEGER",
    "results": "ALTER TABLE results ADD COLUMN sum INTEGER",
    "calls": "ALTER TABLE calls ADD COLUMN sum INTEGER",
    "details": "ALTER TABLE details ADD COLUMN sum INTEGER",
    "events": "ALTER TABLE events ADD COLUMN sum INTEGER",
}
NEW_EVENT = "INSERT OR IGNORE INTO events(key, name, value, calls, sum) VALUES (?,?,?,?,?)"
NEW_STATE = "UPDATE calls SET state = ?, sum = (sum & ~65535) | ? WHERE id = ?"
"""Changes the state of a call, and that part of its checksum: the first parameters are those of `state_values`."""

_META = "SELECT * FROM meta WHERE key = ?"
_NEW_META = "INSERT OR REPLACE INTO meta(key, value, sum) VALUES (?,?,?)"

Statement = tuple[str, tuple[Any, ...]]
Connect = Callable[[str], Any]


def connect(path: str) -> sqlite3.Connection:
    """An SQLite connection whose transactions are explicit."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One logged fact with the number of model calls that the run had made by then."""

    name: str
    value: Any
    calls: int


@dataclass(slots=True)
class _Batch:
    """Statements for the writer, and who waits until they are durable."""

    statements: list[Statement] = field(default_factory=list)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


class Journal:
    """Exclusive, durable access to one run's journal file.

    Raises RunLocked when another process holds it, UsageError when the file is no journal, StorageError
    when the disk refuses a write; after that every append raises the same error.
    """

    def __init__(self, path: Path, connect: Connect = connect) -> None:
        self.path = path
        _check_file(path)
        self._lock = _lock(path)
        self._failure: BaseException | None = None
        self._next = _Batch()
        self._called = False
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        try:
            self._db = connect(str(path))
            self._open()
        except Exception as error:
            _unlock(self._lock)
            if isinstance(error, UsageError | StorageError):
                raise
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                raise damaged_journal(path, error) from error
            words = " ".join(str(error).split())
            raise StorageError(f"{path}: the journal cannot be opened: {words}.") from error
        self._thread = threading.Thread(target=self._write_forever, name="whet-journal", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        list(self._db.execute("PRAGMA journal_mode = WAL"))
        list(self._db.execute("PRAGMA synchronous = FULL"))
        self._level = "FULL"
        list(self._db.execute("PRAGMA wal_autocheckpoint = 4000"))
        os.chmod(self.path, 0o600)
        for statement in SCHEMA.split(";"):
            if statement.strip():
                self._db.execute(statement)
        for table, add in _ADD_SUM.items():
            if "sum" not in [row[1] for row in self.rows("SELECT * FROM pragma_table_info(?)", (table,))]:
                self._db.execute(add)
        if (state := str(self.rows("PRAGMA quick_check(1)")[0][0])) != "ok":
            raise damaged_journal(self.path, state)
        version = self.meta("format")
        if version is not None and int(version) != FORMAT:
            raise UsageError(
                f"{self.path}: journal format {version}, this whet reads {FORMAT}. Use the version that wrote it."
            )
        self._db.execute("BEGIN IMMEDIATE")
        self.session = int(self.meta("session") or 0) + 1
        for key, value in (("format", FORMAT), ("session", self.session)):
            self._db.execute(*meta_row(key, str(value)))
        self._db.execute("COMMIT")

    def meta(self, key: str) -> str | None:
        """A value of the header table."""
        return _meta_value(self.path, list(self._db.execute(_META, (key,))))

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Read committed rows. Call before the run starts, or after `flush`."""
        return [tuple(row) for row in self._db.execute(sql, parameters)]

    def pin(self, statements: Iterable[Statement]) -> None:
        """Write what others must see before this run does anything. Call before anything is appended. Raises StorageError."""
        self._write(_Batch(list(statements)), "FULL")
        self._raise_failure()

    def append(self, statements: Iterable[Statement]) -> None:
        """Queue statements without waiting: the writer takes them up at its next turn. Raises StorageError after a failure."""
        self._raise_failure()
        self._next.statements += statements
        if self._next.statements and not self._called:
            self._call()

    def commit(self, statements: Iterable[Statement] = ()) -> asyncio.Future[None]:
        """Queue statements; who awaits the result waits until they and all earlier ones are on disk. Raises StorageError."""
        self._raise_failure()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next.statements += statements
        self._next.waiting.append(done)
        if not self._called:
            self._call()
        return done

    def _call(self) -> None:
        """Hand over what is queued; with a running event loop together with all else of this turn of the loop."""
        try:
            asyncio.get_running_loop().call_soon(self._hand_over)
            self._called = True
        except RuntimeError:
            self._hand_over()

    def _hand_over(self) -> None:
        self._called = False
        batch, self._next = self._next, _Batch()
        self._queue.put(batch)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_forever(self) -> None:
        """Write batch after batch: all that was handed over meanwhile is one transaction."""
        while True:
            item, batch = self._queue.get(), _Batch()
            while item is not None:
                batch.statements += item.statements
                batch.waiting += item.waiting
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._write(batch, "FULL" if batch.waiting or item is None else "NORMAL")
            if item is None:
                return

    def _write(self, batch: _Batch, level: str) -> None:
        try:
            if (batch.statements or batch.waiting) and self._failure is None:
                if level != self._level:
                    self._db.execute(
                        "PRAGMA synchronous = FULL" if level == "FULL" else "PRAGMA synchronous = NORMAL"
                    )
                    self._level = level
                self._transact(batch.statements)
        except Exception as error:
            self._failure = (
                error
                if isinstance(error, RunLocked)
                else StorageError(
                    f"{self.path}: the journal could not be written ({error}). Everything acknowledged before is safe; "
                    "free some space and run the same command again."
                )
            )
        if batch.waiting:
            loop = batch.waiting[0].get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, batch.waiting, self._failure)

    def _transact(self, statements: list[Statement]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            owner = int(self.meta("session") or 0)
            if owner != self.session:
                raise RunLocked(f"{self.path}: another process took over this run. This process stops.")
            for sql, rows in by_statement(statements):
                for statement in in_steps(sql, rows):
                    self._db.execute(*statement)
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(
                Exception
            ):  # a failed write may have ended it; its own error is the one to tell
                self._db.execute("ROLLBACK")
            raise

    def close(self, remove: Iterable[Path] = ()) -> None:
        """Write what is queued, then release the file. Calling it twice is harmless.

        `remove` are files, and folders that are empty by then, which go before another process can take the journal.
        """
        if self._thread.is_alive():
            self._next.statements.append(meta_row("closed", str(self.session)))
            self._hand_over()
            self._queue.put(None)
            self._thread.join()
        self._db.close()
        for path in remove:
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        _unlock(self._lock)


def damaged_journal(path: Path, reason: object) -> StorageError:
    """The error of a journal that does not hold any more what was written."""
    words = " ".join(str(reason).split())
    return StorageError(
        f"{path}: the journal is damaged ({words}). Restore the folder from a copy, or choose another {parameter('run')}: "
        "answers that are in the cache are not paid for again."
    )


def checksum(*parts: str | bytes | None) -> int:
    """A number that tells whether a row still holds what was written."""
    data = [part.encode() if isinstance(part, str) else part or b"" for part in parts]
    return zlib.crc32(b"\0".join(data))


def check_row(path: Path, table: str, stored_sum: int | None, *parts: str | bytes | None) -> None:
    """Raise StorageError for a row that has changed; a row of an older version has no checksum."""
    if stored_sum is not None and stored_sum != checksum(*parts):
        raise changed_row(path, table, parts[0])


def changed_row(path: Path, table: str, row: object) -> StorageError:
    """The error of a row whose checksum is not that of its content."""
    reason = f"the row {str(row)[:40]} of its table {table} has changed"
    return damaged_journal(path, reason)


def call_sum(
    call: int, role: str, digest: str, session: int, state: str, tokens: tuple[int, int], cost: float
) -> int:
    """The checksum of a row of `calls`. Its lowest 16 bits are those of the state alone, which changes later."""
    data = f"{call}|{role}|{digest}|{session}|{tokens[0]}|{tokens[1]}|{cost + 0.0!r}"
    return zlib.crc32(data.encode()) << 16 | state_values(state)[1]


@lru_cache(maxsize=32)
def state_values(state: str) -> tuple[str, int]:
    """A state of a call, with its part of the checksum."""
    return state, zlib.crc32(state.encode()) & 0xFFFF


def check_calls(path: Path, rows: Iterable[tuple[Any, ...]]) -> None:
    """Raise StorageError for a row of `calls` that has changed."""
    for call, role, digest, session, state, read, written, cost, row_sum in rows:
        if row_sum is not None and row_sum != call_sum(
            call, role, digest, session, state, (read, written), cost
        ):
            raise changed_row(path, "calls", call)


def detail_sum(*numbers: int) -> int:
    """The checksum of a row of `details`."""
    return zlib.crc32("|".join(map(str, numbers)).encode())


def check_details(path: Path, rows: Iterable[tuple[Any, ...]]) -> None:
    """Raise StorageError for a row of `details` that has changed."""
    for *numbers, row_sum in rows:
        if row_sum is not None and row_sum != detail_sum(*numbers):
            raise changed_row(path, "details", numbers[0])


def meta_row(key: str, value: str) -> Statement:
    """The statement that writes a value of the header table."""
    return _NEW_META, (key, value, checksum(key, value))


def _meta_value(path: Path, rows: Sequence[Sequence[Any]]) -> str | None:
    """The value of the one row that was looked for in `meta`. Raises StorageError for a row that has changed."""
    for key, value, *row_sum in rows:
        check_row(path, "meta", row_sum[0] if row_sum else None, key, value)
        return str(value)
    return None


def event_row(key: str, name: str, value: bytes, calls: int) -> tuple[object, ...]:
    """The parameters of `NEW_EVENT`."""
    return key, name, value, calls, checksum(key, name, value, str(calls))


def by_statement(statements: Iterable[Statement]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Statements grouped so that each group runs in one step. Inserts into different tables commute; the order of
    equal statements, and of anything else, is kept.

    >>> by_statement([("INSERT a", (1,)), ("INSERT b", (2,)), ("INSERT a", (3,)), ("UPDATE a", ()), ("INSERT a", (4,))])
    [('INSERT a', [(1,), (3,)]), ('INSERT b', [(2,)]), ('UPDATE a', [()]), ('INSERT a', [(4,)])]
    """
    done: list[tuple[str, list[tuple[object, ...]]]] = []
    groups: dict[str, list[tuple[object, ...]]] = {}
    for sql, parameters in statements:
        if sql.startswith("INSERT"):
            groups.setdefault(sql, []).append(parameters)
            continue
        done += groups.items()
        groups = {}
        done.append((sql, [parameters]))
    return done + list(groups.items())


def in_steps(sql: str, rows: Sequence[tuple[object, ...]]) -> Iterator[Statement]:
    """The rows of one statement as few statements of many rows each, as many as a power of 2, so that they stay prepared.

    SQLite's binding gives up the interpreter's lock at every step, and waits for it afterwards while a busy event loop
    holds it: a step a row would make the writer the slowest part of a run.

    >>> list(in_steps("INSERT INTO t VALUES (?,?)", [(1, 2), (3, 4), (5, 6)]))
    [('INSERT INTO t VALUES (?,?),(?,?)', (1, 2, 3, 4)), ('INSERT INTO t VALUES (?,?)', (5, 6))]
    """
    row = sql.rpartition(" VALUES ")[2]
    start = 0
    while start < len(rows):
        size = min(_ROWS_A_STEP, 1 << (len(rows) - start).bit_length() - 1)
        yield sql + f",{row}" * (size - 1), tuple(chain.from_iterable(rows[start : start + size]))
        start += size


def _settle(waiting: list[asyncio.Future[None]], failure: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)


def _check_file(path: Path) -> None:
    """Raise UsageError for a file that is no database; nothing is written beside it."""
    if path.exists() and path.stat().st_size > 0:
        with open(path, "rb") as file:
            if file.read(15) != b"SQLite format 3":
                raise UsageError(f"{path}: this file is not a journal. Choose another {parameter('run')}.")


def _lock(path: Path) -> IO[bytes] | None:
    if fcntl is None:
        return None
    name = path.with_name(path.name + ".lock")
    try:
        file = open(name, "ab", opener=_private)  # noqa: SIM115 - held for the life of the run
    except OSError as error:
        raise StorageError(f"{name}: the lock of the run cannot be opened: {error}.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_ino != name.stat().st_ino:
            raise FileNotFoundError(f"{name} was removed by its holder")
    except OSError as error:
        held = _identity(file) in _HELD
        file.close()
        who = "this program" if held else "another process"
        where = " elsewhere already" if held else ""
        raise RunLocked(
            f"{path.parent}: {who} is working on this run{where}. Wait until it ends, or choose "
            f"another {parameter('run')}."
        ) from error
    _HELD.add(_identity(file))
    return file


_HELD: set[tuple[int, int]] = set()
"""The locks that this process holds."""


def _identity(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unlock(file: IO[bytes] | None) -> None:
    if file is not None and not file.closed:
        _HELD.discard(_identity(file))
        file.close()


def read_events(path: Path, names: Iterable[str] = ()) -> list[LoggedEvent]:
    """Logged events of a journal in order, also while its run is still going on."""
    wanted = set(names)
    return [event for _, event in _events(path, 0, -1) if not wanted or event.name in wanted]


def events_after(path: Path, seq: int, limit: int) -> list[tuple[int, LoggedEvent]]:
    """The first `limit` events with a number above `seq`, each with its number, also while the run is going on."""
    return _events(path, seq, limit)


def _events(path: Path, seq: int, limit: int) -> list[tuple[int, LoggedEvent]]:
    """Events with their numbers; a `limit` of -1 is none. Raises StorageError for one that has changed."""
    sql = _EVENTS if has_sums(path, "events") else _EVENTS_OF_OLD
    events = []
    for number, key, name, value, calls, row_sum in read_journal_rows(path, sql, (seq, limit)):
        try:
            check_row(path, "events", row_sum, key, name, value, str(calls))
            events.append((number, LoggedEvent(name, orjson.loads(value), calls)))
        except (ValueError, TypeError) as error:
            raise damaged_journal(path, error) from error
    return events


def read_meta(path: Path, key: str) -> str | None:
    """A value of the header table of a journal, also while its run is going on; None where there is none.

    Raises UsageError for a file that is no journal, StorageError for a value that has changed.
    """
    return _meta_value(path, read_journal_rows(path, _META, (key,)))


def has_sums(path: Path, table: str) -> bool:
    """Whether the rows of a table may have checksums: a journal that no newer version has opened has no column for them."""
    return bool(read_journal_rows(path, "SELECT 1 FROM pragma_table_info(?) WHERE name = 'sum'", (table,)))


_EVENTS = "SELECT seq, key, name, value, calls, sum FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
_EVENTS_OF_OLD = "SELECT seq, key, name, value, calls, NULL FROM events WHERE seq > ? ORDER BY seq LIMIT ?"


def read_journal_rows(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Rows of a journal opened read-only."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no journal. Name the folder of a run (see `whet runs`).")
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        return list(db.execute(sql, parameters))
    except (sqlite3.DatabaseError, UnicodeError) as error:
        words = " ".join(str(error).split())
        raise UsageError(f"{path}: this file is not a journal of whet, or is damaged: {words}.") from error
    finally:
        db.close()
