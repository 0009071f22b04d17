"""The log of an SQLite file is switched on by whoever comes first, and by others at the same time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from whet._util.sqlite import keep_log
from whet.engine.cache import Cache
from whet_live.database import open_database


@pytest.fixture
def other(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that is writing into a new file: at this moment the switch is refused at once."""
    connection = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.fixture
def pauses(other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses made; after the second one the other connection has finished."""
    made: list[float] = []

    def pause(seconds: float) -> None:
        made.append(seconds)
        if len(made) == 2:
            other.execute("COMMIT")

    monkeypatch.setattr("whet._util.sqlite.time.sleep", pause)
    return made


def mode(path: Path) -> str:
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    return str(found)


def test_a_refused_switch_is_asked_for_again(tmp_path: Path, pauses: list[float]) -> None:
    connection = sqlite3.connect(tmp_path / "new.db")
    keep_log(connection, 30)
    connection.close()
    assert len(pauses) == 2
    assert mode(tmp_path / "new.db") == "wal"


def test_whatever_the_others_do_with_the_log_it_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says more closely what keeps it: here, that another process restores the log."""
    refusal = sqlite3.OperationalError("database is locked")
    refusal.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
    connection = Mock(spec=sqlite3.Connection)
    connection.execute.side_effect = [refusal, None]
    monkeypatch.setattr("whet._util.sqlite.time.sleep", lambda seconds: None)
    keep_log(connection, 30)
    assert connection.execute.call_count == 2


def test_a_switch_that_stays_refused_is_an_error(tmp_path: Path, other: sqlite3.Connection) -> None:
    connection = sqlite3.connect(tmp_path / "new.db")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        keep_log(connection, 0)
    connection.close()


def test_a_database_opens_while_another_process_makes_it(tmp_path: Path, pauses: list[float]) -> None:
    open_database(f"sqlite:///{tmp_path / 'new.db'}").close()
    assert pauses


def test_a_cache_is_shared_with_a_run_that_makes_it(tmp_path: Path, pauses: list[float]) -> None:
    cache = Cache(tmp_path / "new.db")
    cache.put("key", b"value")
    cache.close()
    assert pauses
    again = Cache(tmp_path / "new.db")
    assert again.get("key") == b"value"
    again.close()


def test_a_file_that_is_no_database_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no database, but a text that is long enough to be read as one" * 20)
    monkeypatch.setattr("whet._util.sqlite.time.sleep", lambda seconds: pytest.fail("it waited"))
    connection = sqlite3.connect(tmp_path / "text")
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        keep_log(connection, 30)
    connection.close()
