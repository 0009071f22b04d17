"""Calls that a provider answers in batches: cheaper, and hours later.

A call goes into a batch where the user allows that (`--batch`) and nothing else of the run waits for it: baseline, validation,
sealed test, evaluation. Requests made at the same time are sent together. The order is that of single calls: reserve, write the
intents with a record of the batch and wait until they are on disk, upload, begin, wait, settle, record the answers. Each step
is on disk before the next one. A kill between the beginning of a batch and its record loses nothing: the uploaded file has a
name, which is on disk before, and the provider lists the batch under it. So no batch is begun twice and none is paid twice.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar, cast

import orjson

from whet.engine.cache import encode_completions
from whet.engine.calls import (
    BATCHED,
    NEW_INTENT,
    REFUSED,
    UNSENT,
    CallAttempt,
    CallExecutor,
    usage_of_completions,
)
from whet.engine.journal import NEW_STATE, Journal, Statement, check_row, meta_row, state_values
from whet.engine.model_client import ModelClient, ReasoningTruncated, Reservation, usable
from whet.engine.objectives import needs_call_times
from whet.engine.served_models import note_served
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.environments.program import ProgramEnvironment
from whet.errors import ProviderError, UsageError, parameter, quantity, show_duration
from whet.models.batch_jobs import (
    CANCELLED,
    EXPIRED,
    FAILED,
    MOST_INPUT_BYTES,
    MOST_LINES,
    WAITING,
    BatchingModel,
    BatchJob,
    BatchJobs,
    BatchLine,
    offers_batches,
    write_line,
)
from whet.replies import separate_thought
from whet.run import Budget, may_wait
from whet.types import Request, Usage

T = TypeVar("T")

_log = logging.getLogger("whet.models")
QUIET = 1.0
"""Seconds without a new call after which the calls so far go out together."""
FEWEST = 10
"""Fewer calls than these are not worth hours: they are made one by one."""
ROUNDS = 2
"""Batches that a call may be in; what has no answer then is asked by itself."""
FIRST_LOOK, LONGEST_LOOK = 2.0, 60.0
"""Seconds between two looks at a batch, at first and at most."""
SAY_SECONDS = 600.0
"""Seconds between two words about a batch that goes on, at least."""
PATIENCE = 3600.0
"""Seconds without an answer of the provider after which the run stops; the same command goes on."""
BEGINNINGS = 3
"""Attempts to begin a batch."""
_ROLES = {"task", "judge"}
_RECORD = "batch:"
_FORGET = "DELETE FROM meta WHERE key = ?"


@dataclass
class BatchRecord:
    """A batch as the journal holds it: the role of its client and its base URL, the number of each call by its digest, the name
    of its file and its own name at the provider, as far as they are known."""

    key: str
    name: str
    role: str
    place: str
    calls: dict[str, int]
    file: str = ""
    job: str = ""

    def row(self) -> Statement:
        """The statement that writes it."""
        return meta_row(f"{_RECORD}{self.key}", orjson.dumps(asdict(self)).decode())


@dataclass
class _Item:
    """A call that waits for others, or for its batch; `done` has its encoded answer, None where it is to be asked again."""

    client: ModelClient
    request: Request
    digest: str
    call: int
    reservation: Reservation
    usage: Usage
    done: asyncio.Future[bytes | None]


@dataclass
class BatchedCalls:
    """The batches of one run. `wanted`: new calls may go into batches. `say`: how people are told of them."""

    caller: CallExecutor
    wanted: bool = False
    say: Callable[[str], None] = _log.warning
    records: dict[str, BatchRecord] = field(default_factory=dict)
    _places: dict[str, BatchRecord] = field(default_factory=dict)  # by digest, of what has no answer yet
    _kept: dict[str, tuple[Reservation, Usage]] = field(default_factory=dict)
    _unasked: set[str] = field(default_factory=set)  # of earlier sessions, by digest
    _items: dict[str, _Item] = field(default_factory=dict)  # who waits for a batch
    _new: dict[str, list[_Item]] = field(default_factory=dict)  # who waits for others, by role
    _collecting: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _working: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _lines: dict[str, BatchLine | None] = field(default_factory=dict)  # answers that nobody has asked for yet
    _tried: Counter[str] = field(default_factory=Counter)
    _never_begun: set[str] = field(default_factory=set)

    @property
    def _journal(self) -> Journal:
        return self.caller.journal

    def load(self) -> None:
        """Take over the batches of earlier sessions: their calls are set aside in the budget. One whose file was not uploaded is
        forgotten, for it never began."""
        sql = "SELECT key, value, sum FROM meta WHERE key >= 'batch:' AND key < 'batch;'"
        for key, value, row_sum in self._journal.rows(sql):
            check_row(self._journal.path, "meta", row_sum, key, value)
            record = BatchRecord(**orjson.loads(value))
            if not record.file:
                self._forget(record, UNSENT)
                continue
            calls = self._journal.rows(
                "SELECT digest, role, input_tokens, output_tokens, cost FROM calls WHERE state = 'batched' AND id IN "
                "(SELECT value FROM json_each(?))",
                (orjson.dumps(list(record.calls.values())).decode(),),
            )
            for digest, role, tokens_in, tokens_out, cost in calls:
                tokens = tokens_in + tokens_out
                reservation = Reservation(
                    role, tokens=tokens, cost=cost, likely_tokens=tokens, likely_cost=cost
                )
                self.caller.budget.hold(reservation)
                self._unasked.add(digest)
                self._kept[digest] = reservation, Usage(tokens_in, tokens_out)
                self._places[digest] = record
            if calls:
                self.records[record.key] = record
            else:
                self._forget(record)

    def holds(self, digest: str) -> bool:
        """Whether a call is in a batch that has not answered it yet."""
        return digest in self._places

    def takes(self, client: ModelClient, digest: str) -> bool:
        """Whether a call belongs into a batch, or is in one already."""
        if self.holds(digest):
            return True
        return self.wanted and may_wait() and not self.caller.timed and offers_batches(client.model)

    async def ask(self, name: str, client: ModelClient, request: Request, digest: str) -> bytes | None:
        """Encoded completions, recorded; None where the call is to be made by itself. `name` is the role of the client."""
        while self.holds(digest) or self._tried[digest] < ROUNDS:
            if self.caller.stopped:
                raise asyncio.CancelledError
            request = client.with_reasoning_budget(request)
            if (record := self._places.get(digest)) is not None:
                item = self._join(record, client, request, digest)
            elif (new := self._add(name, client, request, digest)) is not None:
                item = new
            else:
                return None
            try:
                if record is not None and digest in self._lines:
                    await self._settle(item, record, self._lines.pop(digest))
                value = await item.done
            except asyncio.CancelledError:
                self._withdraw(name, item)
                raise
            if value is not None:
                return value
            self._tried[digest] += 1
        return None

    def _join(self, record: BatchRecord, client: ModelClient, request: Request, digest: str) -> _Item:
        """Wait for a batch that holds the call."""
        reservation, usage = self._kept[digest]
        if digest in self._unasked:
            self._unasked.remove(digest)
            self.caller.budget.drop(reservation)
            self.caller.budget.take(reservation)
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        item = _Item(client, request, digest, record.calls[digest], reservation, usage, done)
        self._items[digest] = item
        self._work_on(record)
        return item

    def _add(self, name: str, client: ModelClient, request: Request, digest: str) -> _Item | None:
        """Wait for others that go out together; None where the limits leave no room now."""
        most, usage = client.worst_case(client.counts_as or name, request)
        reservation = _at_batch_price(client, most)
        if not self.caller.budget.has_room(reservation):
            return None
        self.caller.budget.take(reservation)
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        item = _Item(client, request, digest, self.caller.next_number(), reservation, usage, done)
        self._new.setdefault(name, []).append(item)
        if name not in self._collecting:
            task = self._collecting[name] = asyncio.create_task(self._send_collected(name))
            task.add_done_callback(lambda ended: self._end_collection(name, ended))
        return item

    def _withdraw(self, name: str, item: _Item) -> None:
        """Take a call back that nobody waits for any more, if it did not go out."""
        self._items.pop(item.digest, None)
        if item in self._new.get(name, ()):
            self._new[name].remove(item)
            self._unreserve([item])

    def _unreserve(self, items: Sequence[_Item]) -> None:
        for item in items:
            self.caller.budget.settle(item.reservation, Usage(), 0.0, made=False)

    async def stop(self) -> None:
        """Wait for no batch any longer: they go on at the provider, and the same command takes what they answered."""
        tasks = [*self._collecting.values(), *self._working.values()]
        ongoing = [key for key, task in self._working.items() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._collecting.clear()
        self._working.clear()
        for record in filter(None, map(self.records.get, ongoing)):
            waiting = sum(self.holds(digest) for digest in record.calls)
            if record.job and waiting:
                address = self.caller.client(record.name).model.address
                self.say(
                    f"the batch {record.job} of {quantity(waiting, 'call')} continues at {address}; "
                    "the same command waits for the batch and uses its answers, without new or paid "
                    "calls"
                )

    def _end_collection(self, name: str, task: asyncio.Task[None]) -> None:
        """Go on with the calls that came in the meantime."""
        if self._collecting.get(name) is task:
            del self._collecting[name]
        if not task.cancelled() and task.exception() is None and self._new.get(name):
            again = self._collecting[name] = asyncio.create_task(self._send_collected(name))
            again.add_done_callback(lambda ended: self._end_collection(name, ended))

    async def _send_collected(self, name: str) -> None:
        """Send the calls of a role once no more of them come."""
        count = 0
        while len(self._new[name]) != count:
            count = len(self._new[name])
            await asyncio.sleep(QUIET)
        collected, self._new[name] = self._new[name], []
        items = [item for item in collected if not item.done.done()]
        self._unreserve([item for item in collected if item.done.done()])
        reserved = items
        if not items:
            return
        try:
            if len(items) >= FEWEST and not items[0].client.answered:
                # what the endpoint refuses is learned by one call, before many lines of a batch fail for it
                first, *reserved = items
                self._unreserve([first])
                alone = await self.caller.answer_alone(name, first.client, first.request, first.digest)
                _give(first, alone)
            if len(reserved) < FEWEST:
                self._unreserve(reserved)
                for item in reserved:
                    self._tried[item.digest] = ROUNDS
                    _give(item, None)
                return
            for part, lines in _parts(name, reserved):
                await self._begin(name, part, lines)
        except BaseException as error:
            self._unreserve([item for item in reserved if not self.holds(item.digest)])
            for item in items:
                if not self.holds(item.digest):
                    _give(item, error)
            if not isinstance(error, ProviderError):
                raise

    async def _begin(self, name: str, items: list[_Item], lines: bytes) -> None:
        """Record a batch with its intents, upload its file, and see it through."""
        client = items[0].client
        role = client.counts_as or name
        calls = {item.digest: item.call for item in items}
        record = BatchRecord(secrets.token_hex(8), name, role, _place_of(client), calls)
        intents = [
            self.caller.call_row(
                role, item.digest, BATCHED, item.usage, item.reservation.likely_cost, item.call
            )
            for item in items
        ]
        await self._journal.commit([*((NEW_INTENT, row[1]) for row in intents), record.row()])
        try:
            jobs = _jobs_of(client)
            record.file = await _patiently(lambda: jobs.upload(lines), "Run the same command again.")
        except BaseException:
            self._forget(record, UNSENT)
            raise
        self.records[record.key] = record
        self._never_begun.add(record.key)
        for item in items:
            self._places[item.digest] = record
            self._kept[item.digest] = item.reservation, item.usage
            self._items[item.digest] = item
        await self._journal.commit([record.row()])
        self._work_on(record)

    def _forget(self, record: BatchRecord, state: str | None = None) -> None:
        """Remove a batch from the journal; its calls that are still with the provider get another state."""
        self.records.pop(record.key, None)
        states: list[Statement] = []
        if state is not None:
            states = [(NEW_STATE, (*state_values(state), call)) for call in record.calls.values()]
        self._journal.append([*states, (_FORGET, (f"{_RECORD}{record.key}",))])

    def _work_on(self, record: BatchRecord) -> None:
        """See a batch through, unless that goes on already."""
        if record.key in self.records and record.key not in self._working:
            task = self._working[record.key] = asyncio.create_task(self._see_through(record))
            task.add_done_callback(lambda ended: self._end_work(record, ended))

    def _end_work(self, record: BatchRecord, task: asyncio.Task[None]) -> None:
        """Give an error to all that wait for a batch."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._working.pop(record.key, None)
            for digest in record.calls:
                if (item := self._items.pop(digest, None)) is not None:
                    _give(item, error)

    async def _see_through(self, record: BatchRecord) -> None:
        """Begin a batch or find it again, wait until it has ended, and settle its calls."""
        client = self.caller.client(record.name)
        jobs, address = _jobs_of(client), client.model.address
        if record.place != _place_of(client):
            raise UsageError(
                f"The run waits for the batch {record.job} of {quantity(len(record.calls), 'call')} "
                f"at {record.place}, and the model of the role {record.name} is now at "
                f"{_place_of(client)}. Name the former base URL again."
            )
        if not record.job:
            record.job = (await self._begin_once(jobs, record)).id
            await self._journal.commit([record.row()])
            self.say(
                f"{quantity(len(record.calls), 'call')} went to {address} as the batch {record.job}. This may take hours (24 at "
                "most); Ctrl-C leaves the batch running"
            )
        job = await self._wait(jobs, record, address)
        if job.state in (FAILED, CANCELLED) and not job.files:
            await self._give_up(record, job, address)
        lines = await _patiently(lambda: jobs.lines(job), _goes_on(address))
        missing = sum(
            digest not in lines or lines[digest].status != 200
            for digest in record.calls
            if self.holds(digest)
        )
        if missing:
            ended, calls = "expired" if job.state == EXPIRED else "ended", quantity(len(record.calls), "call")
            self.say(
                f"the batch {record.job} of {calls} {ended}; {missing:,} of them have no answer and "
                "are sent again"
            )
        for digest in record.calls:
            if (item := self._items.get(digest)) is not None:
                await self._settle(item, record, lines.get(digest))
            elif self.holds(digest):
                self._lines[digest] = lines.get(digest)

    async def _begin_once(self, jobs: BatchJobs, record: BatchRecord) -> BatchJob:
        """The batch of an uploaded file: begun, unless the provider has one of that file already."""
        for attempt in range(1, BEGINNINGS + 1):
            creating = False
            try:
                if record.key not in self._never_begun and (existing := await jobs.find(record.file)):
                    return existing
                self._never_begun.discard(record.key)
                creating = True
                return await jobs.create(record.file)
            except ProviderError as error:
                if creating and not error.retryable and error.status in range(400, 500):
                    await self._release(record)
                    if error.fatal:
                        raise
                    raise ProviderError(
                        f"{str(error).rstrip('.')}. Without {parameter('batch', True)}, the calls are made one by one.",
                        fatal=True,
                        status=error.status,
                    ) from error
                if not error.retryable or attempt == BEGINNINGS:
                    raise ProviderError(
                        f"{str(error).rstrip('.')}. The batch of {quantity(len(record.calls), 'call')} "
                        f"with the file {record.file} could not be started or found. The same command "
                        "tries again, and starts the batch only if the provider does not list it. "
                        f"Another {parameter('run')} sends all calls anew.",
                        fatal=True,
                        status=error.status,
                    ) from error
                await asyncio.sleep(error.retry_after or FIRST_LOOK * attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _wait(self, jobs: BatchJobs, record: BatchRecord, address: str) -> BatchJob:
        """The batch once it has ended."""
        wait, began = FIRST_LOOK, time.monotonic()
        spoke = began
        while True:
            job = await _patiently(lambda: jobs.look(record.job), _goes_on(address))
            if job.state != WAITING:
                return job
            if (now := time.monotonic()) - spoke >= SAY_SECONDS:
                spoke = now
                done = f", {job.done:,} of {job.total or len(record.calls):,} calls done" if job.done else ""
                self.say(f"the batch {record.job}: {job.status}{done}; waited {show_duration(now - began)}")
            await asyncio.sleep(wait)
            wait = min(LONGEST_LOOK, 1.5 * wait)

    async def _release(self, record: BatchRecord) -> None:
        """Forget a batch that the provider did not work on."""
        self._forget(record, UNSENT)
        for digest in record.calls:
            if self._places.pop(digest, None) is not None:
                reservation, _ = self._kept.pop(digest)
                if digest in self._unasked:
                    self.caller.budget.drop(reservation)
                else:
                    self.caller.budget.settle(reservation, Usage(), 0.0, made=False)
        self._unasked -= record.calls.keys()
        await self._journal.commit()

    async def _give_up(self, record: BatchRecord, job: BatchJob, address: str) -> None:
        """Forget a batch that failed as a whole, and raise ProviderError."""
        await self._release(record)
        why = f": {job.reason}" if job.reason else ""
        raise ProviderError(
            f"{address}: the batch {record.job} {job.status}{why}. The same command starts a new "
            f"batch; without {parameter('batch', True)}, the calls are made one by one.",
            fatal=True,
        )

    async def _settle(self, item: _Item, record: BatchRecord, line: BatchLine | None) -> None:
        """Record the outcome of a call, and give it to the waiting callers. A request without an answer may be asked again."""
        caller = self.caller
        attempt = CallAttempt(record.role, item.digest, item.call, item.reservation, "failed")
        try:
            self._read(item, attempt, line)
        except ReasoningTruncated:
            self._tried[item.digest] = ROUNDS
        except ProviderError as error:
            if line is None or error.refused:
                attempt.state = REFUSED
            if error.billed:
                attempt.usage = replace(item.usage, estimated=True)
                attempt.cost = item.reservation.likely_cost
            if not error.retryable:
                self._tried[item.digest] = ROUNDS
        for waiting in (self._places, self._kept, self._items):
            waiting.pop(item.digest, None)
        self._journal.append(caller.settle_attempt(attempt))
        caller.share_answers()
        if not any(self.holds(digest) for digest in record.calls):
            self._forget(record)
        _give(item, attempt.value)
        await asyncio.sleep(0)  # a batch may have many thousand lines: others go on meanwhile

    def _read(self, item: _Item, attempt: CallAttempt, line: BatchLine | None) -> None:
        """Take an answer into the attempt. Raises ProviderError where there is none, ReasoningTruncated for half a thought."""
        caller, client = self.caller, item.client
        address = client.model.address
        if line is None or line.status == 0:
            raise ProviderError(
                f"{address}: the batch has no answer to this request", retryable=True, refused=True
            )
        sent = client.as_sent(attempt.role, item.request)
        answers = usable(
            cast("BatchingModel", client.model).read_batched(sent, line.status, line.body), address
        )
        completions = [separate_thought(answer) for answer in answers]
        attempt.usage, attempt.drawn = usage_of_completions(completions), item.request.temperature > 0
        attempt.cost = client.cost(attempt.usage)
        if client.price is not None and not attempt.usage.cost_usd:
            attempt.cost *= client.price.batch
        client.refuse_thought(completions)
        self._journal.append(note_served(caller.budget.spent.served, address, completions))
        attempt.state, attempt.value = "answered", encode_completions(completions)
        caller.results[item.digest] = attempt.value
        client.note_answer(time.monotonic())
        client.observe(item.request, attempt.usage)
        if client.health.note_answer(item.digest, completions):
            caller.cache.put(caller.cache_key(client, item.digest), attempt.value)


def allow_batches(caller: CallExecutor, wanted: bool, say: Callable[[str], None]) -> None:
    """Say whether new calls of a run may go into batches, and how people are told of them."""
    assert isinstance(caller.batches, BatchedCalls)
    caller.batches.wanted, caller.batches.say = wanted, say


def check_batches(clients: Mapping[str, ModelClient], env: Environment, limits: Budget) -> None:
    """Raise UsageError where calls cannot be made in batches."""
    batch = parameter("batch", True)
    offering = {role: client for role, client in clients.items() if offers_batches(client.model)}
    if not any(_ROLES & {role, client.counts_as} for role, client in offering.items()):
        address = clients["task"].model.address
        raise UsageError(
            f"{batch}: no provider of {address} accepts batches. Name a model behind an endpoint "
            "(openai/NAME), or omit this option."
        )
    if isinstance(env, MultiTurn | ProgramEnvironment):
        raise UsageError(
            f"{batch}: each call of an episode or a program waits for the previous call, and each "
            "call would wait hours. Omit this option."
        )
    if needs_call_times(env.reward):
        raise UsageError(
            f"{batch}: an objective is the time of a call, which a batch does not report. Omit this "
            "option or the objective."
        )
    if limits.seconds is not None:
        raise UsageError(
            f"{batch} may wait a day, but {parameter('budget.seconds', limits.seconds)} ends the run "
            "earlier. Omit one of the two options."
        )
    for client in offering.values():
        _ = _jobs_of(client)  # refuses several base URLs


def _give(item: _Item, outcome: bytes | BaseException | None) -> None:
    """Hand an answer, an error, or None to who waits, if anybody does."""
    if item.done.done():
        return
    if isinstance(outcome, BaseException):
        if isinstance(outcome, asyncio.CancelledError):
            item.done.cancel()
        else:
            item.done.set_exception(outcome)
    else:
        item.done.set_result(outcome)


def _place_of(client: ModelClient) -> str:
    return str(getattr(client.model, "base_url", ""))


def _jobs_of(client: ModelClient) -> BatchJobs:
    return cast("BatchingModel", client.model).batch_jobs


def _at_batch_price(client: ModelClient, most: Reservation) -> Reservation:
    """The most that a call takes in a batch, where it waits for no other call."""
    share = 1.0 if client.price is None else client.price.batch
    cost, likely = most.cost * share, most.likely_cost * share
    return replace(most, cost=cost, likely_cost=likely, alone=False, beyond_tokens=0, beyond_cost=0.0)


def _parts(name: str, items: Sequence[_Item]) -> list[tuple[list[_Item], bytes]]:
    """The calls of as many batches as providers demand, each with its file."""
    parts: list[tuple[list[_Item], list[bytes]]] = []
    size = 0
    for item in items:
        sent = item.client.as_sent(item.client.counts_as or name, item.request)
        line = write_line(item.digest, cast("BatchingModel", item.client.model).batch_body(sent))
        if not parts or len(parts[-1][0]) == MOST_LINES or size + len(line) > MOST_INPUT_BYTES:
            parts.append(([], []))
            size = 0
        parts[-1][0].append(item)
        parts[-1][1].append(line)
        size += len(line)
    return [(part, b"".join(lines)) for part, lines in parts]


def _goes_on(address: str) -> str:
    return f"The batch continues at {address}. Run the same command again."


async def _patiently(ask: Callable[[], Awaitable[T]], remedy: str) -> T:
    """The answer to a request to the provider, repeated while it fails for a temporary reason. An error says the `remedy`."""
    since, wait = time.monotonic(), FIRST_LOOK
    while True:
        try:
            return await ask()
        except ProviderError as error:
            if not error.retryable or time.monotonic() - since > PATIENCE:
                raise ProviderError(
                    f"{str(error).rstrip('.')}. {remedy}",
                    fatal=True,
                    status=error.status,
                ) from error
            await asyncio.sleep(error.retry_after or wait)
            wait = min(LONGEST_LOOK, 2 * wait)
