"""Calls to models: one durable intent per attempt, retries, limits, price, and one answer per content.

The order of every paid attempt is: reserve the worst case, write the intent and wait until it is on disk, wait for
a place, send, settle, append the answer. A kill can therefore lose only answers whose intent is on disk: the next
session finds these intents open, counts them as spent and says how many there are.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from whet.engine.budget import BudgetAccount
from whet.engine.cache import AnswerCache, decode_completions, encode_completions
from whet.engine.health import EndpointHealth, is_gone
from whet.engine.held_answers import HeldAnswers
from whet.engine.journal import (
    NEW_STATE,
    Journal,
    Statement,
    call_sum,
    checksum,
    detail_sum,
    meta_row,
    state_values,
)
from whet.engine.model_client import (
    DEAD_AFTER,
    MAX_ATTEMPTS,
    STARVED,
    ModelClient,
    ReasoningTruncated,
    Reservation,
    delay,
    usable,
)
from whet.engine.served_models import note_served
from whet.errors import BudgetExceeded, ProviderError, UsageError, quantity
from whet.models.callable import BrokenFunction
from whet.replies import separate_thought
from whet.types import EXAMPLE, Completion, Request, Usage, content_hash
from whet_client.media import lacks_image

NEW_INTENT = "INSERT OR IGNORE INTO calls VALUES (?,?,?,?,?,?,?,?,?)"
"""Writes the intent of a call, and never over how the call ended: the journal writes what must be on disk after the rest of a
batch, so that the end of a call that is given up while its intent waits for the disk is there first."""
ALIKE = 3
"""Attempts that end in the same 500: if others were answered meanwhile, it is this request that the server cannot take. And
attempts that are paid for and end in the same answer that cannot be read: the next would."""
UNSENT, OPEN, REFUSED, BATCHED = "unsent", "open", "refused", "batched"
GIVEN_UP = "given up"
"""The journal's entry for a request of which every attempt was refused. It is no call."""
SILENT, BLANK, SUSPECTS = "silent", "blank", "suspects"
"""Calls that an endpoint did not answer before it ended the run, those that it answered without a text, and the key under
which the journal lists these requests."""
CACHED_OLDEST = "cached_oldest"
"""The key under which the journal says when the oldest answer was made that came from the cache."""
ESTIMATED = "estimated"
"""The key under which the journal says for each role of how many calls the tokens are estimated."""
PROVIDER_TOOLS = "provider_tools"
"""The key under which it says for each role how many calls of a provider's own tools no cost holds."""
GATEWAY = "gateway"
"""The key under which the journal says for each role how many calls a gateway's cache answered, and how many of them were to be
drawn anew."""
PLACES = "places"
"""The key under which the journal says at which addresses the models of the last session were."""
_SHARE_SECONDS = 0.05
"""After so long an answer goes to the cache. What a kill loses there, the next session of the run takes from its journal."""
INTERRUPT_SECONDS = 1.0
"""The longest wait of an interrupted run for calls in flight."""


@dataclass(slots=True)
class CallAttempt:
    """One attempt from its intent to its end; `state` is unsent, open (given up), batched (with the provider), refused, failed or
    answered. `drawn`: its answer is a draw, at a temperature above 0."""

    role: str
    digest: str
    call: int
    reservation: Reservation
    state: str = UNSENT
    usage: Usage = field(default=Usage())
    cost: float = 0.0
    value: bytes | None = None
    settled: bool = False
    drawn: bool = False


@dataclass(slots=True)
class _Pending:
    """A request that is being answered, in a task of its own, and who waits for it."""

    task: asyncio.Task[bytes]
    waiters: set[asyncio.Future[bytes]] = field(default_factory=set)
    sent: bool = False


class CallBatches(Protocol):
    """Makes calls in batches that a provider answers later (`whet.engine.batched_calls`)."""

    def holds(self, digest: str) -> bool:
        """Whether the call is in a batch that has not answered it yet."""
        ...

    def takes(self, client: ModelClient, digest: str) -> bool:
        """Whether the call belongs into a batch, or is in one already."""
        ...

    async def ask(self, name: str, client: ModelClient, request: Request, digest: str) -> bytes | None:
        """Encoded completions, recorded; None where the call is to be made by itself. `name` is the role of the client."""
        ...

    async def stop(self) -> None:
        """Wait for no batch any longer: they go on at the provider."""
        ...


@dataclass
class CallExecutor:
    """Answers requests for all branches of a run. `results` holds what is recorded, by content. `batches`: who makes some of the
    calls in batches."""

    journal: Journal
    cache: AnswerCache
    budget: BudgetAccount
    clients: Mapping[str, ModelClient]
    seed: int
    results: MutableMapping[str, bytes] = field(default_factory=HeldAnswers)
    next_call: int = 1
    stopped: bool = False
    timed: bool = False  # answers are recorded with the seconds that they took
    batches: CallBatches | None = None
    _pending: dict[str, _Pending] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._jitter = random.Random(self.seed)
        self._sharing = False
        self._refused = dict[str, bytes]()

    def client(self, role: str) -> ModelClient:
        """The role's client. Raises UsageError when the run has no such model."""
        if role not in self.clients:
            raise UsageError(
                f"This run needs a model for the role {role}. Name a model with --{role}-lm or "
                f"`models: {{{role}: ...}}`."
            )
        return self.clients[role]

    @property
    def simulated(self) -> bool:
        """Whether a simulator answers in any role."""
        return any(client.model.simulated for client in self.clients.values())

    def prepare(self, role: str, request: Request, seed: int | None = None) -> tuple[Request, str]:
        """The request as it will be sent and its content digest. Sampling gets a seed of its own per run, of which `seed` is
        another one's."""
        if request.temperature > 0 and request.seed is None:
            text = f"{self.seed if seed is None else seed}|{request.sample}".encode()
            request = replace(request, seed=int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1)
        client = self.client(role)
        address = f"{client.model.address}{getattr(client.model, 'variant', '')}"
        apart = client.counts_as is not None and not client.same_answers
        address = f"{role} {address}" if apart else address
        bounded = request if client.bound is None else replace(request, max_tokens=client.bound)
        return request, digest_of(address, bounded)

    async def ask(self, role: str, request: Request, digest: str) -> bytes:
        """Encoded completions. An abandoned wait never abandons a call that was sent: its answer is recorded."""
        if (known := self.results.get(digest, self._refused.get(digest))) is not None:
            return known
        pending = self._pending.get(digest)
        if pending is None:
            task = asyncio.create_task(self._answer(role, request, digest))
            pending = self._pending[digest] = _Pending(task)
            task.add_done_callback(lambda done: self._hand_over(digest, done))
        waiter: asyncio.Future[bytes] = pending.task.get_loop().create_future()
        pending.waiters.add(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if len(pending.waiters) == 1 and not pending.sent:
                pending.task.cancel()
            raise
        finally:
            pending.waiters.remove(waiter)

    def count_sent(self) -> int:
        """Count the calls in flight."""
        return sum(pending.sent for pending in self._pending.values())

    def _hand_over(self, digest: str, task: asyncio.Task[bytes]) -> None:
        """Give everybody who waits what the task of a request ended with."""
        error = None if task.cancelled() else task.exception()
        for waiter in self._pending.pop(digest).waiters:
            if waiter.done():  # it was cancelled in this turn of the loop
                continue
            if task.cancelled():
                waiter.cancel()
            elif error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(task.result())

    async def drain(self, patience: float | None = None) -> None:
        """Send nothing new; wait until every call in flight is recorded, at most `patience` seconds.

        A call that is given up stays open in the journal: the next session counts it as spent.
        """
        self.stopped = True
        if self.batches is not None:
            await self.batches.stop()
        for pending in list(self._pending.values()):
            if not pending.sent:
                pending.task.cancel()
        waiting = [p.task for p in self._pending.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def rest(self, patience: float | None = None) -> None:
        """Wait for what is in flight where a search ends, at most `patience` seconds (`drain`). Raises ProviderError for a model
        that is not there any more."""
        await self.drain(patience)
        self.stopped = False
        self.raise_if_unresponsive()

    async def _answer(self, role: str, request: Request, digest: str) -> bytes:
        client, name = self.client(role), role
        role = client.counts_as or role
        held = self.batches is not None and self.batches.holds(digest)
        shared = None if client.model.local or held else await self.cache.find(self.cache_key(client, digest))
        if shared is not None and not lacks_image(shared[0].decode()):
            cached, made = shared
            client.health.known += 1
            await self._take_from_cache(role, digest, cached, made)
            client.observe(request, usage_of_completions(decode_completions(cached)))
            return cached
        if self.batches is not None and self.batches.takes(client, digest):
            batched = await self.batches.ask(name, client, request, digest)
            if batched is not None:
                return batched
        return await self._ask_until_answered(role, client, request, digest)

    async def answer_alone(self, name: str, client: ModelClient, request: Request, digest: str) -> bytes:
        """The answer to a request by a call of its own; `name` is the role of the client."""
        return await self._ask_until_answered(client.counts_as or name, client, request, digest)

    async def _ask_until_answered(
        self, role: str, client: ModelClient, request: Request, digest: str
    ) -> bytes:
        """The answer, after as many attempts as it takes where the endpoint turns them away, or the reason why there is none."""
        words, alike, answers, refused, final = "", 0, client.answers, 0, 0
        self.budget.spent.given_up[role].discard(digest)
        attempt = 0
        while attempt < MAX_ATTEMPTS:
            room = client.room
            try:
                return await self._attempt(role, client, client.with_reasoning_budget(request), digest)
            except ReasoningTruncated:
                attempt += 1
                client.raise_reasoning_budget(room)
            except ProviderError as error:
                client.health.note_failure(digest, error)
                if client.turns_away(error):
                    refused += 1
                    client.note_wait(error, self.budget.whole_seconds)
                    most = MAX_ATTEMPTS if client.health.is_proven(digest, error) else STARVED
                    if refused <= most or client.answers < answers + (STARVED if most == STARVED else 0):
                        continue
                    return await self._give_up(role, client, digest, error)
                attempt += 1
                final += not error.retryable
                alike = alike + 1 if str(error) == words else 1
                words = str(error)
                wait = None
                if error.status != 500 or alike < ALIKE or client.answers == answers:
                    known = error.billed or client.health.remembers(digest)
                    last = final > 1 or (known and alike >= ALIKE)
                    wait = self._judge_failure(client, digest, error, MAX_ATTEMPTS if last else attempt)
                if wait is None:
                    client.health.note_lost(digest, error)
                    if digest in client.health.faulty - client.health.suspects:
                        self._note_suspects(set())
                    value = await self._give_up(role, client, digest, error)
                    if not error.retryable:
                        self._refused[digest] = value
                    return value
                await asyncio.sleep(wait)
        return encode_completions(
            [Completion("", finish="length", error="model: only a thought in every attempt")]
        )

    async def _give_up(self, role: str, client: ModelClient, digest: str, error: ProviderError) -> bytes:
        """The handling of a request that has no answer. Where all of its attempts were turned away, none was a call, and the
        limits on calls count it once: no search may go on forever."""
        if error.refused:
            reservation = Reservation(role)
            await self.budget.reserve(reservation)
            self.budget.settle(reservation, Usage(), 0.0, made=False)
            self._note_given_up(role, client.health, digest)
        return encode_completions([Completion("", finish="error", error=f"provider: {error}")])

    def _note_given_up(self, role: str, health: EndpointHealth, digest: str) -> None:
        """Record, once, a request that was turned away in every attempt."""
        self.budget.spent.given_up[role].add(digest)
        if digest not in health.given_up | health.proven:
            self.journal.append([self.call_row(role, digest, GIVEN_UP, Usage(), 0.0)])
        health.given_up.add(digest)

    def raise_if_unresponsive(self, *, only_refusals: bool = False) -> None:
        """Raise ProviderError when a model that was asked has answered nothing, or nothing any more; with `only_refusals`, only
        where it refused its last requests in the same words, as it does for an account without credit."""
        for client in self.clients.values():
            if client.model.local or (only_refusals and not client.health.refuses_alike):
                continue
            error = client.health.unresponsive_error(client.model.address)
            if error is not None:
                client.failed = error
                raise error

    @contextmanager
    def reset_unresponsive(self) -> Iterator[None]:
        """A budget that ended in attempts at a model that answers nothing any more is no reason: the model is."""
        try:
            yield
        except BudgetExceeded:
            self.raise_if_unresponsive()
            raise

    def drop_unanswered(self) -> set[str]:
        """Take back what the models did not answer since their last answer, and what they answered without a text when they
        never gave any; the digests of these requests. Lost attempts do not count against the limits when the run goes on."""
        forgotten: set[str] = set()
        for name, client in self.clients.items():
            health = client.health
            self._keep_given_up(client.counts_as or name, health)
            self.journal.append([(NEW_STATE, (*state_values(SILENT), n)) for n in health.attempts])
            for digest in health.blank:
                self.results.pop(digest, None)
                self.journal.append(
                    [
                        ("DELETE FROM results WHERE digest = ?", (digest,)),
                        (
                            "UPDATE calls SET state = ?, sum = (sum & ~65535) | ? WHERE digest = ? AND state = 'answered'",
                            (*state_values(BLANK), digest),
                        ),
                    ]
                )
            forgotten |= {*health.lost, *health.blank}
        self._note_suspects(forgotten)
        return forgotten

    def _keep_given_up(self, role: str, health: EndpointHealth) -> None:
        """Record which requests were given up, where the session ends: what may have been lost by the model is not among them."""
        kept = health.given_up_at_end()
        dropped = (health.given_up & health.lost.keys()) - kept
        forget = "DELETE FROM calls WHERE digest = ? AND state = ?"
        self.journal.append([(forget, (digest, GIVEN_UP)) for digest in dropped])
        self.budget.spent.given_up[role] -= dropped
        for digest in sorted(kept):
            self._note_given_up(role, health, digest)

    def _note_suspects(self, digests: set[str]) -> None:
        """Record requests that say nothing of their model if they fail again in a later session, beside those known."""
        healths = [client.health for client in self.clients.values()]
        suspects = digests.union(*(health.suspects | health.faulty for health in healths))
        self.journal.append([meta_row(SUSPECTS, orjson.dumps(sorted(suspects)).decode())])

    def share_recorded(self, timed: bool = False) -> None:
        """Begin to answer; `timed` says whether answers are recorded with the seconds that they took. What the session before
        recorded is given to the cache where a kill came in between, unless the models are elsewhere now."""
        self.timed = timed
        places = {
            role: getattr(c.model, "base_url", None) for role, c in self.clients.items() if not c.model.local
        }
        where = orjson.dumps(places, option=orjson.OPT_SORT_KEYS).decode()
        last = self.journal.session - 1
        if self.journal.meta(PLACES) == where and self.journal.meta("closed") != str(last):
            sql = "SELECT role, digest FROM calls WHERE session = ? AND state = 'answered'"
            for role, digest in self.journal.rows(sql, (last,)):
                value = self.results.get(digest)
                if value is None or all(c.error is not None for c in decode_completions(value)):
                    continue
                for name, client in self.clients.items():
                    if role == (client.counts_as or name) and name in places:
                        self.cache.put(self.cache_key(client, digest), value)
            self.cache.flush()
        self.journal.append([meta_row(PLACES, where)])

    def share_answers(self) -> None:
        """Write what was answered into the cache in a moment, so that others need not wait for the next full batch."""
        if not self._sharing:
            self._sharing = True
            asyncio.get_running_loop().call_later(_SHARE_SECONDS, self._flush_cache)

    def _flush_cache(self) -> None:
        self._sharing = False
        self.cache.flush()

    def cache_key(self, client: ModelClient, digest: str) -> str:
        """Under which the cache keeps an answer of a client."""
        return f"{getattr(client.model, 'base_url', '')}|{digest}{'|timed' if self.timed else ''}"

    async def _take_from_cache(self, role: str, digest: str, value: bytes, made: float | None) -> None:
        reservation = Reservation(role)
        await self.budget.reserve(reservation)
        self.budget.settle(reservation, Usage(), 0.0)
        spent = self.budget.spent
        spent.cached[role] += 1
        if made is not None and made < (spent.cached_oldest or math.inf):
            spent.cached_oldest = made
            self.journal.append([meta_row(CACHED_OLDEST, f"{made:.3f}")])
        self.results[digest] = value
        self.journal.append([self.call_row(role, digest, "cached", Usage(), 0.0), _result_row(digest, value)])

    def _judge_failure(
        self, client: ModelClient, digest: str, error: ProviderError, attempt: int
    ) -> float | None:
        """Seconds to wait before the next attempt, None when this request failed for good; raises when all would."""
        if isinstance(error, BrokenFunction) and client.health.known:
            error = ProviderError(str(error))  # it answered others in an earlier session
        if error.fatal:
            client.failed = _with_row(error, client)
            raise client.failed from error
        client.failures_since_success += client.health.tells(digest, error)
        client.note_wait(error, self.budget.whole_seconds)
        unreached = error.status is None and error.refused
        gone = unreached and client.rounds >= MAX_ATTEMPTS
        if error.retryable and attempt < MAX_ATTEMPTS and not gone and not client.fails_all(error.status):
            return delay(max(attempt, client.rounds), error.retry_after, self._jitter)
        unreachable = gone or (
            error.retryable and error.status is None and client.failures_since_success >= MAX_ATTEMPTS
        )
        if unreachable or (error.retryable and client.failures_since_success >= DEAD_AFTER):
            client.failed = ProviderError(
                f"{client.model.address} has not answered {client.failures_since_success} attempts in "
                f"a row; the last error: {str(error).rstrip('.')}. Everything learned so far is kept. "
                "Run the same command again when the model answers.",
                fatal=True,
                status=error.status,
            )
            raise client.failed from error
        if error.retryable or client.answered or digest in client.health.unanswered:
            return None
        times = client.refuses_all(error.status)  # one bad request, or an endpoint that takes none?
        if times > client.health.known:
            client.failed = ProviderError(
                f"{client.model.address} refused all of {times} calls; the last error: "
                f"{str(error).rstrip('.')}. Solve this problem and run the same command again; "
                f"paid answers are kept. If its words name the text of the prompt or of a row{_of_row()}, change that.",
                fatal=True,
                status=error.status,
            )
            raise client.failed from error
        return delay(1, None, self._jitter) if attempt < MAX_ATTEMPTS and not client.health.trusted else None

    async def _attempt(self, role: str, client: ModelClient, request: Request, digest: str) -> bytes:
        async with client.intents:
            if not client.observed.known:
                known = (c.observed.ratio for c in self.clients.values() if c.observed.known)
                client.observed.others = max(known, default=0.0)
            counted = client.count_input(request)
            worst: Usage

            def estimate() -> Reservation:
                nonlocal worst
                most, worst = client.worst_case(role, request, counted)
                return most

            reservation = await self.budget.reserve(estimate(), estimate)
            attempt = CallAttempt(role, digest, self.next_number(), reservation)
            try:
                if not client.model.local:
                    intent = self.call_row(role, digest, OPEN, worst, reservation.likely_cost, attempt.call)
                    await self.journal.commit([(NEW_INTENT, intent[1])])
                if self.stopped:
                    raise asyncio.CancelledError
                async with client.limiter:
                    began = await client.pace.begin()
                    if self.stopped:
                        raise asyncio.CancelledError
                    if client.failed is not None:
                        raise client.failed
                    self._pending[digest].sent = True
                    attempt.state = "failed"
                    value = await self._send(client, request, attempt, worst, began)
                    client.observe(request, attempt.usage, counted)
                self.journal.append(self.settle_attempt(attempt))
                self.share_answers()
                if client.failed is not None and digest in client.health.blank:
                    raise client.failed
                return value
            finally:
                if attempt.state == "failed" and attempt.usage == Usage():
                    client.health.attempts.append(attempt.call)
                if not attempt.settled:
                    row = self.settle_attempt(attempt)
                    self.journal.append([] if attempt.state == OPEN else row)

    async def _send(
        self, client: ModelClient, request: Request, attempt: CallAttempt, worst: Usage, began: float
    ) -> bytes:
        try:
            answers = usable(
                await client.model.generate(client.as_sent(attempt.role, request)), client.model.address
            )
        except asyncio.CancelledError:
            if client.model.local:  # nothing was billed, and the next session makes the same call
                attempt.state = UNSENT
            else:
                attempt.state = OPEN
            raise
        except ProviderError as error:
            if client.turns_away(error):
                client.note_refusal(error, began)
            elif error.refused and error.status is None:
                client.note_unreached(began)
            elif error.retryable and error.status is None:
                client.health.note_late(attempt.digest, began)
            elif is_gone(error):
                client.health.note_gone(attempt.digest, error, began)
            if error.refused:
                attempt.state = REFUSED
            if error.billed:
                attempt.usage, attempt.cost = replace(worst, estimated=True), attempt.reservation.likely_cost
                client.observed.wasted += worst.input_tokens + worst.output_tokens
            raise
        completions = [separate_thought(answer) for answer in answers]
        if self.timed:
            completions = [replace(c, seconds=time.monotonic() - began) for c in completions]
        self.journal.append(note_served(self.budget.spent.served, client.model.address, completions))
        value, attempt.usage = encode_completions(completions), usage_of_completions(completions)
        attempt.cost, attempt.drawn = client.cost(attempt.usage), request.temperature > 0
        client.refuse_thought(completions)
        attempt.state = "answered"
        self.results[attempt.digest] = attempt.value = value
        client.note_answer(began)
        if client.model.local:
            return value
        if client.health.note_answer(attempt.digest, completions, began):
            self.cache.put(self.cache_key(client, attempt.digest), value)
        elif blank := client.health.gives_no_text(client.model.address, client.limiter.max_in_flight):
            client.failed = blank
        return value

    def settle_attempt(self, attempt: CallAttempt) -> list[Statement]:
        """Settle an attempt; the statements that record how it ended, with its answer if there is one."""
        attempt.settled = True
        if attempt.digest in self._pending:
            self._pending[attempt.digest].sent = False
        made = attempt.state not in (UNSENT, REFUSED)
        self.budget.settle(attempt.reservation, attempt.usage, attempt.cost, made)
        if attempt.state == REFUSED:
            self.budget.spent.refused[attempt.role] += 1
        row = self.call_row(
            attempt.role, attempt.digest, attempt.state, attempt.usage, attempt.cost, attempt.call
        )
        more = _detail_rows(attempt.call, attempt.usage)
        spent, usage = self.budget.spent, attempt.usage
        if usage.estimated and made:
            more.append(_add_count(ESTIMATED, spent.estimated, attempt.role, 1))
        if usage.provider_tools and not usage.cost_usd and not usage.free and made:
            more.append(_add_count(PROVIDER_TOOLS, spent.provider_tools, attempt.role, usage.provider_tools))
        if attempt.usage.free and made:
            more.append(self._note_gateway(attempt))
        return (
            [row, *more]
            if attempt.value is None
            else [row, *more, _result_row(attempt.digest, attempt.value)]
        )

    def _note_gateway(self, attempt: CallAttempt) -> Statement:
        """Count a call that a gateway's cache answered; the statement that records the counts."""
        spent = self.budget.spent
        for counts, counted in ((spent.gateway_cached, True), (spent.gateway_drawn, attempt.drawn)):
            if counted:
                counts[attempt.role] = counts.get(attempt.role, 0) + 1
        counted_so_far = orjson.dumps([spent.gateway_cached, spent.gateway_drawn]).decode()
        return meta_row(GATEWAY, counted_so_far)

    def next_number(self) -> int:
        """The number of the next call."""
        self.next_call += 1
        return self.next_call - 1

    def call_row(
        self, role: str, digest: str, state: str, usage: Usage, cost: float, call: int | None = None
    ) -> tuple[str, tuple[Any, ...]]:
        """The statement that records a call, a new one unless its number is given."""
        call = self.next_number() if call is None else call
        session, tokens = self.journal.session, (usage.input_tokens, usage.output_tokens)
        row_sum = call_sum(call, role, digest, session, state, tokens, cost)
        row = (call, role, digest, session, state, *tokens, cost, row_sum)
        return "INSERT OR REPLACE INTO calls VALUES (?,?,?,?,?,?,?,?,?)", row


def _with_row(error: ProviderError, client: ModelClient) -> ProviderError:
    """The error of a request that an endpoint refused although it has answered others, with the row that the request is about."""
    others = client.answers + client.health.known
    if not others or error.status is None or not 400 <= error.status < 500 or not (row := _of_row()):
        return error
    return ProviderError(
        f"{str(error).rstrip('.')}. The endpoint has answered {quantity(others, 'other request')}, and refused this one{row}. "
        "The answers so far are kept: put right what its words name, and run the same command again. "
        "If they are about that row, change or remove the row.",
        fatal=True,
        status=error.status,
        billed=error.billed,
        refused=error.refused,
    )


def _of_row() -> str:
    """The row that a request is about, if it asks for an answer to a row or for its grade."""
    example = EXAMPLE.get()
    return "" if example is None else f" ({example.place})"


def _add_count(key: str, counts: dict[str, int], role: str, number: int) -> Statement:
    """Add to what is counted for a role; the statement that records the counts under a key."""
    counts[role] = counts.get(role, 0) + number
    return meta_row(key, orjson.dumps(counts).decode())


def _detail_rows(call: int, usage: Usage) -> list[Statement]:
    """The facts beyond the tokens that a provider states about a call."""
    details = usage.cached_input_tokens, usage.reasoning_tokens, int(usage.cost_usd is not None or usage.free)
    if not any(details):
        return []
    row = (call, *details, detail_sum(call, *details))
    return [("INSERT OR REPLACE INTO details VALUES (?,?,?,?,?)", row)]


def _result_row(digest: str, value: bytes) -> tuple[str, tuple[object, ...]]:
    return "INSERT OR IGNORE INTO results VALUES (?,?,?)", (digest, value, checksum(digest, value))


def usage_of_completions(completions: Sequence[Completion]) -> Usage:
    """The usage of several completions of one call."""
    first, *others = [completion.usage for completion in completions]
    return sum(others, first)


def digest_of(address: str, request: Request) -> str:
    """Content digest of a request to a model, sample number included; the endpoint's URL is not part of it."""
    content = [
        address,
        [m.as_list() for m in request.messages],
        [
            request.temperature,
            request.max_tokens,
            request.n,
            request.seed,
            request.stop,
            request.top_logprobs,
        ],
        request.schema,
        request.sample,
    ]
    if request.schema_options is not None:
        content.append(request.schema_options)
    try:
        data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half a surrogate pair in a text, which is no UTF-8
        return content_hash(content)
    return hashlib.sha256(data).hexdigest()
