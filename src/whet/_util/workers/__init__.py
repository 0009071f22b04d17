"""Work of a run that another process can do: a job, and who does it.

A run hands the functions of a user to its `Executor`. `Here` calls them in this process, one at a time; `Elsewhere` sends them
to worker processes, as many at once as there are, and ends the one whose job takes too long. These are on this machine
(`whet._util.workers.pool`) or on those of a Ray cluster (`whet._util.workers.ray_pool`). What is recorded stays with the run
either way: a worker that dies costs the jobs it had in hand, and nothing that was paid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whet.errors import WhetError


@dataclass(frozen=True)
class Work:
    """A request to a worker, as JSON: a function of the installed code, `module:name`, and its arguments by name.

    The worker calls that function, which loads what is needed, such as a module of the user. It returns what computes the
    result, a JSON value: called without arguments, or with the worker's end of the conversation (`Asking`).
    """

    loader: str
    arguments: dict[str, Any]


Back = Callable[[Any], Awaitable[Any]]
"""Sends a JSON value to the code that asked, as a question of its own, and returns its reply."""
Answer = Callable[[Any, Back], Awaitable[Any]]
"""The answer to a question that a job asks while it goes on, both JSON values."""


class Asking(Protocol):
    """The callable by which code in a worker asks the run that sent the job."""

    async def ask(self, question: Any, reply: Callable[[Any], Coroutine[Any, Any, Any]] | None = None) -> Any:
        """The answer of the run. Where the run sends something back first, `reply` makes the reply to that."""
        ...


@dataclass(frozen=True)
class Job:
    """A computation that this process can do (`here`), and another process as well (`make_work`)."""

    here: Callable[[], Awaitable[object]]
    """Does the job in this process."""
    make_work: Callable[[], Work]
    """Makes the job for another process. Raises UsageError for a function that no other process can load."""
    seconds: float
    """The longest time that the job may take."""
    name: str
    """Whose function runs on what, for messages."""
    late: Callable[[], WhetError]
    """Makes the error of a job that takes longer."""
    movable: bool = False
    """Whether the job may go to another process unasked."""
    processor_seconds: Callable[[], float] = float
    """Returns the processor time that `here` took, in seconds."""
    answer: Answer | None = None
    """Answers the questions that the job asks of the run while it goes on, one at a time; None: it asks nothing. If its worker
    dies, such a job is repeated from its start and gets the same answers again. The seconds in which it waits for an answer do
    not count."""


class Executor(Protocol):
    """The protocol of an executor, which does the jobs of a run."""

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """Called before anything is paid. `make_works` makes work of each function of the user that will be a job: it is loaded
        and not done. Raises UsageError where a worker on another machine cannot load it, or finds other code around it."""
        ...

    async def run(self, job: Job) -> Any:
        """The result of a job, a JSON value. Raises what `job.late` makes, and UsageError for a worker that does not live."""
        ...

    async def close(self) -> None:
        """Release all processes. Jobs that are under way are given up."""
        ...


class Here:
    """Does every job in this process."""

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        return None

    async def run(self, job: Job) -> Any:
        return await job.here()

    async def close(self) -> None:
        return None


HERE = Here()
