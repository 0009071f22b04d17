"""Feedback over HTTP: requests a second until they are on the disk, and how long one waits at half that load.

    python benchmarks/ingest_http.py [--database URL] [--requests 40000] [--rows 1] [--connections 64]

Starts `whet serve` in a process of its own, on SQLite in a new file unless --database says another; the sender is this
process, so that both share the machine. Every request is answered after its commit. Targets: 2,000 requests a second
on SQLite on 2 cores, p99 below 20 ms at half that load; on PostgreSQL 5,000 rows a second in batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from whet.client.ids import new_id

TARGET_RATE, TARGET_WAIT = 2_000.0, 0.020
HALF = TARGET_RATE / 2


class Connection(asyncio.Protocol):
    """One kept-alive connection that sends a request, waits for the whole answer, and goes on."""

    def __init__(self, make: Callable[[], bytes | None], waits: list[float]) -> None:
        self.make, self.waits = make, waits
        self.done = asyncio.get_running_loop().create_future()
        self.wrong = 0
        self._start = 0.0
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self) -> None:
        """The next request; at the end of all of them, the end."""
        request = self.make()
        if request is None:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._start = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, mark, body = self._got.partition(b"\r\n\r\n")
        if not mark:
            return
        found = re.search(rb"content-length: (\d+)", head)
        if found is None or len(body) < int(found[1]):
            return
        self.waits.append(time.perf_counter() - self._start)
        self.wrong += not head.startswith(b"HTTP/1.1 200")
        self._got = b""
        self.next()

    def next(self) -> None:
        """What follows an answer: the next request at once."""
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


class Paced(Connection):
    """A connection that waits for its turn: requests start at fixed times, whatever the answers do."""

    gap, begin, sent = 0.0, 0.0, 0

    def next(self) -> None:
        """The next request at its time; one that is late starts at once, and its wait counts from when it was due."""
        self.sent += 1
        due = self.begin + self.sent * self.gap
        late = time.perf_counter() - due
        if late >= 0:
            self.send()
            self._start = due
        else:
            asyncio.get_running_loop().call_later(-late, self.send)


def requests(token: str, total: int, rows: int) -> Callable[[], bytes | None]:
    """Requests of `rows` rows of feedback each, every row with an id of its own; None after `total` rows."""
    left = [total // rows]
    head = f"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode()

    def make() -> bytes | None:
        if left[0] <= 0:
            return None
        left[0] -= 1
        said = [
            {
                "id": new_id(),
                "kind": "rating",
                "target": f"a{left[0]}",
                "value": 1 + n % 5,
                "user": f"u{left[0] % 997}",
            }
            for n in range(rows)
        ]
        body = json.dumps({"feedback": said}).encode()
        return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    return make


async def burst(port: int, make: Callable[[], bytes | None], connections: int) -> tuple[float, list[float]]:
    """As fast as the answers come; seconds, and each request's wait."""
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    found = [
        (await loop.create_connection(lambda: Connection(make, waits), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    start = time.perf_counter()
    for one in found:
        one.send()
    await asyncio.gather(*(one.done for one in found))
    if wrong := sum(one.wrong for one in found):
        raise SystemExit(f"{wrong} requests were not stored")
    return time.perf_counter() - start, waits


async def paced(port: int, make: Callable[[], bytes | None], connections: int, rate: float) -> list[float]:
    """At a fixed rate; each request's wait."""
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    found = [
        (await loop.create_connection(lambda: Paced(make, waits), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    start = time.perf_counter() + 0.1
    for n, one in enumerate(found):
        one.gap, one.begin = connections / rate, start + n / rate
        loop.call_later(one.begin - time.perf_counter(), one.send)
    await asyncio.gather(*(one.done for one in found))
    return waits


def quantile(values: list[float], share: float) -> float:
    """The value below which that share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database")
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'whet.db'}"
        words = [
            sys.executable,
            "-m",
            "whet",
            "serve",
            "--port",
            "0",
            "--database",
            url,
            "--no-learn",
            "--runs",
            folder,
        ]
        server = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            measure(server, given, url)
        finally:
            server.terminate()
            server.wait(30)


def measure(server: subprocess.Popen[str], given: argparse.Namespace, url: str) -> None:
    """Send, and print what came out beside the targets."""
    assert server.stderr is not None
    told = ""
    while "login#token=" not in told:
        told += server.stderr.readline()
    link = re.search(r"http://127\.0\.0\.1:(\d+)/login#token=(\S+)", told)
    assert link is not None
    port, token = int(link[1]), link[2]
    drain = asyncio.new_event_loop()
    rows = given.requests * given.rows
    seconds, waits = drain.run_until_complete(
        burst(port, requests(token, rows, given.rows), given.connections)
    )
    kind = url.partition(":")[0]
    rate = len(waits) / seconds
    print(f"{kind}, {given.rows} rows a request, {given.connections} connections, {os.cpu_count()} cores")
    print(
        f"  at most   {rate:8,.0f} requests/s {rate * given.rows:10,.0f} rows/s   p50 {quantile(waits, 0.5) * 1e3:6.1f} ms"
        f"   p99 {quantile(waits, 0.99) * 1e3:6.1f} ms   (target {TARGET_RATE:,.0f}/s: {rate / TARGET_RATE:.2f}x)"
    )
    calm = drain.run_until_complete(
        paced(port, requests(token, int(HALF * 10) * given.rows, given.rows), 32, HALF)
    )
    p99 = quantile(calm, 0.99)
    print(
        f"  at {HALF:6,.0f} requests/s                                p50 {quantile(calm, 0.5) * 1e3:6.1f} ms"
        f"   p99 {p99 * 1e3:6.1f} ms   (target below {TARGET_WAIT * 1e3:.0f} ms: {p99 / TARGET_WAIT:.2f}x)"
    )


if __name__ == "__main__":
    main()
