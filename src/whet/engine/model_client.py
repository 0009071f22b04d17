"""One role's model: calls in flight, rate, price, the worst case of a call, and the wait before the next attempt."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from types import TracebackType
from typing import NoReturn

from whet._util.storable import LARGEST
from whet.engine.health import EndpointHealth
from whet.engine.observed import ObservedUsage
from whet.engine.pace import Pace
from whet.errors import ProviderError, named_fields, parameter
from whet.models.language_model import LanguageModel, reads_parts
from whet.models.prices import Price
from whet.types import Completion, Request, Usage
from whet_client.media import TOKENS, count_marks, without_parts
from whet_client.storable import show_value

_log = logging.getLogger("whet.models")
LONG_WAIT = 5.0
"""A wait of so many seconds or more is reported, with its reason."""
MAX_WAIT = 3600.0
"""The longest wait, in seconds, for an endpoint that refuses calls, unless the user sets another."""
OVERLOADED_WAIT = 300.0
"""The run gives up an endpoint after so many seconds without an answer if it is overloaded and does not say for how long."""
UNNAMED_WAIT = 600.0
"""The run gives up an endpoint that allows no call (429) after so many seconds without an answer, beyond the longest wait that it
named, unless the user sets another time: an account without credit gets this status too."""
STARVED = 30
"""An endpoint that refuses one request this often, while it answers as many others, refuses that request for its content."""
_OVERLOADED = (503, 529)
_TURNED_AWAY = (429, *_OVERLOADED)
MAX_ATTEMPTS = 6
DEAD_AFTER = 2 * MAX_ATTEMPTS
BASE_SECONDS = 0.5
CAP_SECONDS = 30.0
MESSAGE_OVERHEAD = 16
UNBOUNDED_TOKENS = 4096
"""The assumed tokens of an answer without a bound, and of a thought beyond a bound, until a longer one was seen."""
REFUSED_ALIKE = 6
"""A model that refused this many requests in the same way, and answered none, is taken to refuse all."""
ROOM = 8_192, 32_768
"""The additional tokens for a model that thinks beyond its bound: the first allowance, and the largest."""
_GROWTH = 0.05


class AdaptiveLimiter:
    """At most `max_in_flight` calls at once, fewer while the server says that it is too many.

    `async with limiter:` starts a call, in order of arrival. `throttled` halves the allowance, at most once
    per round trip: answers to calls that were in flight at the last cut do not cut again. It holds new starts
    until the server's wish has passed. `succeeded` doubles the allowance per round trip up to half of where a series of
    cuts began, and from there adds 5% of the maximum (at least one call) per round trip: slow start and congestion
    avoidance of TCP (RFC 5681, section 3.1). Belongs to one event loop; needs no lock.
    """

    def __init__(
        self,
        max_in_flight: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`max_in_flight`: 1 or more. `clock` and `sleep` count seconds. Raises ValueError."""
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be 1 or more, found {max_in_flight}")
        self.max_in_flight = max_in_flight
        self._clock = clock
        self._sleep = sleep
        self._allowance = float(max_in_flight)
        self._step = max(1.0, _GROWTH * max_in_flight)
        self._in_flight = 0
        self._before_cut = 0
        self._slow_from = 0.0
        self._answered_since_cut = True
        self._before_probe: float | None = None
        self._held_until = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def allowance(self) -> int:
        """Calls that may be in flight now, 1 to `max_in_flight`."""
        return int(self._allowance)

    @property
    def in_flight(self) -> int:
        """Calls that hold a place, including those that the server asked to wait."""
        return self._in_flight

    @property
    def rests(self) -> float:
        """Seconds for which no call begins because the server asked for a wait; 0 if it did not."""
        return max(0.0, self._held_until - self._clock())

    async def __aenter__(self) -> None:
        if self._waiting or self._in_flight + 1 > self._allowance:
            await self._queue()
        else:
            self._in_flight += 1
        if self._held_until > float("-inf"):
            await self._rest()

    async def _rest(self) -> None:
        """Wait until no wish of the server holds new calls."""
        try:
            while (wait := self.rests) > 0:
                await self._sleep(wait)
        except BaseException:
            self._release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    async def _queue(self) -> None:
        """Wait for a place; whoever frees it hands it over, counted already."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                with contextlib.suppress(ValueError):  # who freed a place has dropped it already
                    self._waiting.remove(place)
            else:
                self._release()
            raise

    def _release(self) -> None:
        self._in_flight -= 1
        if self._before_cut:
            self._before_cut -= 1
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and self._in_flight + 1 <= self._allowance:
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                place.set_result(None)

    def probe(self) -> None:
        """The endpoint was not reached: one call at a time until it answers one, then as many as before."""
        if self._before_probe is None:
            self._before_probe = self._allowance
        self._allowance = 1.0

    def note_throttling(self, retry_after: float | None = None) -> None:
        """A call was told to slow down; `retry_after` is the server's wish in seconds, if it had one."""
        if retry_after is not None:
            self._held_until = max(self._held_until, self._clock() + retry_after)
        if self._before_cut == 0:
            if self._answered_since_cut:
                self._slow_from, self._answered_since_cut = self._allowance / 2, False
            self._allowance = max(1.0, self._allowance / 2)
            self._before_cut = self._in_flight

    def note_success(self) -> None:
        """A call was answered. Answers to calls that were in flight at the last cut prove nothing yet."""
        if self._before_probe is not None:
            self._allowance, self._before_probe = self._before_probe, None
            self._hand_over()
        if self._before_cut == 0:
            self._answered_since_cut = True
            if self._allowance < self.max_in_flight:
                more = 1.0 if self._allowance < self._slow_from else self._step / self._allowance
                self._allowance = min(float(self.max_in_flight), self._allowance + more)
                self._hand_over()


def _intents(most: int) -> AdaptiveLimiter:
    """Intents are written ahead for half as many calls as may be in flight, so that places never wait for a disk. A semaphore of
    asyncio would look through all that it has woken in a turn of the loop, each time that one is released."""
    return AdaptiveLimiter(most + most // 2)


def share_limits(clients: Mapping[str, ModelClient]) -> None:
    """Let the roles that one model serves keep its limits together: its calls in flight and a minute are those of all of them. Of
    different limits the smallest holds."""
    for model in {id(client.model) for client in clients.values()}:
        sharing = [client for client in clients.values() if id(client.model) == model]
        if len(sharing) > 1:
            most = min(client.limiter.max_in_flight for client in sharing)
            limiter, intents = AdaptiveLimiter(most), _intents(most)
            rates = [rate for client in sharing if (rate := client.requests_per_minute) is not None]
            pace = Pace(min(rates, default=None))
            for client in sharing:
                client.limiter, client.intents, client.pace = limiter, intents, pace


class ReasoningTruncated(Exception):
    """An answer ended in the middle of a thought."""


@named_fields
@dataclass(frozen=True, slots=True)
class Reservation:
    """The maximum usage of one attempt."""

    role: str
    calls: int = 1
    tokens: int = 0
    cost: float = 0.0
    likely_tokens: int = 0
    """The most tokens if its answer is as long as those before."""
    likely_cost: float = 0.0
    """The most US dollars if its answer is as long as those before."""
    alone: bool = False
    """Whether so little is known of the model that, under a limit on tokens or dollars, no other call of the role may be in
    flight."""
    beyond_tokens: int = 0
    """Further tokens that it may take if the model thinks without regard to its bound."""
    beyond_cost: float = 0.0
    """Further US dollars that it may take if the model thinks without regard to its bound."""


@dataclass
class ModelClient:
    """The model of one role with its limits, price and health."""

    model: LanguageModel
    limiter: AdaptiveLimiter
    price: Price | None = None
    requests_per_minute: float | None = None
    counts_as: str | None = None
    """The role whose limits its calls count against, if not its own."""
    same_answers: bool = False
    """Whether its answers may serve the role `counts_as` too."""
    bound: int | None = None
    """The bound on output tokens that the user set."""
    writes: bool = False
    """Whether it writes for whet, with bounds that whet chose unless the user set `bound`."""
    room: int = 0
    """Output tokens beyond the bound, for a thought."""
    failures_since_success: int = 0
    failed: ProviderError | None = None
    """Why it failed for good: calls that wait are not sent any more and fail with this error."""
    answers: int = 0
    """The number of answers in this session."""
    announced: float = float("-inf")
    """Until when (monotonic clock) a message has announced its rest."""
    max_wait: float = MAX_WAIT
    """Seconds that a run waits for it at most while it turns calls away."""
    unnamed_wait: float = UNNAMED_WAIT
    """Seconds that a run waits for it beyond the longest wait that it named."""
    named_wait: float = 0.0
    """The longest wait, in seconds, that it has named since its last answer."""
    turned_away: float | None = None
    """Since when (monotonic clock) it has answered nothing and turned calls away; None: it does not."""
    rounds: int = 0
    """Attempts in a row that reached no server."""
    cuts_prompts: bool = False
    """Whether an answer has shown that the server reads only part of long prompts."""
    observed: ObservedUsage = field(default_factory=ObservedUsage)
    """The usage of its answered calls."""
    health: EndpointHealth = field(default_factory=EndpointHealth)
    _refused: tuple[int | None, int] = (None, 0)
    _unreached_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.intents = _intents(self.limiter.max_in_flight)
        self.pace = Pace(self.requests_per_minute)

    def with_reasoning_budget(self, request: Request) -> Request:
        """The request with the bound that the user set, if any, and with room for the thought of this model."""
        bound = self.bound or request.max_tokens
        if bound is None or bound + self.room == request.max_tokens:
            return request
        return replace(request, max_tokens=bound + self.room)

    def refuse_thought(self, completions: Sequence[Completion]) -> None:
        """Raise ReasoningTruncated when a model that writes for whet had no tokens left for a text, and may be given more."""
        cut = all(c.finish == "length" and not c.text.strip() for c in completions)
        if self.writes and self.bound is None and cut and self.room < ROOM[-1]:
            raise ReasoningTruncated

    def raise_reasoning_budget(self, room: int) -> None:
        """Give more tokens from now on than the `room` that did not suffice."""
        more = next(size for size in ROOM if size > room)
        if more > self.room:
            self.room = more
            _log.warning(
                "%s thinks for long; it gets %d more tokens a call from now on.", self.model.address, more
            )

    @property
    def answered(self) -> bool:
        """Whether it ever answered in this session."""
        return self.answers > 0

    def fails_all(self, status: int | None) -> bool:
        """Whether it never answered and failed so often by a 500 that further attempts are a storm. A schema may be refused
        in two forms by a 500, which costs every place in flight some calls."""
        most = max(DEAD_AFTER, 4 * self.limiter.max_in_flight)
        return status == 500 and not self.answered and self.failures_since_success >= most

    def refuses_all(self, status: int | None) -> int:
        """Note that the model refused a request for good. How many it refused alike, once that says that it refuses them all:
        nothing was ever answered, and either no other call may still be, or many were refused; else 0."""
        before, times = self._refused
        times = times + 1 if status == before else 1
        self._refused = (status, times)
        enough = times >= REFUSED_ALIKE and (
            self.limiter.in_flight == 0 or times >= 2 * self.limiter.max_in_flight
        )
        return times if enough and not self.answered else 0

    def turns_away(self, error: ProviderError) -> bool:
        """Whether the endpoint wants the call later: it allows fewer calls, or has no room for more now."""
        return error.retryable and error.refused and error.status in _TURNED_AWAY

    def note_unreached(self, began: float) -> None:
        """No server took the call that began at `began`."""
        self.limiter.probe()
        if began >= self._unreached_at:
            self.rounds += 1
            self._unreached_at = time.monotonic()

    def note_answer(self, began: float) -> None:
        """The call that began at `began` was answered."""
        self.failures_since_success, self.rounds, self.turned_away, self.named_wait = 0, 0, None, 0.0
        self.answers += 1
        self.limiter.note_success()
        self.pace.note_answer(began)

    def note_refusal(self, error: ProviderError, began: float) -> None:
        """The call that began at `began` was turned away: the next wait as long as the server asks, and go out more slowly."""
        wait = None if error.retry_after is None else min(error.retry_after, self.max_wait)
        self.limiter.note_throttling(wait)
        self.pace.note_refusal(began, overloaded=error.status in _OVERLOADED)

    def note_wait(self, error: ProviderError, limit: float | None) -> None:
        """Say for how long calls rest, where that is long. Raises ProviderError when it is longer than the run may wait, or than
        `limit`, the seconds that the run may take.
        """
        seconds, now = error.retry_after or 0.0, time.monotonic()
        if limit is not None and seconds > limit:
            self._give_up(error, f"and the run may take {limit:g} s in all")
        if seconds > self.max_wait:
            self._give_up(error, f"and whet waits {self.max_wait:g} s at most ({parameter('max_wait')})")
        if self.turns_away(error):
            self.turned_away = now if self.turned_away is None else self.turned_away
            silent = now - self.turned_away
            self.named_wait = max(self.named_wait, seconds)
            if error.status == 429:
                beyond = self.named_wait + self.unnamed_wait
            else:
                beyond = self.max_wait if seconds > 0 else OVERLOADED_WAIT
            most = min(self.max_wait, beyond)
            if silent + seconds > most:
                what = f" ({parameter('max_wait')})" if error.status == 429 else ""
                self._give_up(
                    error, f"and has answered nothing for {silent:.0f} s; whet waits {most:g} s at most{what}"
                )
            seconds = max(seconds, self.pace.interval)
        if seconds >= LONG_WAIT and now + seconds > self.announced + LONG_WAIT:
            self.announced = now + seconds
            _log.warning(
                "%s; the next call is sent in %.3g s. To avoid refusals, set requests_per_minute of the model. If its words "
                "name the account, put that right: the run waits, and the same command continues it later.",
                str(error).rstrip("."),
                seconds,
            )

    def _give_up(self, error: ProviderError, why: str) -> NoReturn:
        """Stop the run, which can go on later. Raises ProviderError."""
        asks = (
            f"asks to wait {error.retry_after:g} s before the next call"
            if error.retry_after
            else "refuses calls"
        )
        self.failed = ProviderError(
            f"{self.model.address} {asks}, {why}; its words: {str(error).rstrip('.')}. Everything "
            f"learned so far is kept. Run the same command again when it accepts calls again. If its words name the account, "
            "put that right first.",
            fatal=True,
            status=error.status,
        )
        raise self.failed from error

    def worst_case(
        self, role: str, request: Request, counted: int | None = None
    ) -> tuple[Reservation, Usage]:
        """Reservation and likely usage of one attempt. Reserved are the tokens that its request has at most, by what earlier ones
        had, and all that the answer may have; likely are the most that earlier answers had, with a margin. All of the input
        may be written into the provider's cache. `counted`: what `count_input` says, where it is known."""
        size, seen = self.count_input(request) if counted is None else counted, self.observed
        bound = UNBOUNDED_TOKENS if request.max_tokens is None else request.max_tokens
        read, written = seen.read_at_most(size), seen.written_at_most(bound, request.n)
        most = max(written, bound * request.n)
        ends = self.model.local or seen.keeps_bounds
        beyond = 0 if ends else max(UNBOUNDED_TOKENS, seen.written) * request.n
        usage = Usage(read, written, pictures=request.n if getattr(self.model, "paints", False) else 0)
        likely = cost = dollars = 0.0
        if self.price is not None:
            cases = usage, replace(usage, output_tokens=most), Usage(0, beyond)
            likely, cost, dollars = (self.price.most(case) * seen.dearest for case in cases)
        alone = not (seen.known or self.model.local)
        reserved = Reservation(role, 1, read + most, cost, read + written, likely, alone, beyond, dollars)
        return reserved, usage

    def as_sent(self, role: str, request: Request) -> Request:
        """The request as the model gets it: a model that reads texts only, and the optimizer, get the names of images."""
        if not any([count_marks(m.content) for m in request.messages]):
            return request
        if role != "optimizer" and reads_parts(self.model):
            return request
        messages = tuple(replace(m, content=without_parts(m.content)) for m in request.messages)
        return replace(request, messages=messages)

    def count_input(self, request: Request) -> int:
        """The tokens of a request, as whet counts them before it is sent."""
        count, tokens = self.model.count_tokens, 0
        for message in request.messages:
            tokens += count(message.content) + MESSAGE_OVERHEAD + TOKENS * count_marks(message.content)
        return tokens

    def observe(self, request: Request, usage: Usage, counted: int | None = None) -> None:
        """Learn from an answer, be it a recorded one, what the next calls will take; `counted` as for `worst_case`."""
        if usage.free and not usage.input_tokens:
            return
        price = 0.0 if self.price is None else self.price.cost(usage)
        counted = self.count_input(request) if counted is None else counted
        if not self.cuts_prompts:
            self._warn_of_a_cut(counted, request, usage)
        cost = self.cost(replace(usage, free=False) if usage.free else usage)
        self.observed.note(counted, request.n, usage, cost, price, request.max_tokens)

    def _warn_of_a_cut(self, counted: int, request: Request, usage: Usage) -> None:
        texts = [message.content for message in request.messages]
        words = self.observed.lost_words(texts, usage)
        if not words and not self.observed.lost_input(counted, usage):
            return
        self.cuts_prompts = True
        _log.warning(
            "%s read %d tokens of a prompt of %d bytes, %s. The server has cut the prompt, as Ollama does beyond num_ctx "
            "(`OLLAMA_CONTEXT_LENGTH`). Give the model a longer context or shorten the row.",
            self.model.address,
            usage.input_tokens,
            sum(len(text.encode("utf-8", "replace")) for text in texts),
            f"which has {words:,} words" if words else "less than half of the number that other rows suggest",
        )

    def cost(self, usage: Usage) -> float:
        """US dollars: what the provider says, else by the price; 0 without either, and where a gateway's cache answered. A
        provider that says 0 where a price is known may bill elsewhere: the price holds."""
        if usage.free:
            return 0.0
        if usage.cost_usd or self.price is None:
            return usage.cost_usd or 0.0
        return self.price.cost(usage)

    def cost_at_most(self, usage: Usage) -> float:
        """US dollars by the price where all of the input is of the dearest kind; 0 without a price."""
        return 0.0 if self.price is None else self.price.most(usage)


def delay(attempt: int, retry_after: float | None, rng: random.Random) -> float:
    """Seconds to wait after failed attempt number `attempt` (1 is the first).

    The server's own wish is honoured exactly. Without one: exponential back-off with full jitter, uniform
    between 0 and 0.5 s, 1 s, 2 s, ... up to 30 s. Raises ValueError for an attempt below 1.
    """
    if attempt < 1:
        raise ValueError(f"attempt counts from 1, found {attempt}")
    if retry_after is not None:
        return max(0.0, retry_after)
    return rng.random() * min(CAP_SECONDS, BASE_SECONDS * 2.0 ** min(attempt - 1, 16))


def usable(completions: object, address: str) -> list[Completion]:
    """The completions that a model returned, if they can be recorded. Raises ProviderError for anything else."""
    if isinstance(completions, list) and completions and all(map(_is_answer, completions)):
        return completions
    raise ProviderError(
        f"{address}: it returned {show_value(completions)}; an answer is a whet.Completion with a text, and with tokens as whole "
        "numbers of 0 or more."
    )


def _is_answer(completion: object) -> bool:
    if not isinstance(completion, Completion) or not isinstance(completion.text, str):
        return False
    usage, error = completion.usage, completion.error
    if not isinstance(usage, Usage) or not (error is None or isinstance(error, str)):
        return False
    return _is_count(usage.input_tokens) and _is_count(usage.output_tokens)


def _is_count(number: int) -> bool:
    return (type(number) is int or isinstance(number, Integral)) and 0 <= number <= LARGEST
