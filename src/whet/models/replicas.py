"""The servers of one model: who gets the next call, and who gets none for a while.

A list of base URLs names replicas, servers with the same weights. A call goes to the replica with the fewest calls in flight; of
those with about as few, to the one that has read the longest part of its beginning, so that the server finds that part in its
prefix cache. A replica that does not answer is left out, and asked again after a while, one call at first. A call that no
server took goes to another replica at once; a call that was sent is never sent again from here, for its server may bill it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from yarl import URL

from whet.models.endpoint import ModelEndpoint, show_url
from whet.models.http import Answer, HttpClient, NoAnswer
from whet.models.waits import find_wait

_log = logging.getLogger("whet.models")
LONGEST_REST = 60.0
"""Seconds after which a replica that does not answer is asked again, at most."""
_FIRST_REST = 1.0
_FAILURES = 3
"""Answers with status 500 in a row, from which on a replica counts as broken: it fails fast, and would get all calls."""
_TURNED_AWAY = (429, 503, 529)
_NO_UPSTREAM = (502, 504)
_SLACK = 4
"""A replica may have about a quarter more calls in flight than another and still get a call whose beginning it knows, but none
beside one that is idle or has a single call."""
_SHORTEST, _LONGEST = 256, 65_536
_REMEMBERED = 4096
"""Beginnings that are remembered for each replica."""


@dataclass(eq=False)
class Replica:
    """One server of a model."""

    endpoint: ModelEndpoint
    in_flight: int = 0
    """Calls that it works on."""
    calls: int = 0
    """All calls that it got."""
    rests_until: float = -math.inf
    """Until when (clock of the event loop) it gets no call."""
    outages: int = 0
    """The number of rests in a row for lack of an answer."""
    failures: int = 0
    """Statuses 500 in a row."""
    last_answer: tuple[float, float] = (-math.inf, -math.inf)
    """The times of the last answered call: its begin, and its answer."""
    _out_since: float = -math.inf
    _clients: dict[asyncio.AbstractEventLoop, HttpClient] = field(default_factory=dict)
    _targets: dict[tuple[str, ...], str] = field(default_factory=dict)
    _beginnings: OrderedDict[int, None] = field(default_factory=OrderedDict)

    @property
    def origin(self) -> URL:
        """Scheme, host and port."""
        return self.endpoint.url().origin()

    def target(self, path: tuple[str, ...]) -> str:
        """The URL of a part of the API."""
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = str(self.endpoint.url(*path))
        return target

    def client(
        self, loop: asyncio.AbstractEventLoop, headers: Mapping[str, str], seconds: float
    ) -> HttpClient:
        """The connections of the running event loop; a call may take `seconds`."""
        client = self._clients.get(loop)
        if client is None:
            fields = self.endpoint.with_headers(headers)
            client = self._clients[loop] = HttpClient(self.endpoint.url(), fields, seconds)
        return client

    def bytes_known(self, beginnings: Sequence[tuple[int, int]]) -> int:
        """Return the least number of bytes at the beginning of a request that the replica has read, as far as is remembered."""
        return next((size for size, mark in reversed(beginnings) if mark in self._beginnings), 0)

    def remember(self, beginnings: Sequence[tuple[int, int]]) -> None:
        """Note what it reads now; the oldest is forgotten, as in the cache of a server."""
        for _, mark in beginnings:
            self._beginnings[mark] = None
            self._beginnings.move_to_end(mark)
        while len(self._beginnings) > _REMEMBERED:
            self._beginnings.popitem(last=False)

    def note_silence(self, began: float, now: float) -> bool:
        """A call that began at `began` was not answered: rest. Whether that is new."""
        if began < self._out_since:  # it began before the rest did, and says nothing new
            return False
        self.outages += 1
        rest = min(LONGEST_REST, _FIRST_REST * 2.0 ** min(self.outages - 1, 16))
        self._out_since, self.rests_until = now, now + rest
        return self.outages == 1

    def note_answer(self) -> bool:
        """Note an answer. Returns whether the replica had not answered before."""
        again, self.outages, self.failures = self.outages > 0, 0, 0
        self.rests_until = -math.inf
        return again

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class Replicas:
    """The servers of the model at `address`, one or more."""

    def __init__(self, address: str, endpoints: Sequence[ModelEndpoint], headers: Mapping[str, str]) -> None:
        """`headers` go with every request, beside those of an endpoint."""
        self.all = tuple(Replica(endpoint) for endpoint in endpoints)
        self._address, self._headers = address, headers

    @property
    def base_url(self) -> str:
        """The printable form of the base URLs, sorted: the same servers give the same text."""
        return ", ".join(sorted(replica.endpoint.base_url for replica in self.all))

    async def post(
        self, body: bytes, path: tuple[str, ...], seconds: float, late: Callable[[], None]
    ) -> tuple[Replica, Answer | NoAnswer]:
        """Send `body` to a replica, and to others while nobody takes it; who answered, and what came within `seconds`.

        The time in which a server answers calls that began earlier does not count; `late` is called when that lengthens a call.
        """
        if len(self.all) == 1:
            return self.all[0], await self._send(self.all[0], body, path, seconds, late)
        loop, beginnings = asyncio.get_running_loop(), beginnings_of(body)
        tried: list[Replica] = []
        while True:
            replica = self._choose(beginnings, tried, loop.time())
            tried.append(replica)
            began = loop.time()
            answer = await self._send(replica, body, path, seconds, late)
            self._note(replica, answer, began, loop.time())
            if not _is_untaken(answer) or not self._ready(tried, loop.time()):
                return replica, answer

    async def _send(
        self, replica: Replica, body: bytes, path: tuple[str, ...], seconds: float, late: Callable[[], None]
    ) -> Answer | NoAnswer:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def more() -> float:
            earlier, at = replica.last_answer
            left = at + seconds - loop.time() if earlier < began else 0.0
            if left > 0:
                late()
            return left

        replica.in_flight += 1
        replica.calls += 1
        try:
            client = replica.client(loop, self._headers, seconds)
            answer = await client.post(replica.target(path), body, seconds, more)
            replica.last_answer = began, loop.time()
            return answer
        finally:
            replica.in_flight -= 1

    def _ready(self, tried: Sequence[Replica], now: float) -> list[Replica]:
        """The servers that may get a call now. A server that did not answer gets a single call at first."""
        return [
            replica
            for replica in self.all
            if replica not in tried
            and replica.rests_until <= now
            and not (replica.outages and replica.in_flight)
        ]

    def _choose(self, beginnings: Sequence[tuple[int, int]], tried: Sequence[Replica], now: float) -> Replica:
        """The server that gets the next call; if all rest, the one that has rested longest."""
        ready = self._ready(tried, now)
        if ready:
            least = min(replica.in_flight for replica in ready)
            near = [replica for replica in ready if replica.in_flight <= least + (least + 2) // _SLACK]
            chosen = max(near, key=lambda r: (r.bytes_known(beginnings), -r.in_flight, -r.calls))
        else:
            chosen = min(self.all, key=lambda r: (r.rests_until, r.in_flight))
        chosen.remember(beginnings)
        return chosen

    def _note(self, replica: Replica, answer: Answer | NoAnswer, began: float, now: float) -> None:
        """Learn from what came of a call whether a replica answers, and say it when that changes."""
        reason = ""
        if isinstance(answer, NoAnswer):
            reason = answer.reason if answer.status is None else ""
        elif answer.status in _TURNED_AWAY:
            wait = find_wait(answer.headers, None, "")
            replica.rests_until = now + min(LONGEST_REST, _FIRST_REST if wait is None else wait)
            return
        elif answer.status in _NO_UPSTREAM:
            reason = f"HTTP {answer.status}"
        elif answer.status >= 500:
            replica.failures += 1
            if replica.failures < _FAILURES:
                return
            reason = f"HTTP {answer.status}, {replica.failures} times in a row"
        if not reason:
            if replica.note_answer():
                _log.warning("%s answers again at %s.", self._address, show_url(replica.origin))
        elif replica.note_silence(began, now):
            _log.warning(
                "%s does not answer at %s (%s). Its calls go to the other %d of %d base URLs; it is asked again after a second, "
                "and later once a minute at most.",
                self._address,
                show_url(replica.origin),
                reason,
                len(self.all) - 1,
                len(self.all),
            )

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        for replica in self.all:
            await replica.close()


def _is_untaken(answer: Answer | NoAnswer) -> bool:
    """Whether nobody has worked on the call, or can bill it: another replica may get it."""
    return answer.unreached if isinstance(answer, NoAnswer) else answer.status in _TURNED_AWAY


def beginnings_of(body: bytes) -> list[tuple[int, int]]:
    """Beginnings of a request, each with its bytes and a hash: 256 bytes, and each time a quarter more, at most 64 KiB.

    >>> [size for size, _ in beginnings_of(bytes(500))]
    [256, 320, 400, 500]
    """
    marks, size = [], _SHORTEST
    while size <= min(len(body), _LONGEST):
        marks.append((size, hash(body[:size])))
        size += size // 4
    return marks
