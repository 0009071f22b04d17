"""Rows on their way to the server: in batches, behind the app's back, and lost only where it is said.

Rows wait in memory for a fraction of a second and go out together. While the server is down they wait there, up to a
bound; what is beyond it, and what is left when the process ends, goes to the spool, a file that the next process sends. A
log of what waits lies there too, so that a kill loses nothing. Every row has its own id, so that sending one twice changes
nothing.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet_client.http import HttpReply, Send, Unavailable, raise_if_unavailable, reason_of
from whet_client.spool import Line, Spool, claim

log = logging.getLogger("whet.client")

MOST_ROWS, MOST_BYTES = 500, 1_000_000
"""Rows and bytes of one request."""

MOST_REASONS = 5
"""Reasons that one message in the log gives."""

_PATHS = {"inferences": "/v1/inferences", "feedback": "/v1/feedback"}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_ABOUT_ROWS = (400, 409, 413, 422)
"""Answers that say something about the rows; any other is about the server or the token, and the rows are kept."""


@dataclass
class DeliveryTally:
    """The delivery of rows so far. `refused` are those that the server will never take, `lost` those that found room neither
    in memory nor in the spool, and those that were damaged there."""

    sent: int = 0
    spooled: int = 0
    refused: int = 0
    lost: int = 0


class Sender:
    """Sends rows in the background. Threads may share it.

    `memory` bounds the bytes that wait, `pause` is how long a row waits for others, in seconds.
    """

    def __init__(self, send: Send, url: str, spool: Spool | None, memory: int, pause: float) -> None:
        self._send, self._url, self._spool = send, url, spool
        self._memory, self._pause = memory, pause
        self.tally = DeliveryTally()
        self.restart_after_fork()

    def restart_after_fork(self) -> None:
        """Start anew in a child process: the rows that wait are the parent's to send."""
        if self._spool is not None:
            self._spool.end(forked=True)
        self._noted = self._spool is not None
        self._queue: deque[Line] = deque()
        self._bytes = 0
        self._ripe = 0  # rows at the front of the queue that need not wait for others any more
        self._in_flight: tuple[Line, ...] = ()
        self._busy = False
        self._failures = 0
        self._spool_attempts = (
            0  # since the spool was empty: rows of earlier processes wait while there are any
        )
        self._hurry = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, kind: str, row: Mapping[str, object]) -> None:
        """Queue a row, without waiting."""
        line = (kind, json.dumps(row, ensure_ascii=True, default=dict).encode("ascii"))
        with self._changed:
            self._queue.append(line)
            self._bytes += len(line[1])
            if not self._closed:
                self._logs(lambda spool: spool.note(line))
            spilled = self._overflow()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="whet-sender", daemon=True)
                self._thread.start()
            if len(self._queue) == 1 or len(self._queue) >= MOST_ROWS:
                self._changed.notify_all()
        if spilled:
            self._keep(spilled)

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent or refused, also what earlier processes left in the spool, once it was begun; False when
        that takes longer than `timeout` seconds."""
        return self._drain(timeout, patient=True)

    def close(self, timeout: float) -> None:
        """Send what waits, for at most `timeout` seconds; what the server cannot take goes to the spool.

        Where there is a spool, the first attempt that fails is the last one. Calling it twice is harmless, and rows
        that come later go to the spool.
        """
        if self._thread is not None:
            self._drain(timeout, patient=self._spool is None)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            rest = [*self._in_flight, *self._take(self._bytes)]  # other threads may have put some meanwhile
        if rest:
            self._keep(rest)
        self._logs(lambda spool: spool.end())

    def _logs(self, change: Callable[[Spool], None]) -> None:
        """Change the log of what waits, as long as the disk takes it. The lock is held, or the sender is closed."""
        if self._spool is None or not self._noted:
            return
        try:
            change(self._spool)
        except OSError as error:
            self._noted = False
            log.warning("Rows that wait for %s are not safe from a kill: %s.", self._url, error)

    def _drain(self, timeout: float, patient: bool) -> bool:
        """Wait until nothing waits; False after `timeout` seconds or, without patience, after a failure."""
        deadline = time.monotonic() + timeout
        with self._changed:
            failures = self._failures
            self._hurry = True
            self._changed.notify_all()
            try:
                while self._queue or self._busy or self._spool_attempts:
                    left = deadline - time.monotonic()
                    if left <= 0 or self._thread is None or (not patient and self._failures > failures):
                        return False
                    self._changed.wait(left)
            finally:
                self._hurry = False
        return True

    def _overflow(self) -> list[Line]:
        """The oldest rows when more wait than memory holds; all of them after the end. The lock is held."""
        most = 0 if self._closed else self._memory
        return self._take(self._bytes - most // 2) if self._bytes > most else []

    def _take(self, size: int) -> list[Line]:
        """The oldest rows, together at least `size` bytes. The lock is held."""
        taken: list[Line] = []
        while self._queue and size > 0:
            taken.append(self._queue.popleft())
            size -= len(taken[-1][1])
            self._bytes -= len(taken[-1][1])
        return taken

    def _keep(self, lines: list[Line]) -> None:
        """Write rows to the spool; count and tell those that are lost."""
        lost = len(lines)
        reason = "there is no spool"
        if self._spool is not None:
            try:
                lost = self._spool.write(lines)
                reason = "the spool is full"
            except OSError as error:
                reason = f"the spool {self._spool.folder} cannot be written: {error}"
        self.tally.spooled += len(lines) - lost
        self.tally.lost += lost
        if lost:
            log.error("%d rows for %s are lost: %s.", lost, self._url, reason)

    def _run(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                return
            try:
                if batch:
                    self._deliver(batch[0][0], batch)
                with self._changed:
                    self._in_flight = ()
                    self._spool_attempts += 1
                self._empty_spool()
                self._spool_attempts = 0
                self._settle(0.0)
            except Unavailable as error:
                self._settle(self._again(batch, error))
            except Exception:
                self.tally.refused += len(batch)
                self._spool_attempts = 0
                log.exception("%d rows for %s could not be sent.", len(batch), self._url)
                self._settle(0.0)

    def _next(self) -> list[Line] | None:
        """Rows of one kind for one request, once enough wait or the first has waited long enough; none while only rows of earlier
        processes wait; None at the end.

        What the app reports in turns, an answer and feedback and an answer, goes out as two requests: rows of the other
        kind that were there by then are next, without another pause.
        """
        with self._changed:
            while not (
                self._closed or self._spool_attempts or (self._queue and (self._ripe or self._enough()))
            ):
                waiting = len(self._queue)
                self._changed.wait(self._pause if waiting else None)
                self._ripe = min(waiting, len(self._queue))
            if self._closed:
                return None
            self._ripe = len(self._queue) if self._enough() else self._ripe
            batch = self._pick(self._queue[0][0]) if self._queue else []
            self._in_flight, self._busy = tuple(batch), True
        return batch

    def _pick(self, kind: str) -> list[Line]:
        """The oldest rows of a kind, as many as fit one request. The lock is held."""
        batch: list[Line] = []
        others: deque[Line] = deque()
        size = ripe = 0
        for place, line in enumerate(self._queue):
            if line[0] == kind and len(batch) < MOST_ROWS and size < MOST_BYTES:
                batch.append(line)
                size += len(line[1])
            else:
                others.append(line)
                ripe += place < self._ripe
        self._queue, self._bytes, self._ripe = others, self._bytes - size, ripe
        return batch

    def _enough(self) -> bool:
        return self._hurry or len(self._queue) >= MOST_ROWS

    def _settle(self, pause: float) -> None:
        """The request is over; wait `pause` seconds, but no longer than until somebody hurries or closes."""
        with self._changed:
            self._in_flight, self._busy = (), False
            if not self._closed:
                self._logs(lambda spool: spool.forget(self._queue))
            self._changed.notify_all()
            if pause > 0 and not self._closed:
                self._changed.wait(pause)

    def _again(self, batch: list[Line], error: Unavailable) -> float:
        """Put rows back, behind the others if they may have broken the server; how long to wait, in seconds."""
        import random

        spilled: list[Line] = []
        with self._changed:
            if self._in_flight and not self._closed:
                if error.status == 500:
                    self._queue.extend(batch)
                else:
                    self._queue.extendleft(reversed(batch))
                self._bytes += sum(len(row) for _, row in batch)
                self._in_flight = ()
                spilled = self._overflow()
        if spilled:
            self._keep(spilled)
        self._failures += 1
        attempts = max(self._failures, self._spool_attempts)
        if attempts in (1, 10):
            earlier = " and those of earlier processes" if self._spool_attempts else ""
            log.warning("%s %d rows%s wait.", error, len(self._queue), earlier)
        pause = min(_FIRST_PAUSE * 2.0 ** min(attempts - 1, 10), _LONGEST_PAUSE)
        delay = min(error.retry_after or 0.0, _LONGEST_PAUSE)
        return max(delay, pause * random.uniform(0.7, 1.3))

    def _deliver(self, kind: str, batch: list[Line]) -> None:
        """Send rows of one kind until the server has them or has refused them for good. Raises Unavailable."""
        body = b'{"%b": [%b]}' % (kind.encode("ascii"), b", ".join(row for _, row in batch))
        headers = {"Content-Type": "application/json"}
        answer = raise_if_unavailable(self._send("POST", _PATHS[kind], headers, body), self._url)
        if answer.status in (200, 201, 202):
            if not _is_receipt(answer):  # a sign-in page of the network, another server at this address
                raise Unavailable(f"Something else than the server answers at {self._url}.", answer.status)
            self._failures = 0
            self.tally.sent += len(batch)
            return
        rest = self._without_refused(batch, answer)
        if answer.status not in _ABOUT_ROWS and len(rest) == len(batch):
            what = (
                "does not accept this client's token" if answer.status in (401, 403) else "takes no rows here"
            )
            raise Unavailable(f"The server {self._url} {what} ({reason_of(answer)}).", answer.status)
        self._failures = 0
        if len(rest) < len(batch):
            if rest:
                self._deliver(kind, rest)
        elif len(batch) == 1:
            self.tally.refused += 1
            log.error("The server %s refuses a row: %s", self._url, reason_of(answer))
        else:
            middle = len(batch) // 2
            self._deliver(kind, batch[:middle])
            self._deliver(kind, batch[middle:])

    def _without_refused(self, batch: list[Line], answer: HttpReply) -> list[Line]:
        """The rows without those that the server names: their ids are taken, the token is not for their prompts, or they
        cannot be stored. A row that it names by its place goes, and others with the same id stay. Of rows with one id and several
        contents, the first may still be stored."""
        name = {400: "refused", 403: "refused", 409: "conflicts"}.get(answer.status)
        try:
            named = json.loads(answer.body)[name] if name else []
            reasons = [str(one["message"]) for one in named if one.get("message")]
            places = {one["index"] for one in named if isinstance(one.get("index"), int)}
            ids = {str(one["id"]) for one in named if one.get("id") and one.get("index") is None}
        except (ValueError, KeyError, TypeError, AttributeError):
            return batch
        rest = [line for place, line in enumerate(batch) if place not in places]
        rest = _leave_out(rest, ids, keep_first=answer.status == 409) if ids else rest
        if len(rest) == len(batch):
            return batch
        self.tally.refused += len(batch) - len(rest)
        shown = " ".join(dict.fromkeys(reasons[:MOST_REASONS])) or reason_of(answer)
        log.error("%d rows are refused by %s: %s", len(batch) - len(rest), self._url, shown)
        return rest

    def _empty_spool(self) -> None:
        """Send what earlier processes left behind, now that the server answers. Raises Unavailable."""
        if self._spool is None:
            return
        try:
            for path in self._spool.waiting():
                with claim(path) as lines:
                    for kind in _PATHS if lines else ():
                        rows = [line for line in lines or () if line is not None and line[0] == kind]
                        for start in range(0, len(rows), MOST_ROWS):
                            self._deliver(kind, rows[start : start + MOST_ROWS])
                    if lines is not None:
                        path.unlink(missing_ok=True)
                        self._count_damaged(path, lines.count(None))
        except OSError as error:
            log.warning("The spool %s cannot be read: %s.", self._spool.folder, error)

    def _count_damaged(self, path: Path, damaged: int) -> None:
        """Count and tell rows of the spool that nobody can read."""
        self.tally.lost += damaged
        if damaged:
            log.error("%d rows for %s are lost: their lines in %s are damaged.", damaged, self._url, path)


def _leave_out(batch: list[Line], ids: Collection[str], keep_first: bool) -> list[Line]:
    """The rows without those of these ids; with `keep_first`, an id with several contents keeps the first of them."""
    contents: dict[str, dict[Line, None]] = {}
    places = [str(json.loads(line[1]).get("id") or "") for line in batch]
    for id, line in zip(places, batch, strict=True):
        contents.setdefault(id, {})[line] = None
    first = {next(iter(lines)) for lines in contents.values() if keep_first and len(lines) > 1}
    return [line for id, line in zip(places, batch, strict=True) if id not in ids or line in first]


def _is_receipt(answer: HttpReply) -> bool:
    """Whether an answer says that rows are stored."""
    try:
        return "accepted" in json.loads(answer.body)
    except (ValueError, TypeError):
        return False
