"""Experiments in a database: started, looked at, decided, and their decisions carried out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from whet.errors import UsageError
from whet_live.database import Database, ListPage, newest_first, time_of
from whet_live.experiments import experiment_store, rollout_monitor
from whet_live.experiments.admission import admit, stood_on
from whet_live.experiments.allocation import shares
from whet_live.experiments.definition import Definition, ramp_weights, read_definition
from whet_live.experiments.experiment_store import RUNNING, Experiment
from whet_live.experiments.experiment_tables import experiments
from whet_live.experiments.experiment_view import describe_experiment, experiment_verdict_json
from whet_live.experiments.forecast import TrafficForecast, forecast_traffic
from whet_live.experiments.metrics import with_reward
from whet_live.experiments.reducer import MICROSECONDS, Revision, Snapshot
from whet_live.experiments.tracking import Look, TrackedExperiment
from whet_live.experiments.units import NamedUnits, units_of
from whet_live.experiments.verdict import ExperimentVerdict, State, count_outcomes
from whet_live.quality.alerts import APPROVAL, QualityAlert, store_alert
from whet_live.registry import EXPERIMENT, Address, Registry, audit
from whet_live.registry.labels import ChangeActor, put_label
from whet_live.registry.names import check_actor, check_label, check_text
from whet_live.registry.proposals import ask_for_move, open_request, rest_on_experiment
from whet_live.registry.registry_store import is_protected, read_labels, version_number_of

GRACE = 2 * MICROSECONDS
"""The time after the end of its window in which an outcome may still be on its way into the database."""

log = logging.getLogger("whet.experiments")

MOST = 500
"""Running experiments that apps are told of."""


class Experiments:
    """Experiments in a database. Any number of processes may refresh them: each decision is carried out once.

    Counts are never stored: they are folded from traffic, by every process for itself, and the same traffic gives the
    same counts. Threads may share it.
    """

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
        self._tracks: dict[str, TrackedExperiment] = {}
        self._prompts: dict[str, str] = {}
        self._warned = set[str]()
        self._adding = threading.Lock()

    def create(self, definition: Mapping[str, object], *, author: str, message: str = "") -> Experiment:
        """Start an experiment from a definition as JSON (docs/experiments.md).

        `author` is who starts it; a winner that needs an approval needs that of somebody else. Raises UsageError for
        a definition that cannot be used, versions that do not exist, a label that stands on none of them or has a running
        experiment, and for what a protected label does not allow (`admission.admit`).
        """
        parsed = read_definition(with_reward(self.database, definition))
        check_actor(author)
        check_label(parsed.label)
        check_text(message, "message")
        with self.registry.change() as connection:
            for version in parsed.versions:
                version_number_of(connection, Address(parsed.prompt, version=version))
            admit(connection, parsed, author)
            self._end_overtaken(connection, parsed.prompt, parsed.label)
            _end_watch(connection, parsed, author)
            key = experiment_store.start(connection, parsed, parsed.starting_weights, author, message=message)
            details = {
                "experiment": key,
                "label": parsed.label,
                "versions": parsed.versions,
                "message": message,
            }
            audit.append_entry(
                connection, actor=author, action="experiment.start", subject=parsed.prompt, details=details
            )
            return experiment_store.find_experiment(connection, key)

    def get(self, experiment: str) -> Experiment:
        """One experiment. Raises UsageError for an unknown id."""
        with self.database.read() as connection:
            return experiment_store.find_experiment(connection, experiment)

    def prompts_of(self, experiments: Set[str]) -> Mapping[str, str]:
        """The prompt of each of these ids that is an experiment's."""
        unknown = experiments - self._prompts.keys()
        if unknown:
            with self.database.read() as connection:
                self._prompts.update(experiment_store.prompts_of(connection, unknown))
        return {one: self._prompts[one] for one in experiments & self._prompts.keys()}

    def list(
        self,
        prompt: str | None = None,
        *,
        state: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> ListPage[Experiment]:
        """Experiments, the newest first, of a prompt and in a state; `before` continues a page."""
        query = newest_first(experiments.c.id, before, limit, prompt=prompt, state=state)
        with self.database.read() as connection:
            page = experiment_store.read_experiments(connection, connection.execute(query).all())
        return ListPage.of(page, limit, lambda one: one.id)

    def assignments(self, prompt: str | None = None) -> Sequence[dict[str, Any]]:
        """Definitions of all running experiments, as apps need them to assign units by themselves.

        One whose label was moved by anybody since assigns nobody any more, from that move on.
        """
        with self.database.read() as connection:
            return [one.assignment() for one in experiment_store.in_force(connection, prompt, MOST)]

    def status(self, experiment: str, now: int | None = None) -> dict[str, Any]:
        """An experiment with its counts, posteriors, differences and guard-rails, as JSON; changes nothing.

        The figures are those at its end if it has ended, else those at `now` (microseconds, default: the clock), or those
        of the last look if hardly anything was added since.
        """
        record = self.get(experiment)
        looked = self._track(experiment).look(self._settle_time(now))
        return self._describe(record, looked)

    def cached_state(self, experiment: str) -> tuple[dict[str, Any] | None, bool]:
        """The same for a page, which waits for no long counting: the figures of the look before, None before the first,
        and whether newer ones are being counted. After a start or a deletion all is counted again."""
        record = self.get(experiment)
        looked, counting = self._track(experiment).cached_state(self._settle_time(None))
        if looked is None:
            return None, counting
        return self._describe(record, looked), counting

    def units(self, prompt: str) -> NamedUnits:
        """Count the units that the newest answers of a prompt name."""
        with self.database.read() as connection:
            return units_of(connection, prompt)

    def forecast(self, prompt: str, unit: str) -> TrafficForecast:
        """The forecast of how long an experiment that counts such units would take, from the newest answers of a prompt."""
        with self.database.read() as connection:
            return forecast_traffic(connection, prompt, unit)

    def unit_warning(self, experiment: Experiment) -> str:
        """A warning that a running experiment counts a unit that the answers of its prompt do not name; empty if they name it."""
        definition = experiment.definition
        return self.units(definition.prompt).missing(definition.unit) if experiment.state == RUNNING else ""

    def _describe(self, experiment: Experiment, looked: Look) -> dict[str, Any]:
        view = describe_experiment(experiment, looked.judged.figures, looked.assigned)
        if not any(looked.assigned) and (warning := self.unit_warning(experiment)):
            verdict = view["now"]["verdict"]
            verdict["warnings"] = [warning, *verdict["warnings"]]
        return view

    def refresh(self, now: int | None = None) -> Sequence[Experiment]:
        """Look at all running experiments, and carry out what can be decided; those that are looked at.

        Call it every few seconds, as often as you like: looking costs nothing but time. `now` is in microseconds (default: the
        clock). An error in one experiment does not keep the others from being looked at; the first error is raised after all of
        them, and the next call tries again.
        """
        with self.database.read() as connection:
            looked = [*experiment_store.open_ones(connection), *experiment_store.waiting_ones(connection)]
        done, failed = list[Experiment](), list[Exception]()
        for one in looked:
            try:
                done.append(self._look(one, now))
            except Exception as error:
                error.add_note(f"while looking at the experiment {one}")
                failed.append(error)
        if failed:
            raise failed[0]
        return done

    def stop(self, experiment: str, *, actor: str, reason: str = "") -> Experiment:
        """End a running experiment without a decision; everybody gets the label's version. Raises UsageError."""
        check_actor(actor)
        check_text(reason, "reason")
        moment, track = self._time(), self._track(experiment)
        record, seen = track.read(moment)
        verdict = track.judge(record, seen).verdict
        stop_reason = reason or "stopped by hand"
        with self.registry.change() as connection:
            if not experiment_store.end(
                connection, experiment, _ending("stopped", stop_reason, verdict, moment)
            ):
                raise UsageError(f"The experiment {experiment} is not running; it ended as {record.state}.")
            _write_audit(connection, record, "experiment.stop", stop_reason, actor)
        return self.get(experiment)

    def _time(self) -> int:
        """The time by the clock that all servers share: rows are received by it."""
        with self.database.read() as connection:
            return time_of(connection)

    def _settle_time(self, now: int | None) -> int:
        """The time up to which outcomes are settled: a moment that is given, or the clock with a little grace."""
        return self._time() - GRACE if now is None else now

    def _track(self, experiment: str) -> TrackedExperiment:
        with self._adding:
            return self._tracks.setdefault(experiment, TrackedExperiment(self.database, experiment))

    def _look(self, experiment: str, now: int | None) -> Experiment:
        moment, track = self._settle_time(now), self._track(experiment)
        with self.database.read() as connection:
            record = experiment_store.find_experiment(connection, experiment)
            overtaken = (
                record.state == RUNNING
                and experiment_store.latest_foreign_move(connection, record) is not None
            )
            due = rollout_monitor.is_due(connection, record)
        if overtaken:
            with self.registry.change() as connection:
                self._end_overtaken(connection, record.definition.prompt, record.definition.label)
            return self.get(experiment)
        if due:
            with self.registry.change() as connection:
                rollout_monitor.follow(connection, experiment_store.find_experiment(connection, experiment))
        if record.state != RUNNING:
            return self.get(experiment)
        record, seen = track.read(moment)
        self._warn_of_units(record, seen)
        judged, over = track.judge(record, seen), rollout_monitor.over(record, seen, moment)
        if judged is track.acted and not over:
            return record
        if judged.verdict.broken:
            acted = self._take_out(record, judged.verdict, moment)
        elif over:
            acted = self._decide(record, rollout_monitor.verdict_of_watch(judged.verdict, seen), moment)
        elif judged.verdict.state != RUNNING:
            acted = self._decide(record, judged.verdict, moment)
        else:
            acted = self._share(record, judged.snapshot)
        track.acted = judged if acted else track.acted
        return self.get(experiment)

    def _warn_of_units(self, experiment: Experiment, seen: Snapshot) -> None:
        """Log once that an experiment counts what no answer names."""
        if any(seen.count_units()) or experiment.id in self._warned:
            return
        if warning := self.unit_warning(experiment):
            self._warned.add(experiment.id)
            where = f"{experiment.definition.prompt}@{experiment.definition.label}"
            log.warning("The experiment %s on %s: %s", experiment.id, where, warning)

    def _end_overtaken(self, connection: Connection, prompt: str, label: str) -> None:
        """End the experiment on a label that somebody else moved since: it no longer compares with what stands there."""
        running = experiment_store.running_on(connection, prompt, label)
        move = None if running is None else experiment_store.latest_foreign_move(connection, running)
        if running is None or move is None:
            return
        where = "was removed" if move.new is None else f"was moved to version {move.new}"
        ran = "experiment" if running.watches is None else "watch"
        reason = f"{label} {where} by {move.actor} while the {ran} ran" + (
            f": {move.reason}" if move.reason else "."
        )
        experiment_store.end(connection, running.id, _ending("stopped", reason, None, time_of(connection)))
        _write_audit(connection, running, "experiment.stop", reason, f"{EXPERIMENT}{running.id}")

    def _take_out(self, experiment: Experiment, verdict: ExperimentVerdict, moment: int) -> bool:
        """Give the units of arms that broke a guard-rail to the others, and take a label back from them; False if the
        experiment is another one by now."""
        definition = experiment.definition
        broken = {check.version for check in verdict.broken}
        kept = tuple(
            0.0 if version in broken else weight
            for version, weight in zip(definition.versions, experiment.weights, strict=True)
        )
        left = [version for version, weight in zip(definition.versions, kept, strict=True) if weight > 0]
        actor, where = f"{EXPERIMENT}{experiment.id}", Address(definition.prompt, definition.label)
        with self.registry.change() as connection:
            if not _is_current(connection, experiment):
                return False
            if set(left) <= {definition.control}:
                experiment_store.end(
                    connection, experiment.id, _ending("rolled_back", verdict.reason, verdict, moment)
                )
            else:
                last, weights = experiment.revisions[-1], tuple(weight / sum(kept) for weight in kept)
                revision = Revision(
                    last.number + 1, time_of(connection), weights, verdict.reason, last.settled
                )
                experiment_store.revise(connection, experiment.id, revision)
            _write_audit(connection, experiment, "experiment.guard", verdict.reason, actor)
            if _standing(connection, where) in broken and _may_take_back(connection, definition):
                back = put_label(
                    connection, "rollback", where, definition.control, ChangeActor(actor, verdict.reason)
                )
                experiment_store.record_outcome(connection, experiment.id, label_move=back.number)
        return True

    def _decide(self, experiment: Experiment, verdict: ExperimentVerdict, moment: int) -> bool:
        """End the experiment, and move the label to a winner unless a person must agree first; False as above."""
        definition = experiment.definition
        actor, where = f"{EXPERIMENT}{experiment.id}", Address(definition.prompt, definition.label)
        with self.registry.change() as connection:
            if not _is_current(connection, experiment):
                return False
            experiment_store.end(
                connection, experiment.id, _ending(verdict.state, verdict.reason, verdict, moment)
            )
            _write_audit(connection, experiment, f"experiment.{verdict.state}", verdict.reason, actor)
            if verdict.winner is None or _standing(connection, where) == verdict.winner:
                return True
            protected = is_protected(connection, definition.prompt, definition.label)
            if definition.approval or verdict.held or protected:
                request = _request(connection, experiment, verdict)
                experiment_store.record_outcome(connection, experiment.id, proposal=request)
                _tell(connection, experiment, verdict, request)
                if rollout_monitor.build_watch(definition, verdict.winner) is not None:
                    experiment_store.record_outcome(connection, experiment.id, watch=experiment_store.WAITING)
            else:
                move = put_label(
                    connection, "move", where, verdict.winner, ChangeActor(actor, verdict.reason)
                )
                rollout_monitor.begin(connection, replace(experiment, winner=verdict.winner), move)
        return True

    def _share(self, experiment: Experiment, seen: Snapshot) -> bool:
        """Other shares, if the policy wants them and enough units are settled since the last ones; False as above."""
        definition, last = experiment.definition, experiment.revisions[-1]
        policy = definition.policy
        sample = seen.samples[definition.goal.name]
        settled = len(sample.arms)
        if policy.kind == "fixed":
            return True
        if policy.kind == "ramp":
            weights = _alive(ramp_weights(definition, settled // policy.units), experiment)
            reason = f"step {settled // policy.units + 1} of the ramp, {settled:,} settled units"
        elif settled - last.settled < policy.units:
            return True
        else:
            chosen = iter(shares(policy, [count_outcomes(sample, arm) for arm in experiment.live]))
            weights = tuple(float(next(chosen)) if w > 0 else 0.0 for w in last.weights)
            reason = f"{policy.kind} after {settled:,} settled units"
        if max(abs(new - old) for new, old in zip(weights, last.weights, strict=True)) < 1e-9:
            return True
        with self.registry.change() as connection:
            if not _is_current(connection, experiment):
                return False
            experiment_store.revise(
                connection,
                experiment.id,
                Revision(last.number + 1, time_of(connection), weights, reason, settled),
            )
        return True


def _is_current(connection: Connection, experiment: Experiment) -> bool:
    """Whether the experiment still runs as it was read, on a label that nobody moved since."""
    running = experiment_store.is_running(connection, experiment.id, experiment.revisions[-1].number)
    return running and experiment_store.latest_foreign_move(connection, experiment) is None


def _request(connection: Connection, experiment: Experiment, verdict: ExperimentVerdict) -> str:
    """The request to put the label on the winner: one that waits already, or a new one by who started the experiment."""
    where, winner = (
        Address(experiment.definition.prompt, experiment.definition.label),
        int(verdict.winner or 0),
    )
    evidence = {"experiment": experiment.id, "verdict": experiment_verdict_json(verdict)}
    waiting = open_request(connection, where, winner)
    if waiting is not None:
        rest_on_experiment(connection, waiting, experiment.author)
        return waiting
    return ask_for_move(
        connection, where, winner, actor=experiment.author, reason=verdict.reason, evidence=evidence
    ).id


def _tell(connection: Connection, experiment: Experiment, verdict: ExperimentVerdict, request: str) -> None:
    """Have people told that a winner waits for one of them."""
    definition, moment = experiment.definition, time_of(connection)
    text = f"{definition.prompt}: version {verdict.winner} won the experiment on {definition.label} and waits for an approval"
    details = {
        "proposal": request,
        "experiment": experiment.id,
        "version": verdict.winner,
        "reason": verdict.reason,
    }
    key, name = f"{APPROVAL}|{request}", definition.goal.name
    alert = QualityAlert("", key, APPROVAL, definition.prompt, name, True, moment, moment, text, details)
    store_alert(connection, alert)


def _alive(weights: Sequence[float], experiment: Experiment) -> tuple[float, ...]:
    """Shares without those of arms that were taken out, which go to the control."""
    control = experiment.definition.versions.index(experiment.definition.control)
    kept = [weight if arm in experiment.live else 0.0 for arm, weight in enumerate(weights)]
    kept[control] += 1.0 - sum(kept)
    return tuple(kept)


def _ending(state: State, reason: str, verdict: ExperimentVerdict | None, moment: int) -> dict[str, object]:
    """The stored outcome of an experiment: the verdict and its figures."""
    winner = verdict.winner if verdict is not None and state == "winner" else None
    final_verdict = None if verdict is None else replace(verdict, state=state, reason=reason, winner=winner)
    return {
        "state": state,
        "reason": reason,
        "winner": winner,
        "verdict": None if final_verdict is None else experiment_verdict_json(final_verdict),
        "ended": moment,
    }


def _end_watch(connection: Connection, definition: Definition, author: str) -> None:
    """End the watch on a label on which somebody starts the next experiment."""
    running = experiment_store.running_on(connection, definition.prompt, definition.label)
    if running is not None and running.watches is not None:
        reason = f"{author} started another experiment on {definition.label}."
        experiment_store.end(connection, running.id, _ending("stopped", reason, None, time_of(connection)))
        _write_audit(connection, running, "experiment.stop", reason, author)


def _write_audit(
    connection: Connection, experiment: Experiment, action: str, reason: str, actor: str
) -> None:
    details = {"experiment": experiment.id, "label": experiment.definition.label, "reason": reason}
    audit.append_entry(
        connection, actor=actor, action=action, subject=experiment.definition.prompt, details=details
    )


def _may_take_back(connection: Connection, definition: Definition) -> bool:
    """Whether a broken guard-rail may put the label on the control: not where it was protected since and never stood on that."""
    where = definition.prompt, definition.label
    return not is_protected(connection, *where) or definition.control in stood_on(connection, *where)


def _standing(connection: Connection, where: Address) -> int | None:
    """The version on which a label stands."""
    return read_labels(connection, where.name).get(str(where.label))
