"""The write-ahead log of SQLite, switched on while others do the same."""

from __future__ import annotations

import sqlite3
import time

_PAUSE_SECONDS = 0.01


def keep_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Have commits written to a log, so that readers do not wait for them. The file remembers.

    SQLite does not wait at this switch, whatever timeout the connection has: of two that make it at once, one is
    refused. So the refused one asks again for `seconds`, then raises sqlite3.OperationalError.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
