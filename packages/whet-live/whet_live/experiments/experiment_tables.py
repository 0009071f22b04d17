"""Tables of experiments: the definitions, and the shares of the traffic over time. Counts are folded from traffic."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text, text

from whet_live.database import Json, When, metadata
from whet_live.registry.registry_tables import LONGEST_ACTOR, LONGEST_LABEL, LONGEST_NAME

_RUNNING = text("state = 'running'")

experiments = Table(
    "experiments",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("prompt", String(LONGEST_NAME), ForeignKey("prompts.name"), nullable=False),
    Column("label", String(LONGEST_LABEL), nullable=False),
    Column("salt", String(32), nullable=False),
    Column("definition", Json, nullable=False),
    Column("state", String(20), nullable=False),
    Column("author", String(LONGEST_ACTOR), nullable=False),
    Column("message", Text, nullable=False),
    Column("created", When, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("label_move", BigInteger, nullable=False, server_default=text("0")),
    Column("ended", When),
    Column("winner", Integer),
    Column("reason", Text),
    Column("proposal", String(36)),
    Column("verdict", Json),
    Column("watch", String(36)),
    Column("watches", String(36)),
    Index(
        "uq_experiments_running",
        "prompt",
        "label",
        unique=True,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    ),
    Index(None, "prompt", "id"),
    Index(None, "state", "id"),
)
"""One row for each experiment; a label of a prompt has one running experiment at most. `start` is the number of the last
row of traffic before it, `label_move` that of the newest move of the label that it knows of, 0 for none. `watch` is the id
of the experiment that watches the label after the winner's move, `waiting` while that move waits for an approval;
`watches` is the id of the experiment that a watch follows."""

experiment_revisions = Table(
    "experiment_revisions",
    metadata,
    Column("experiment", String(36), ForeignKey("experiments.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at", When, nullable=False),
    Column("weights", Json, nullable=False),
    Column("reason", Text, nullable=False),
    Column("settled", Integer, nullable=False),
)
"""Shares of the arms from `at` on, in the order of the arms; 0 for an arm that was taken out."""
