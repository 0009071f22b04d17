"""Completions that a team shares in its state database, keyed by content *and sample number* as in a cache of one machine.

The database may be far away: the keys that are asked for in one turn of the event loop travel together, in a thread. A database
that does not answer costs money, never truth: it is left alone for a while, and what could not be written waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet._util.media import keep_images_in
from whet.engine.cache import AnswerCache, Cache
from whet.engine.state_place import StateDatabase, is_shared, state_place
from whet.errors import StorageError

if TYPE_CHECKING:
    from psycopg import Connection

REST_SECONDS = 30.0
"""The time without further tries after a database has failed."""
_BATCH = 256
_FIND = "SELECT key, value, made FROM whet_state.answers WHERE key = ANY(%s)"
_ADD = "INSERT INTO whet_state.answers VALUES (%s, %s, %s) ON CONFLICT (key) DO NOTHING"
_REPLACE = (
    "INSERT INTO whet_state.answers VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value, "
    "made = excluded.made"
)
_Found = tuple[bytes, float | None]


def open_cache(folder: Path, fresh: bool = False, *, local: bool = False) -> AnswerCache:
    """The cache of the team where its state lies in a database, else the file `cache.sqlite` in a folder; of `local` models, no
    cache at all. Pictures that models paint lie in `images` in that folder. Raises UsageError for an address of the state that
    cannot be used."""
    keep_images_in(folder / "images")
    path = None if local else folder / "cache.sqlite"
    place = state_place() if path is not None and is_shared() else None
    if isinstance(place, StateDatabase):
        place.check()
        return SharedCache(place, fresh)
    return Cache(path, fresh)


class _Line:
    """A connection of one thread, made when it is needed; `until`: when a database that has failed is tried again."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database
        self._connection: Connection[Any] | None = None
        self._prepared = False
        self.until = 0.0

    def find(self, keys: list[str]) -> dict[str, _Found]:
        """The stored values of these keys. Raises StorageError."""
        with self._database.errors():
            connection = self._open()
            if not self._prepared:
                there = connection.execute("SELECT to_regclass('whet_state.answers')").fetchone()
                self._prepared = bool(there and there[0])
            if not self._prepared:
                return {}
            return {key: (bytes(value), made) for key, value, made in connection.execute(_FIND, (keys,))}

    def add(self, rows: list[tuple[str, bytes, float]], fresh: bool) -> None:
        """Store rows, with their keys in order: two writers of the same keys never wait for each other in a circle. Raises
        StorageError."""
        if not self._prepared:
            with self._database.writing():
                self._prepared = True
        with self._database.errors():
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(_REPLACE if fresh else _ADD, sorted(rows))

    def _open(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect()
        return self._connection

    def give_up(self) -> None:
        """Leave the database alone for a while after a failure."""
        self.close()
        self.until = time.monotonic() + REST_SECONDS

    def close(self) -> None:
        """Close the connection; the next call makes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SharedCache:
    """The answers of a team. A `fresh` one answers nothing, and what it stores takes the place of what was there."""

    def __init__(self, database: StateDatabase, fresh: bool = False) -> None:
        self.problem = ""
        self._fresh = fresh
        self._pending: dict[str, tuple[bytes, float]] = {}
        self._asked: dict[str, asyncio.Future[_Found | None]] = {}
        self._look: asyncio.Task[None] | None = None
        self._reading, self._writing = _Line(database), _Line(database)
        self._reader: ThreadPoolExecutor | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._batch: Future[None] | None = None

    async def find(self, key: str) -> _Found | None:
        """The stored value, and when it was made; None also where the database does not answer."""
        if self._fresh:
            return None
        if (pending := self._pending.get(key)) is not None:
            return pending
        if key not in self._asked:
            self._asked[key] = asyncio.get_running_loop().create_future()
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_up())
        return await asyncio.shield(self._asked[key])

    async def _look_up(self) -> None:
        """Answer what is asked, all keys of a turn of the loop at once, until nothing is."""
        while True:
            await asyncio.sleep(0)
            waiting, self._asked = self._asked, {}
            if not waiting:
                return
            answers: Mapping[str, _Found] = {}
            try:
                answers = await asyncio.wrap_future(self._threads().submit(self._read, list(waiting)))
            finally:
                for key, future in waiting.items():
                    if not future.done():
                        future.set_result(answers.get(key))

    def get(self, key: str) -> bytes | None:
        """The stored value, or None; it waits for the database."""
        if self._fresh:
            return None
        if (pending := self._pending.get(key)) is not None:
            return pending[0]
        stored = self._threads().submit(self._read, [key]).result().get(key)
        return None if stored is None else stored[0]

    def put(self, key: str, value: bytes) -> None:
        """Store a value with the next batch."""
        self._pending[key] = value, time.time()
        if len(self._pending) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand what is pending to the writer, unless it is still at an earlier batch or the database rests."""
        if self._pending and (self._batch is None or self._batch.done()):
            self._hand_over()

    def close(self) -> None:
        """Write what is pending, with one attempt where the database has failed, then close."""
        if self._batch is not None:
            self._batch.result()
        if self._pending:
            self._writing.until = 0.0
            self._hand_over().result()
        for threads, line in ((self._reader, self._reading), (self._writer, self._writing)):
            if threads is not None:
                threads.shutdown()
            line.close()
        self._reader = self._writer = None

    def _hand_over(self) -> Future[None]:
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "whet-shared-cache-writer")
        rows = [(key, value, made) for key, (value, made) in list(self._pending.items())]
        self._batch = self._writer.submit(self._write, rows)
        return self._batch

    def _threads(self) -> ThreadPoolExecutor:
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, "whet-shared-cache-reader")
        return self._reader

    def _read(self, keys: Iterable[str]) -> dict[str, _Found]:
        if time.monotonic() < self._reading.until:
            return {}
        try:
            return self._reading.find(list(keys))
        except StorageError as error:
            self.problem = str(error)
            self._reading.give_up()
            return {}

    def _write(self, rows: list[tuple[str, bytes, float]]) -> None:
        """Write rows; of those that are in the database nothing is pending any more."""
        if time.monotonic() < self._writing.until:
            return
        try:
            self._writing.add(rows, self._fresh)
        except StorageError as error:
            self.problem = str(error)
            self._writing.give_up()
            return
        for key, value, made in rows:
            if self._pending.get(key) == (value, made):
                del self._pending[key]
