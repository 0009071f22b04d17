"""A real server on a free port of this machine for each test, its database copied from a migrated template."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import (  # noqa: F401 - fixtures
    compiled_once,
    database,
    database_to_read,
    database_url,
    known_salts,
    postgresql_template,
    postgresql_url,
    sqlite_template,
    sqlite_url,
)
from tests.server.client import Client
from whet_live import open_live
from whet_live.server.access import Access
from whet_live.server.app_state import AppState
from whet_live.server.limits import ServerLimits
from whet_live.server.roles import Role
from whet_live.server.run import ServeOptions, Uvicorn, app_settings, listen, open_sign_in

ROLES = ("viewer", "annotator", "editor", "approver", "admin", "app")
PATIENCE = 60.0


class Running:
    """A server that runs in a thread: its state, its port, and a client for each role."""

    def __init__(self, state: AppState, port: int, tokens: dict[str, str]) -> None:
        self.state = state
        self.port = port
        self.tokens = tokens

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, role: str | None = None) -> Client:
        """A program with the token of that role, or with none."""
        return Client(self.port, token=None if role is None else self.tokens[role])

    def browser(self, role: str) -> Client:
        """A client with a session, as the page opens one."""
        client = Client(self.port)
        client.sign_in(self.tokens[role])
        return client


class Attentive(Uvicorn):
    """Looks ten times as often whether it shall end: hundreds of tests wait for that."""

    async def main_loop(self) -> None:
        """Until it shall end."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - as uvicorn does
            await asyncio.sleep(0.01)


@contextmanager
def running(database_url: str, roles: bool = True, port: int = 0, **options: Any) -> Iterator[Running]:  # noqa: F811
    """A server on a database, with a user for each role, unless they are there already."""
    chosen = ServeOptions(port=port, database=database_url, **options)
    live = open_live(database_url)
    access = Access(live.database)
    tokens = (
        {}
        if not roles
        else {
            role: access.add(
                role, Role.of(role) or Role.VIEWER, app=role == "app", by="test", all_prompts=role == "app"
            )
            for role in ROLES
        }
    )
    provider, _ = open_sign_in(chosen)
    state = AppState(live, access, app_settings(chosen), provider)
    listening = listen(chosen)
    server = Attentive(state, chosen)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield Running(state, listening.getsockname()[1], tokens)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
    assert not thread.is_alive(), "the server does not stop"


Start = Callable[..., AbstractContextManager[Running]]


@pytest.fixture
def start(sqlite_template: Path, tmp_path: Path) -> Start:  # noqa: F811 - the fixture
    """Start a server with these limits and options on an empty database."""

    def begin(limits: ServerLimits | None = None, **options: Any) -> AbstractContextManager[Running]:
        path = tmp_path / "whet.db"
        if not path.exists():
            shutil.copyfile(sqlite_template, path)
        runs = options.pop("runs", str(tmp_path / "runs"))
        return running(f"sqlite:///{path}", limits=limits or ServerLimits(), runs=runs, **options)

    return begin


@pytest.fixture
def server(start: Start) -> Iterator[Running]:
    """A server with usual limits."""
    with start() as found:
        yield found
