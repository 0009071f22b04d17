"""The tables of access."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_access"
down_revision = "0003_experiments"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "access_users",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("app", sa.Boolean(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("disabled", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_access_users"),
    )
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.BigInteger()),
        sa.Column("revoked", sa.BigInteger()),
        sa.ForeignKeyConstraint(["user"], ["access_users.name"], name="fk_access_tokens_user"),
        sa.PrimaryKeyConstraint("id", name="pk_access_tokens"),
        sa.UniqueConstraint("digest", name="uq_access_tokens_digest"),
    )
    op.create_index("ix_access_tokens_user", "access_tokens", ["user"])
    op.create_table(
        "access_sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=36), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["token"], ["access_tokens.id"], name="fk_access_sessions_token"),
        sa.PrimaryKeyConstraint("digest", name="pk_access_sessions"),
    )
    op.create_index("ix_access_sessions_token", "access_sessions", ["token"])
    op.create_index("ix_access_sessions_expires", "access_sessions", ["expires"])
