"""Bringing a database up to date in one transaction, by one process at a time.

A new database gets every table as its module declares it. An older one gets the migrations that it lacks: files
NNNN_name.py in `migrations/versions`, whose revision is the file's name, in a linear chain.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from whet.errors import UsageError
from whet.live.database.columns import metadata

TABLES = (
    "whet.live.database.access_tables",
    "whet.live.registry.registry_tables",
    "whet.live.traffic.traffic_tables",
    "whet.live.experiments.experiment_tables",
    "whet.live.learner.learner_tables",
)
"""The modules that declare tables."""
FOLDER = Path(__file__).parent / "migrations"
_LOCK = 7_748_305_109
"""The number of the PostgreSQL advisory lock that a migrating process holds."""


def revisions() -> list[str]:
    """The revisions that this version knows, oldest first."""
    return sorted(path.stem for path in (FOLDER / "versions").glob("[0-9]*.py"))


def migrate(reader: Engine, writer: Engine, name: str) -> None:
    """Apply what is missing. Raises UsageError when the database (`name`) is of a newer version."""
    known = revisions()
    with reader.connect() as connection:
        current = _current(connection)
    if current == known[-1]:
        return
    with writer.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
        current = _current(connection)
        if current is not None and current not in known:
            raise UsageError(
                f"The database {name} was written by a newer version (its tables are {current}, this one "
                f"knows {known[-1]}). Upgrade whet, or export the prompts with the version that wrote it and import them into "
                "a new database."
            )
        if current != known[-1]:
            _upgrade(connection, new=current is None)


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if revision is None else str(revision)


def _upgrade(connection: Connection, *, new: bool) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if not new:
        command.upgrade(config, "head")
        return
    for name in TABLES:
        import_module(name)
    metadata.create_all(connection)
    command.stamp(config, "head")
