"""What is read in feedback: requirements and readings of rows; the rule `span` and the wording `vouched` go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

from whet.live.database.columns import Json

revision = "0008_readings"
down_revision = "0007_watches"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and take out of settings and lessons what is no more."""
    op.create_table(
        "learner_requirements",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("contradicts", Json(), nullable=False),
        sa.Column("origin", Json(), nullable=False),
        sa.Column("instruction", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "number", name="pk_learner_requirements"),
    )
    op.create_table(
        "learner_readings",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("row", sa.String(length=200), nullable=False),
        sa.Column("requirements", Json(), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=False),
        sa.Column("confirmed", Json(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", "row", name="pk_learner_readings"),
    )
    _change("learner_settings", "name", "policy", _without_span)
    _change("lessons", "id", "demands", _without_vouched)


def _change(table: str, key: str, column: str, change: Callable[[Any], Any]) -> None:
    rows = sa.table(table, sa.column(key), sa.column(column, Json()))
    connection = op.get_bind()
    for row in connection.execute(sa.select(rows)).all():
        value = change(getattr(row, column))
        here = rows.c[key] == getattr(row, key)
        connection.execute(rows.update().where(here).values({column: value}))


def _without_span(policy: Any) -> Any:
    return {key: value for key, value in policy.items() if key != "span"}


def _without_vouched(demands: Any) -> Any:
    return [{key: value for key, value in one.items() if key != "vouched"} for one in demands]
