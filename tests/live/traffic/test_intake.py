"""The intake: receipts after the commit, requests that do not spoil each other, and nothing lost to a kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select, text

from whet.errors import StorageError, UsageError
from whet_client.records import Feedback, Inference
from whet_live.database import Database, open_database
from whet_live.traffic.traffic_store import Intake, Overloaded, Traffic
from whet_live.traffic.traffic_tables import feedback
from whet_live.traffic.write import IdConflict, Receipt


def thumb(id: str, value: float = 1.0) -> Feedback:
    """A thumb about the inference `x`."""
    return Feedback(kind="thumb", target="x", value=value, id=id)


class Held(Traffic):
    """A store whose transactions wait until they are let go."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.go, self.begun, self.transactions = threading.Event(), threading.Event(), 0

    @property
    def database(self) -> Any:
        """The database, behind the gate."""
        return self

    @database.setter
    def database(self, value: Database) -> None:
        self.real = value

    @contextmanager
    def begin(self) -> Any:
        """A transaction, once it may begin."""
        self.transactions += 1
        self.begun.set()
        assert self.go.wait(30)
        with self.real.begin() as connection:
            yield connection


def ids(database: Database) -> set[str]:
    """Ids of all stored feedback."""
    with database.read() as connection:
        return set(connection.execute(select(feedback.c.id)).scalars())


def test_a_receipt_comes_after_the_commit(database: Database) -> None:
    intake = Intake(Traffic(database))
    receipt = intake.submit([Inference("p", id="x")], [thumb("a")]).result(30)
    assert (receipt.accepted, receipt.ids) == (2, ("x", "a"))
    assert ids(database) == {"a"}
    assert intake.submit((), [thumb("a")]).result(30).duplicates == 1
    intake.close()
    intake.close()


def test_what_comes_during_a_commit_is_written_in_the_next_one_together(database: Database) -> None:
    held = Held(database)
    intake = Intake(held, group=50)
    futures = [intake.submit((), [thumb("first")])]
    assert held.begun.wait(30)
    futures += [intake.submit((), [thumb(f"f{k}")]) for k in range(100)]
    assert intake.waiting == 101
    held.go.set()
    assert [future.result(30).accepted for future in futures] == [1] * 101
    assert held.transactions == 3
    intake.close()
    assert intake.waiting == 0


def test_a_conflict_is_told_to_its_own_request_only(database: Database) -> None:
    held = Held(database)
    intake = Intake(held)
    futures = [intake.submit((), [thumb("first")])]
    assert held.begun.wait(30)
    futures.append(intake.submit((), [thumb("a"), thumb("b")]))
    wrong = intake.submit((), [thumb("c"), thumb("a", 0.0)])
    futures.append(intake.submit((), [thumb("a"), thumb("d")]))
    held.go.set()
    with pytest.raises(IdConflict, match=r'"a" is taken\. Send'):
        wrong.result(30)
    assert [(f.result(30).accepted, f.result(30).duplicates) for f in futures] == [(1, 0), (2, 0), (1, 1)]
    assert ids(database) == {"first", "a", "b", "d"}
    intake.close()


def test_a_request_that_the_database_refuses_does_not_spoil_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet_live.traffic import traffic_store as module

    def store(connection: Any, batches: Any) -> Any:
        found = real(connection, batches)
        if any(one.id == "bad" for batch in batches for one in batch.feedback):
            connection.execute(text("SELECT lost FROM nowhere"))
        return found

    real = module.store_batch
    monkeypatch.setattr(module, "store_batch", store)
    held = Held(database)
    intake = Intake(held)
    futures: list[Future[Receipt]] = [intake.submit((), [thumb("first")])]
    assert held.begun.wait(30)
    futures += [intake.submit((), [thumb(name)]) for name in ("a", "bad", "b")]
    held.go.set()
    with pytest.raises(StorageError, match="nowhere"):
        futures.pop(2).result(30)
    assert [future.result(30).accepted for future in futures] == [1, 1, 1]
    assert ids(database) == {"first", "a", "b"}
    intake.close()


def test_a_database_that_is_away_is_not_asked_again_for_each_that_waits(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt may wait half a minute for a lock: asked again for each request, a queue would take hours."""
    traffic, asked, gate = Traffic(database), [], threading.Event()

    def away() -> Any:
        asked.append(gate.wait(30))
        raise StorageError("The database is locked.")

    monkeypatch.setattr(database, "begin", away)
    intake = Intake(traffic)
    first = intake.submit([Inference("p", 1, id="first")])
    others = [intake.submit([Inference("p", 1, id=str(number))]) for number in range(20)]
    gate.set()
    for future in (first, *others):
        with pytest.raises(StorageError, match="locked"):
            future.result(30)
    intake.close()
    assert len(asked) <= 6  # two groups at most, each with two of its requests alone


class Pair(NamedTuple):
    """JSON for the standard library, and not for the database."""

    first: int
    second: int


def test_a_value_that_can_never_be_stored_is_the_senders_fault_and_its_own(database: Database) -> None:
    held = Held(database)
    intake = Intake(held)
    first = intake.submit([], [thumb("1")])
    assert held.begun.wait(30)
    odd = Inference("p", metadata={"n": Pair(1, 2)})
    futures = [
        first,
        *(intake.submit([one], [thumb(one.id)]) for one in (odd, Inference("p", id="good"), odd)),
    ]
    held.go.set()
    assert [future.exception(timeout=30) is None for future in futures] == [True, False, True, False]
    for future in (futures[1], futures[3]):
        with pytest.raises(UsageError, match=r"cannot be stored: .*not JSON serializable"):
            future.result()
    intake.close()
    assert ids(database) == {"1", "good"}


def test_more_than_it_can_hold_is_refused_at_once(database: Database) -> None:
    held = Held(database)
    intake = Intake(held, most_waiting=10)
    futures = [intake.submit((), [thumb(f"f{k}") for k in range(25)])]
    with pytest.raises(Overloaded, match="Too many rows wait"):
        intake.submit((), [thumb("one more")])
    held.go.set()
    assert futures[0].result(30).accepted == 25
    intake.close()
    with pytest.raises(StorageError, match="stopping"):
        intake.submit((), [thumb("after")])


def test_a_bad_field_is_refused_before_it_waits(database: Database) -> None:
    intake = Intake(Traffic(database))
    with pytest.raises(UsageError, match="feedback 1: kind"):
        intake.submit((), [Feedback(kind="shrug", target="x")])
    assert intake.waiting == 0
    intake.close()


CHILD = """
import sys
import time
from whet_client.records import Feedback, Inference
from whet_live.database import open_database
from whet_live.traffic.traffic_store import Intake, Traffic

intake = Intake(Traffic(open_database(sys.argv[1])))
name = sys.argv[2]

def say(number):
    def settled(future):
        future.result()
        sys.stdout.write(f"{name}-{number}\\n")
        sys.stdout.flush()
    return settled

for number in range(1_000_000):
    about = f"{name}-{number}"
    one = Feedback(kind="comment", target=about, text="wrong total", id=about)
    while intake.waiting > 200:
        time.sleep(0.001)
    intake.submit([Inference("p", 1, id=about)] if number % 2 else [], [one]).add_done_callback(say(number))
"""


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("sqlite", 2),
        ("postgresql", 2),
        *(pytest.param(one, 20, marks=pytest.mark.long) for one in ("sqlite", "postgresql")),
    ],
)
def test_what_was_acknowledged_survives_kill_9(kind: str, kills: int, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    rng = random.Random(5)
    acknowledged: set[str] = set()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for attempt in range(kills):
        command = [sys.executable, "-c", CHILD, url, f"c{attempt}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            for _ in range(rng.randrange(1, 400)):
                acknowledged.add(child.stdout.readline().strip())
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()
        whole = rest if rest.endswith("\n") or not rest else rest.rpartition("\n")[0]
        acknowledged.update(whole.split())
    assert child.returncode == -signal.SIGKILL
    database = open_database(url)
    assert len(acknowledged) > kills and acknowledged <= ids(database)
    traffic = Traffic(database)
    counted = sum(count.n for count in traffic.counts() if count.kind == "comment")
    assert counted == len(ids(database))
    if kind == "sqlite":
        with database.read() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
            words = text("SELECT count(*) FROM feedback_words WHERE feedback_words MATCH 'total'")
            assert connection.execute(words).scalar() == counted
    database.close()
