"""The writing of inferences and feedback: one transaction that tells repeats, contradictions, and erased rows apart, joins
feedback to its inference in whichever order they come, and keeps the counts.

A sender learns nothing about rows of others: an id that somebody else has taken is taken, whatever the content, and
feedback about an answer outside of the sender's prompts waits as if there were none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import BindParameter, Column, Connection, Select, Table, bindparam, func, select, update

from whet.errors import UsageError, quantity
from whet_client.records import Feedback, Inference, describe_record, encode_with_size
from whet_live.database import time_of
from whet_live.traffic.rows import chunks, feedback_of_row, inference_values, is_within, read_inference
from whet_live.traffic.span_store import SpanJoiner, answers_of_spans, find_traces
from whet_live.traffic.spans import SpanLink
from whet_live.traffic.tallies import (
    ROW_BYTES,
    DiskQuotaExceeded,
    RowSender,
    Tally,
    add_inference,
    add_to_tally,
    count_kept,
    kept_bytes,
    write_tally,
)
from whet_live.traffic.traffic_tables import erased, feedback, inferences, otlp_spans, traffic_head

WAITING = ("", 0)
"""Prompt and version of feedback whose inference has not arrived."""

_MINUTE = 60_000_000
"""Microseconds by which clocks may differ without a word."""
_log = logging.getLogger("whet.live.server")
_T = TypeVar("_T")
_R = TypeVar("_R", Inference, Feedback)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """The rows of one request; all are stored, or none. `sender` is None for a caller with every right (an import). `spans`
    are the places of the spans from which inferences were read."""

    inferences: tuple[Inference, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    sender: RowSender | None = None
    spans: tuple[SpanLink, ...] = ()

    def __len__(self) -> int:
        return len(self.inferences) + len(self.feedback)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a batch after its commit: new rows, known rows, rows about a person whose data was erased (they are
    dropped, and count as new if a `RowSender` sent them), and all ids in the order given, inferences first."""

    accepted: int
    duplicates: int
    erased: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clash:
    """One id with two contents, each in a few words. `together`: both came in one batch, so that neither is stored."""

    id: str
    stored: str
    sent: str
    together: bool = False


class IdConflict(UsageError):
    """An id that is taken. `clashes` names both contents, the message none, since it goes to whoever sent the row; nothing of
    the batch was stored."""

    def __init__(self, clashes: Sequence[Clash]) -> None:
        self.clashes = tuple(clashes)
        first = clashes[0]
        more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
        what = "stands for two rows of one request" if first.together else "is taken"
        super().__init__(f'The id "{first.id}" {what}{more}. Send new content under a new id.')


def take_turn(connection: Connection) -> int:
    """Wait for every writer before; the newest `seq` so far."""
    return int(connection.execute(_TURN).scalar_one())


def end_turn(connection: Connection, newest: int) -> None:
    """Record the newest `seq`."""
    connection.execute(_END, {"newest": newest})


class _Place(NamedTuple):
    """The place of an inference."""

    time: int
    seq: int
    prompt: str
    version: int


class _Known(NamedTuple):
    """The record of a row by its id: the digest of its content (None for a row that never stood by itself), its sender, and
    what it counts for."""

    mark: bytes | None
    sender: str | None
    size: int = 0
    scope: list[str] | None = None


Outcome = Receipt | IdConflict | DiskQuotaExceeded


def store_batch(connection: Connection, batches: Sequence[RowBatch]) -> list[Outcome]:
    """Store batches in one transaction, each as if the ones before it had been committed alone."""
    return _Writing(connection, batches).run()


class _Writing:
    """One transaction's work. Rows are gathered in memory and written table by table."""

    def __init__(self, connection: Connection, batches: Sequence[RowBatch]) -> None:
        self._connection = connection
        self._batches = batches
        self._seq = take_turn(connection)
        self._received = time_of(
            connection
        )  # after the turn, by one clock: later rows are never received earlier
        inference_rows = [inference for batch in batches for inference in batch.inferences]
        feedback_rows = [row for batch in batches for row in batch.feedback]
        self._known = {
            Inference: self._read_stored(inferences, [row.id for row in inference_rows]),
            Feedback: self._read_stored(feedback, [row.id for row in feedback_rows]),
        }
        ids = {row.id for row in inference_rows} | {
            name for row in feedback_rows for name in (row.id, row.target)
        }
        self._erased = {
            id for part in chunks(ids) for id in connection.execute(_ERASED, {"part": part}).scalars()
        }
        self._traces: dict[str, str] = {}
        self._new_inferences: dict[str, tuple[int, Inference]] = {}
        self._new_feedback: dict[str, tuple[int, Feedback]] = {}
        self._tally: Tally = {}
        self._ahead: list[str] = []
        self._kept = kept_bytes(
            connection, {batch.sender.name for batch in batches if batch.sender is not None}
        )

    def run(self) -> list[Outcome]:
        outcomes = [self._take(batch) for batch in self._batches]
        self._write_inferences()
        self._write_feedback()
        self._join_waiting()
        new = ((Inference, self._new_inferences), (Feedback, self._new_feedback))
        sizes = [
            (one.sender, one.size) for kind, rows in new for one in map(self._known[kind].__getitem__, rows)
        ]
        self._store_spans(outcomes, sizes)
        if self._ahead:
            _log.warning(
                "%s came with a time in the future (first: %s). They get the time of their arrival, by the database's clock. Is "
                "the clock of a sender wrong, or a time zone?",
                quantity(len(self._ahead), "row"),
                self._ahead[0],
            )
        write_tally(self._connection, self._tally)
        count_kept(self._connection, sizes)
        if self._new_inferences or self._new_feedback:
            end_turn(self._connection, self._seq)
        return outcomes

    def _store_spans(self, outcomes: Sequence[Outcome], sizes: list[tuple[str | None, int]]) -> None:
        links = [
            (link, batch.sender)
            for batch, outcome in zip(self._batches, outcomes, strict=True)
            if isinstance(outcome, Receipt)
            for link in batch.spans
        ]
        if links:
            SpanJoiner(self._connection, self._received, self._tally, sizes, self._next).store(links)

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _read_stored(self, table: Table, ids: Iterable[str]) -> dict[str, _Known]:
        known: dict[str, _Known] = {}
        for part in chunks(set(ids)):
            rows = self._connection.execute(_STORED[table.name], {"part": part})
            known.update({id: _Known(bytes(mark), sender) for id, mark, sender in rows})
            if table is inferences:
                joined = self._connection.execute(_JOINED, {"part": part})
                for id, mark, sender in joined:
                    known.setdefault(id, _Known(None if mark is None else bytes(mark), sender))
        return known

    def _take(self, batch: RowBatch) -> Outcome:
        """Sort the rows of one batch: new rows, stored rows, contradictions, and rows beyond the quota."""
        sender = batch.sender
        inference_rows, repeated_inferences, clashes = self._sort_records(batch.inferences, Inference, sender)
        feedback_rows, repeated_feedback, more = self._sort_records(batch.feedback, Feedback, sender)
        if clashes or more:
            return IdConflict([*clashes, *more])
        if sender is not None:
            kept = self._kept.get(sender.name, 0)
            size = kept + sum(known.size for _, known in (*inference_rows, *feedback_rows))
            if size > kept and sender.most_bytes is not None and size > sender.most_bytes:
                return DiskQuotaExceeded(sender, kept)
            self._kept[sender.name] = size
        dropped = 0
        for inference, mark in inference_rows:
            self._known[Inference][inference.id] = mark
            if inference.id in self._erased:
                dropped += 1
            else:
                self._new_inferences[inference.id] = (self._next(), inference)
        for one, mark in feedback_rows:
            self._known[Feedback][one.id] = mark
            if one.id in self._erased or one.target in self._erased:
                dropped += 1
            else:
                self._new_feedback[one.id] = (self._next(), one)
        ids = (*(inference.id for inference in batch.inferences), *(row.id for row in batch.feedback))
        shown = dropped if sender is None else 0  # a sender does not learn whose data was erased
        new = len(inference_rows) + len(feedback_rows) - shown
        return Receipt(new, repeated_inferences + repeated_feedback, shown, ids)

    def _sort_records(
        self, records: Sequence[_R], kind: type[_R], sender: RowSender | None
    ) -> tuple[list[tuple[_R, _Known]], int, list[Clash]]:
        """New records with what is to be known of them, the number of repeats, and what contradicts or is somebody else's."""
        fresh: dict[str, tuple[_R, _Known]] = {}
        repeats, clashes = 0, []
        who, scope = (None, None) if sender is None else (sender.name, sender.scope)
        for record in records:
            mark, size = encode_with_size(record)
            before = fresh[record.id][1] if record.id in fresh else self._known[kind].get(record.id)
            if before is None and who is not None and record.id in self._erased:
                clashes.append(Clash(record.id, "", describe_record(record)))
            elif before is None:
                fresh[record.id] = (record, _Known(mark, who, size + ROW_BYTES, scope))
            elif before.mark in (None, mark) and (who is None or who == before.sender):
                repeats += 1
            else:
                together = record.id in fresh
                other = fresh[record.id][0] if together else self._find(kind, record.id)
                clashes.append(Clash(record.id, describe_record(other), describe_record(record), together))
        return list(fresh.values()), repeats, clashes

    def _find(self, kind: type[_R], key: str) -> _R:
        """A record by its id: among those of this transaction, or in the database."""
        waiting: Mapping[str, tuple[int, Any]] = (
            self._new_inferences if kind is Inference else self._new_feedback
        )
        if key in waiting:
            record: _R = waiting[key][1]
            return record
        table, read = (inferences, read_inference) if kind is Inference else (feedback, feedback_of_row)
        key = answers_of_spans(self._connection, [key]).get(key, key) if kind is Inference else key
        row = self._connection.execute(select(table).where(table.c.id == key)).one()
        return read(row)  # type: ignore[return-value]

    def _write_inferences(self) -> None:
        if not self._new_inferences:
            return
        rows = []
        for seq, one in self._new_inferences.values():
            rows.append(inference_values(one) | self._marks(seq, one))
            add_inference(self._tally, one, one.error is not None)
        self._connection.execute(inferences.insert(), rows)

    def _marks(self, seq: int, one: Inference | Feedback) -> dict[str, object]:
        known = self._known[type(one)][one.id]
        time = min(one.time, self._received)
        if one.time > self._received + _MINUTE:
            self._ahead.append(one.id)
        marks = {"seq": seq, "digest": known.mark, "received": self._received, "time": time}
        return marks | {"sender": known.sender, "size": known.size}

    def _write_feedback(self) -> None:
        if not self._new_feedback:
            return
        places = self._places({(one.target_kind, one.target) for _, one in self._new_feedback.values()})
        rows = []
        for seq, one in self._new_feedback.values():
            scope = self._known[Feedback][one.id].scope
            hits = [
                hit for hit in places.get((one.target_kind, one.target), ()) if is_within(scope, hit.prompt)
            ]
            at = self._last(one, hits)
            about, prompt, version = (None, *WAITING) if at is None else (at.seq, at.prompt, at.version)
            row = {name: getattr(one, name) for name in _FEEDBACK} | {"scope": scope}
            row |= {"about": about, "joined": None if about is None else seq}
            row |= {"prompt": prompt, "version": version, "metadata": dict(one.metadata) or None}
            rows.append(row | self._marks(seq, one))
            add_to_tally(self._tally, (prompt, version, one.kind), one.value, always=True)
        self._connection.execute(feedback.insert(), rows)

    def _last(self, one: Feedback, hits: Sequence[_Place]) -> _Place | None:
        """The last of the answers that feedback may be about, by their own times: the last one before it, if there is any."""
        last = max(hits, default=None)
        kind, target = one.target_kind, one.target
        if kind == "inference" and target in self._traces:
            kind, target = "episode", self._traces[target]
        if last is None or last.time <= one.time or kind == "inference":
            return last
        within = {hit.prompt for hit in hits}
        values = {"part": [target], "until": one.time}
        rows = self._connection.execute(_PLACES_UNTIL[kind], values)
        earlier = (_Place(*row[1:]) for row in rows)
        return max((place for place in earlier if place.prompt in within), default=last)

    def _places(self, targets: set[tuple[str, str]]) -> dict[tuple[str, str], list[_Place]]:
        """The inference of each target: of an episode or a session, the last one of each prompt."""
        places: dict[tuple[str, str], list[_Place]] = {}
        for kind, query in _PLACES.items():
            for part in chunks(target for kind_, target in targets if kind_ == kind):
                for row in self._connection.execute(query, {"part": part}):
                    places.setdefault((kind, row[0]), []).append(_Place(*row[1:]))
        absent = [id for kind, id in targets if kind == "inference" and (kind, id) not in places]
        answers = answers_of_spans(self._connection, absent) if absent else {}
        for part in chunks({*answers.values()}):
            rows = {row[0]: row[1:] for row in self._connection.execute(_PLACES["inference"], {"part": part})}
            for id, answer in answers.items():
                if answer in rows:
                    places[("inference", id)] = [_Place(*rows[answer])]
        self._add_traces([id for id in absent if ("inference", id) not in places], places)
        return places

    def _add_traces(self, ids: Sequence[str], places: dict[tuple[str, str], list[_Place]]) -> None:
        """The answers of the traces that ids name which are those of no answers: of a trace itself, or of a span of it."""
        self._traces = find_traces(self._connection, ids) if ids else {}
        by_trace: dict[str, list[_Place]] = {}
        for part in chunks({*self._traces.values()}):
            for row in self._connection.execute(_PLACES["episode"], {"part": part}):
                by_trace.setdefault(row[0], []).append(_Place(*row[1:]))
        for id, trace in self._traces.items():
            if trace in by_trace:
                places[("inference", id)] = by_trace[trace]

    def _join_waiting(self) -> None:
        """Join feedback that came before its inference."""
        arrived: dict[tuple[str, str], list[tuple[int, int, Inference]]] = {}
        for seq, one in self._new_inferences.values():
            for kind, name in _NAMES.items():
                target = getattr(one, name)
                if target is not None:
                    arrived.setdefault((kind, target), []).append((min(one.time, self._received), seq, one))
        moved = []
        for part in chunks({target for _, target in arrived}):
            for row in self._connection.execute(_WAITING, {"part": part}):
                hits = arrived.get((row.target_kind, row.target), [])
                if not hits and row.target_kind == "inference":
                    hits = arrived.get(("episode", row.target), [])
                hits = [hit for hit in hits if is_within(row.scope, hit[2].prompt)]
                last = max(hits, key=itemgetter(0, 1), default=None)
                before = [hit for hit in hits if hit[0] <= row.time]
                if last is not None:
                    moved.append((row, *max(before, key=itemgetter(0, 1), default=last)[1:]))
        changes = []
        for row, about, one in sorted(moved, key=lambda move: move[0].seq):
            add_to_tally(self._tally, (*WAITING, row.kind), row.value, -1, always=True)
            add_to_tally(self._tally, (one.prompt, one.version, row.kind), row.value, always=True)
            changes.append({
                "row": row.seq, "to": about, "at": self._next(), "of": one.prompt, "number": one.version
            })  # fmt: skip
        if changes:
            self._connection.execute(_JOIN, changes)


_MADE = frozenset(
    ("seq", "digest", "received", "time", "inputs", "metadata", "about", "joined", "sender", "scope", "size")
)
_FEEDBACK = tuple(c.name for c in feedback.c if c.name not in _MADE and c.name not in ("prompt", "version"))
_NAMES = {"inference": "id", "response": "response", "episode": "episode", "session": "session"}
_PART: BindParameter[Any] = bindparam("part", expanding=True)
_TURN = select(traffic_head.c.seq).where(traffic_head.c.one == 1).with_for_update()
_END = update(traffic_head).where(traffic_head.c.one == 1).values(seq=bindparam("newest"))
_STORED = {
    table.name: select(table.c.id, table.c.digest, table.c.sender).where(table.c.id.in_(_PART))
    for table in (inferences, feedback)
}
_JOINED = select(otlp_spans.c.own, otlp_spans.c.digest, otlp_spans.c.sender).where(
    otlp_spans.c.own.in_(_PART), otlp_spans.c.own != otlp_spans.c.inference
)
_ERASED = select(erased.c.id).where(erased.c.id.in_(_PART))
_WAITING = (
    select(*(feedback.c[name] for name in ("seq", "target_kind", "target", "kind", "value", "scope", "time")))
    .where(feedback.c.about.is_(None), feedback.c.target.in_(_PART))
    .order_by(feedback.c.seq)
)


def _place_by(column: Column[Any], *, until: bool = False) -> Select[*tuple[Any, ...]]:
    """The last inference of each value of a column and each prompt, with what `_Place` holds; `until` a time, or of all."""
    places = [inferences.c[name] for name in _Place._fields]
    if column.name == "id":
        return select(column, *places).where(column.in_(_PART))
    latest = [inferences.c.time.desc(), inferences.c.seq.desc()]
    rank = func.row_number().over(partition_by=[column, inferences.c.prompt], order_by=latest)
    query = select(column.label("target"), *places, rank.label("rank")).where(column.in_(_PART))
    ranked = (query.where(inferences.c.time <= bindparam("until")) if until else query).subquery()
    return select(ranked.c.target, *(ranked.c[name] for name in _Place._fields)).where(ranked.c.rank == 1)


_PLACES = {kind: _place_by(inferences.c[name]) for kind, name in _NAMES.items()}
_PLACES_UNTIL = {kind: _place_by(inferences.c[name], until=True) for kind, name in _NAMES.items()}
_JOIN = (
    update(feedback)
    .where(feedback.c.seq == bindparam("row"))
    .values(
        about=bindparam("to"), joined=bindparam("at"), prompt=bindparam("of"), version=bindparam("number")
    )
)
