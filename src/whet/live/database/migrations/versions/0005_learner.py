"""The tables of the learner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from whet.live.database.columns import Json, RowNumber

revision = "0005_learner"
down_revision = "0004_access"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _learner_head()
    _learner_heard()
    _learner_settings()
    _learner_verdicts()
    _leases()
    _lessons()


def _learner_head() -> None:
    op.create_table(
        "learner_head",
        sa.Column("one", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", RowNumber, nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("rules", sa.String(length=64), nullable=False),
        sa.CheckConstraint("one = 1", name="ck_learner_head_one"),
        sa.PrimaryKeyConstraint("one", name="pk_learner_head"),
    )


def _learner_heard() -> None:
    op.create_table(
        "learner_heard",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("state", Json(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_learner_heard"),
    )


def _learner_settings() -> None:
    op.create_table(
        "learner_settings",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("mode", sa.String(length=10), nullable=False),
        sa.Column("label", sa.String(length=36), nullable=False),
        sa.Column("region", sa.String(length=255)),
        sa.Column("policy", Json(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_learner_settings"),
    )


def _learner_verdicts() -> None:
    op.create_table(
        "learner_verdicts",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=220), nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "key", name="pk_learner_verdicts"),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=475), nullable=False),
        sa.Column("holder", sa.String(length=36), nullable=False),
        sa.Column("token", RowNumber, nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def _lessons() -> None:
    op.create_table(
        "lessons",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(length=10), nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("demands", Json(), nullable=False),
        sa.Column("flags", Json(), nullable=False),
        sa.Column("gate", Json()),
        sa.Column("proposal", sa.String(length=36)),
        sa.Column("version", sa.Integer()),
        sa.Column("experiment", sa.String(length=36)),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["name"], ["prompts.name"], name="fk_lessons_name"),
        sa.PrimaryKeyConstraint("id", name="pk_lessons"),
    )
    op.create_index("ix_lessons_name_at", "lessons", ["name", "at"])
    op.create_index("ix_lessons_proposal", "lessons", ["proposal"])
