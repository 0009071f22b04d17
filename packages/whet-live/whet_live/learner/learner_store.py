"""The learner's rows: settings, verdicts of people, the snapshot of feedback, what was read in it, and updates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, func, select

from whet.errors import UsageError, did_you_mean
from whet.feedback.sources import AUTO, PROPOSE, LearningPolicy
from whet_live.database import iso, put, time_of
from whet_live.learner.answer_context import COMMENT, READS
from whet_live.learner.feedback_state import FeedbackState, PromptFeedback, rules
from whet_live.learner.learner_tables import (
    LONGEST_KEY,
    learner_decisions,
    learner_faults,
    learner_feedback,
    learner_head,
    learner_readings,
    learner_requirements,
    learner_settings,
    updates,
)
from whet_live.learner.reading import OpenRequirement, Readings, RowReading
from whet_live.learner.requirements import LiveRequirement
from whet_live.registry import audit
from whet_live.registry.names import ANY_PROMPT, DEFAULT_LABEL, check_actor, check_label, check_text
from whet_live.registry.registry_store import known_prompt
from whet_live.traffic.erase import erased_after

MODE_PROPOSE, MODE_AUTO, MODE_OFF = "propose", "auto", "off"
READER = ""
"""The name under which a fault of the reader itself is remembered."""
LONGEST_FAULT = 2000
MODES = (MODE_PROPOSE, MODE_AUTO, MODE_OFF)
OPEN, PROPOSED, STAGED, REFUSED, EMPTY, STALE = "open", "proposed", "staged", "refused", "empty", "stale"
MOVED = "moved"
"""The result of an update that a person ordered or the gate let pass: a version, on which the label stands."""


@dataclass(frozen=True)
class LearnerSettings:
    """The settings by which a prompt learns: `mode` is propose, auto or off; `label` stands on the version that is updated,
    `region` is the fence (None: `instructions`, else the first); `rules` are those of the policy that differ from the mode's
    own; `reads` is what the reader may see: comment, answer or conversation."""

    mode: str = MODE_PROPOSE
    label: str = DEFAULT_LABEL
    region: str | None = None
    rules: Mapping[str, object] = field(default_factory=dict)
    reads: str = COMMENT

    @property
    def in_context(self) -> bool:
        """Whether the reader sees more than the comments."""
        return self.reads != COMMENT

    def select_rows(self, feedback: PromptFeedback) -> PromptFeedback:
        """The feedback that is learned from: bad ratings without words only if the reader sees their answers."""
        return feedback.with_ratings() if self.in_context else feedback

    @property
    def policy(self) -> LearningPolicy:
        """The evidence that a change needs."""
        return LearningPolicy.read(self.rules, AUTO if self.mode == MODE_AUTO else PROPOSE)

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values, the whole policy included."""
        return {
            "mode": self.mode,
            "label": self.label,
            "region": self.region,
            "policy": self.policy.as_json(),
            "reads": self.reads,
        }


@dataclass(frozen=True)
class PromptUpdate:
    """One update: what is required of a version, and what became of it. `plan` says which step of upkeep it is, None for one that
    meets requirements. `at` is in microseconds (UTC)."""

    id: str
    name: str
    base: int
    mode: str
    outcome: str
    requirements: tuple[LiveRequirement, ...]
    at: int
    reason: str = ""
    flags: tuple[Mapping[str, object], ...] = ()
    gate: Mapping[str, object] | None = None
    proposal: str | None = None
    version: int | None = None
    experiment: str | None = None
    plan: Mapping[str, object] | None = None

    @property
    def rows(self) -> list[str]:
        """The feedback behind it."""
        return list(dict.fromkeys(row for requirement in self.requirements for row in requirement.rows))

    def as_json(self) -> dict[str, Any]:
        """The update as JSON values."""
        return {
            **vars(self),
            "requirements": [requirement.as_json() for requirement in self.requirements],
            "at": iso(self.at),
        }


# Settings and verdicts


def read_settings(connection: Connection, name: str) -> LearnerSettings:
    """The settings of a prompt: its own, else those for every prompt, else the usual ones."""
    query = select(learner_settings).where(learner_settings.c.name.in_([name, ANY_PROMPT]))
    rows = {row.name: row for row in connection.execute(query)}
    row = rows.get(name, rows.get(ANY_PROMPT))
    if row is None:
        return LearnerSettings()
    return LearnerSettings(row.mode, row.label, row.region, row.policy, row.reads)


def read_modes(connection: Connection, names: Sequence[str]) -> list[str]:
    """The mode of each of these prompts, in order."""
    query = select(learner_settings.c.name, learner_settings.c.mode)
    rows = connection.execute(query.where(learner_settings.c.name.in_([*names, ANY_PROMPT])))
    modes = {row.name: row.mode for row in rows}
    return [modes.get(name, modes.get(ANY_PROMPT, LearnerSettings().mode)) for name in names]


def write_settings(connection: Connection, name: str, settings: LearnerSettings, actor: str) -> None:
    """Set how a prompt (or, with `*`, every prompt) learns. Raises UsageError for settings that cannot be."""
    check_actor(actor)
    check_label(settings.label)
    if settings.mode not in MODES:
        raise UsageError(f'There is no mode "{settings.mode}".{did_you_mean(settings.mode, MODES)}')
    if settings.reads not in READS:
        raise UsageError(
            f'A reader reads comment, answer or conversation, not "{settings.reads}".{did_you_mean(settings.reads, READS)}'
        )
    if name != ANY_PROMPT:
        known_prompt(connection, name)
    row = {
        "name": name,
        "mode": settings.mode,
        "label": settings.label,
        "region": settings.region,
        "policy": dict(settings.rules),
        "reads": settings.reads,
        "actor": actor,
        "changed": time_of(connection),
    }
    details = {**settings.as_json(), "rules": dict(settings.rules)}
    audit.append_entry(connection, actor=actor, action="learner.configure", subject=name, details=details)
    put(connection, learner_settings, row)


def write_decision(
    connection: Connection, name: str, key: str, accepted: bool, actor: str, reason: str
) -> None:
    """Write down that somebody accepts or dismisses a row in quarantine, or `requirement KEY`."""
    check_actor(actor)
    check_text(reason, "reason")
    known_prompt(connection, name)
    if not key or len(key) > LONGEST_KEY:
        raise UsageError("Name the row of feedback, or the requirement, that you decide about.")
    action = "learner.accept" if accepted else "learner.dismiss"
    audit.append_entry(
        connection, actor=actor, action=action, subject=name, details={"key": key, "reason": reason}
    )
    row = {
        "name": name,
        "key": key,
        "accepted": int(accepted),
        "actor": actor,
        "reason": reason,
        "at": time_of(connection),
    }
    put(connection, learner_decisions, row)


def read_decisions(connection: Connection, name: str) -> tuple[set[str], set[str]]:
    """The accepted and the dismissed keys."""
    query = select(learner_decisions.c.key, learner_decisions.c.accepted).where(
        learner_decisions.c.name == name
    )
    rows = connection.execute(query).all()
    return {row.key for row in rows if row.accepted}, {row.key for row in rows if not row.accepted}


def read_accepters(connection: Connection, name: str, requirements: Sequence[LiveRequirement]) -> list[str]:
    """The people who ever accepted one of these requirements, or a row behind it, whatever was decided about it since."""
    keys = {f"requirement {requirement.key}" for requirement in requirements}
    for one in requirements:
        keys.update(key for row in (*one.rows, *one.origin) for key in (row, f"requirement row {row}"))
    entries = audit.about(connection, name, ["learner.accept"])
    return list(dict.fromkeys(entry.actor for entry in entries if entry.details["key"] in keys))


# What went wrong


def remember_fault(connection: Connection, name: str, message: str) -> None:
    """Remember why the last step for a prompt failed, or with an empty name why the reader does not answer; an empty message
    forgets it."""
    if message:
        put(
            connection,
            learner_faults,
            {"name": name, "message": message[:LONGEST_FAULT], "at": time_of(connection)},
        )
    else:
        connection.execute(learner_faults.delete().where(learner_faults.c.name == name))


def read_faults(connection: Connection, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The faults under these names, each with its time."""
    rows = connection.execute(select(learner_faults).where(learner_faults.c.name.in_(names)))
    return {row.name: (row.message, row.at) for row in rows}


def names_of_faults(connection: Connection) -> set[str]:
    """The names under which a fault is remembered."""
    return set(connection.execute(select(learner_faults.c.name)).scalars())


# The snapshot


def read_state(connection: Connection, name: str | None = None) -> FeedbackState:
    """The snapshot, of one prompt or of all; an empty state where there is none, or one that was made by other rules."""
    head = connection.execute(select(learner_head)).one_or_none()
    if head is None or head.rules != rules():
        return FeedbackState()
    wanted = select(learner_feedback).order_by(learner_feedback.c.name)
    rows = connection.execute(wanted if name is None else wanted.where(learner_feedback.c.name == name))
    return FeedbackState(
        head.seq, head.clock, {row.name: PromptFeedback.from_json(row.state) for row in rows}
    )


def kept_among(connection: Connection, names: Sequence[str]) -> set[str]:
    """Those of a few prompts that are in the snapshot."""
    query = select(learner_feedback.c.name).where(learner_feedback.c.name.in_(names))
    return set(connection.execute(query).scalars())


def kept_until(connection: Connection) -> int:
    """The newest event of the snapshot; 0 where there is none, or one that was made by other rules."""
    head = connection.execute(select(learner_head.c.seq, learner_head.c.rules)).one_or_none()
    return head.seq if head is not None and head.rules == rules() else 0


def write_state(connection: Connection, state: FeedbackState, changed: Iterable[str] | None) -> bool:
    """Keep a snapshot: the prompts that changed since the stored one was read, or all. False when a newer one is there.

    What was erased after the state was folded is left out, so that no words come back that somebody had deleted meanwhile.
    """
    audit.lock(connection)  # whoever deletes somebody's data holds it too
    head = connection.execute(select(learner_head).with_for_update()).one_or_none()
    if head is not None and head.rules == rules() and head.seq >= state.seq:
        return False
    state = state.without(erased_after(connection, state.seq))
    put(connection, learner_head, {"one": 1, "seq": state.seq, "clock": state.clock, "rules": rules()})
    if changed is None:
        connection.execute(learner_feedback.delete())
    for name in state.prompts if changed is None else changed:
        connection.execute(learner_feedback.delete().where(learner_feedback.c.name == name))
        if name in state.prompts:
            connection.execute(
                learner_feedback.insert().values(name=name, state=state.prompts[name].as_json())
            )
    return True


# What was read

_OPEN, _CLOSED = "open", "closed"


def forget_readings(
    connection: Connection, name: str, verdicts: Collection[str], actor: str, reason: str
) -> int:
    """Forget the readings with these verdicts, so that their rows are read again; how many they were."""
    check_actor(actor)
    check_text(reason, "reason")
    known_prompt(connection, name)
    here = (learner_readings.c.name == name, learner_readings.c.verdict.in_(verdicts))
    rows = (
        connection.execute(learner_readings.delete().where(*here).returning(learner_readings.c.row))
        .scalars()
        .all()
    )
    if rows:
        details = {"rows": len(rows), "verdicts": sorted(verdicts), "reason": reason}
        audit.append_entry(connection, actor=actor, action="learner.reread", subject=name, details=details)
    return len(rows)


def read_readings(connection: Connection, name: str) -> Readings:
    """The readings of a prompt."""
    table, rows = learner_requirements, learner_readings
    known = connection.execute(select(table).where(table.c.name == name).order_by(table.c.number)).all()
    read = connection.execute(select(rows).where(rows.c.name == name)).all()
    requirements = {
        f"r{one.number}": OpenRequirement(
            f"r{one.number}", one.text, one.author, tuple(one.contradicts), tuple(one.origin), one.instruction
        )
        for one in known
        if one.state == _OPEN
    }
    readings = {
        one.row: RowReading(tuple(one.requirements), one.verdict, dict(one.confirmed), one.tries)
        for one in read
    }
    return Readings(readings, requirements, max((one.number for one in known), default=0))


def write_readings(connection: Connection, name: str, before: Readings, after: Readings) -> None:
    """Write down what differs between two states of what was read. A requirement that is gone loses its text."""
    for key in before.rows.keys() - after.rows.keys():
        here = (learner_readings.c.name == name, learner_readings.c.row == key)
        connection.execute(learner_readings.delete().where(*here))
    for key, one in after.rows.items():
        if before.rows.get(key) != one:
            row = {
                "name": name, "row": key, "requirements": list(one.ids), "verdict": one.verdict,
                "confirmed": dict(one.confirmed), "tries": one.tries,
            }  # fmt: skip
            put(connection, learner_readings, row)
    for wanted in after.requirements.values():
        if before.requirements.get(wanted.id) != wanted:
            _write_requirement(connection, name, wanted, _OPEN)
    for key in before.requirements.keys() - after.requirements.keys():
        _write_requirement(connection, name, OpenRequirement(key, ""), _CLOSED)
    table = learner_requirements
    old = (table.c.name == name, table.c.state == _CLOSED, table.c.number < after.counter)
    connection.execute(table.delete().where(*old))


def _write_requirement(connection: Connection, name: str, one: OpenRequirement, state: str) -> None:
    row = {
        "name": name, "number": int(one.id[1:]), "text": one.text, "author": one.author,
        "contradicts": list(one.contradicts), "origin": list(one.origin), "instruction": one.instruction,
        "state": state, "at": time_of(connection),
    }  # fmt: skip
    put(connection, learner_requirements, row)


# Updates


def read_updates(
    connection: Connection, name: str, outcome: str | None = None, limit: int | None = None
) -> list[PromptUpdate]:
    """The updates of a prompt, the newest first."""
    query = select(updates).where(updates.c.name == name).order_by(updates.c.at.desc(), updates.c.id)
    if outcome is not None:
        query = query.where(updates.c.outcome == outcome)
    rows = connection.execute(query if limit is None else query.limit(limit))
    return [_update(row) for row in rows]


def _update(row: Row[Any]) -> PromptUpdate:
    requirements = tuple(LiveRequirement.from_json(requirement) for requirement in row.requirements)
    return PromptUpdate(**{**row._mapping, "requirements": requirements, "flags": tuple(row.flags)})


def read_update(connection: Connection, key: str) -> PromptUpdate:
    """An update by its id."""
    return _update(connection.execute(select(updates).where(updates.c.id == key)).one())


def count_gated_updates(connection: Connection, name: str) -> int:
    """Count the updates of a prompt that meet requirements and came to the gate."""
    here = (updates.c.name == name, updates.c.gate.is_not(None), updates.c.plan.is_(None))
    query = select(func.count()).where(*here)
    return int(connection.execute(query).scalar_one())


def open_update(connection: Connection, update: PromptUpdate) -> None:
    """Write a new update down, before anything is paid for it."""
    requirements = [requirement.as_json() for requirement in update.requirements]
    connection.execute(updates.insert().values({**vars(update), "requirements": requirements}))


def close_update(connection: Connection, update: PromptUpdate, outcome: str, **values: Any) -> PromptUpdate:
    """Write down what became of an update."""
    connection.execute(updates.update().where(updates.c.id == update.id).values(outcome=outcome, **values))
    flags: Sequence[Mapping[str, object]] = values.pop("flags", update.flags)
    return replace(update, outcome=outcome, flags=tuple(flags), **values)
