"""The learner of a server is a process of its own: it ends with the server, and comes back when it ended alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.client import Client
from tests.server.test_run import first_token, process
from whet_live.learner import LearnerConfig
from whet_live.server import background_tasks as learning
from whet_live.server.background_tasks import LearnerProcess

if not Path("/proc/self/cmdline").is_file():
    pytest.skip("needs /proc to look for processes", allow_module_level=True)


def learners(parent: int) -> list[int]:
    """The processes that learn for a server."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(state[1]) == parent and b"spawn_main" in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return pids


def runs(pid: int) -> bool:
    """Whether a process does anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(true: Callable[[], object], seconds: float = 240.0) -> float:
    """Wait for something; the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it did not happen"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.long
def test_a_learner_that_hangs_does_not_keep_the_server_from_its_end(sqlite_url: str) -> None:
    with process(sqlite_url) as (server, _, _):
        until(lambda: learners(server.pid))
        (learner,) = learners(server.pid)
        os.kill(learner, signal.SIGSTOP)
        server.send_signal(signal.SIGTERM)
        assert server.wait(240) == 0 and not runs(learner)


@pytest.mark.long
def test_it_ends_where_the_server_was_killed(sqlite_url: str) -> None:
    with process(sqlite_url) as (server, _, _):
        until(lambda: learners(server.pid))
        (learner,) = learners(server.pid)
        server.kill()
        server.wait(240)
        until(lambda: not runs(learner))


def test_one_that_was_killed_comes_back_the_server_goes_on_and_both_end_within_seconds(
    sqlite_url: str,
) -> None:
    with process(sqlite_url) as (server, port, _):
        client = Client(port, first_token(server))
        until(lambda: learners(server.pid))
        (learner,) = learners(server.pid)
        os.kill(learner, signal.SIGKILL)
        until(lambda: learners(server.pid) not in ([], [learner]))
        assert client.get("/healthz").status == 200 and server.poll() is None
        (learner,) = learners(server.pid)
        server.send_signal(signal.SIGTERM)
        assert server.wait(240) == 0 and not runs(learner)


def test_the_pauses_grow_and_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    learner = LearnerProcess(f"sqlite:///{tmp_path}/none/a.db", LearnerConfig(), 1.0)

    def waited(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            learner.stop()
        return True

    monkeypatch.setattr(learning, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(learner._stop, "wait", waited)
    learner.run()
    assert pauses == [0.5, 1.0]
