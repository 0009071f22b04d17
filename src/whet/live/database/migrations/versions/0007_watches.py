"""The watch on guard-rails after a winner's label has moved: which experiment it is, and what it follows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007_watches"
down_revision = "0006_label_moves"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; an experiment that was started before is followed by no watch."""
    for name in ("watch", "watches"):
        op.add_column("experiments", sa.Column(name, sa.String(length=36)))
