"""The index of words in PostgreSQL: of the text with blanks in the place of signs, so that it finds every word."""

from __future__ import annotations

from alembic import op

revision = "0015_words_between_signs"
down_revision = "0014_identities"
branch_labels = None
depends_on = None

_INDEX = r"""
CREATE INDEX feedback_words ON feedback USING gin (to_tsvector('simple',
  translate(text, '!"#$%&''()*+,-./\:;<=>?@[\]^_`{|}~', '                                ')))
"""


def upgrade() -> None:
    """The index `feedback_words` anew, in PostgreSQL only. SQLite's own takes signs for blanks."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.drop_index("feedback_words", "feedback")
    op.execute(_INDEX)
