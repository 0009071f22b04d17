"""What every test shares: properties are checked without clocks and in a fixed order, state is a test's own, and files are
written to memory where there is enough of it: a test that waits for a disk a thousand times waits for minutes. What is
loaded and collected lives to the end: no look for cycles of objects goes through it."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import socketserver
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

gc.disable()  # until everything is collected: eight thousand tests, and what they import
MEMORY = Path("/dev/shm")
if (
    os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free > 4 * 2**30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)

TEMPORARY = tempfile.gettempdir()
"""Not the folder of a test that has a place of its own for temporary files, which is gone with the test."""

os.environ["WHET_STATE"] = tempfile.mkdtemp(prefix="whet-state-")
"""What fixtures of a module and child processes write to; nothing of a test goes to the home of who runs it."""
atexit.register(shutil.rmtree, os.environ["WHET_STATE"], ignore_errors=True)

socketserver.StreamRequestHandler.disable_nagle_algorithm = True
"""Servers of tests write headers and body apart: the kernel held the second for 40 ms, until the first was acknowledged."""

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    # not Phase.explain: it traces, and CPython 3.11 goes round in a function that is traced while two other threads compute
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")


ON_BOTH = {"tests/live/test_database.py", "tests/live/traffic/test_store.py"}
"""Files about the database itself, whose tests run on PostgreSQL each time."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that run on each kind of database, `make test` runs all on SQLite and every third of a file on PostgreSQL;
    `make test-long` runs the others there."""
    seen: Counter[str] = Counter()
    for item in items:
        file, parameters = item.nodeid.partition("::")[0], getattr(item, "callspec", None)
        kinds = {} if parameters is None else parameters.params
        if "postgresql" not in (kinds.get("database_url"), kinds.get("database_to_read")):
            continue
        seen[file] += 1
        if file not in ON_BOTH and seen[file] % 3 != 1:
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Leave out what was collected, and look as seldom as the command line does: a look at all of it stops the process for a
    second, which a test with a time limit takes for a server that does not answer."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ledger of openings of its own for each test, beside its folder: no test has seen the rows of another."""
    folder = tmp_path.with_name(f"{tmp_path.name}-state-of-whet")
    monkeypatch.setenv("WHET_STATE", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of this session's own. It starts with the first test that needs it; each test has databases of its
    own in it."""
    from tests.postgres import start_postgres

    with start_postgres(TEMPORARY) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_admin(postgres: Any) -> Iterator[Any]:
    """A connection that makes and drops the databases of all tests."""
    import psycopg

    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits before further attempts that are a twentieth of those of a user."""
    monkeypatch.setattr("whet.engine.model_client.BASE_SECONDS", 0.025)
