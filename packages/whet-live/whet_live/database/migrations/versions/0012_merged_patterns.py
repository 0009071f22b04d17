"""Patterns of failures that a person merged into another one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012_merged_patterns"
down_revision = "0011_playground"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The column `merged_into` of `learner_patterns`."""
    op.add_column(
        "learner_patterns", sa.Column("merged_into", sa.Integer(), nullable=False, server_default="0")
    )
