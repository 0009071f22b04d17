"""Sign-in at an identity provider: who a user is there, which sign-ins are finished, and sessions without a token."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014_identities"
down_revision = "0013_quality_looks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The tables `access_identities` and `access_sign_ins`; sessions name their user, and need no token. Open ones go on."""
    op.create_table(
        "access_identities",
        sa.Column("user", sa.String(64), sa.ForeignKey("access_users.name"), primary_key=True),
        sa.Column("email", sa.String(254), nullable=False),
        sa.Column("issuer", sa.String(500)),
        sa.Column("subject", sa.String(255)),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("issuer", "subject", name="uq_access_identities_issuer_subject"),
    )
    op.create_index("ix_access_identities_email", "access_identities", ["email"])
    op.create_table(
        "access_sign_ins",
        sa.Column("state", sa.String(64), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_access_sign_ins_at", "access_sign_ins", ["at"])
    op.create_table(
        "access_sessions_new",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("user", sa.String(64), sa.ForeignKey("access_users.name"), nullable=False),
        sa.Column("token", sa.String(36), sa.ForeignKey("access_tokens.id")),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
    )
    op.execute(
        'INSERT INTO access_sessions_new (digest, "user", token, created, expires)'
        ' SELECT s.digest, t."user", s.token, s.created, s.expires'
        " FROM access_sessions s JOIN access_tokens t ON t.id = s.token"
    )
    op.drop_table("access_sessions")
    op.rename_table("access_sessions_new", "access_sessions")
    for column in ("user", "token", "expires"):
        op.create_index(f"ix_access_sessions_{column}", "access_sessions", [column])
