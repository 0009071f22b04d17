"""Tables of the registry: prompts, versions, labels with every move, protections, proposals, the audit log."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from whet_live.database import Json, RowNumber, When, metadata

LONGEST_NAME, LONGEST_LABEL, LONGEST_ACTOR = 255, 36, 200

prompts = Table(
    "prompts",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("newest", Integer, nullable=False),
    Column("created", When, nullable=False),
    Column("changed", When, nullable=False),
    CheckConstraint("newest >= 1", name="newest"),
)
"""One row for each prompt; `newest` is the number of its newest version."""

versions = Table(
    "versions",
    metadata,
    Column("name", String(LONGEST_NAME), ForeignKey("prompts.name"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("prompt_id", String(12), nullable=False),
    Column("messages", Json, nullable=False),
    Column("ledger", Json, nullable=False),
    Column("config", Json, nullable=False),
    Column("parent", Integer),
    Column("author", String(LONGEST_ACTOR), nullable=False),
    Column("message", Text, nullable=False),
    Column("created", When, nullable=False),
    Column("run", Json),
    Column("evidence", Json),
    Column("proposal", String(36)),
    Column("provenance", Json),
)
"""Versions never change. `messages` is [[role, content], ...], `ledger` the events of each region, `provenance` the names of
those who shaped it, by role."""

labels = Table(
    "labels",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("label", String(LONGEST_LABEL), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("changed", When, nullable=False),
    ForeignKeyConstraint(["name", "version"], ["versions.name", "versions.version"]),
    Index(None, "label", "name"),
)
"""The present version of each label."""

label_moves = Table(
    "label_moves",
    metadata,
    Column("number", RowNumber, primary_key=True),
    Column("name", String(LONGEST_NAME), ForeignKey("prompts.name"), nullable=False),
    Column("label", String(LONGEST_LABEL), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("old", Integer),
    Column("new", Integer),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("reason", Text, nullable=False),
    Column("proposal", String(36)),
    Column("at", When, nullable=False),
    Index(None, "name", "label", "number"),
    sqlite_autoincrement=True,
)
"""Every move of a label: `kind` is move, rollback or remove; `old` and `new` are versions, NULL for none."""

protections = Table(
    "protections",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("label", String(LONGEST_LABEL), primary_key=True),
)
"""Labels that move only by approval; the name `*` stands for every prompt."""

proposals = Table(
    "proposals",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(LONGEST_NAME), ForeignKey("prompts.name"), nullable=False),
    Column("state", String(10), nullable=False),
    Column("base", Integer, nullable=False),
    Column("label", String(LONGEST_LABEL)),
    Column("target", Integer),
    Column("messages", Json, nullable=False),
    Column("region", String(LONGEST_NAME), nullable=False),
    Column("events", Json, nullable=False),
    Column("author", String(LONGEST_ACTOR), nullable=False),
    Column("message", Text, nullable=False),
    Column("evidence", Json),
    Column("gate", Json),
    Column("config", Json),
    Column("run", Json),
    Column("created", When, nullable=False),
    Column("decided", When),
    Column("decider", String(LONGEST_ACTOR)),
    Column("reason", Text),
    Column("kept", Json),
    Column("version", Integer),
    Column("successor", String(36)),
    Column("provenance", Json),
    Index(None, "state", "id"),
    Index(None, "name", "id"),
)
"""The proposals that wait for a decision, and those that were decided. `target` is the version of a request to move a label
only."""

audit = Table(
    "audit",
    metadata,
    Column("seq", RowNumber, primary_key=True, autoincrement=False),
    Column("at", When, nullable=False),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index(None, "subject", "seq"),
    Index(None, "actor", "seq"),
)
"""The audit log; `hash` covers every other column, `previous` is the hash of the row before."""

audit_head = Table(
    "audit_head",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("seq", RowNumber, nullable=False),
    Column("hash", String(64), nullable=False),
    CheckConstraint("one = 1", name="one"),
)
"""The end of the audit log: the row that every writer of the log locks first."""

playground_runs = Table(
    "playground_runs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("day", String(10), nullable=False),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("prompt", String(LONGEST_NAME), nullable=False),
    Column("model", Text, nullable=False),
    Column("answers", Integer, nullable=False),
    Column("cost", Double, nullable=False),
    Column("at", When, nullable=False),
    Index(None, "day"),
)
"""The runs of the playground, by the id of the form that requested them. `cost` in dollars is the most that a run may take
until its end is known. Inputs and answers are stored nowhere."""
