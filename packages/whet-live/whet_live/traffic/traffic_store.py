"""Traffic: the store of inferences and feedback, for one thread or many; and its intake, one thread that writes what many
requests bring, as many of them in one commit as have come meanwhile.

A request is answered when its commit is on the disk, so that what was acknowledged survives a kill. A commit takes the
time of one fsync whether it holds one request or five hundred, so the rate grows with the load and the wait does not.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError, StatementError

import whet_live.traffic.search as search
from whet.errors import StorageError, UsageError
from whet.feedback.sources import EVALUATOR, principal
from whet_client.records import Feedback, Inference, checked_feedback, checked_inference
from whet_live.database import Database
from whet_live.traffic.answer_search import AnswerMatches, search_answers
from whet_live.traffic.search import (
    EVERYTHING,
    Count,
    Filter,
    RowPage,
    StoredFeedback,
    StoredInference,
    TrafficEvent,
)
from whet_live.traffic.span_store import answers_of_spans
from whet_live.traffic.spans import SpanLink
from whet_live.traffic.tallies import RowSender
from whet_live.traffic.traffic_tables import feedback, inferences
from whet_live.traffic.write import Receipt, RowBatch, store_batch


def check_batch(
    inference_rows: Iterable[Inference] = (),
    feedback_rows: Iterable[Feedback] = (),
    sender: RowSender | None = None,
    spans: Iterable[SpanLink] = (),
) -> RowBatch:
    """A batch whose fields are as they must be. Raises UsageError naming row and field."""
    return RowBatch(
        tuple(checked_inference(one, f"inference {n}") for n, one in enumerate(inference_rows, 1)),
        tuple(checked_feedback(one, f"feedback {n}") for n, one in enumerate(feedback_rows, 1)),
        sender,
        tuple(spans),
    )


class Traffic:
    """The answers of live prompts, and the feedback on them. Threads may share it.

    Feedback may come before its inference: it is stored at once and joined when the inference arrives. The id of a
    record is its idempotency key. Every method raises StorageError when the database cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(
        self, inference_rows: Iterable[Inference] = (), feedback_rows: Iterable[Feedback] = ()
    ) -> Receipt:
        """Store inferences and feedback altogether, durably when this returns.

        Raises UsageError naming row and field for a value that cannot be, and Conflict for an id that is taken
        by other content; then nothing is stored.
        """
        batch = check_batch(inference_rows, feedback_rows)
        with self.database.begin() as connection:
            receipt = store_batch(connection, [batch])[0]
        if not isinstance(receipt, Receipt):
            raise receipt
        return receipt

    def inference(self, id: str) -> StoredInference | None:
        """An inference by its id, or by that of a span that counts with it."""
        rows = self._rows(inferences, inferences.c.id == id)
        if not rows:
            with self.database.read() as connection:
                whole = answers_of_spans(connection, [id]).get(id)
            rows = [] if whole is None else self._rows(inferences, inferences.c.id == whole)
        return search.stored_inference(rows[0]) if rows else None

    def feedback(self, id: str) -> StoredFeedback | None:
        """A row of feedback by its id."""
        rows = self._rows(feedback, feedback.c.id == id)
        return search.stored_feedback(rows[0]) if rows else None

    def sender(self, id: str) -> str:
        """The sender of a row of feedback (`principal`): its user, or the user of the answer that it is about. Empty for a row
        that is not there any more."""
        query = select(feedback.c.source, feedback.c.user, inferences.c.user.label("asker"))
        query = query.join(inferences, inferences.c.seq == feedback.c.about, isouter=True)
        with self.database.read() as connection:
            row = connection.execute(query.where(feedback.c.id == id)).first()
        return "" if row is None else principal(*row)

    def about(self, seq: int) -> list[StoredFeedback]:
        """All feedback that was joined to the inference with this number, in the order of arrival."""
        return [search.stored_feedback(row) for row in self._rows(feedback, feedback.c.about == seq)]

    def _rows(self, table: Table, where: ColumnElement[bool]) -> list[object]:
        """Rows in the order of arrival, without those of somebody who is being forgotten."""
        with self.database.read() as connection:
            rows = connection.execute(select(table).where(where).order_by(table.c.seq)).all()
            return search.hide_forgotten(connection, table, rows)

    def find(
        self, wanted: Filter = EVERYTHING, limit: int = 50, cursor: str | None = None
    ) -> RowPage[StoredFeedback]:
        """A page of feedback, newest first; at most 1,000 rows. Raises UsageError for a cursor that is none."""
        with self.database.read() as connection:
            return search.find_feedback(connection, wanted, limit, cursor)

    def inferences(
        self, wanted: Filter = EVERYTHING, limit: int = 50, cursor: str | None = None
    ) -> RowPage[StoredInference]:
        """A page of inferences, newest first; at most 1,000 rows. Raises UsageError for a cursor that is none."""
        with self.database.read() as connection:
            return search.find_inferences(connection, wanted, limit, cursor)

    def search_answers(
        self, wanted: Filter, words: str, limit: int = 50, cursor: str | None = None
    ) -> AnswerMatches:
        """Inferences whose inputs and output hold every word, in any case and script, the newest first; some thousand are looked
        at. Raises UsageError for a cursor that is none."""
        with self.database.read() as connection:
            return search_answers(connection, wanted, words, limit, cursor)

    def counts(self, prompts: Iterable[str] | None = None, version: int | None = None) -> list[Count]:
        """Counts of every version and kind, of some prompts or of all, without touching the rows themselves."""
        with self.database.read() as connection:
            return search.counts(connection, prompts, version)

    def head(self) -> int:
        """The number of the newest event; 0 in the beginning."""
        with self.database.read() as connection:
            return search.head(connection)

    def events(self, after: int = 0, limit: int = 1000) -> list[TrafficEvent]:
        """The first events after number `after`, in order; an empty list when there are none.

        Numbers grow in the order of commits, so that a reader who goes on after the last number it saw misses nothing.
        """
        with self.database.read() as connection:
            return search.traffic_events(connection, after, limit)


# The intake

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
        spans: Iterable[SpanLink] = (),
    ) -> Future[Receipt]:
        """Queue one request's rows; the future holds the receipt once they are durable. `spans` say where the spans stand from
        which inferences were read.

        Raises UsageError naming row and field at once for a value that cannot be, and Overloaded when too many
        rows wait. The future raises IdConflict, DiskQuotaExceeded or StorageError; then nothing of this
        request was stored.
        """
        batch = check_batch(inference_rows, feedback_rows, sender, spans)
        for n, one in enumerate(batch.feedback, 1):
            if one.user is not None and one.user.startswith(EVALUATOR):
                raise UsageError(
                    f'feedback {n}: user begins with "{EVALUATOR}", which is for whet itself. Send another name.'
                )
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
        """Take as many requests as fit one transaction; at least one."""
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
                receipts = store_batch(connection, [batch for batch, _ in taken])
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
