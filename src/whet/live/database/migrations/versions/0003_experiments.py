"""The tables of experiments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from whet.live.database.columns import Json

revision = "0003_experiments"
down_revision = "0002_traffic"
branch_labels = None
depends_on = None

_RUNNING = sa.text("state = 'running'")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("prompt", sa.String(length=255), nullable=False),
        sa.Column("label", sa.String(length=36), nullable=False),
        sa.Column("salt", sa.String(length=32), nullable=False),
        sa.Column("definition", Json(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger()),
        sa.Column("winner", sa.Integer()),
        sa.Column("reason", sa.Text()),
        sa.Column("proposal", sa.String(length=36)),
        sa.Column("verdict", Json()),
        sa.ForeignKeyConstraint(["prompt"], ["prompts.name"], name="fk_experiments_prompt"),
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
    )
    op.create_index(
        "uq_experiments_running",
        "experiments",
        ["prompt", "label"],
        unique=True,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    )
    op.create_index("ix_experiments_prompt_id", "experiments", ["prompt", "id"])
    op.create_index("ix_experiments_state_id", "experiments", ["state", "id"])
    op.create_table(
        "experiment_revisions",
        sa.Column("experiment", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("weights", Json(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("settled", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment"], ["experiments.id"], name="fk_experiment_revisions_experiment"
        ),
        sa.PrimaryKeyConstraint("experiment", "number", name="pk_experiment_revisions"),
    )
