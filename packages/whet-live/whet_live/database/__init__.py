"""The one database of everything around live prompts: SQLite in a file, or PostgreSQL for a team.

Tables are SQLAlchemy Core tables on the shared `metadata`, migrations are Alembic versions that ship with the
package, and every access goes through `Database.begin()` or `Database.read()`. Times are integers: microseconds
since 1970-01-01 UTC (`iso`), by the clock that all servers share: `time_of`, `Database.read_time`. Ids are UUIDv7 texts
(`new_id`), which sort by the time they were made.
"""

from __future__ import annotations

from whet_client.ids import iso, microseconds, new_id
from whet_live.database.access_tables import (
    finished_sign_ins,
    identities,
    server_address,
    sessions,
    tokens,
    users,
)
from whet_live.database.columns import Json, RowNumber, When, metadata
from whet_live.database.engine import Database, insert_into, mark_erased, open_database, put, time_of
from whet_live.database.listing import ListPage, newest_first, one_more

__all__ = [
    "Database",
    "Json",
    "ListPage",
    "RowNumber",
    "When",
    "finished_sign_ins",
    "identities",
    "insert_into",
    "iso",
    "mark_erased",
    "metadata",
    "microseconds",
    "new_id",
    "newest_first",
    "one_more",
    "open_database",
    "put",
    "server_address",
    "sessions",
    "time_of",
    "tokens",
    "users",
]
