"""Tables of quality: how far each prompt was watched, the watches, the models that answered, alerts and their delivery."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, String, Table, Text

from whet_client.records import LONGEST_ID, LONGEST_NAME
from whet_live.database import Json, When, metadata

LONGEST_MEASURE = LONGEST_NAME + 10

quality_prompts = Table(
    "quality_prompts",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("looks", Json, nullable=False, server_default="[]"),
)
"""The traffic of a prompt that was watched: the looks as pairs of a time and the newest `seq` at that time. A look took the
rows before its time up to that number. The last look is the newest; the first is the newest whose answers were also looked at
after a day."""

quality_watches = Table(
    "quality_watches",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("measure", String(LONGEST_MEASURE), primary_key=True),
    Column("sample", Json, nullable=False),
    Column("state", Json, nullable=False),
)
"""The watch of one measure of a prompt. `sample` are the first values of an amount, among which later ones are ranked."""

quality_models = Table(
    "quality_models",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("model", String(LONGEST_ID), primary_key=True),
    Column("fingerprint", String(LONGEST_ID), primary_key=True),
    Column("began", When, primary_key=True, autoincrement=False),
    Column("last", When, nullable=False),
    Index(None, "prompt", "began"),
)
"""The times in which a model answered for a prompt; `fingerprint` is the provider's mark of the system behind the name, or
empty."""

quality_alerts = Table(
    "quality_alerts",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", String(10), nullable=False),
    Column("prompt", String(LONGEST_NAME), nullable=False),
    Column("measure", String(LONGEST_MEASURE), nullable=False),
    Column("worse", Integer, nullable=False),
    Column("began", When, nullable=False),
    Column("at", When, nullable=False),
    Column("text", Text, nullable=False),
    Column("details", Json, nullable=False),
    Index(None, "prompt", "began"),
    Index(None, "at"),
)
"""The alerts, and the proposals that wait for a person: `kind` is drift, model or approval, `began` the likeliest begin, `at`
the time at which the traffic showed it. `worse` is 1 for what is reported, 0 for what is only marked."""

quality_deliveries = Table(
    "quality_deliveries",
    metadata,
    Column("alert", String(36), ForeignKey("quality_alerts.id"), primary_key=True),
    Column("channel", String(40), primary_key=True),
    Column("state", String(10), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due", When, nullable=False),
    Column("error", Text),
    Index(None, "state", "due"),
)
"""The state of an alert on each channel: waiting, sent or failed."""
