"""Makes one answer of the spans of a call that come in several requests, in whichever order, and joins feedback by the id of any
of them. It works in the transaction that stored the rows of these requests.

The row that was stored first stays, with its id and number; it takes over what the outer span says. Answers become one only where
the tokens that sent their spans are all for the prompt of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from sqlalchemy import Connection, Select, delete, select, tuple_, update

from whet_client.records import Inference, encode_with_size
from whet_live.database import insert_into
from whet_live.traffic.rows import chunks, inference_values, is_within, read_inference
from whet_live.traffic.spans import (
    HIGHEST,
    SpanKey,
    SpanLink,
    find_outer,
    find_root,
    merge_answers,
    sum_amounts,
)
from whet_live.traffic.tallies import ROW_BYTES, RowSender, Tally, add_inference, add_to_tally
from whet_live.traffic.traffic_tables import erased, feedback, inferences, otlp_spans

_MOST = 20_000
"""Spans that one question reads."""
_PASSED_OVER = 3_600_000_000
"""Microseconds for which spans that are no answers are kept: they may lie between two that are."""
_NAMES = tuple(field.name for field in fields(SpanLink))
_COLUMNS = [otlp_spans.c[name] for name in _NAMES]


def answers_of_spans(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """The id of the stored answer by the id of each span, or of each answer that became one with it."""
    wanted, answers = set(ids), dict[str, str]()
    s = otlp_spans.c
    for column in (s.span, s.own):
        for part in chunks(wanted):
            query = select(column, s.inference).where(column.in_(part), s.inference.is_not(None))
            answers.update((id, whole) for id, whole in connection.execute(query) if id != whole)
    return answers


def find_traces(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """The trace by the id of each span that is no answer; any other id may be that of a trace itself."""
    traces = {id: id for id in ids}
    s = otlp_spans.c
    for part in chunks([*traces]):
        query = select(s.span, s.trace).where(s.span.in_(part), s.inference.is_(None))
        traces.update((span, trace) for span, trace in connection.execute(query))
    return traces


@dataclass
class SpanJoiner:
    """Joins what the spans of one transaction belong to. `count` takes the next number of the store, `sizes` gets what is to be
    counted for each sender."""

    connection: Connection
    received: int
    tally: Tally
    sizes: list[tuple[str | None, int]]
    count: Callable[[], int]

    def store(self, arrivals: Sequence[tuple[SpanLink, RowSender | None]]) -> None:
        """Store where spans stand, and join the answers and the feedback that they belong to."""
        keys = [link.key for link, _ in arrivals]
        known = {link.key for link in self._find(keys, "trace", "span")}
        new = {link.key: (link, sender) for link, sender in arrivals if link.key not in known}
        if not new:
            return
        rows = [
            dict(zip(_NAMES, astuple(link), strict=True))
            | {"sender": sender and sender.name, "scope": sender and sender.scope, "received": self.received}
            for link, sender in new.values()
        ]
        self.connection.execute(insert_into(self.connection, otlp_spans).on_conflict_do_nothing(), rows)
        links = self._around({key: link for key, (link, _) in new.items()})
        outer = find_outer(links)
        groups: dict[SpanKey, list[SpanLink]] = {}
        for key, link in links.items():
            if link.own is not None:
                groups.setdefault(find_root(key, outer), []).append(link)
        for root, group in groups.items():
            if len({link.inference for link in group}) > 1:
                self._merge(root, sorted(group, key=lambda one: (one.start, -one.end, one.key)), links, outer)
        self._join_waiting([link for key, link in links.items() if key in new and link.own is not None])
        self._join_by_trace({link.trace for link, _ in new.values()})
        old = self.received - _PASSED_OVER
        s = otlp_spans.c
        self.connection.execute(delete(otlp_spans).where(s.received < old, s.own.is_(None)))

    # The spans around the new ones

    def _find(self, values: Iterable[tuple[str, ...]], *names: str) -> Iterator[SpanLink]:
        columns = tuple_(*(otlp_spans.c[name] for name in names))
        for part in chunks(sorted(set(values))):
            query = select(*_COLUMNS).where(columns.in_(part)).limit(_MOST)
            yield from (SpanLink(*row) for row in self.connection.execute(query))

    def _around(self, new: Mapping[SpanKey, SpanLink]) -> dict[SpanKey, SpanLink]:
        """Spans above, below and of the same response, and all of the calls that these are part of."""
        links = dict(new)
        self._add_above(links)
        level: Iterable[SpanLink] = new.values()
        for _ in range(HIGHEST):
            level = _add_new(links, self._find({link.key for link in level}, "trace", "parent"))
            if not level:
                break
        named = {(link.response, link.trace) for link in new.values() if link.response is not None}
        _add_new(links, self._find(named, "response", "trace"))
        self._add_above(links)
        calls = {(link.inference,) for link in links.values() if link.inference is not None}
        _add_new(links, self._find(calls, "inference"))
        self._add_above(links)
        return links

    def _add_above(self, links: dict[SpanKey, SpanLink]) -> None:
        for _ in range(HIGHEST):
            above = {(link.trace, link.parent) for link in links.values() if link.parent} - links.keys()
            if not _add_new(links, self._find(above, "trace", "span")):
                return

    # One answer

    def _merge(
        self,
        root: SpanKey,
        group: Sequence[SpanLink],
        links: Mapping[SpanKey, SpanLink],
        outer: Mapping[SpanKey, SpanKey],
    ) -> None:
        ids = list(dict.fromkeys(link.inference for link in group if link.inference is not None))
        query = select(inferences).where(inferences.c.id.in_(ids)).order_by(inferences.c.seq)
        rows = list(self.connection.execute(query))
        if len(rows) < len(ids):
            self._forget(rows, [id for id in ids if id not in {row.id for row in rows}])
            return
        by_id = {row.id: read_inference(row) for row in rows}
        one = by_id.pop(links[root].inference)
        parts = [by_id[id] for id in ids if id in by_id]
        inner = [link for link in group if link.key != root]
        whole = merge_answers(one, parts, inner, sum_amounts(root, links, outer))
        if not self._may_merge(group, whole.prompt):
            return
        kept, gone = rows[0], rows[1:]
        self._replace(kept, gone, replace(whole, id=kept.id))
        s = otlp_spans.c
        for row in gone:
            sent = {"digest": row.digest, "sender": row.sender}
            self.connection.execute(update(otlp_spans).where(s.own == row.id).values(sent))
            self.connection.execute(update(otlp_spans).where(s.inference == row.id).values(inference=kept.id))

    def _may_merge(self, group: Sequence[SpanLink], prompt: str) -> bool:
        """Whether all tokens that sent spans of a call are for the prompt."""
        key = tuple_(otlp_spans.c.trace, otlp_spans.c.span)
        for part in chunks([link.key for link in group]):
            scopes = self.connection.execute(select(otlp_spans.c.scope).where(key.in_(part))).scalars()
            if any(scope is not None and prompt not in scope for scope in scopes):
                return False
        return True

    def _replace(self, kept: Any, gone: Sequence[Any], whole: Inference) -> None:
        """Write the whole answer into the row that stays, and move feedback about the others there.

        The row gets a new number where experiments have to look at it again, unless one counted it already.
        """
        _, size = encode_with_size(whole)
        size += ROW_BYTES
        names = ("prompt", "version", "experiment", "variant")
        changed = any(getattr(kept, name) != getattr(whole, name) for name in names)
        number = self.count() if changed and kept.experiment is None else kept.seq
        for row in (kept, *gone):
            add_inference(self.tally, row, row.error is not None, -1)
            self.sizes.append((row.sender, -row.size))
        add_inference(self.tally, whole, whole.error is not None)
        self.sizes.append((kept.sender, size))
        self.connection.execute(delete(inferences).where(inferences.c.seq.in_([row.seq for row in gone])))
        time = min(whole.time, self.received)
        values = inference_values(whole) | {"seq": number, "size": size, "time": time}
        self.connection.execute(update(inferences).where(inferences.c.seq == kept.seq).values(values))
        moved = [*gone, kept] if changed else gone
        about = feedback.c.about.in_([row.seq for row in moved])
        self._join(select(feedback).where(about).order_by(feedback.c.seq), lambda _: (number, whole))

    def _forget(self, rows: Sequence[Any], missing: Sequence[str]) -> None:
        """Delete what belongs to an answer that was erased."""
        gone = select(erased.c.id).where(erased.c.id.in_(missing)).limit(1)
        if self.connection.execute(gone).first() is None:
            return  # it expired, or was refused: what came now stands for itself
        for row in rows:
            add_inference(self.tally, row, row.error is not None, -1)
            self.sizes.append((row.sender, -row.size))
            about = list(self.connection.execute(select(feedback).where(feedback.c.about == row.seq)))
            for one in about:
                add_to_tally(self.tally, (one.prompt, one.version, one.kind), one.value, -1, always=True)
                self.sizes.append((one.sender, -one.size))
            marks = [("inference", row.id), *(("feedback", one.id) for one in about)]
            rows_ = [{"seq": self.count(), "id": id, "what": what} for what, id in marks]
            self.connection.execute(erased.insert(), rows_)
            self.connection.execute(delete(feedback).where(feedback.c.about == row.seq))
            self.connection.execute(delete(inferences).where(inferences.c.seq == row.seq))

    # Feedback

    def _join_waiting(self, links: Sequence[SpanLink]) -> None:
        """Join feedback that came before, and names an id of a span that is not that of its answer."""
        names = {id for link in links for id in (link.span, link.own) if id is not None}
        whole = answers_of_spans(self.connection, names)
        rows = [
            row
            for part in chunks(sorted({*whole.values()}))
            for row in self.connection.execute(select(inferences).where(inferences.c.id.in_(part)))
        ]
        by_id = {row.id: (row.seq, read_inference(row)) for row in rows}
        waits = (feedback.c.about.is_(None), feedback.c.target_kind == "inference")
        for part in chunks(sorted(whole)):
            query = select(feedback).where(*waits, feedback.c.target.in_(part)).order_by(feedback.c.seq)
            self._join(query, lambda row: by_id.get(whole[row.target]))

    def _join_by_trace(self, traces: Iterable[str]) -> None:
        """Join feedback that came before, and names a span that is no answer: with the last answer of its trace before it, or the
        last one of all."""
        s = otlp_spans.c
        waits = (feedback.c.about.is_(None), feedback.c.target_kind == "inference", s.inference.is_(None))
        for part in chunks(sorted(traces)):
            query = select(feedback, s.trace.label("trace")).join(otlp_spans, s.span == feedback.c.target)
            query = query.where(*waits, s.trace.in_(part)).order_by(feedback.c.seq)
            waiting = {row.trace for row in self.connection.execute(query)}
            answers: dict[str, list[tuple[int, int, Inference]]] = {}
            for row in self.connection.execute(select(inferences).where(inferences.c.episode.in_(waiting))):
                answers.setdefault(row.episode, []).append((row.time, row.seq, read_inference(row)))

            def find(row: Any, answers: Mapping[str, list[tuple[int, int, Inference]]] = answers) -> Any:
                within = [one for one in answers.get(row.trace, ()) if is_within(row.scope, one[2].prompt)]
                before = [one for one in within if one[0] <= row.time]
                last = max(before or within, key=lambda one: one[:2], default=None)
                return None if last is None else last[1:]

            if answers:
                self._join(query, find)

    def _join(
        self, query: Select[*tuple[Any, ...]], find: Callable[[Any], tuple[int, Inference] | None]
    ) -> None:
        for row in list(self.connection.execute(query)):
            answer = find(row)
            if answer is None or not is_within(row.scope, answer[1].prompt):
                continue
            number, one = answer
            add_to_tally(self.tally, (row.prompt, row.version, row.kind), row.value, -1, always=True)
            add_to_tally(self.tally, (one.prompt, one.version, row.kind), row.value, always=True)
            values = {
                "about": number, "joined": self.count(), "prompt": one.prompt, "version": one.version
            }  # fmt: skip
            self.connection.execute(update(feedback).where(feedback.c.seq == row.seq).values(values))


def _add_new(links: dict[SpanKey, SpanLink], more: Iterable[SpanLink]) -> list[SpanLink]:
    """Adds what is not there; returns what was added."""
    new = [link for link in more if link.key not in links]
    links.update((link.key, link) for link in new)
    return new
