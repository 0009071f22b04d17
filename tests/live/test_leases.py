"""Leases of the learner: held through a moment without the database. `test_server_clocks` has those of several servers."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import pytest

from whet.errors import StorageError
from whet_client.ids import now
from whet_live.database import Database, time_of
from whet_live.learner import leases
from whet_live.learner.leases import hold

MINUTE = 60_000_000


def test_the_time_of_a_database_is_that_of_all_its_servers(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = now()
    monkeypatch.setattr("whet_live.database.engine.now", lambda: real + 60 * MINUTE)
    with database.read() as connection:
        found = time_of(connection) - real
    assert found == 60 * MINUTE if database.dialect == "sqlite" else 0 <= found < 30 * MINUTE


def test_a_lease_is_held_through_a_moment_without_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may take minutes; PostgreSQL fails over within it, and nobody else begins the same work."""
    monkeypatch.setattr(leases, "SECONDS", 0.03)
    begin, failed, renewed = database.begin, threading.Event(), threading.Event()
    away = [2]

    def breaks() -> AbstractContextManager[object]:
        if threading.current_thread().name == "whet-lease":
            away[0] -= 1
            if away[0] >= 0:
                failed.set()
                raise StorageError("The database cannot be used: the connection broke.")
            renewed.set()
        return begin()

    monkeypatch.setattr(database, "begin", breaks)
    with hold(database, "learn desk") as lease:
        assert lease is not None
        assert failed.wait(60) and renewed.wait(60)


def test_a_step_that_is_done_stays_done_where_its_lease_cannot_be_given_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> AbstractContextManager[object]:
        raise StorageError("The database cannot be used: the connection broke.")

    with hold(database, "learn desk") as lease:
        assert lease is not None
        monkeypatch.setattr(database, "begin", away)
