"""The state of a team in PostgreSQL: addresses, passwords, a missing driver, dropped connections, killed writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import state_url  # noqa: F401 - fixtures
from whet.api.doctor.checkup import BROKEN, OK, DoctorReport
from whet.api.doctor.state import examine_state
from whet.engine import state_place
from whet.engine.ledger_store import LedgerUnavailable, PostgreSQLTables, writing_ledger
from whet.engine.openings import SealedComparison, SealedTestLedger
from whet.engine.state_place import StateDatabase
from whet.errors import StorageError, UsageError
from whet.types import Example

ROOT = Path(__file__).resolve().parents[2]
ROWS = [Example(f"id-{i}", {"input": f"q{i}"}, "t", {}, f"q{i}") for i in range(9)]
PASSWORD = "pass%2Fw0rd%3F"


@pytest.fixture
def address(state_url: str, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    monkeypatch.setenv("WHET_STATE", state_url)
    return state_url


def name_of(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WHET_STATE", address)
    place = state_place.state_place()
    assert isinstance(place, StateDatabase) and address not in repr(place)
    return place.name


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:secret@db.example:5432/team", "postgresql://ann@db.example:5432/team"),
        ("postgres://ann:secret@db/team?sslmode=require", "postgresql://ann@db/team"),
        ("postgresql://ann@a:1,b:2/team?password=secret", "postgresql://ann@a:1,b:2/team"),
        ("postgresql:///team?host=/run/secret", "postgresql:///team"),
        ("POSTGRESQL://ann:secret?@db", "postgresql://ann@db"),
    ],
)
def test_an_address_is_shown_without_its_password(
    address: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name_of(address, monkeypatch) == shown


@pytest.mark.parametrize(
    "address",
    ["mysql://ann:secret@db/team", "postgresql://ann:sec@ret@db/team", "postgresql://ann:se/cret@db/team"],
)
def test_what_is_no_address_is_refused_without_its_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_STATE", address)
    with pytest.raises(UsageError, match="WHET_STATE") as refused:
        SealedTestLedger().foresee(None, 0.05, ROWS)
    assert "sec" not in str(refused.value) and "cret" not in str(refused.value)


def test_a_port_that_is_no_number_is_refused_without_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("WHET_STATE", f"postgresql://ann:{PASSWORD}@db:port/team?connect_timeout=soon&x=1")
    with pytest.raises(UsageError, match="cannot be read as an address") as refused:
        SealedTestLedger().open("a", 0.05, ROWS)
    assert "w0rd" not in str(refused.value)


def test_a_missing_driver_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_STATE", f"postgresql://ann:{PASSWORD}@db/team")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"psycopg, which is not installed.*pip install 'whet\[postgres\]'"):
        SealedTestLedger().foresee(None, 0.05, ROWS)


async def test_a_database_that_is_not_there_is_said_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("WHET_STATE", f"postgresql://ann:{PASSWORD}@127.0.0.1:1/team")
    assert SealedTestLedger().foresee(None, 0.05, ROWS) is None
    why = SealedTestLedger().check()
    assert "postgresql://ann@127.0.0.1:1/team" in why and "whet doctor" in why and "no verdict" in why
    report = DoctorReport()
    await examine_state(report)
    (found,) = report.symptoms
    assert found.status == BROKEN and "refused" in found.text and "WHET_STATE" in found.remedy
    for text in (why, str(report.as_json())):
        assert "w0rd" not in text


def test_what_the_driver_says_is_shown_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    monkeypatch.setenv("WHET_STATE", f"postgresql://ann:{PASSWORD}@db/team?sslpassword=other%20one")
    place = state_place.state_place()
    assert isinstance(place, StateDatabase)
    with pytest.raises(StorageError) as raised, place.errors():
        raise psycopg.OperationalError("connection to pass/w0rd? (pass%2Fw0rd%3F, other one) failed")
    assert "pass" not in str(raised.value).replace("[password]", "") and "other" not in str(raised.value)


async def test_the_doctor_shows_where_state_lies_and_leaves_no_trace(address: str, state: Path) -> None:
    report = DoctorReport()
    await examine_state(report)
    (found,) = report.symptoms
    assert found.status == OK and "can be written: PostgreSQL" in found.text and "0 openings" in found.text
    place = state_place.state_place()
    assert isinstance(place, StateDatabase)
    with place.reading() as connection:
        assert connection is None, "nothing was made"


async def test_the_doctor_of_a_folder(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = DoctorReport()
    await examine_state(report)
    assert report.symptoms[0].status == OK and not state.exists()
    SealedTestLedger().open("a", 0.05, ROWS)
    await examine_state(report)
    assert "1 opening in the ledger" in report.symptoms[1].text
    (state.parent / "file").write_text("no folder")
    monkeypatch.setenv("WHET_STATE", str(state.parent / "file"))
    await examine_state(report)
    assert report.symptoms[2].status == BROKEN and "is a file" in report.symptoms[2].text


def test_a_dropped_connection_is_said_and_the_same_call_goes_on(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = PostgreSQLTables.add

    def drop(self: PostgreSQLTables, sql: str, rows: Any) -> None:
        add(self, sql, rows)
        if "INTO compared" in sql:
            self._connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    run = SealedComparison("run", tmp_path, ROWS, digest="d")
    with monkeypatch.context() as patch:
        patch.setattr(PostgreSQLTables, "add", drop)
        with pytest.raises(LedgerUnavailable, match=r"ledger of openings.*terminating connection"):
            SealedTestLedger().settle(run, 0.05)
    assert SealedTestLedger().open("other", 0.05, ROWS).number == 1, "nothing was left by halves"
    assert SealedTestLedger().settle(run, 0.05).number == 2
    assert SealedTestLedger().settle(replace(run), 0.05).number == 2


HOLDS = """
import sys
from whet.engine.ledger_store import writing_ledger
with writing_ledger() as db:
    db.add("INSERT INTO openings(run, time, number, alpha) VALUES (?,?,?,?)", [("killed", 0.0, 7, 0.1)])
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_nothing_and_holds_up_nobody(address: str) -> None:
    assert SealedTestLedger().open("first", 0.05, ROWS).number == 1
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDS], env=env, text=True, **pipes) as child:
        assert child.stdout is not None and child.stdout.readline() == "holds\n"
        child.send_signal(signal.SIGKILL)
        assert SealedTestLedger().open("second", 0.05, ROWS).number == 2
    with writing_ledger() as db:
        assert not db.find("SELECT 1 FROM openings WHERE run = ?", "killed")


def test_a_lock_that_others_hold_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_place, "LOCK_SECONDS", 0.05)
    with writing_ledger():
        assert "other writers have locked it for 0.05 s" in SealedTestLedger().check()
    assert SealedTestLedger().check() == ""


def test_tables_of_a_newer_version_are_refused(address: str) -> None:
    assert SealedTestLedger().check() == ""
    with writing_ledger() as db:
        db.change("UPDATE format SET number = 99")
    assert "format 99" in SealedTestLedger().check()
    assert SealedTestLedger().foresee(None, 0.05, ROWS) is None


def test_a_server_that_reads_in_snapshots_gives_each_number_once(address: str) -> None:
    """Its default isolation would show a writer what was there before it waited for the lock."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"  # type: ignore[arg-type]
        )
    SealedTestLedger().check()
    code = (
        "import sys; from whet.engine.openings import SealedTestLedger as L\n"
        "from whet.types import Example\n"
        "rows = [Example('x', {'input': 'q'}, 't', {}, 'q')]\n"
        "print(*[L().open(f'{sys.argv[1]}-{i}', 0.05, rows).number for i in range(15)])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = [
        subprocess.Popen([sys.executable, "-c", code, name], env=env, stdout=subprocess.PIPE) for name in "ab"
    ]
    numbers = [int(n) for process in started for n in process.communicate(timeout=600)[0].split()]
    assert sorted(numbers) == list(range(1, 31))
