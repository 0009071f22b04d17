"""What does an app wait for when it imports the client? Milliseconds of `from whet_client import Client` in a bare interpreter.

    python benchmarks/client_import.py
    python benchmarks/client_import.py --starts 50 --json

Each start is a process of its own without site packages, with bytecode that is there already. The target is 60 ms of wall time on
a machine with nothing else to do; processor time is shown beside it, and what the parts of the standard library that it needs
take alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "packages" / "whet-client"
TARGET_MS = 60.0
PROGRAM = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); {}; "
    "print((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)"
)
CLIENT = "from whet_client import Client"
LIBRARY = "import dataclasses, datetime, hashlib, json, logging, pathlib, queue, random, threading, typing, urllib.parse, weakref"


def start(statement: str, bytecode: str) -> tuple[float, float]:
    """Wall and processor time of a statement in a new process, in milliseconds."""
    environment = {"PYTHONPATH": str(PACKAGE), "PYTHONPYCACHEPREFIX": bytecode}
    command = [sys.executable, "-S", "-c", PROGRAM.format(statement)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


def measure(statement: str, starts: int) -> dict[str, float]:
    """The best and the median of several starts, after one that writes the bytecode."""
    with tempfile.TemporaryDirectory() as bytecode:
        start(statement, bytecode)
        times = [start(statement, bytecode) for _ in range(starts)]
    walls, cpus = [wall for wall, _ in times], [cpu for _, cpu in times]
    return {
        "least_ms": min(walls),
        "median_ms": statistics.median(walls),
        "processor_ms": statistics.median(cpus),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = {
        "whet_client": measure(CLIENT, chosen.starts),
        "its standard library": measure(LIBRARY, chosen.starts),
    }
    if chosen.json:
        print(json.dumps({**rows, "target_ms": TARGET_MS}))
        return
    print(f"{'':<22}{'least ms':>10}{'median ms':>11}{'processor ms':>14}")
    for name, row in rows.items():
        print(f"{name:<22}{row['least_ms']:>10.1f}{row['median_ms']:>11.1f}{row['processor_ms']:>14.1f}")
    ratio = rows["whet_client"]["median_ms"] / TARGET_MS
    print(f"median over target ({TARGET_MS:g} ms): {ratio:.2f}")


if __name__ == "__main__":
    main()
