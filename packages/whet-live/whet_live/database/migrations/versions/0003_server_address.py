"""The address of the server, so that other programs on this database can print it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_server_address"
down_revision = "0002_learner_faults"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `server_address`."""
    op.create_table(
        "server_address",
        sa.Column("one", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("url", sa.String(500), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("one = 1", name="one"),
    )
