"""Tables for the quality of each prompt: the traffic that was watched, the alerts, and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_quality"
down_revision = "0004_otlp_spans"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The tables `quality_prompts`, `quality_watches`, `quality_models`, `quality_alerts` and `quality_deliveries`."""
    op.create_table(
        "quality_prompts",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "quality_watches",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("measure", sa.String(265), primary_key=True),
        sa.Column("sample", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
    )
    op.create_table(
        "quality_models",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("model", sa.String(200), primary_key=True),
        sa.Column("fingerprint", sa.String(200), primary_key=True),
        sa.Column("began", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_quality_models_prompt", "quality_models", ["prompt", "began"])
    op.create_table(
        "quality_alerts",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("prompt", sa.String(255), nullable=False),
        sa.Column("measure", sa.String(265), nullable=False),
        sa.Column("worse", sa.Integer(), nullable=False),
        sa.Column("began", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.UniqueConstraint("key", name="uq_quality_alerts_key"),
    )
    op.create_index("ix_quality_alerts_prompt", "quality_alerts", ["prompt", "began"])
    op.create_index("ix_quality_alerts_at", "quality_alerts", ["at"])
    op.create_table(
        "quality_deliveries",
        sa.Column("alert", sa.String(36), sa.ForeignKey("quality_alerts.id"), primary_key=True),
        sa.Column("channel", sa.String(40), primary_key=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text()),
    )
    op.create_index("ix_quality_deliveries_state", "quality_deliveries", ["state", "due"])
