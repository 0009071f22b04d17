"""Run in a confined process: the rows of a query of an answer and of the right query, on the same DuckDB database.

It imports nothing of whet. In and out are those of `sql_process.py`, and in comes also `memory`, the MiB that DuckDB may take.
"""

import datetime
import decimal
import json
import sys
import threading
from typing import Any

import duckdb

_LONGEST = 1_000_000
_AT_ONCE = 1000
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}


def main() -> None:
    """Read the question, write the result."""
    question = json.load(sys.stdin)
    json.dump({part: _run(question, question[part]) for part in ("target", "query")}, sys.stdout)


def _run(question: dict[str, Any], query: str) -> dict[str, Any]:
    try:
        connection = open_duckdb(question["database"], question["setup"], question["memory"])
    except duckdb.Error as error:
        return {"setup": str(error)}
    late = threading.Event()

    def end() -> None:
        late.set()
        connection.interrupt()

    clock = threading.Timer(question["seconds"], end)
    clock.daemon = True
    clock.start()
    try:
        fault = why_no_query(query)
        if fault:
            return {"fault": fault}
        cursor = connection.execute(query)
        rows, size = [], 0
        while some := cursor.fetchmany(_AT_ONCE):
            rows += [[_plain(value) for value in row] for row in some]
            size += sum(len(json.dumps(row)) for row in rows[-len(some) :])
            if len(rows) > question["rows"] or size > _LONGEST:
                return {"fault": f"its result is larger than {question['rows']:,} rows or {_LONGEST:,} bytes"}
        return {"rows": rows, "columns": len(cursor.description)}
    except MemoryError:
        return {"fault": "it takes more memory than it may"}
    except (duckdb.Error, ValueError, OverflowError) as error:
        if late.is_set():
            return {"fault": f"it had not ended after {question['seconds']:g} s"}
        return {"fault": f"DuckDB says: {error}"}
    finally:
        clock.cancel()
        clock.join()


def open_duckdb(database: str, setup: str, memory: int) -> Any:
    """The database of a file, to be read only, or the one that statements make in memory; nothing else can be reached from it.

    DuckDB refuses a query that takes more than `memory` MiB. Raises duckdb.Error.
    """
    config = {**CONFIG, "memory_limit": f"{memory}MiB"}
    if database:
        connection = duckdb.connect(database, read_only=True, config=config)
    else:
        connection = duckdb.connect(":memory:", config=config)
        connection.execute(setup)
    connection.execute("SET lock_configuration = true")
    return connection


def why_no_query(query: str) -> str:
    """Why a text is not one query that only reads, or ''. Raises duckdb.Error where it cannot be parsed."""
    statements = duckdb.extract_statements(query)
    if len(statements) != 1:
        return f"it is not one query but {len(statements)}"
    if statements[0].type != duckdb.StatementType.SELECT:
        return f"it may only read, and asks for {statements[0].type.name.replace('_', ' ')}"
    return ""


def _plain(value: Any) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return (
        json.dumps(value, default=str, sort_keys=True)
        if isinstance(value, list | dict | tuple)
        else str(value)
    )


if __name__ == "__main__":
    main()
