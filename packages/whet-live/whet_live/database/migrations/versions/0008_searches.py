"""Searches of the learner, one a day for a prompt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008_searches"
down_revision = "0007_evaluators"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `learner_searches`."""
    op.create_table(
        "learner_searches",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("method", sa.String(255), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("proposal", sa.String(36)),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
