"""The runs of the playground, and their cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_playground"
down_revision = "0010_failure_patterns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `playground_runs`."""
    op.create_table(
        "playground_runs",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("prompt", sa.String(255), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_playground_runs_day", "playground_runs", ["day"])
