"""`database`: an empty, migrated database for each test, once in SQLite and once in a real PostgreSQL.

Both are copies of a template that is migrated once a session.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine
from tests.serving import server_thread

from whet_client.ids import new_id
from whet_live.database import Database, engine, open_database
from whet_live.experiments import experiment_store


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """All databases of a kind share their compiled statements, which an engine otherwise keeps for itself: a process that
    serves has one engine, the tests have thousands."""
    first: dict[str, Any] = {}

    def create(url: Any, **options: Any) -> Any:
        made = create_engine(url, **options)
        shared = first.get(url.get_backend_name())
        if shared is None or not hasattr(
            shared.dialect, "default_isolation_level"
        ):  # it never reached its server
            first[url.get_backend_name()] = made
            return made
        made.dialect = made.pool._dialect = shared.dialect
        made._compiled_cache = shared._compiled_cache
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "create_engine", create)
        yield


@pytest.fixture(autouse=True)
def known_salts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments assign the same units in every run of a test: counts that are odd by chance hold a winner."""
    numbers = itertools.count()

    def token_hex(size: int) -> str:
        return hashlib.sha256(str(next(numbers)).encode()).hexdigest()[: 2 * size]

    monkeypatch.setattr(experiment_store, "secrets", SimpleNamespace(token_hex=token_hex))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file."""
    path = tmp_path_factory.mktemp("template") / "whet.db"
    open_database(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def postgresql_template(postgres: Any, postgres_admin: Any) -> str:
    """The name of a migrated, empty PostgreSQL database."""
    name = f"template{new_id().replace('-', '')}"
    postgres_admin.execute(f"CREATE DATABASE {name}")
    open_database(postgres.get_uri(name)).close()
    return name


def copy_sqlite(template: Path, folder: Path) -> str:
    """The address of a copy of a SQLite file."""
    path = folder / "whet.db"
    shutil.copyfile(template, path)
    return f"sqlite:///{path}"


@contextmanager
def copy_postgresql(server: Any, admin: Any, template: str) -> Iterator[str]:
    """The address of a copy of a PostgreSQL database."""
    name = f"t{new_id().replace('-', '')}"
    admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield server.get_uri(name)
    admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The address of a migrated, empty SQLite file of this test's own."""
    return copy_sqlite(sqlite_template, tmp_path)


@pytest.fixture
def postgresql_url(postgres: Any, postgres_admin: Any, postgresql_template: str) -> Iterator[str]:
    """The address of a migrated, empty PostgreSQL database of this test's own."""
    with copy_postgresql(postgres, postgres_admin, postgresql_template) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a migrated, empty database; the test runs once with each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated, empty database; the test runs once with each kind."""
    found = open_database(database_url)
    yield found
    found.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_to_read(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """A database, once of each kind, for a fixture that fills it for all tests of a file that only read it."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        found = open_database(copy_sqlite(template, tmp_path_factory.mktemp("to-read")))
        yield found
        found.close()
        return
    parts = [request.getfixturevalue(f) for f in ("postgres", "postgres_admin", "postgresql_template")]
    with copy_postgresql(*parts) as url:
        found = open_database(url)
        yield found
        found.close()


@pytest.fixture(scope="session")
def reader_url() -> Iterator[str]:
    """The base URL of the simulated reader, in a process of its own."""
    with server_thread("--function", "tests.live.reader:answer") as url:
        yield url


@pytest.fixture
def reader(reader_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the simulated reader, which every process of the test finds."""
    monkeypatch.setenv("OPENAI_BASE_URL", reader_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return "openai/reader"
