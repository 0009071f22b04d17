"""Run in a confined process: the rows of a query of an answer and of the right query, on the same SQLite database.

It imports nothing of whet. In: `database` (a path or ''), `setup`, `query`, `target`, `seconds`, `rows`. Out: `rows` of both, or
`fault` of one of them.
"""

import json
import sqlite3
import sys
import time
import urllib.parse
from typing import Any

_DENIED_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_LONGEST = 1_000_000


def main() -> None:
    """Read the question, write the result."""
    question = json.load(sys.stdin)
    json.dump({part: _run(question, question[part]) for part in ("target", "query")}, sys.stdout)


def _run(question: dict[str, Any], query: str) -> dict[str, Any]:
    try:
        connection = _open(question)
    except sqlite3.Error as error:
        return {"setup": str(error)}
    denied: list[str] = []

    def permit(action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in _ALLOWED or (
            action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in _DENIED_FUNCTIONS
        ):
            return sqlite3.SQLITE_OK
        denied.append(_NAMES.get(action, "something other than reading"))
        return sqlite3.SQLITE_DENY

    end = time.monotonic() + question["seconds"]
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(permit)
    connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    try:
        cursor = connection.execute(query)
        if cursor.description is None:
            return {"fault": "it is no query that returns rows"}
        rows, size = [], 0
        for row in cursor:
            rows.append([_plain(value) for value in row])
            size += len(json.dumps(rows[-1]))
            if len(rows) > question["rows"] or size > _LONGEST:
                return {"fault": f"its result is larger than {question['rows']:,} rows or {_LONGEST:,} bytes"}
        return {"rows": rows, "columns": len(cursor.description)}
    except MemoryError:
        return {"fault": "it takes more memory than it may"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if denied:
            return {"fault": f"it may only read, and asks for {denied[0]}"}
        if time.monotonic() > end:
            return {"fault": f"it had not ended after {question['seconds']:g} s"}
        return {"fault": f"SQLite says: {error}"}


def _open(question: dict[str, Any]) -> sqlite3.Connection:
    if question["database"]:
        path = urllib.parse.quote(question["database"])
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    else:
        connection = sqlite3.connect(":memory:")
        connection.executescript(question["setup"])
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)


_NAMES = {
    getattr(sqlite3, f"SQLITE_{name.replace(' ', '_')}"): name
    for name in (
        "ATTACH", "DETACH", "PRAGMA", "INSERT", "UPDATE", "DELETE", "FUNCTION", "TRANSACTION", "SAVEPOINT", "ALTER TABLE",
        "CREATE TABLE", "CREATE INDEX", "CREATE VIEW", "CREATE TRIGGER", "CREATE VTABLE", "DROP TABLE", "DROP INDEX", "DROP VIEW",
        "CREATE TEMP TABLE", "CREATE TEMP VIEW", "REINDEX", "ANALYZE",
    )
}  # fmt: skip

if __name__ == "__main__":
    main()
