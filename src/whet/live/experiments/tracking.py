"""What one process knows of the experiments in its memory: reducers that go on where they were, and the last judgement."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from whet.live.database import Database
from whet.live.experiments import experiment_store
from whet.live.experiments.confidence_sequences import ConfidenceSequences
from whet.live.experiments.events import events, head, more_than, newest_erased
from whet.live.experiments.experiment_store import Experiment
from whet.live.experiments.experiment_view import figures
from whet.live.experiments.reducer import ExperimentReducer, Snapshot
from whet.live.experiments.verdict import ExperimentVerdict, judge

WORTH_A_LOOK = 0.001
"""An experiment is judged again when anything that was counted has grown by more than this share."""

FEW = 2000
"""Answers that a page counts by itself."""

Measure = tuple[int, ...]


@dataclass(frozen=True)
class Judgement:
    """A judgement: what it rests on, what it says, and the figures for a page."""

    live: tuple[int, ...]
    snapshot: Snapshot
    verdict: ExperimentVerdict
    figures: Mapping[str, Any]


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
    _looking: futures.Future[Look] | None = None
    _sequences: ConfidenceSequences = field(default_factory=ConfidenceSequences)
    _folding: threading.Lock = field(default_factory=threading.Lock)
    _judging: threading.Lock = field(default_factory=threading.Lock)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def read(self, now: int) -> tuple[Experiment, Snapshot]:
        """The experiment, and everything that has arrived, at a time in microseconds or at its end."""
        with self._folding, self.database.read() as connection:
            experiment = experiment_store.find(connection, self.experiment)
            erased = newest_erased(connection)
            known = self._known
            if known is None or known.erased != erased:
                known = _Known(
                    ExperimentReducer(experiment.definition, experiment.salt, experiment.revisions),
                    experiment.start,
                    erased,
                )
                self._judged = None
            for revision in experiment.revisions:
                known.reducer.revise(revision)
            last = head(connection)
            whole = known is not self._known
            for event in events(connection, self.experiment, experiment.definition, known.seq, whole=whole):
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
        """What is known at a time, however long it takes to count."""
        experiment, seen = self.read(now)
        self._looked = Look(self.judge(experiment, seen, wait=False), seen.assigned())
        return self._looked

    def glance(self, now: int) -> tuple[Look | None, bool]:
        """What is known without a long wait, and whether more is being counted.

        A little is counted at once. Much, as after a start or a deletion, is counted beside, in one thread however many
        ask; until then the previous look is returned, None before the first.
        """
        if not self._much():
            return self.look(now), False
        before = self._looked
        with self._starting:
            if self._looking is None or self._looking.done():
                looking = self._looking = futures.Future[Look]()
                args = (looking, now)
                threading.Thread(target=self._look, args=args, name="whet-count", daemon=True).start()
        return before, True

    def _much(self) -> bool:
        """Whether to count what has arrived would take long."""
        known = self._known
        with self.database.read() as connection:
            experiment = experiment_store.find(connection, self.experiment)
            if known is None or known.erased != newest_erased(connection):
                return more_than(connection, self.experiment, experiment.start, FEW)
            if self._judged is None and len(known.reducer.units) > FEW:
                return True
            return head(connection) - known.seq > FEW and more_than(
                connection, self.experiment, known.seq, FEW
            )

    def _look(self, looking: futures.Future[Look], now: int) -> None:
        try:
            looking.set_result(self.look(now))
        except Exception as error:
            looking.set_exception(error)


def _measure(snapshot: Snapshot) -> Measure:
    counts = snapshot.counts
    left_out = counts.mismatched + counts.moved + counts.late
    return snapshot.settled, len(snapshot.units.arms), left_out, snapshot.amended


def _near(old: Measure, new: Measure) -> bool:
    """Whether nothing has grown by more than a little; equal at first, as nothing is a little more than 0."""
    return all(after - before <= WORTH_A_LOOK * after for before, after in zip(old, new, strict=True))
