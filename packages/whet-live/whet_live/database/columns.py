"""The shared metadata, and the column types that mean the same in SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import DDL, BigInteger, Column, Dialect, Integer, MetaData, Table, Text, event
from sqlalchemy.types import TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""Every table of the package is one of this."""

probe = Table(
    "probe",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
)
"""The row that is written to see whether one can be written."""
event.listen(probe, "after_create", DDL("INSERT INTO probe (one, count) VALUES (1, 0)"))  # type: ignore[no-untyped-call]

RowNumber = BigInteger().with_variant(Integer(), "sqlite")
"""A primary key that the database counts up. With `sqlite_autoincrement=True` on the table no number comes twice."""

When = BigInteger
"""Microseconds since 1970-01-01 UTC."""


class Json(TypeDecorator[Any]):
    """A JSON value as text in both databases, its keys in the order in which they were given."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        """The value as text; None is NULL."""
        return None if value is None else orjson.dumps(value).decode("utf-8")

    def process_result_value(self, value: Any, dialect: Dialect) -> object:
        """The text as a value."""
        return None if value is None else orjson.loads(value)
