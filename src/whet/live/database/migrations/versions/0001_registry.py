"""The tables of the registry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from whet.live.database.columns import Json, RowNumber

revision = "0001_registry"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _audit()
    _audit_head()
    _prompts()
    _protections()
    _label_moves()
    _proposals()
    _versions()
    _labels()


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", RowNumber, autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    op.create_index("ix_audit_actor_seq", "audit", ["actor", "seq"])
    op.create_index("ix_audit_subject_seq", "audit", ["subject", "seq"])


def _audit_head() -> None:
    op.create_table(
        "audit_head",
        sa.Column("one", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", RowNumber, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("one = 1", name="ck_audit_head_one"),
        sa.PrimaryKeyConstraint("one", name="pk_audit_head"),
    )


def _prompts() -> None:
    op.create_table(
        "prompts",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("newest", sa.Integer(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("newest >= 1", name="ck_prompts_newest"),
        sa.PrimaryKeyConstraint("name", name="pk_prompts"),
    )


def _protections() -> None:
    op.create_table(
        "protections",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("label", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", name="pk_protections"),
    )


def _label_moves() -> None:
    op.create_table(
        "label_moves",
        sa.Column("number", RowNumber, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("label", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("old", sa.Integer()),
        sa.Column("new", sa.Integer()),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("proposal", sa.String(length=36)),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["name"], ["prompts.name"], name="fk_label_moves_name"),
        sa.PrimaryKeyConstraint("number", name="pk_label_moves"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_label_moves_name_label_number", "label_moves", ["name", "label", "number"])


def _proposals() -> None:
    op.create_table(
        "proposals",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(length=36)),
        sa.Column("target", sa.Integer()),
        sa.Column("messages", Json(), nullable=False),
        sa.Column("region", sa.String(length=255), nullable=False),
        sa.Column("events", Json(), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("evidence", Json()),
        sa.Column("gate", Json()),
        sa.Column("config", Json()),
        sa.Column("run", Json()),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("decided", sa.BigInteger()),
        sa.Column("decider", sa.String(length=200)),
        sa.Column("reason", sa.Text()),
        sa.Column("kept", Json()),
        sa.Column("version", sa.Integer()),
        sa.Column("successor", sa.String(length=36)),
        sa.ForeignKeyConstraint(["name"], ["prompts.name"], name="fk_proposals_name"),
        sa.PrimaryKeyConstraint("id", name="pk_proposals"),
    )
    op.create_index("ix_proposals_name_id", "proposals", ["name", "id"])
    op.create_index("ix_proposals_state_id", "proposals", ["state", "id"])


def _versions() -> None:
    op.create_table(
        "versions",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("prompt_id", sa.String(length=12), nullable=False),
        sa.Column("messages", Json(), nullable=False),
        sa.Column("ledger", Json(), nullable=False),
        sa.Column("config", Json(), nullable=False),
        sa.Column("parent", sa.Integer()),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("run", Json()),
        sa.Column("evidence", Json()),
        sa.Column("proposal", sa.String(length=36)),
        sa.ForeignKeyConstraint(["name"], ["prompts.name"], name="fk_versions_name"),
        sa.PrimaryKeyConstraint("name", "version", name="pk_versions"),
    )


def _labels() -> None:
    op.create_table(
        "labels",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("label", sa.String(length=36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["name", "version"], ["versions.name", "versions.version"], name="fk_labels_name_version"
        ),
        sa.PrimaryKeyConstraint("name", "label", name="pk_labels"),
    )
    op.create_index("ix_labels_label_name", "labels", ["label", "name"])
