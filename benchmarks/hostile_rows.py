"""Does a flood of comments that are slow to read hold up other people? The waits of `/healthz` in milliseconds.

    python benchmarks/hostile_rows.py
    python benchmarks/hostile_rows.py --rate 1000 --seconds 20

Starts `whet serve` with its learner on a new SQLite file. One program sends `--rate` comments of 8 kB a second, a
hundred in a request; meanwhile somebody else asks for `/healthz` every 50 ms. The comments are those that quadratic
patterns and Unicode take longest for: newlines between two letters, marks in the wrong order, brackets and tags that
never end. Target: 99% of the waits below 250 ms. The quota of bytes is raised, so that the flood is stored and read
instead of refused. Load, asker and server share the machine. Then SIGTERM: the seconds until the server and its
learner have ended.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from whet_live.database import open_database
from whet_live.server.access import Access
from whet_live.server.roles import Role

BATCH = 100
LENGTH = 7_990
HOSTILE = (
    "a" + "\n" * LENGTH + "b",
    "a" + "\u0315" * (LENGTH // 4) + "\u0316" * (LENGTH // 4),
    "[" * LENGTH,
    "<tool" * (LENGTH // 5),
    "{{ " * (LENGTH // 3),
    "a@" * (LENGTH // 2),
)


def flood(port: int, token: str, rate: int, seconds: float, results: SimpleQueue[Counter[str]]) -> None:
    """Send rows at the rate; counts those accepted and refused, by status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    counts, began = Counter[str](), time.perf_counter()
    for number in range(int(rate * seconds / BATCH)):
        rows = [
            {"id": f"h{number}-{n}", "kind": "comment", "target": f"t{n}", "user": f"u{n}", "text": HOSTILE[n % len(HOSTILE)]}
            for n in range(BATCH)
        ]  # fmt: skip
        body = json.dumps({"feedback": rows}, ensure_ascii=False).encode()
        time.sleep(max(0.0, began + number * BATCH / rate - time.perf_counter()))
        connection.request("POST", "/v1/feedback", body, headers)
        answer = connection.getresponse()
        answer.read()
        counts["accepted" if answer.status == 200 else f"refused with {answer.status}"] += BATCH
    counts["seconds"] = round(time.perf_counter() - began)
    results.put(counts)


def waits_of(port: int, seconds: float) -> list[float]:
    """How long `/healthz` takes, in milliseconds, asked every 50 ms."""
    connection, waits = http.client.HTTPConnection("127.0.0.1", port, timeout=120), list[float]()
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 429), answer.status
        waits.append((time.perf_counter() - began) * 1000)
        time.sleep(0.05)
    return waits


def line(name: str, waits: list[float]) -> str:
    """One line of the table."""
    p99 = statistics.quantiles(waits, n=100)[98]
    return f"{name:<22} n {len(waits):>4}   p50 {statistics.median(waits):7.1f} ms   p99 {p99:7.1f} ms  most {max(waits):7.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/whet.db"
        database = open_database(url)
        token = Access(database).add("flood", Role.VIEWER, app=True, all_prompts=True, by="benchmark")
        database.close()
        options_ = ["--port", "0", "--bytes-per-second", "33554432", "--database", url]
        program = f"from whet_live.cli.serve import serve; serve({options_!r})"
        with Path(folder, "log").open("w+") as log:
            server = subprocess.Popen([sys.executable, "-c", program], stderr=log, stdout=subprocess.DEVNULL)
            try:
                measure(server, Path(folder, "log"), token, options.rate, options.seconds)
            finally:
                server.kill()
                server.wait()


def measure(server: subprocess.Popen[bytes], log: Path, token: str, rate: int, seconds: float) -> None:
    """The waits without and with the flood, and the end."""
    while "startup complete" not in log.read_text("utf-8"):
        assert server.poll() is None, log.read_text("utf-8")
        time.sleep(0.1)
    port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", log.read_text("utf-8"))[0])
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(line("nobody else", waits_of(port, 5.0)))
    context = get_context("spawn")
    results = context.SimpleQueue()
    flooding = context.Process(target=flood, args=(port, token, rate, seconds, results))
    flooding.start()
    time.sleep(2.0)
    print(line(f"{rate} rows a second", waits_of(port, seconds)), flush=True)
    counts = results.get()
    flooding.join()
    print("rows: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    print(line("learning goes on", waits_of(port, 5.0)))
    began = time.perf_counter()
    server.send_signal(signal.SIGTERM)
    server.wait()
    print(f"SIGTERM: ended after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
