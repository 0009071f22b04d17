"""The office behind the shop: a run folder, a server in a process of its own, and people with tokens."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from whet.testing.server import server_process

MARK = "live-demo"
"""The file by which a run folder is known, so that no other folder is ever emptied."""
PATIENCE = 60.0
"""Seconds until something that does not come is given up."""
T = TypeVar("T")
_OPENER = build_opener(ProxyHandler({}))


class Failed(Exception):
    """The story does not go on: what happened, and where to look."""


class Refused(Failed):
    """The server refused a request; `status` says how."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"refused with {status}: {message}")
        self.status = status


class Person:
    """Somebody with a token, who talks to the server over HTTP."""

    def __init__(self, name: str, role: str, token: str, url: str = "") -> None:
        self.name, self.role, self.token, self.url = name, role, token, url

    def get(self, path: str, **query: object) -> Any:
        """What is at a path, as JSON. Raises Refused."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, **body: object) -> Any:
        """Send a JSON body. Raises Refused."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with _OPENER.open(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise Refused(error.code, json.load(error)["error"]["message"]) from None


class Office:
    """The run folder with its database, and the commands and the server that work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = f"sqlite:///{folder / 'whet.db'}"
        self.url = ""

    def begin(self) -> None:
        """An empty run folder; one that an earlier run of this demo left is emptied. Raises Failed for any other."""
        if self.folder.exists() and not (self.folder / MARK).is_file():
            raise Failed(
                f"{self.folder} exists and is no folder of this demo. Name another one: --out FOLDER."
            )
        if (url := self._still_served()) is not None:
            raise Failed(
                f"A demo still runs in {self.folder}, at {url}. End it, or name another --out FOLDER."
            )
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / MARK).touch()

    def _still_served(self) -> str | None:
        """The address of a server that still works on the folder."""
        url = (self.folder / MARK).read_text("utf-8") if self.folder.exists() else ""
        if url:
            with contextlib.suppress(OSError), _OPENER.open(f"{url}/healthz", timeout=PATIENCE):
                return url
        return None

    def whet(self, *words: str) -> str:
        """What a `whet` command prints. Raises Failed when it does not end well."""
        done = subprocess.run(
            [sys.executable, "-m", "whet", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise Failed(f"whet {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def prompts(self, *words: str, say: Callable[[str], None]) -> None:
        """A `whet prompts` command, which is told."""
        say(f"whet prompts {shlex.join(words)}")
        self.whet("prompts", "--database", self.database, *words)

    def hire(self, name: str, role: str, say: Callable[[str], None]) -> Person:
        """Somebody new, with a token."""
        say(f"whet access add {name} --role {role}")
        return Person(
            name, role, self.whet("access", "add", name, "--role", role, "--database", self.database)
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """`whet serve` on a free port of this machine, with the simulated reader, until the end of the block. Raises Failed."""
        log = self.folder / "server.log"
        command = [sys.executable, "-m", "whet", "serve", "--port", "0", "--database", self.database]
        command += ["--runs", str(self.folder), "--optimizer-lm", "openai/simulated-reader"]
        with server_process("--function", "reader:answer") as reader:
            with log.open("wb") as told:
                server = subprocess.Popen(
                    [*command, "--base-url", reader],
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=told,
                    start_new_session=True,
                )
            try:
                self.url = wait_for("the server", lambda: _address(server, log))
                (self.folder / MARK).write_text(self.url, "utf-8")
                yield
            finally:
                server.terminate()
                server.wait(PATIENCE)
                (self.folder / MARK).write_text("", "utf-8")


def _address(server: subprocess.Popen[bytes], log: Path) -> str | None:
    told = log.read_text("utf-8", "replace")
    if server.poll() is not None:
        raise Failed(f"The server ended: {told.strip()}")
    found = re.search(r"^whet serves at (http\S+)$", told, re.MULTILINE)
    return found[1] if found else None


def wait_for(what: str, look: Callable[[], T | None], patience: float = PATIENCE) -> T:
    """The first thing that a look finds. Raises Failed when there is nothing after `patience` seconds."""
    started = time.monotonic()
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() - started > patience:
            raise Failed(f"There was no sign of {what} within {patience:.0f} seconds.")
        time.sleep(0.1)


def path_to(*parts: str) -> str:
    """A path of the server, every part quoted; a `/` in a part stays."""
    return "".join(f"/{quote(part, safe='/')}" for part in parts)
