"""What an effect costs on a Ray cluster beside a bare Ray task, whet's own worker processes and a bare process pool.

    python benchmarks/ray_workers.py          # about a minute; needs whet[ray]

Starts a cluster of one node at 127.0.0.1. An effect is an answer that is graded by a function which does nothing. Two workers
each; every round measures all of them one after the other, and the ratios are those of a round: medians over rounds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from whet._util.workers import Executor, Job
from whet._util.workers.automatic import make_executor
from whet.rewards.program import ProgramReward, program_of_file
from whet.types import Example

WORKERS, JOBS, ROUNDS = 2, 500, 7
SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def make_reward(folder: Path) -> ProgramReward:
    """The reward that does nothing."""
    (folder / "nothing.py").write_text("def reward(example, output):\n    return 1.0\n")
    return program_of_file(folder, "nothing.py", "nothing", 0.0, 1.0)


async def microseconds(work: Callable[[], Awaitable[object]]) -> float:
    """Of one effect, when `JOBS` of them are made."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) / JOBS * 1e6


def bare_tasks(ray: Any) -> Callable[[], Awaitable[object]]:
    """Ray's own tasks that do nothing."""

    @ray.remote(max_retries=0)  # type: ignore[untyped-decorator, unused-ignore]
    def absolute(value: int) -> int:
        return abs(value)

    async def work() -> object:
        return await asyncio.to_thread(lambda: ray.get([absolute.remote(i) for i in range(JOBS)]))

    return work


def effects(executor: Executor, job: Job) -> Callable[[], Awaitable[object]]:
    """Gradings by an executor."""

    async def work() -> object:
        return await asyncio.gather(*[executor.run(job) for _ in range(JOBS)])

    return work


async def measure(folder: Path) -> dict[str, list[float]]:
    """Microseconds of an effect in each round, by who makes it."""
    import ray

    reward = make_reward(folder)
    job = reward.job(Example("e", {}, None, {"input": "w", "target": "w"}), "w")
    executors = {
        f"whet on {'Ray' if engine == 'ray' else 'processes'}": make_executor(engine, WORKERS, None, 1, print)
        for engine in ("ray", "processes")
    }
    found: dict[str, list[float]] = {}
    with ProcessPoolExecutor(WORKERS) as pool:

        async def in_pool() -> object:
            return await asyncio.to_thread(lambda: list(pool.map(abs, range(JOBS))))

        for executor in executors.values():
            await executor.prepare(lambda: [reward.make_work_to_load()])
        ways = {name: effects(executor, job) for name, executor in executors.items()}
        ways |= {"bare Ray task": bare_tasks(ray), "bare process pool": in_pool}
        for number in range(ROUNDS + 1):
            for name, work in ways.items():
                taken = await microseconds(work)
                if number:  # the first round starts processes
                    found.setdefault(name, []).append(taken)
        for executor in executors.values():
            await executor.close()
    return found


def main() -> None:
    """Print the table."""
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: pip install 'whet[ray]'")
        return
    os.environ |= SETTINGS
    from ray.cluster_utils import Cluster

    nodes = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": 2 * WORKERS}
    cluster = Cluster(initialize_head=True, head_node_args=nodes)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        with tempfile.TemporaryDirectory() as name:
            found = asyncio.run(measure(Path(name)))
    finally:
        cluster.shutdown()
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {WORKERS} workers, {ROUNDS} rounds of {JOBS}"
    )
    ours = found["whet on Ray"]
    for name, times in found.items():
        ratio = statistics.median(mine / its for mine, its in zip(ours, times, strict=True))
        print(
            f"{name:18} {statistics.median(times):7.0f} us an effect; whet on Ray takes {ratio:5.2f} x as long"
        )


if __name__ == "__main__":
    main()
