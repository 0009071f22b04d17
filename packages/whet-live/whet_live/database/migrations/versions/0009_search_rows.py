"""The rows of traffic that a search rests on, so that their erasure reaches it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_search_rows"
down_revision = "0008_searches"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The column `rests_on` of `learner_searches`."""
    op.add_column("learner_searches", sa.Column("rests_on", sa.Text()))
