"""The events of one experiment, read from traffic in the order in which the store numbered them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from heapq import merge
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, func, select

from whet.client.records import IMPLICIT
from whet.live.experiments.behaviour import BEHAVIOUR
from whet.live.experiments.definition import Definition
from whet.live.experiments.metric_defaults import MEASURED
from whet.live.experiments.reducer import Event, Exposure, MetricOutcome
from whet.live.traffic.traffic_tables import erased, feedback, inferences, traffic_head

_ROWS = 5000


def head(connection: Connection) -> int:
    """The number of the newest row of traffic."""
    return int(connection.execute(select(traffic_head.c.seq)).scalar() or 0)


def newest_erased(connection: Connection) -> int:
    """The number of the newest deletion, 0 before the first."""
    return int(connection.execute(select(func.max(erased.c.seq))).scalar() or 0)


def more_than(connection: Connection, experiment: str, after: int, few: int) -> bool:
    """Whether an experiment has more than a few inferences after row `after` of traffic."""
    one = inferences.c
    query = select(one.seq).where(one.experiment == experiment, one.seq > after).limit(few + 1)
    return len(connection.execute(query).all()) > few


def events(
    connection: Connection, experiment: str, definition: Definition, after: int, *, whole: bool = False
) -> Iterator[Event]:
    """What happened in an experiment after row `after` of traffic, in order.

    The whole history is read by way of its inferences, so that it costs what the experiment is large; what is new, by way of
    the newest rows.
    """
    both = merge(
        _exposures(connection, experiment, definition, after),
        _outcomes(connection, experiment, definition, after, whole),
        key=lambda pair: pair[0],
    )
    return (event for _, event in both)


def _exposures(
    connection: Connection, experiment: str, definition: Definition, after: int
) -> Iterator[tuple[tuple[int, int], Event]]:
    """Inferences, each followed by the metrics that it carries itself."""
    one = inferences.c
    carried = [name for name in definition.metrics if name in MEASURED]
    columns = [one.seq, one.id, one[definition.unit], one.version, one.variant, one.received, one.error]
    columns += [one[name] for name in carried if name != "error"]
    if definition.stratum is not None:
        columns.append(one.metadata)
    means = any(metric.aggregate == "mean" for metric in definition.metrics.values())
    if means:
        columns.append(one.inputs)
    mine = (one.experiment == experiment, one.prompt == definition.prompt, one.seq > after)
    query = select(*columns).where(*mine).order_by(one.seq)
    for row in _stream(connection, query):
        stratum = "" if definition.stratum is None else (row.metadata or {}).get(definition.stratum, "")
        unit, revision = row._mapping[definition.unit], row.variant
        number = int(revision) if revision is not None and revision.isdecimal() else None
        yield (
            (row.seq, 0),
            Exposure(
                row.received,
                row.id,
                unit or "",
                row.version,
                number,
                str(stratum),
                _request(row.inputs) if means else "",
            ),
        )
        if BEHAVIOUR in definition.metrics:
            yield (row.seq, 1), MetricOutcome(row.received, row.id, BEHAVIOUR, 0.0)
        for name in carried:
            value = float(row.error is not None) if name == "error" else row._mapping[name]
            if value is not None:
                yield (row.seq, 1), MetricOutcome(row.received, row.id, name, float(value))


def _request(inputs: Any) -> str:
    """What tells requests with other inputs apart; empty for no inputs, which say nothing."""
    return (
        blake2b(orjson.dumps(inputs, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()
        if inputs
        else ""
    )


def _outcomes(
    connection: Connection, experiment: str, definition: Definition, after: int, whole: bool
) -> Iterator[tuple[tuple[int, int], Event]]:
    """Feedback on inferences of the experiment, at the time when both had arrived.

    New feedback that was joined at once and new feedback that had to wait are two questions, each with an index of its own.
    There the kind and the experiment are looked at here, so that no database is led to read all of them again.
    """
    names = {name for name in definition.metrics if name not in MEASURED and name != BEHAVIOUR}
    done = IMPLICIT if BEHAVIOUR in definition.metrics else ()
    outcome, inference = feedback.c, inferences.c
    columns = (
        outcome.joined,
        outcome.kind,
        outcome.name,
        outcome.value,
        outcome.received,
        inference.id,
        inference.experiment,
    )
    query = select(*columns, inference.received.label("inference_received")).join(
        inferences, inference.seq == outcome.about
    )
    query = query.where(outcome.value.is_not(None))
    if whole:
        asking = [
            query.where(inference.experiment == experiment, outcome.joined > after).order_by(outcome.joined)
        ]
    else:
        asking = [
            query.where(outcome.seq > after, outcome.joined == outcome.seq).order_by(outcome.seq),
            query.where(outcome.joined > after, outcome.joined > outcome.seq).order_by(outcome.joined),
        ]
    for row in merge(*(_stream(connection, one) for one in asking), key=lambda row: row.joined):
        if row.experiment != experiment:
            continue
        at, metric = max(row.received, row.inference_received), row.name if row.kind == "score" else row.kind
        if metric in names:
            yield (row.joined, 0), MetricOutcome(at, row.id, metric, row.value)
        if row.kind in done:
            yield (row.joined, 0), MetricOutcome(at, row.id, BEHAVIOUR, row.value, row.kind)


def _stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    return iter(connection.execution_options(yield_per=_ROWS).execute(query))
