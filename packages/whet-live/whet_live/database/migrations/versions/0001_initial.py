"""The tables that later migrations start from. A new database gets the tables of now instead (`whet_live.database.engine`)."""

from __future__ import annotations

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: a database has its first tables before it has a revision."""
