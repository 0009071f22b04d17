"""Experiments in a database: started, looked at, decided, and their decisions carried out."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from whet.errors import UsageError
from whet.online.database import Database, new_id
from whet.online.database import now as clock
from whet.online.experiments import store
from whet.online.experiments.allocation import shares
from whet.online.experiments.definition import ramp_weights, read
from whet.online.experiments.events import events, head, newest_erased
from whet.online.experiments.fold import MICROSECONDS, Fold, Revision
from whet.online.experiments.page import shown, verdict_json
from whet.online.experiments.store import PENDING, RUNNING, Experiment
from whet.online.experiments.verdict import Verdict, judge, tally
from whet.online.registry import Address, Page, Registry, audit
from whet.online.registry.labels import By, put_label
from whet.online.registry.names import check_actor, check_label, check_text
from whet.online.registry.store import is_protected, labels_of

GRACE = 2 * MICROSECONDS
"""How long after its window an outcome may still be on its way into the database."""

WORTH_A_LOOK = 0.001
"""A running experiment is judged again when its settled outcomes have grown by more than this share."""

MOST = 500


@dataclass
class _Progress:
    """A fold, the rows of traffic that are in it, and how many outcomes were settled at the last look."""

    fold: Fold
    seq: int
    erased: int
    looked: int = -1


class Experiments:
    """Experiments in a database. Any number of processes may refresh them: each decision is carried out once.

    Counts are never stored: they are folded from traffic, by every process for itself, and the same traffic gives the
    same counts. Threads may share it.
    """

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
        self._known: dict[str, _Progress] = {}
        self._turn = threading.Lock()

    def create(self, definition: Mapping[str, Any], *, author: str, message: str = "") -> Experiment:
        """Start an experiment from a definition as JSON (docs/experiments.md).

        `author` is who starts it; a winner that needs an approval needs that of somebody else. Raises UsageError for
        a definition that cannot be used, versions that do not exist, and a label with a running experiment.
        """
        asked = read(definition)
        check_actor(author)
        check_label(asked.label)
        check_text(message, "message")
        for version in asked.versions:
            self.registry.get(f"{asked.prompt}:{version}")
        moment, key = clock(), new_id()
        row: dict[str, Any] = {
            "id": key,
            "prompt": asked.prompt,
            "label": asked.label,
            "salt": secrets.token_hex(16),
            "definition": asked.to_json(),
            "state": RUNNING,
            "author": author,
            "message": message,
            "created": moment,
        }
        first = Revision(1, moment, asked.starting_weights, "start")
        with self.registry.change() as connection:
            row["start"] = head(connection)
            store.write(connection, row, first)
            details = {
                "experiment": key,
                "label": asked.label,
                "versions": asked.versions,
                "message": message,
            }
            audit.append(
                connection, actor=author, action="experiment.start", subject=asked.prompt, details=details
            )
            return store.find(connection, key)

    def get(self, experiment: str) -> Experiment:
        """One experiment. Raises UsageError for an unknown id."""
        with self.database.read() as connection:
            return store.find(connection, experiment)

    def list(
        self,
        prompt: str | None = None,
        *,
        state: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page[Experiment]:
        """Experiments, the newest first, of a prompt and in a state; `before` continues a page."""
        if not 1 <= limit <= MOST:
            raise UsageError(f"limit is {limit}; it must lie between 1 and {MOST}.")
        with self.database.read() as connection:
            found = store.search(connection, prompt, state, before, limit + 1)
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def assignments(self, prompt: str | None = None) -> Sequence[dict[str, Any]]:
        """Definitions of all running experiments, as apps need them to assign units by themselves."""
        with self.database.read() as connection:
            return [one.assignment() for one in store.search(connection, prompt, RUNNING, None, MOST)]

    def status(self, experiment: str, now: int | None = None) -> dict[str, Any]:
        """An experiment with its counts, posteriors, differences and guard-rails, as JSON; changes nothing.

        The figures are those at its end if it has ended, else those at `now` (microseconds, default: the clock).
        """
        with self._turn:
            found, fold = self._folded(experiment)
            moment = found.ended if found.ended is not None else _settled(now)
            return shown(found, fold, judge(fold, found.live, moment), moment)

    def refresh(self, experiment: str | None = None, now: int | None = None) -> Sequence[Experiment]:
        """Look at one running experiment, or at all, and carry out what can be decided; those that are looked at.

        Call it every few seconds, as often as you like: looking costs nothing but time. `now` is in microseconds
        (default: the clock).
        """
        with self.database.read() as connection:
            named = None if experiment is None else [store.find(connection, experiment)]
            looked = store.open_ones(connection) if named is None else named
        with self._turn:
            return [self._look(one.id, now) for one in looked]

    def stop(self, experiment: str, *, actor: str, reason: str = "") -> Experiment:
        """End a running experiment without a decision; everybody gets the label's version. Raises UsageError."""
        check_actor(actor)
        check_text(reason, "reason")
        with self._turn:
            found, fold = self._folded(experiment)
            moment = clock()
            verdict = judge(fold, found.live, moment)
        said = reason or "stopped by hand"
        with self.registry.change() as connection:
            if not store.end(connection, experiment, _ending("stopped", said, verdict, moment)):
                raise UsageError(f"The experiment {experiment} is not running; it ended as {found.state}.")
            _audited(connection, found, "experiment.stop", said, actor)
        return self.get(experiment)

    def _look(self, experiment: str, now: int | None) -> Experiment:
        found, fold = self._folded(experiment)
        if found.state != RUNNING:
            return self._requested(found)
        moment = _settled(now)
        settled, progress = fold.settled(moment), self._known[experiment]
        if progress.looked >= 0 and settled - progress.looked <= WORTH_A_LOOK * settled:
            return found
        progress.looked = settled
        verdict = judge(fold, found.live, moment)
        if verdict.broken:
            self._take_out(found, verdict, moment)
        elif verdict.state != RUNNING:
            self._decide(found, verdict, moment)
        else:
            self._share(found, fold, moment)
        return self._requested(self.get(experiment))

    def _folded(self, experiment: str) -> tuple[Experiment, Fold]:
        """The experiment and its state, with everything that has arrived."""
        with self.database.read() as connection:
            found = store.find(connection, experiment)
            erased = newest_erased(connection)
            known = self._known.get(experiment)
            if known is None or known.erased != erased:
                known = _Progress(Fold(found.definition, found.salt, found.revisions), found.start, erased)
                self._known[experiment] = known
            for revision in found.revisions:
                known.fold.revise(revision)
            last = head(connection)
            for event in events(connection, experiment, found.definition, known.seq):
                known.fold.apply(event)
            known.seq = last
        return found, known.fold

    def _take_out(self, found: Experiment, verdict: Verdict, moment: int) -> None:
        """Give the units of arms that broke a guard-rail to the others, and take a label back from them."""
        definition = found.definition
        broken = {check.version for check in verdict.broken}
        kept = tuple(
            0.0 if version in broken else weight
            for version, weight in zip(definition.versions, found.weights, strict=True)
        )
        left = [version for version, weight in zip(definition.versions, kept, strict=True) if weight > 0]
        actor, where = f"experiment:{found.id}", Address(definition.prompt, definition.label)
        with self.registry.change() as connection:
            if not store.is_running(connection, found.id, found.revisions[-1].number):
                return
            if left == [definition.control]:
                store.end(connection, found.id, _ending("rolled_back", verdict.reason, verdict, moment))
            else:
                store.revise(connection, found.id, _following(found.revisions[-1], kept, verdict.reason))
            _audited(connection, found, "experiment.guard", verdict.reason, actor)
            if _standing(connection, where) in broken:
                put_label(connection, "rollback", where, definition.control, By(actor, verdict.reason))

    def _decide(self, found: Experiment, verdict: Verdict, moment: int) -> None:
        """End the experiment, and move the label to a winner unless a person must agree first."""
        definition = found.definition
        actor, where = f"experiment:{found.id}", Address(definition.prompt, definition.label)
        with self.registry.change() as connection:
            if not store.end(connection, found.id, _ending(verdict.state, verdict.reason, verdict, moment)):
                return
            _audited(connection, found, f"experiment.{verdict.state}", verdict.reason, actor)
            if verdict.winner is None or _standing(connection, where) == verdict.winner:
                return
            protected = is_protected(connection, definition.prompt, definition.label)
            if definition.approval or verdict.held or protected:
                store.set_proposal(connection, found.id, PENDING)
            else:
                put_label(connection, "move", where, verdict.winner, By(actor, verdict.reason))

    def _requested(self, found: Experiment) -> Experiment:
        """File the request for the approval of a winner, once."""
        definition, winner = found.definition, found.winner
        if found.proposal != PENDING or winner is None:
            return found
        waiting = self.registry.proposals(state="open", name=definition.prompt, limit=MOST).items
        known = [one.id for one in waiting if (one.label, one.target) == (definition.label, winner)]
        standing = self.registry.labels(definition.prompt).get(definition.label)
        if not known and standing != winner:
            asked = self.registry.request_move(
                definition.prompt,
                definition.label,
                winner,
                actor=found.author,
                reason=str(found.reason),
                evidence={"experiment": found.id, "verdict": found.verdict},
            )
            known = [asked.id]
        with self.database.begin() as connection:
            store.set_proposal(connection, found.id, known[0] if known else None)
        return self.get(found.id)

    def _share(self, found: Experiment, fold: Fold, moment: int) -> None:
        """Other shares, if the policy wants them and enough units are settled since the last ones."""
        definition, last = found.definition, found.revisions[-1]
        policy = definition.policy
        sample = fold.sample(definition.goal.name, moment)
        settled = len(sample.arms)
        if policy.kind == "fixed":
            return
        if policy.kind == "ramp":
            weights = _alive(ramp_weights(definition, settled // policy.units), found)
            reason = f"step {settled // policy.units + 1} of the ramp, {settled:,} settled units"
        elif settled - last.settled < policy.units:
            return
        else:
            chosen = iter(shares(policy, [tally(sample, arm) for arm in found.live]))
            weights = tuple(float(next(chosen)) if w > 0 else 0.0 for w in last.weights)
            reason = f"{policy.kind} after {settled:,} settled units"
        if max(abs(new - old) for new, old in zip(weights, last.weights, strict=True)) < 1e-9:
            return
        with self.registry.change() as connection:
            if store.is_running(connection, found.id, last.number):
                revision = Revision(last.number + 1, clock(), weights, reason, settled)
                store.revise(connection, found.id, revision)


def _following(last: Revision, kept: Sequence[float], reason: str) -> Revision:
    """The revision after `last` in which only these shares are left."""
    weights = tuple(weight / sum(kept) for weight in kept)
    return Revision(last.number + 1, clock(), weights, reason, last.settled)


def _alive(weights: Sequence[float], found: Experiment) -> tuple[float, ...]:
    """Shares without those of arms that were taken out, which go to the control."""
    control = found.definition.versions.index(found.definition.control)
    kept = [weight if arm in found.live else 0.0 for arm, weight in enumerate(weights)]
    kept[control] += 1.0 - sum(kept)
    return tuple(kept)


def _settled(now: int | None) -> int:
    """The time up to which outcomes are settled: a moment that is given, or the clock with a little grace."""
    return clock() - GRACE if now is None else now


def _ending(state: str, reason: str, verdict: Verdict, moment: int) -> dict[str, Any]:
    return {
        "state": state,
        "reason": reason,
        "winner": verdict.winner if state == "winner" else None,
        "verdict": verdict_json(verdict),
        "ended": moment,
    }


def _audited(connection: Connection, found: Experiment, action: str, reason: str, actor: str) -> None:
    details = {"experiment": found.id, "label": found.definition.label, "reason": reason}
    audit.append(connection, actor=actor, action=action, subject=found.definition.prompt, details=details)


def _standing(connection: Connection, where: Address) -> int | None:
    """The version on which a label stands."""
    return labels_of(connection, where.name).get(str(where.label))
