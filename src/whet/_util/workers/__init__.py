"""Work of a run that another process can do: a job, and who does it.

A run hands the functions of a user to its `Executor`. `Here` calls them in this process, one at a time; `ProcessPool` calls them
in worker processes, as many at once as there are, and kills the one whose job takes too long. What is recorded stays with
the run either way: a worker that dies costs the jobs it had in hand, and nothing that was paid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from whet.errors import WhetError


@dataclass(frozen=True)
class Work:
    """What is sent to a worker, as JSON: a function of the installed code, `module:name`, and its arguments by name.

    The worker calls that function, which loads what is needed, such as a module of the user. It returns what computes the
    result, a JSON value.
    """

    loader: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A computation in two forms: `here` in this process, `make_work` for another one.

    `seconds`: what the computation may take; `late` makes the error of one that takes longer. `name` says whose function runs on
    what, for messages. `make_work` raises UsageError for a function that another process cannot load. `movable` says whether the
    job may go to another process unasked, and `processor_seconds` how long `here` kept the processor.
    """

    here: Callable[[], Awaitable[object]]
    make_work: Callable[[], Work]
    seconds: float
    name: str
    late: Callable[[], WhetError]
    movable: bool = False
    processor_seconds: Callable[[], float] = float


class Executor(Protocol):
    """Who does the jobs of a run."""

    async def run(self, job: Job) -> Any:
        """The result of a job, a JSON value. Raises what `job.late` makes, and UsageError for a worker that does not live."""
        ...

    async def close(self) -> None:
        """Release all processes. Jobs that are under way are given up."""
        ...


class Here:
    """Does every job in this process."""

    async def run(self, job: Job) -> Any:
        return await job.here()

    async def close(self) -> None:
        return None


HERE = Here()
