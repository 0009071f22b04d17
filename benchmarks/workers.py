"""A reward that keeps the processor, with 1 and 2 worker processes, and what a job costs beside a bare process pool.

    python benchmarks/workers.py          # about a minute; nothing else should run

Prints the seconds of `whet evaluate` for each number of workers as ratios to one worker, and the microseconds of an answer whose
reward does nothing, beside those of `concurrent.futures.ProcessPoolExecutor`.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import whet
from whet._util.workers.pool import make_pool
from whet.rewards.program import program_of_file
from whet.types import Example

ROWS, SECONDS, JOBS = 400, 0.05, 2_000
REWARD = f"""
import time

def reward(example, output):
    began = time.process_time()
    while time.process_time() - began < {SECONDS}:
        pass
    return float(output == example["target"])
"""


def evaluate(folder: Path, workers: int) -> float:
    """Seconds of an evaluation, without those of one on few rows: start and trial."""
    times = []
    for count in (40, ROWS):
        rows = [{"input": f"w{i}", "target": f"w{i}"} for i in range(count)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        run = folder / f"run-{workers}-{count}"
        began = time.perf_counter()
        whet.evaluate(
            folder, split="train", lm=lambda messages: "w", run=run, workers=workers, progress=False
        )
        times.append(time.perf_counter() - began)
    return times[1] - times[0]


async def cost_of_job(folder: Path, workers: int) -> float:
    """Microseconds of an answer that is graded by a function which does nothing."""
    (folder / "nothing.py").write_text("def reward(example, output):\n    return 1.0\n")
    reward = program_of_file(folder, "nothing.py", "nothing", 0.0, 1.0)
    job = reward.job(Example("e", {}, None, {"input": "w", "target": "w"}), "w")
    pool = make_pool(workers)
    try:
        await asyncio.gather(*[pool.run(job) for _ in range(workers)])
        began = time.perf_counter()
        await asyncio.gather(*[pool.run(job) for _ in range(JOBS)])
        return (time.perf_counter() - began) / JOBS * 1e6
    finally:
        await pool.close()


def cost_of_bare_job(workers: int) -> float:
    """The same for Python's own pool."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(abs, range(workers)))
        began = time.perf_counter()
        list(pool.map(abs, range(JOBS)))
        return (time.perf_counter() - began) / JOBS * 1e6


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.yaml").write_text(
            "name: words\nprompt: prompt.md\ndata: rows.jsonl\nreward: reward.py\n"
        )
        (folder / "prompt.md").write_text("Say {{input}}")
        (folder / "reward.py").write_text(REWARD)
        seconds = {workers: evaluate(folder, workers) for workers in (0, 1, 2)}
        print(f"{os.cpu_count()} processors; a reward that keeps one for {SECONDS * 1000:.0f} ms")
        for workers, taken in seconds.items():
            print(f"workers {workers}: {taken:6.2f} s   {seconds[1] / taken:5.2f} x one worker")
        for workers in (1, 2):
            ours, bare = asyncio.run(cost_of_job(folder, workers)), cost_of_bare_job(workers)
            print(
                f"an answer graded by a function that does nothing, {workers} workers: {ours:6.0f} us, bare pool {bare:6.0f} us"
            )


if __name__ == "__main__":
    main()
