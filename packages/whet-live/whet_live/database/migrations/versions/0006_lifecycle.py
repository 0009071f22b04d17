"""The data that the reader of a prompt may see, the terms on which instructions stand, and updates of upkeep."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_lifecycle"
down_revision = "0005_quality"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The column `reads` of the settings, the column `plan` of updates, and the table `instruction_terms`."""
    op.add_column(
        "learner_settings", sa.Column("reads", sa.String(20), nullable=False, server_default="comment")
    )
    op.add_column("learner_updates", sa.Column("plan", sa.Text()))
    op.create_table(
        "instruction_terms",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("region", sa.String(255), primary_key=True),
        sa.Column("instruction", sa.String(36), primary_key=True),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("locked", sa.Integer(), nullable=False),
        sa.Column("first_day", sa.String(10), nullable=False),
        sa.Column("last_day", sa.String(10), nullable=False),
        sa.Column("review", sa.String(10), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
