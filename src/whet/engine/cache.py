"""Completions shared between runs, keyed by content *and sample number*. Losing it costs money, never truth."""

from __future__ import annotations

import os
import sqlite3
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import orjson

from whet._util.sqlite import keep_log
from whet._util.storable import to_json
from whet.engine.journal import in_steps
from whet.replies import separate_thought
from whet.types import Completion, Usage

_WAIT_SECONDS = 5
_MOST_PENDING = 8 << 20
_ADD = "INSERT OR IGNORE INTO completions(key, value, made) VALUES (?, ?, ?)"
_REPLACE = "INSERT OR REPLACE INTO completions(key, value, made) VALUES (?, ?, ?)"


class AnswerCache(Protocol):
    """Answers by key. `problem`: why answers could not be read or shared, where that is worth saying."""

    @property
    def problem(self) -> str: ...

    async def find(self, key: str) -> tuple[bytes, float | None] | None:
        """The stored value, and when it was made in seconds since 1970, where that is known; None for a key that is not there."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Store a value with the next batch; one that is there stays, unless this asks for fresh answers."""
        ...

    def flush(self) -> None:
        """Begin to write what is pending."""
        ...

    def close(self) -> None:
        """Write what is pending, then release everything."""
        ...


class Cache:
    """A key-value table in SQLite, made when there is something to store. A thread of its own writes, in batches and without
    fsync: the journal is what must survive. A cache that was empty when it was opened is not searched: what this run asked is
    in its own journal.

    A cache that cannot be opened or written (read-only folder, locked, corrupt) is silently no cache. A `fresh` one answers
    nothing, and what it stores takes the place of what it held.
    """

    def __init__(self, path: Path | None, fresh: bool = False) -> None:
        self._fresh = fresh
        self._pending: dict[str, tuple[bytes, float]] = {}
        self._written: list[str] = []
        self._pending_bytes = 0
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._db: sqlite3.Connection | None = None
        self._filled = False
        self._path = path
        if path is not None and path.exists():
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=_WAIT_SECONDS, check_same_thread=False
            )
            os.chmod(path, 0o600)
            keep_log(self._db, _WAIT_SECONDS)
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS completions(key TEXT PRIMARY KEY, value BLOB NOT NULL, made REAL) WITHOUT ROWID"
            )
            columns = [row[1] for row in self._db.execute("PRAGMA table_info(completions)")]
            if "made" not in columns:
                self._db.execute("ALTER TABLE completions ADD COLUMN made REAL")
            self._filled = self._db.execute("SELECT 1 FROM completions LIMIT 1").fetchone() is not None
        except (OSError, sqlite3.Error):
            self._db = self._path = None

    problem = ""

    async def find(self, key: str) -> tuple[bytes, float | None] | None:
        """The stored value, and when it was made."""
        value = self.get(key)
        return None if value is None else (value, self.made_at(key))

    def get(self, key: str) -> bytes | None:
        """The stored value, or None."""
        if self._fresh:
            return None
        if key in self._pending:
            return self._pending[key][0]
        return self._find("SELECT value FROM completions WHERE key = ?", key) if self._filled else None

    def made_at(self, key: str) -> float | None:
        """The time at which a stored value was made, in seconds since 1970; None if it is not known."""
        if key in self._pending:
            return self._pending[key][1]
        made: float | None = self._find("SELECT made FROM completions WHERE key = ?", key)
        return made

    def _find(self, sql: str, key: str) -> Any:
        if self._db is None:
            return None
        try:
            row = self._db.execute(sql, (key,)).fetchone()
        except sqlite3.Error:
            return None
        return row[0] if row else None

    def put(self, key: str, value: bytes) -> None:
        """Store a value with the next batch."""
        if self._path is None:
            return
        self._pending[key] = value, time.time()
        self._pending_bytes += len(value)
        if len(self._pending) >= 256 or self._pending_bytes >= _MOST_PENDING:
            self.flush()

    def flush(self) -> None:
        """Hand what is pending to the writer, unless it is still at an earlier batch: then the next call does."""
        if (
            self._path is None
            or not self._pending
            or (self._writing is not None and not self._writing.done())
        ):
            return
        self._forget_written()
        if not self._pending:
            return
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "whet-cache")
        rows = [(key, value, made) for key, (value, made) in self._pending.items()]
        self._written, self._pending_bytes = list(self._pending), 0
        self._writing = self._writer.submit(self._write, rows)

    def _forget_written(self) -> None:
        """Drop what the last batch wrote from what is pending; nobody else finds it before."""
        for key in self._written:
            self._pending.pop(key, None)
        self._written = []

    def _write(self, rows: list[tuple[str, bytes, float]]) -> None:
        if self._db is None and self._path is not None:
            filled = self._filled
            self._open(self._path)
            self._filled = filled
        if self._db is None:
            return
        try:
            self._db.execute("BEGIN")
            for statement in in_steps(_REPLACE if self._fresh else _ADD, rows):
                self._db.execute(*statement)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._db.close()
            self._db = self._path = None

    def close(self) -> None:
        """Write what is pending, then close."""
        while self._pending and self._path is not None:
            if self._writing is not None:
                self._writing.result()
            self.flush()
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None
        if self._db is not None:
            self._db.close()
            self._db = None


def encode_completions(completions: list[Completion]) -> bytes:
    """Completions as JSON bytes."""
    return to_json([_row(completion) for completion in completions])


def _row(c: Completion) -> list[object]:
    """The fields of a completion; the last ones only where they say something."""
    row = [c.text, c.finish, c.usage.input_tokens, c.usage.output_tokens, c.error, c.first_token]
    more = [c.usage.cached_input_tokens, c.usage.reasoning_tokens, c.usage.cost_usd]
    if c.usage.pictures:
        written = c.usage.cache_write_tokens, c.usage.cache_write_1h_tokens
        return [*row, c.seconds, *more, c.thought, *written, c.usage.pictures]
    if c.usage.cache_write_tokens:
        stored = c.usage.cache_write_tokens, c.usage.cache_write_1h_tokens
        return [*row, c.seconds, *more, c.thought, *(stored if stored[1] else stored[:1])]
    if c.thought:
        return [*row, c.seconds, *more, c.thought]
    if more != [0, 0, None]:
        return [*row, c.seconds, *more]
    return row if c.seconds is None else [*row, c.seconds]


def _usage(read: int, written: int, rest: list[Any]) -> Usage:
    """The usage of a completion from its first two numbers and the fields after `first_token`."""
    if not rest:
        return Usage(read, written)
    cached, thought, cost = rest[1:4] or (0, 0, None)
    return Usage(
        read,
        written,
        cached_input_tokens=cached,
        reasoning_tokens=thought,
        cost_usd=cost,
        cache_write_tokens=rest[5] if len(rest) > 5 else 0,
        cache_write_1h_tokens=rest[6] if len(rest) > 6 else 0,
        pictures=rest[7] if len(rest) > 7 else 0,
    )


def decode_completions(value: bytes) -> list[Completion]:
    """The inverse of `encode_completions`; of what was stored with its thought in the text, the thought is taken out here."""
    return [
        separate_thought(
            Completion(
                t,
                f,
                _usage(i, o, rest),
                e,
                first,
                seconds=rest[0] if rest else None,
                thought="".join(rest[4:5]),
            )
        )
        for t, f, i, o, e, first, *rest in orjson.loads(value)
    ]
