"""The default choice of workers: functions stay in this process until they turn out to be slow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from whet._util.workers import HERE, Executor, Job, Work
from whet._util.workers.elsewhere import Elsewhere
from whet._util.workers.pool import count_processors, make_pool
from whet._util.workers.ray_cluster import RAY
from whet._util.workers.ray_pool import RayWorkers

TRIED, SLOW = 5, 0.1
"""Jobs that are measured, and seconds of the processor a job on average from which on worker processes are worth it."""
SHARE = 0.5
"""The share of the machine's memory that copies of this process may take."""


class Automatic:
    """Does jobs in this process. If the first jobs of a function take `SLOW` seconds of processor time each on average, a pool of
    as many processes as there are processors does the others, if the jobs allow that and the memory suffices. `say` gets the
    message about that."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._seconds = say, dict[str, list[float]]()
        self._slow: set[str] = set()
        self._pool: Executor = HERE

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """See `Executor`."""

    async def run(self, job: Job) -> Any:
        """See `Executor`."""
        whose = job.name.partition(" for ")[0]
        if whose in self._slow:
            return await self._pool.run(job)
        result = await HERE.run(job)
        seconds = self._seconds.setdefault(whose, [])
        if job.movable and len(seconds) < TRIED:
            seconds.append(job.processor_seconds())
            if len(seconds) == TRIED:
                self._choose(whose, sum(seconds) / TRIED)
        return result

    def _choose(self, whose: str, mean: float) -> None:
        count = count_processors()
        if mean < SLOW or count < 2 or not has_room_for(count):
            return
        if self._pool is HERE:
            self._pool = make_pool(count)
        self._slow.add(whose)
        self._say(
            f"{whose} takes {mean:.2g} s of the processor an answer: from now on {count} worker processes call it "
            "(--workers 0 keeps it in this one)"
        )

    async def close(self) -> None:
        """See `Executor`."""
        await self._pool.close()


LOCAL, PROCESSES = "local", "processes"
ENGINES = (LOCAL, PROCESSES, RAY)
"""The names of the executors for functions of users; `ray://HOST:PORT` is one too."""


def is_ray(engine: str | None) -> bool:
    """Whether the workers of that engine are on a Ray cluster."""
    return engine is not None and (engine == RAY or engine.startswith(f"{RAY}://"))


def make_executor(
    engine: str | None, workers: int | None, memory: int | None, share: int, say: Callable[[str], None]
) -> Executor:
    """The executor of a run with so many workers: 0: none; None: if functions are slow. `memory`: MiB a worker; None: no limit.

    `engine`: one of `ENGINES`, or the address of a Ray cluster; None: `workers` decides. `share` runs use it at once.
    """
    if engine is not None and is_ray(engine):
        return Elsewhere(RayWorkers(engine, workers, memory or 0, share, say))
    if engine is None and workers is None and memory is None:
        return Automatic(say)
    if engine == LOCAL:
        return HERE
    count = count_processors() if workers is None else workers
    return make_pool(count, memory or 0) if count else HERE


def has_memory_for(size: int) -> bool:
    """Whether so many bytes are at most `SHARE` of the memory; True where nobody knows."""
    if sys.platform == "win32":
        return True
    return size <= SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_room_for(copies: int) -> bool:
    """Whether so many processes as large as this one ever was take at most `SHARE` of the memory; False where nobody knows."""
    if sys.platform != "linux":
        return False
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return has_memory_for(copies * largest)
