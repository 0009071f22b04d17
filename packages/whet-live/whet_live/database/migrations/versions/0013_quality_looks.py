"""Looks at the quality of a prompt: also up to which row the traffic was known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013_quality_looks"
down_revision = "0012_merged_patterns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The column `looks` of `quality_prompts`, in place of `until` and `settled`. What is stored by now counts as looked at."""
    op.add_column("quality_prompts", sa.Column("looks", sa.Text(), nullable=False, server_default="[]"))
    op.execute(
        "UPDATE quality_prompts SET looks = (SELECT '[[' || settled || ',' || seq || '],[' || until || ',' || seq || ']]'"
        " FROM traffic_head)"
    )
    op.drop_column("quality_prompts", "until")
    op.drop_column("quality_prompts", "settled")
