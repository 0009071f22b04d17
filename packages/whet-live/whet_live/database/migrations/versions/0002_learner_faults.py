"""The error that keeps learners from learning, so that every server can report it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_learner_faults"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `learner_faults`."""
    op.create_table(
        "learner_faults",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
