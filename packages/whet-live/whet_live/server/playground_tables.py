"""Table of the playground: what was run on which day, and what it cost."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text

from whet_client import LONGEST_NAME
from whet_live.database import When, metadata
from whet_live.registry.registry_tables import LONGEST_ACTOR

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
"""Runs by the id of the form that asked for them. `cost` in dollars is the most that a run may take until its end is known.
Inputs and answers are stored nowhere."""
