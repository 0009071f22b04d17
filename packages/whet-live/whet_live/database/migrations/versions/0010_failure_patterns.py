"""Patterns of failures that the reader names, the critiques in them, and what naming them took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_failure_patterns"
down_revision = "0009_search_rows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The tables `learner_patterns`, `learner_pattern_rows` and `learner_pattern_days`."""
    op.create_table(
        "learner_patterns",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "learner_pattern_rows",
        sa.Column("row", sa.String(200), primary_key=True),
        sa.Column("prompt", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("answer", sa.String(200), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_learner_pattern_rows_prompt_number", "learner_pattern_rows", ["prompt", "number"])
    op.create_index("ix_learner_pattern_rows_answer", "learner_pattern_rows", ["answer"])
    op.create_table(
        "learner_pattern_days",
        sa.Column("prompt", sa.String(255), primary_key=True),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("newest", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
