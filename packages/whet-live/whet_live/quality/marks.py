"""The changes around a prompt, on the axis of time: versions, moves of labels, models, experiments, and findings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, select

from whet.instructions.guard import visible
from whet_live.database import iso
from whet_live.quality.quality_tables import quality_alerts, quality_models
from whet_live.registry import EXPERIMENT, NEWEST
from whet_live.registry.registry_tables import label_moves, versions

VERSION, LABEL, MODEL, DRIFT = "version", "label", "model", "drift"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """Something that happened `at` a time (microseconds) and may have changed the quality: its `kind` and what it was. Of drift,
    `worse` says whether it is to the worse."""

    at: int
    kind: str
    text: str
    worse: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """The mark as JSON values."""
        return {**asdict(self), "at": iso(self.at)}


def model_name(model: str, fingerprint: str) -> str:
    """A model as people read it."""
    name = model or "a model without a name"
    return f"{name} ({fingerprint})" if fingerprint else name


def read_marks(connection: Connection, prompt: str, since: int, until: int) -> list[ChangeMark]:
    """The marks of a prompt in a period, in the order of time."""
    m, v, q, a = label_moves.c, versions.c, quality_models.c, quality_alerts.c
    marks = []
    for row in connection.execute(select(label_moves).where(m.name == prompt, m.at >= since, m.at < until)):
        where = "was removed" if row.new is None else f"moved to version {row.new}"
        if row.kind == "rollback":
            where = f"was rolled back to version {row.new}"
        actor = "an experiment" if row.actor.startswith(EXPERIMENT) else row.actor
        why = f": {visible(row.reason[:_LONGEST_REASON])}" if row.reason else ""
        marks.append(ChangeMark(row.at, LABEL, f"{row.label} {where}, by {actor}{why}"))
    query = select(v.version, v.created, v.author).where(
        v.name == prompt, v.created >= since, v.created < until
    )
    for row in connection.execute(query):
        marks.append(ChangeMark(row.created, VERSION, f"version {row.version} was made by {row.author}"))
    spans = connection.execute(select(quality_models).where(q.prompt == prompt).order_by(q.began)).all()
    for n, row in enumerate(spans):
        if n and since <= row.began < until:
            marks.append(ChangeMark(row.began, MODEL, f"{model_name(row.model, row.fingerprint)} answers"))
    drifts = select(quality_alerts).where(
        a.prompt == prompt, a.kind == DRIFT, a.began >= since, a.began < until
    )
    marks += [
        ChangeMark(row.began, DRIFT, row.text.removeprefix(f"{prompt}: "), bool(row.worse))
        for row in connection.execute(drifts)
    ]
    return sorted(marks, key=lambda mark: (mark.at, mark.kind))


def label_spans(connection: Connection, prompt: str, label: str) -> list[tuple[int, int | None]]:
    """On which version a label stood since when, in the order of time; None: on none. `latest` stands on each version from its
    making on. Empty for a label that never stood on this prompt."""
    if label == NEWEST:
        v = versions.c
        made = select(v.created, v.version).where(v.name == prompt).order_by(v.version)
        return [(row.created, row.version) for row in connection.execute(made)]
    m = label_moves.c
    query = select(m.at, m.new).where(m.name == prompt, m.label == label).order_by(m.number)
    return [(row.at, row.new) for row in connection.execute(query)]
