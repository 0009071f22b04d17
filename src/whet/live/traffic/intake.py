"""The intake: one thread that writes what many requests bring, as many of them in one commit as have come meanwhile.

A request is answered when its commit is on the disk, so that what was acknowledged survives a kill. A commit takes the
time of one fsync whether it holds one request or five hundred, so the rate grows with the load and the wait does not.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError, StatementError

from whet.client.records import Feedback, Inference
from whet.errors import StorageError, UsageError
from whet.live.traffic.senders import RowSender
from whet.live.traffic.traffic_store import Traffic, checked
from whet.live.traffic.write import Receipt, RowBatch, store

_Waiting = tuple[RowBatch, Future[Receipt]]


class Overloaded(StorageError):
    """More rows are waiting than the intake holds. Nothing was stored; send the same again a second later."""


class Intake:
    """Stores batches through one writer thread. Any number of threads may submit.

    `most_waiting` rows may wait at once; `group` rows at most are written in one transaction (one larger batch is
    written alone). The first of a group waits `linger` seconds for others: what that costs one request it saves all of
    them, since a transaction costs more than its rows.
    """

    def __init__(
        self, traffic: Traffic, *, most_waiting: int = 20_000, group: int = 2_000, linger: float = 0.002
    ) -> None:
        self._traffic = traffic
        self._most_waiting, self._group, self._linger = most_waiting, group, linger
        self._queue: deque[_Waiting] = deque()
        self._rows = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="whet-intake", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that wait for their commit."""
        return self._rows

    def submit(
        self,
        inference_rows: Iterable[Inference] = (),
        feedback_rows: Iterable[Feedback] = (),
        sender: RowSender | None = None,
    ) -> Future[Receipt]:
        """Queue one request's rows; the future holds the receipt once they are durable.

        Raises UsageError naming row and field at once for a value that cannot be, and Overloaded when too many
        rows wait. The future raises IdConflict, DiskQuotaExceeded or StorageError; then nothing of this
        request was stored.
        """
        batch = checked(inference_rows, feedback_rows, sender)
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            if self._closed:
                raise StorageError("The intake is closed: the server is stopping. Send the same again later.")
            if self._rows and self._rows + len(batch) > self._most_waiting:
                raise Overloaded("Too many rows wait to be stored. Send the same again in a second.")
            self._rows += len(batch)
            self._queue.append((batch, future))
            if len(self._queue) == 1 or self._rows >= self._group:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Store what waits, then stop. Calling it twice is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                due = time.monotonic() + self._linger
                while self._rows < self._group and not self._closed and (left := due - time.monotonic()) > 0:
                    self._changed.wait(left)
                taken = self._take()
            self._write(taken)
            with self._changed:
                self._rows -= sum(len(batch) for batch, _ in taken)

    def _take(self) -> list[_Waiting]:
        """As many requests as fit one transaction; at least one."""
        taken = [self._queue.popleft()]
        rows = len(taken[0][0])
        while self._queue and rows + len(self._queue[0][0]) <= self._group:
            taken.append(self._queue.popleft())
            rows += len(taken[-1][0])
        return taken

    def _write(self, taken: list[_Waiting]) -> None:
        """Store requests together; if that fails, each alone, so that one of them cannot spoil the others.

        Two in a row that the database refuses end that: it is away, full or locked for all of them, and to ask it for each
        again could take half a minute every time.
        """
        try:
            with self._traffic.database.begin() as connection:
                receipts = store(connection, [batch for batch, _ in taken])
        except Exception as error:
            if len(taken) > 1:
                self._write_singly(taken)
            else:
                taken[0][1].set_exception(_request_error(error))
            return
        for (_, future), receipt in zip(taken, receipts, strict=True):
            if isinstance(receipt, Receipt):
                future.set_result(receipt)
            else:
                future.set_exception(receipt)

    def _write_singly(self, taken: list[_Waiting]) -> None:
        refused: list[BaseException] = []
        for batch, future in taken:
            if len(refused) == 2:
                future.set_exception(refused[-1])
                continue
            self._write([(batch, future)])
            error = future.exception()
            refused = [*refused, error] if isinstance(error, StorageError) else []


def _request_error(error: Exception) -> Exception:
    """The error that a request sees: the sender's where a value can never be stored, so that it is not sent for ever."""
    if isinstance(error, DataError) or (
        isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    ):
        return UsageError(
            f"A value cannot be stored: {str(error.orig)[:200]}. Nothing of the request was kept."
        )
    if isinstance(error, SQLAlchemyError):
        reason = " ".join(str(getattr(error, "orig", error)).split())
        return StorageError(f"The rows could not be stored: {reason[:200]}. Nothing of the request was kept.")
    return error
