"""Traffic: the store of inferences and feedback, for one thread or many."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

import whet.live.traffic.search as search
from whet.client.records import Feedback, Inference, checked_feedback, checked_inference
from whet.feedback.sources import principal
from whet.live.database import Database
from whet.live.traffic.search import (
    EVERYTHING,
    Count,
    Filter,
    RowPage,
    StoredFeedback,
    StoredInference,
    TrafficEvent,
)
from whet.live.traffic.senders import RowSender
from whet.live.traffic.traffic_tables import feedback, inferences, traffic_head
from whet.live.traffic.write import Receipt, RowBatch, store


def checked(
    inference_rows: Iterable[Inference] = (),
    feedback_rows: Iterable[Feedback] = (),
    sender: RowSender | None = None,
) -> RowBatch:
    """A batch whose fields are as they must be. Raises UsageError naming row and field."""
    return RowBatch(
        tuple(checked_inference(one, f"inference {n}") for n, one in enumerate(inference_rows, 1)),
        tuple(checked_feedback(one, f"feedback {n}") for n, one in enumerate(feedback_rows, 1)),
        sender,
    )


class Traffic:
    """What live prompts answered, and the feedback on it. Threads may share it.

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
        batch = checked(inference_rows, feedback_rows)
        with self.database.begin() as connection:
            receipt = store(connection, [batch])[0]
        if not isinstance(receipt, Receipt):
            raise receipt
        return receipt

    def inference(self, id: str) -> StoredInference | None:
        """An inference by its id."""
        with self.database.read() as connection:
            rows = connection.execute(select(inferences).where(inferences.c.id == id)).all()
            matches = [search.stored_inference(row) for row in search.shown(connection, inferences, rows)]
        return matches[0] if matches else None

    def feedback(self, id: str) -> StoredFeedback | None:
        """A row of feedback by its id."""
        with self.database.read() as connection:
            rows = connection.execute(select(feedback).where(feedback.c.id == id)).all()
            matches = [search.stored_feedback(row) for row in search.shown(connection, feedback, rows)]
        return matches[0] if matches else None

    def sender(self, id: str) -> str:
        """Who sent a row of feedback (`principal`): its user, or the user of the answer that it is about. Empty for a row that
        is not there any more."""
        query = select(feedback.c.source, feedback.c.user, inferences.c.user.label("about"))
        query = query.join(inferences, inferences.c.seq == feedback.c.about, isouter=True)
        with self.database.read() as connection:
            row = connection.execute(query.where(feedback.c.id == id)).first()
        if row is None:
            return ""
        return principal(row.source, row.user or (row.about if row.source == "user" else None))

    def about(self, seq: int) -> list[StoredFeedback]:
        """All feedback that was joined to the inference with this number, in the order of arrival."""
        query = select(feedback).where(feedback.c.about == seq).order_by(feedback.c.seq)
        with self.database.read() as connection:
            rows = connection.execute(query).all()
            return [search.stored_feedback(row) for row in search.shown(connection, feedback, rows)]

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

    def counts(self, prompts: Iterable[str] | None = None, version: int | None = None) -> list[Count]:
        """Counts of every version and kind, of some prompts or of all, without touching the rows themselves."""
        with self.database.read() as connection:
            return search.counts(connection, prompts, version)

    def head(self) -> int:
        """The number of the newest event; 0 in the beginning."""
        with self.database.read() as connection:
            return int(connection.execute(select(traffic_head.c.seq)).scalar_one())

    def events(self, after: int = 0, limit: int = 1000) -> list[TrafficEvent]:
        """The first events after number `after`, in order; an empty list when there are none.

        Numbers grow in the order of commits, so that a reader who goes on after the last number it saw misses nothing.
        """
        with self.database.read() as connection:
            return search.events(connection, after, limit)
