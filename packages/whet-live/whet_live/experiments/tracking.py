"""The state of the experiments in the memory of one process: reducers that continue where they stopped, the events of
traffic that they are fed with, in the order in which the store numbered them, and the last judgement."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, func, select

from whet_client.records import IMPLICIT
from whet_live.database import Database
from whet_live.experiments import experiment_store
from whet_live.experiments.confidence_sequences import ConfidenceSequences
from whet_live.experiments.definition import Definition
from whet_live.experiments.experiment_store import Experiment
from whet_live.experiments.experiment_view import figures
from whet_live.experiments.metrics import BEHAVIOUR, MEASURED
from whet_live.experiments.reducer import Event, ExperimentReducer, Exposure, MetricOutcome, Snapshot
from whet_live.experiments.verdict import ExperimentVerdict, judge
from whet_live.traffic.dataset import JUDGEMENTS, PEOPLE, RATED_BY_PEOPLE, name_rater
from whet_live.traffic.search import head
from whet_live.traffic.traffic_tables import erased, feedback, inferences

WORTH_A_LOOK = 0.001
"""An experiment is judged again when anything that was counted has grown by more than this share."""

FEW = 2000
"""Answers that a page counts by itself."""

_ROWS = 5000

Measure = tuple[int, ...]


@dataclass(frozen=True)
class Judgement:
    """A judgement: its basis, its verdict, and the figures for a page."""

    live: tuple[int, ...]
    snapshot: Snapshot
    verdict: ExperimentVerdict
    figures: Mapping[str, object]


@dataclass(frozen=True)
class Look:
    """A judgement, and the units of each arm by then."""

    judged: Judgement
    assigned: list[int]


@dataclass
class _Known:
    """A reducer, and the rows of traffic that are in it."""

    reducer: ExperimentReducer
    seq: int
    erased: int


@dataclass
class TrackedExperiment:
    """One experiment in memory. Folding and judging have a lock each, so that whoever folds never waits for a judgement.

    `acted` is the judgement that was carried out last.
    """

    database: Database
    experiment: str
    acted: Judgement | None = None
    _known: _Known | None = None
    _judged: Judgement | None = None
    _looked: Look | None = None
    _looking: threading.Thread | None = None
    _sequences: ConfidenceSequences = field(default_factory=ConfidenceSequences)
    _folding: threading.Lock = field(default_factory=threading.Lock)
    _judging: threading.Lock = field(default_factory=threading.Lock)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def read(self, now: int) -> tuple[Experiment, Snapshot]:
        """The experiment, and everything that has arrived, at a time in microseconds or at its end."""
        with self._folding, self.database.read() as connection:
            experiment = experiment_store.find_experiment(connection, self.experiment)
            forgotten = newest_erased(connection)
            known = self._known
            if known is None or known.erased != forgotten:
                known = _Known(
                    ExperimentReducer(experiment.definition, experiment.salt, experiment.revisions),
                    experiment.start,
                    forgotten,
                )
                self._judged = None
            for revision in experiment.revisions:
                known.reducer.revise(revision)
            last = head(connection)
            whole = known is not self._known
            for event in experiment_events(
                connection, self.experiment, experiment.definition, known.seq, whole=whole
            ):
                known.reducer.apply(event)
            known.seq = last
            self._known = known
            return experiment, known.reducer.at(now if experiment.ended is None else experiment.ended)

    def judge(self, experiment: Experiment, seen: Snapshot, *, wait: bool = True) -> Judgement:
        """The judgement on a snapshot: the last one, if hardly anything was added since.

        With `wait` False, for a page, the last one is returned also while another thread judges.
        """
        live, last = tuple(experiment.live), self._judged
        if last is not None and last.live == live:
            if _near(_measure(last.snapshot), _measure(seen)):
                return last
            if not wait and self._judging.locked():
                return last
        with self._judging:
            last = self._judged
            if last is None or last.live != live or not _near(_measure(last.snapshot), _measure(seen)):
                verdict = judge(seen, live, experiment.watches is not None, self._sequences)
                last = self._judged = Judgement(live, seen, verdict, figures(seen, verdict, self._sequences))
            return last

    def look(self, now: int) -> Look:
        """The snapshot at a time, however long the count takes."""
        experiment, seen = self.read(now)
        self._looked = Look(self.judge(experiment, seen, wait=False), seen.count_units())
        return self._looked

    def cached_state(self, now: int) -> tuple[Look | None, bool]:
        """The state that is known without a long wait, and whether more is being counted.

        A little is counted at once. Much, as after a start or a deletion, is counted beside, in one thread however many
        ask; until then the previous look is returned, None before the first.
        """
        if not self._much():
            return self.look(now), False
        before = self._looked
        with self._starting:
            if self._looking is None or not self._looking.is_alive():
                self._looking = threading.Thread(
                    target=self._look, args=(now,), name="whet-count", daemon=True
                )
                self._looking.start()
        return before, True

    def _much(self) -> bool:
        """Whether to count what has arrived would take long."""
        known = self._known
        with self.database.read() as connection:
            experiment = experiment_store.find_experiment(connection, self.experiment)
            if known is None or known.erased != newest_erased(connection):
                return more_than(connection, self.experiment, experiment.start, FEW)
            if self._judged is None and len(known.reducer.units) > FEW:
                return True
            return head(connection) - known.seq > FEW and more_than(
                connection, self.experiment, known.seq, FEW
            )

    def _look(self, now: int) -> None:
        with suppress(Exception):  # whoever looks next has it counted again
            self.look(now)


def _measure(snapshot: Snapshot) -> Measure:
    """A key of everything that a verdict depends on: counts of traffic, and the whole cycles, which end by the clock alone."""
    counts = snapshot.counts
    left_out = counts.mismatched + counts.moved + counts.late
    over = snapshot.cycles, snapshot.whole or 0
    return snapshot.settled, len(snapshot.units.arms), left_out, snapshot.amended, *over


def _near(old: Measure, new: Measure) -> bool:
    """Whether nothing has grown by more than a little; equal at first, as nothing is a little more than 0."""
    return all(after - before <= WORTH_A_LOOK * after for before, after in zip(old, new, strict=True))


# The events of one experiment


def newest_erased(connection: Connection) -> int:
    """The number of the newest deletion, 0 before the first."""
    return int(connection.execute(select(func.max(erased.c.seq))).scalar() or 0)


def more_than(connection: Connection, experiment: str, after: int, few: int) -> bool:
    """Whether an experiment has more than a few inferences after row `after` of traffic."""
    one = inferences.c
    query = select(one.seq).where(one.experiment == experiment, one.seq > after).limit(few + 1)
    return len(connection.execute(query).all()) > few


def experiment_events(
    connection: Connection, experiment: str, definition: Definition, after: int, *, whole: bool = False
) -> Iterator[Event]:
    """The events of an experiment after row `after` of traffic, in order.

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


def _request(inputs: object) -> str:
    """A key of a request's inputs; empty for a request without inputs."""
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
    There the kind and the experiment are looked at here, so that no database is led to read all of them again. Ratings and thumbs
    are those of people, and of one person's about one answer the last counts.
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
        outcome.source,
        outcome.user,
        inference.user.label("asker"),
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
        if row.experiment != experiment or (row.kind in RATED_BY_PEOPLE and row.source not in PEOPLE):
            continue
        at, metric = max(row.received, row.inference_received), row.name if row.kind == "score" else row.kind
        if metric in names:
            rater = name_rater(row.source, row.user, row.asker) if row.kind in JUDGEMENTS else ""
            rater = rater and f"{row.name or ''}|{rater}"
            yield (row.joined, 0), MetricOutcome(at, row.id, metric, row.value, rater=rater)
        if row.kind in done:
            yield (row.joined, 0), MetricOutcome(at, row.id, BEHAVIOUR, row.value, row.kind)


def _stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    return iter(connection.execution_options(yield_per=_ROWS).execute(query))
