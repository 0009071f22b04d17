"""A table of the places of OpenTelemetry spans, so that a call whose spans come in several requests is one answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_otlp_spans"
down_revision = "0003_server_address"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table `otlp_spans`."""
    op.create_table(
        "otlp_spans",
        sa.Column("trace", sa.String(32), primary_key=True),
        sa.Column("span", sa.String(16), primary_key=True),
        sa.Column("parent", sa.String(16), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("response", sa.String(200)),
        sa.Column("own", sa.String(200)),
        sa.Column("inference", sa.String(200)),
        sa.Column("cost", sa.Double()),
        sa.Column("input_tokens", sa.Integer()),
        sa.Column("output_tokens", sa.Integer()),
        sa.Column("digest", sa.LargeBinary(16)),
        sa.Column("sender", sa.String(64)),
        sa.Column("scope", sa.Text()),
        sa.Column("received", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_otlp_spans_trace", "otlp_spans", ["trace", "parent"])
    for name, columns in {
        "own": ["own"],
        "inference": ["inference"],
        "response": ["response", "trace"],
    }.items():
        there = sa.text(f'"{name}" IS NOT NULL')
        op.create_index(
            f"ix_otlp_spans_{name}", "otlp_spans", columns, sqlite_where=there, postgresql_where=there
        )
    for name in ("span", "received"):
        op.create_index(f"ix_otlp_spans_{name}", "otlp_spans", [name])
