"""Killed after every statement of a change, the registry shows the old or the new state, whole, and goes on working."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from whet.prompt import Prompt
from whet_live.database import Database, open_database
from whet_live.registry import Registry

PROGRAM = """
import itertools, json, os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from whet_live.database import open_database
from whet_live.registry import Decision, PromptEdit, Registry
from whet.prompt import Prompt

url, what = sys.argv[1:]
steps = {"left": -1}

def step(*_):
    steps["left"] -= 1
    if steps["left"] == -1:
        os.kill(os.getpid(), signal.SIGKILL)

def wrote(connection, cursor, statement, *_):
    if not statement.startswith(("SELECT", "PRAGMA")):
        step()

event.listen(Engine, "after_cursor_execute", wrote)
event.listen(Engine, "commit", step)

def state(registry):
    return {
        "labels": registry.labels("p"),
        "versions": [v.version for v in registry.versions("p").items],
        "moves": [[m.kind, m.old, m.new] for m in registry.moves("p", limit=500).items],
        "open": [p.id for p in registry.proposals(state="open").items],
        "log": registry.verify_audit().rows,
        "whole": registry.verify_audit().whole,
    }

def work(registry):
    if what == "promote":
        registry.move_label("p", "production", 2, actor="ann")
    elif what == "rollback":
        registry.rollback("p", "production", actor="ann")
    elif what == "create":
        registry.create("p", Prompt.parse("Three."), author="ann", label="production")
    else:
        open_ones = registry.proposals(state="open").items
        registry.decide(open_ones[0].id, Decision("approve"), actor="ann")

def child(after):
    database = open_database(url)
    steps["left"] = after
    work(Registry(database))
    step()
    steps["left"] = -1
    database.close()
    os._exit(0)

for after in itertools.count():
    pid = os.fork()
    if pid == 0:
        child(after)
    killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    database = open_database(url)
    print(json.dumps({"killed": killed, **state(Registry(database))}), flush=True)
    database.close()
    if not killed:
        break
"""


def prepared(url: str, what: str) -> dict[str, Any]:
    """A prompt with two versions, ready for the change; its state."""
    database = open_database(url)
    registry = Registry(database)
    registry.create("p", Prompt.parse("One."), author="ann", label="production")
    registry.create("p", Prompt.parse("Two."), author="ann")
    if what == "rollback":
        registry.move_label("p", "production", 2, actor="ann")
    if what == "approve":
        from whet_live.registry import PromptEdit

        registry.propose("p", PromptEdit(prompt=Prompt.parse("Three.")), author="bob", label="production")
    found = {
        "labels": registry.labels("p"),
        "versions": [v.version for v in registry.versions("p").items],
        "moves": [[m.kind, m.old, m.new] for m in registry.moves("p").items],
        "open": [p.id for p in registry.proposals(state="open").items],
        "log": registry.verify_audit().rows,
        "whole": True,
    }
    database.close()
    return found


@pytest.mark.parametrize(
    "what",
    ["promote", *(pytest.param(one, marks=pytest.mark.long) for one in ("rollback", "create", "approve"))],
)
def test_a_kill_at_any_step_leaves_the_old_or_the_new_state(database_url: str, what: str) -> None:
    old = prepared(database_url, what)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, database_url, what], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    states = [json.loads(line) for line in done.stdout.splitlines()]
    kills = [state.pop("killed") for state in states]
    assert kills == [True] * (len(states) - 1) + [False]
    assert len(states) > 5, "the change was killed at too few steps"
    new = states[-1]
    assert new != old and new["whole"]
    assert states[:-2] == [old] * (len(states) - 2)
    assert states[-2] == new, "a change that was committed is gone"


def test_readers_meanwhile_see_one_state_or_the_other(database: Database) -> None:
    registry = Registry(database)
    registry.create("p", Prompt.parse("One."), author="ann", label="production")
    registry.create("p", Prompt.parse("Two."), author="ann")
    done = threading.Event()
    seen: set[tuple[int, str]] = set()

    def read() -> None:
        last = False
        while not last:
            last = done.is_set()
            version = registry.get("p")
            seen.add((version.version, version.prompt.source))
            assert "production" in version.labels

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        registry.move_label("p", "production", 2 - number % 2, actor="ann")
    done.set()
    reader.join()
    assert seen <= {(1, "One."), (2, "Two.")} and seen
    assert [m.new for m in registry.moves("p", limit=20).items] == [1, 2] * 10
