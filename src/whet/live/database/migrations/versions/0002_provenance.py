"""Who shaped a version or a proposal."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0002_provenance"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of each; rows from before are of their author."""
    for table in ("versions", "proposals"):
        op.add_column(table, Column("provenance", Text))
