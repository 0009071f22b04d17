"""Which move of its label an experiment knows of: a later one ends it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_label_moves"
down_revision = "0005_learner"
branch_labels = None
depends_on = None

_KNOWN = sa.text(
    "UPDATE experiments SET label_move = COALESCE((SELECT MAX(number) FROM label_moves "
    "WHERE label_moves.name = experiments.prompt AND label_moves.label = experiments.label), 0)"
)


def upgrade() -> None:
    """Add the column; what runs now knows of every move so far."""
    op.add_column(
        "experiments", sa.Column("label_move", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )
    op.execute(_KNOWN)
