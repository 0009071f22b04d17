"""Is anything that the server accepted lost when it is killed? Rows accepted, rows found, kills.

    python benchmarks/ingest_kills.py [--kills 20] [--database URL]

Again and again: start `whet serve`, send feedback over many connections, kill the process with SIGKILL at a random
moment, start anew on the same database. In the end every row that was answered with 200 must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ingest_http import Connection

from whet.client.ids import new_id
from whet.live import open_live
from whet.server.access import Access
from whet.server.roles import Role

CONNECTIONS = 24


class Counting(Connection):
    """A connection that remembers which rows were accepted."""

    row = ""

    def data_received(self, data: bytes) -> None:
        before = len(self.waits)
        super().data_received(data)
        if len(self.waits) > before and not self.wrong:
            ACCEPTED.append(self.rows.pop(0))

    def send(self) -> None:
        """One more row with an id of its own."""
        self.rows = [*getattr(self, "rows", []), new_id()]
        super().send()


ACCEPTED: list[str] = []


async def pour(port: int, token: str, server: subprocess.Popen[str], seconds: float) -> None:
    """Send as fast as answers come, and kill the server after some seconds."""
    loop = asyncio.get_running_loop()
    head = f"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode()
    head += b"Content-Type: application/json\r\n"

    def connection() -> Counting:
        found = Counting(lambda: request(head, found.rows[-1]), [])
        return found

    found = [(await loop.create_connection(connection, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
    for one in found:
        one.send()
    loop.call_later(seconds, server.kill)
    await asyncio.gather(*(one.done for one in found), return_exceptions=True)


def request(head: bytes, key: str) -> bytes:
    """One row of feedback."""
    body = json.dumps({"feedback": [{"id": key, "kind": "rating", "target": "a", "value": 3}]}).encode()
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--database")
    given = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'whet.db'}"
        with open_live(url) as live:
            token = Access(live.database).add(
                f"benchmark-{new_id()[-12:]}", Role.VIEWER, app=True, by="benchmark"
            )
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
        for _ in range(given.kills):
            server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
            assert server.stderr is not None
            port = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
            assert port is not None
            asyncio.run(pour(int(port[1]), token, server, rng.uniform(0.2, 1.2)))
            server.communicate()
        with open_live(url) as live:
            lost = [key for key in ACCEPTED if live.traffic.said(key) is None]
    print(f"{given.kills} kills, {len(ACCEPTED):,} rows accepted, {len(lost)} of them lost (target 0)")
    if lost:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
