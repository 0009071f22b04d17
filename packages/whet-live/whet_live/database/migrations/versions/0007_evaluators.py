"""The work of the evaluators of live answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007_evaluators"
down_revision = "0006_lifecycle"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `learner_evaluators`."""
    op.create_table(
        "learner_evaluators",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("evaluator", sa.String(255), primary_key=True),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("low", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
