"""The tables of traffic, and the index of the words of feedback."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from whet.live.database.columns import Json, RowNumber

revision = "0002_traffic"
down_revision = "0001_registry"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _inferences()
    _feedback()
    _counts()
    _erased()
    _head()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_POSTGRESQL_WORDS)
    else:
        for statement in _SQLITE_WORDS:
            op.execute(statement)


def _inferences() -> None:
    op.create_table(
        "inferences",
        sa.Column("seq", RowNumber, autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("prompt", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("inputs", Json(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("model", sa.String(length=200)),
        sa.Column("cost", sa.Double()),
        sa.Column("latency", sa.Double()),
        sa.Column("input_tokens", sa.Integer()),
        sa.Column("output_tokens", sa.Integer()),
        sa.Column("session", sa.String(length=200)),
        sa.Column("user", sa.String(length=200)),
        sa.Column("episode", sa.String(length=200)),
        sa.Column("experiment", sa.String(length=200)),
        sa.Column("variant", sa.String(length=200)),
        sa.Column("response", sa.String(length=200)),
        sa.Column("error", sa.Text()),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("metadata", Json()),
        sa.PrimaryKeyConstraint("seq", name="pk_inferences"),
        sa.UniqueConstraint("id", name="uq_inferences_id"),
    )
    op.create_index("ix_inferences_time_seq", "inferences", ["time", "seq"])
    op.create_index(
        "ix_inferences_prompt_time_seq_version", "inferences", ["prompt", "time", "seq", "version"]
    )
    _index_of_given("inferences", "user", "time", "seq")
    for name in ("session", "episode", "response", "experiment"):
        _index_of_given("inferences", name, "seq")


def _feedback() -> None:
    op.create_table(
        "feedback",
        sa.Column("seq", RowNumber, autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("target_kind", sa.String(length=10), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("about", sa.BigInteger()),
        sa.Column("joined", sa.BigInteger()),
        sa.Column("prompt", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255)),
        sa.Column("value", sa.Double()),
        sa.Column("label", sa.String(length=200)),
        sa.Column("text", sa.Text()),
        sa.Column("source", sa.String(length=10), nullable=False),
        sa.Column("user", sa.String(length=200)),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("metadata", Json()),
        sa.PrimaryKeyConstraint("seq", name="pk_feedback"),
        sa.UniqueConstraint("id", name="uq_feedback_id"),
    )
    op.create_index("ix_feedback_time_seq", "feedback", ["time", "seq"])
    op.create_index("ix_feedback_kind_time_seq", "feedback", ["kind", "time", "seq"])
    op.create_index("ix_feedback_prompt_time_seq_version", "feedback", ["prompt", "time", "seq", "version"])
    op.create_index(
        "ix_feedback_prompt_kind_time_seq_version", "feedback", ["prompt", "kind", "time", "seq", "version"]
    )
    _index_of_given("feedback", "user", "time", "seq", "prompt", "kind")
    _index_of_given("feedback", "about")
    _index_where("ix_feedback_waiting", "feedback", ["target"], "about IS NULL")
    _index_where("ix_feedback_late", "feedback", ["joined"], "joined > seq")


def _index_of_given(table: str, name: str, *names: str) -> None:
    columns = [name, *names]
    _index_where(f"ix_{table}_{'_'.join(columns)}", table, columns, f'"{name}" IS NOT NULL')


def _index_where(index: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(index, table, columns, sqlite_where=where, postgresql_where=where)


def _counts() -> None:
    op.create_table(
        "traffic_counts",
        sa.Column("prompt", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("squares", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("prompt", "version", "kind", name="pk_traffic_counts"),
    )


def _erased() -> None:
    op.create_table(
        "erased",
        sa.Column("seq", RowNumber, autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("what", sa.String(length=10), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_erased"),
    )
    op.create_index("ix_erased_id", "erased", ["id"])


def _head() -> None:
    head = op.create_table(
        "traffic_head",
        sa.Column("one", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("one = 1", name="ck_traffic_head_one"),
        sa.PrimaryKeyConstraint("one", name="pk_traffic_head"),
    )
    op.bulk_insert(head, [{"one": 1, "seq": 0}])


_POSTGRESQL_WORDS = "CREATE INDEX feedback_words ON feedback USING gin (to_tsvector('simple', text))"
"""Of all rows: PostgreSQL keeps no statistics of words that a query could use for a partial index."""

_SQLITE_WORDS = (
    """
    CREATE VIEW feedback_words_source AS
      SELECT seq, text, prompt, kind, strftime('%Y%m', time / 1000000, 'unixepoch') AS month FROM feedback
    """,
    """
    CREATE VIRTUAL TABLE feedback_words USING fts5(
      text, prompt, kind, month, content='feedback_words_source', content_rowid='seq',
      tokenize='unicode61 remove_diacritics 0')
    """,
    """
    CREATE TRIGGER feedback_words_added AFTER INSERT ON feedback WHEN new.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(rowid, text, prompt, kind, month) VALUES
        (new.seq, new.text, new.prompt, new.kind, strftime('%Y%m', new.time / 1000000, 'unixepoch'));
    END
    """,
    """
    CREATE TRIGGER feedback_words_removed AFTER DELETE ON feedback WHEN old.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(feedback_words, rowid, text, prompt, kind, month) VALUES
        ('delete', old.seq, old.text, old.prompt, old.kind, strftime('%Y%m', old.time / 1000000, 'unixepoch'));
    END
    """,
    """
    CREATE TRIGGER feedback_words_joined AFTER UPDATE OF prompt ON feedback WHEN old.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(feedback_words, rowid, text, prompt, kind, month) VALUES
        ('delete', old.seq, old.text, old.prompt, old.kind, strftime('%Y%m', old.time / 1000000, 'unixepoch'));
      INSERT INTO feedback_words(rowid, text, prompt, kind, month) VALUES
        (new.seq, new.text, new.prompt, new.kind, strftime('%Y%m', new.time / 1000000, 'unixepoch'));
    END
    """,
)
