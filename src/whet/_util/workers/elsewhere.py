"""Jobs in other processes: what is sent, what is asked back, and what happens when a worker dies."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from whet._util.user_code import ENDED_AFTER
from whet._util.workers import Answer, Job, Work
from whet.errors import ReplayDiverged, UsageError, WhetError, parameter

DEATHS = 3
"""The number of workers that may die over the same job before the run gives the job up."""


class WorkerDied(WhetError):
    """A worker process ended in the middle of a job. The text says how, as the end of a sentence about it."""


class Talk(Protocol):
    """Work under way in a worker that sends messages, JSON objects.

    `loaded` comes first. `ask` numbers a `question`, from 1 on. `reply` is what the work answers to something that was sent back
    about the question of that number. `value` or `refused` comes last.
    """

    async def next(self) -> dict[str, Any]:
        """The next message. Raises WorkerDied."""
        ...

    async def send(self, number: int, key: str, value: Any) -> None:
        """Send the `answer` to a question, or send something `back` about it first."""
        ...

    async def end(self, late: bool) -> None:
        """The work is given up where it is not done; `late`: because it does not end."""
        ...


class Workers(Protocol):
    """Processes that do work."""

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """See `Executor`."""
        ...

    async def do(self, work: bytes, seconds: float) -> bytes:
        """The outcome of work that asks nothing. Raises TimeoutError and WorkerDied; the worker is gone then."""
        ...

    async def open(self, work: bytes, alone: bool) -> Talk:
        """Work that asks. `alone`: in a process that does nothing else. Raises WorkerDied."""
        ...

    async def close(self) -> None:
        """See `Executor`."""
        ...


class Elsewhere:
    """Does every job in one of some workers.

    A job whose worker dies (the system was out of memory, somebody killed it, a library crashed) is done again by another
    one, at most `DEATHS` times. A job that is late takes its worker with it. So does one that is cancelled, unless it is a
    conversation that shares the worker with others.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """See `Executor`."""
        await self._workers.prepare(make_works)

    async def run(self, job: Job) -> Any:
        """See `Executor`."""
        work = _write_work(job)
        if job.answer is not None:
            return _read_outcome(await _Conversation(self._workers, job, job.answer, work).hold(), job)
        for death in range(1, DEATHS + 1):
            try:
                return _read_outcome(json.loads(await self._workers.do(work, job.seconds)), job)
            except TimeoutError:
                raise job.late() from None
            except WorkerDied as error:
                if death == DEATHS:
                    raise _given_up(job, error) from None

    async def close(self) -> None:
        """See `Executor`."""
        await self._workers.close()


class _Over(Exception):
    """The work ended while a question of its own was open."""


class _Conversation:
    """One job that asks. It outlives the workers that it runs in."""

    def __init__(self, workers: Workers, job: Job, answer: Answer, work: bytes) -> None:
        self._workers, self._job, self._answer, self._work = workers, job, answer, work
        self._left, self._deaths = job.seconds, 0
        self._talk: Talk | None = None
        self._questions: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._waiting: deque[int] = deque()
        self._back: tuple[int, Any] | None = None
        self._last: dict[str, Any] = {}

    async def hold(self) -> dict[str, Any]:
        """The outcome of the job, after all of its questions."""
        late = False
        try:
            while True:
                message = await self._receive() if not self._waiting else None
                if message is not None:
                    if "ask" not in message:
                        return message
                    continue
                number = self._waiting.popleft()

                async def send_back(value: Any, number: int = number) -> Any:
                    return await self._reply_to(number, value)

                self._answers[number] = await self._answer(self._questions[number], send_back)
                await self._send(number, "answer", self._answers[number])
        except TimeoutError:
            late = True
            raise self._job.late() from None
        except _Over:
            return self._last
        finally:
            if self._talk is not None:
                await self._talk.end(late)

    async def _reply_to(self, number: int, value: Any) -> Any:
        """The reply of the work to a message about a question."""
        self._back = number, value
        await self._send(number, "back", value)
        while True:
            message = await self._receive()
            if message.get("reply") == number:
                self._back = None
                return message["value"]
            if "ask" not in message:
                self._last = message
                raise _Over

    async def _receive(self) -> dict[str, Any]:
        """The next new message. What a repeated job asks again is answered again on the way."""
        while True:
            try:
                talk = self._talk or await self._open()
                message = await self._read(talk)
            except WorkerDied as error:
                await self._count_death(error)
                continue
            number = message.get("ask")
            if number is None:
                return message
            if number not in self._questions:
                self._questions[number] = message["question"]
                self._waiting.append(number)
                return message
            if self._questions[number] != message["question"]:
                raise ReplayDiverged(
                    f"{self._job.name}: its worker process died, and when its code ran again it asked something else at call "
                    f"{number}. Code that asks the same for the same row can be repeated: look for a clock, a random number or "
                    "the order of a set in it."
                )
            if number in self._answers:
                await self._send(number, "answer", self._answers[number])
            elif self._back is not None and self._back[0] == number:
                await self._send(number, "back", self._back[1])

    async def _open(self) -> Talk:
        self._talk = await self._workers.open(self._work, alone=self._deaths > 0)
        first = await asyncio.wait_for(self._talk.next(), ENDED_AFTER)
        if "loaded" not in first:
            raise _refusal(first, self._job)
        return self._talk

    async def _read(self, talk: Talk) -> dict[str, Any]:
        """The next message, within the seconds that are left. Raises TimeoutError."""
        began = time.monotonic()
        try:
            return await asyncio.wait_for(talk.next(), max(0.0, self._left))
        finally:
            self._left -= time.monotonic() - began

    async def _send(self, number: int, key: str, value: Any) -> None:
        """Send to the worker, if there is one: a new one asks again."""
        try:
            if self._talk is not None:
                await self._talk.send(number, key, value)
        except WorkerDied as error:
            await self._count_death(error)

    async def _count_death(self, error: WorkerDied) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            await talk.end(False)
        self._deaths, self._left = self._deaths + 1, self._job.seconds
        if self._deaths == DEATHS:
            raise _given_up(self._job, error) from None


def _given_up(job: Job, error: WorkerDied) -> UsageError:
    return UsageError(
        f"{job.name}: the worker process that ran it {error}, {DEATHS} times. Look for a call that ends the process, or for its "
        "use of memory. What was recorded is kept; mend it and run the same command again."
    )


def _write_work(job: Job) -> bytes:
    """The work of a job as JSON. Raises UsageError for values that JSON does not keep as they are."""
    work = asdict(job.make_work())
    try:
        text = json.dumps(work)
        kept = json.loads(text) == work
    except (TypeError, ValueError, RecursionError):
        kept = False
    if not kept:
        raise UsageError(
            f"{job.name}: its values cannot be sent to a worker process, which gets them as JSON. Use texts, numbers, lists and "
            f"mappings in the rows, or leave out {parameter('workers')} and {parameter('engine')}."
        )
    return text.encode()


def _read_outcome(outcome: dict[str, Any], job: Job) -> Any:
    if "refused" in outcome:
        raise _refusal(outcome, job)
    return outcome["value"]


def _refusal(outcome: dict[str, Any], job: Job) -> UsageError:
    known = outcome["kind"] == UsageError.__name__
    what = outcome["refused"] if known else f"{outcome['kind']}: {outcome['refused']}"
    return UsageError(f"{job.name}: a worker process cannot run it: {what}")
