"""Workers where nobody chose: functions stay in this process until they turn out to be slow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from whet._util.workers import HERE, Executor, Job
from whet._util.workers.pool import ProcessPool

TRIED, SLOW = 5, 0.1
"""Jobs that are measured, and seconds of the processor a job on average from which on worker processes are worth it."""
SHARE = 0.5
"""The share of the machine's memory that copies of this process may take."""


class Automatic:
    """Does jobs here. Once the first ones have taken `SLOW` seconds of the processor each on average, a pool of as many processes
    as there are processors does the rest, where the jobs allow it and the memory is there. `say` is told."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._seconds = say, list[float]()
        self._executor: Executor = HERE

    async def run(self, job: Job) -> Any:
        """See `Executor`."""
        executor = self._executor
        result = await executor.run(job)
        if executor is HERE and job.movable and len(self._seconds) < TRIED:
            self._seconds.append(job.processor_seconds())
            if len(self._seconds) == TRIED:
                self._choose(job)
        return result

    def _choose(self, job: Job) -> None:
        mean, count = sum(self._seconds) / TRIED, count_processors()
        if mean < SLOW or count < 2 or not has_room_for(count):
            return
        self._executor = ProcessPool(count)
        self._say(
            f"{job.name.partition(' for ')[0]} takes {mean:.2g} s of the processor an answer: from now on {count} worker "
            "processes call it (--workers 0 keeps it in this one)"
        )

    async def close(self) -> None:
        """See `Executor`."""
        await self._executor.close()


def make_executor(workers: int | None, memory: int | None, say: Callable[[str], None]) -> Executor:
    """The executor of a run with so many workers: 0: none, None: where it is worth it. `memory`: MiB a worker; None: no limit."""
    if workers is None and memory is None:
        return Automatic(say)
    count = count_processors() if workers is None else workers
    return ProcessPool(count, memory or 0) if count else HERE


def count_processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_room_for(copies: int) -> bool:
    """Whether so many processes as large as this one ever was take at most `SHARE` of the memory; False where nobody knows."""
    if sys.platform != "linux":
        return False
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return copies * largest <= SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
