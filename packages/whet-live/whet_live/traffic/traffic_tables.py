"""Tables of traffic: inferences, feedback, counts of both, what was erased, and the number that orders them all.

Every row of `inferences`, `feedback` and `erased` takes its `seq` from one counter, inside the transaction that
writes it and behind a lock on `traffic_head`, so that whoever reads rows in the order of `seq` never misses one that
was committed later.
"""

from __future__ import annotations

import string

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    event,
    text,
)

from whet_client.records import LONGEST_ID, LONGEST_LABEL, LONGEST_NAME
from whet_live.database import Json, RowNumber, When, metadata

LONGEST_SENDER = 64
_ABOUT_NOTHING = text("about IS NULL")
_LATE = text("joined > seq")


def _partial_index(name: str, *names: str) -> Index:
    """An index of the rows that have `name` at all."""
    condition = text(f'"{name}" IS NOT NULL')
    return Index(None, name, *names, sqlite_where=condition, postgresql_where=condition)


inferences = Table(
    "inferences",
    metadata,
    Column("seq", RowNumber, primary_key=True, autoincrement=False),
    Column("id", String(LONGEST_ID), nullable=False, unique=True),
    Column("digest", LargeBinary(16), nullable=False),
    Column("prompt", String(LONGEST_NAME), nullable=False),
    Column("version", Integer, nullable=False),
    Column("inputs", Json, nullable=False),
    Column("output", Text, nullable=False),
    Column("model", String(LONGEST_ID)),
    Column("cost", Double),
    Column("latency", Double),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("session", String(LONGEST_ID)),
    Column("user", String(LONGEST_ID)),
    Column("episode", String(LONGEST_ID)),
    Column("experiment", String(LONGEST_ID)),
    Column("variant", String(LONGEST_ID)),
    Column("response", String(LONGEST_ID)),
    Column("error", Text),
    Column("time", When, nullable=False),
    Column("received", When, nullable=False),
    Column("metadata", Json),
    Column("sender", String(LONGEST_SENDER)),
    Column("size", Integer, nullable=False, server_default="0"),
    Index(None, "time", "seq"),
    Index(None, "received", "seq"),
    Index(None, "prompt", "time", "seq", "version"),
    _partial_index("user", "time", "seq"),
    _partial_index("session", "seq"),
    _partial_index("episode", "seq"),
    _partial_index("response", "seq"),
    _partial_index("experiment", "seq"),
)
"""Answers in production. `cost` in dollars, `latency` in seconds. `sender` is who sent the row, NULL for an import, and `size`
what it counts for in `traffic_senders`."""

feedback = Table(
    "feedback",
    metadata,
    Column("seq", RowNumber, primary_key=True, autoincrement=False),
    Column("id", String(LONGEST_ID), nullable=False, unique=True),
    Column("digest", LargeBinary(16), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("target_kind", String(10), nullable=False),
    Column("target", String(LONGEST_ID), nullable=False),
    Column("about", BigInteger),
    Column("joined", BigInteger),
    Column("prompt", String(LONGEST_NAME), nullable=False),
    Column("version", Integer, nullable=False),
    Column("name", String(LONGEST_NAME)),
    Column("value", Double),
    Column("label", String(LONGEST_LABEL)),
    Column("text", Text),
    Column("source", String(10), nullable=False),
    Column("user", String(LONGEST_ID)),
    Column("time", When, nullable=False),
    Column("received", When, nullable=False),
    Column("metadata", Json),
    Column("sender", String(LONGEST_SENDER)),
    Column("scope", Json),
    Column("size", Integer, nullable=False, server_default="0"),
    Index(None, "time", "seq"),
    Index(None, "received", "seq"),
    Index(None, "kind", "time", "seq"),
    Index(None, "prompt", "time", "seq", "version"),
    Index(None, "prompt", "kind", "time", "seq", "version"),
    _partial_index("user", "time", "seq", "prompt", "kind"),
    _partial_index("about"),
    Index("ix_feedback_waiting", "target", sqlite_where=_ABOUT_NOTHING, postgresql_where=_ABOUT_NOTHING),
    Index("ix_feedback_late", "joined", sqlite_where=_LATE, postgresql_where=_LATE),
)
"""Feedback. `about` is the `seq` of the inference that it was joined to (NULL while that is unknown), and
`joined` the number of the joining: the row's own `seq` when the inference was there, a later one when it came later.
`prompt` and `version` are those of that inference, empty and 0 while it is unknown. `sender` and `size` as above; `scope` are the
prompts about which the sender may speak, NULL for all: it is joined to inferences of no other prompt.
"""

otlp_spans = Table(
    "otlp_spans",
    metadata,
    Column("trace", String(32), primary_key=True),
    Column("span", String(16), primary_key=True),
    Column("parent", String(16), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("response", String(LONGEST_ID)),
    Column("own", String(LONGEST_ID)),
    Column("inference", String(LONGEST_ID)),
    Column("cost", Double),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("digest", LargeBinary(16)),
    Column("sender", String(LONGEST_SENDER)),
    Column("scope", Json),
    Column("received", When, nullable=False),
    Index(None, "trace", "parent"),
    Index(None, "span"),
    _partial_index("own"),
    _partial_index("inference"),
    _partial_index("response", "trace"),
    Index(None, "received"),
)
"""The places of OpenTelemetry spans: `own` is the id of the answer that a span is by itself, `inference` that of the stored
answer that it counts with, by which feedback about any span of a call finds it. `digest` is that of the answer that was stored
under `own` before it became one with another. Spans that are no answers are kept for an hour, in which feedback about them
counts for their traces."""

traffic_senders = Table(
    "traffic_senders",
    metadata,
    Column("name", String(LONGEST_SENDER), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)
"""The stored bytes of each sender's rows."""

traffic_counts = Table(
    "traffic_counts",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(20), primary_key=True),
    Column("n", BigInteger, nullable=False),
    Column("total", Double, nullable=False),
    Column("squares", Double, nullable=False),
)
"""Number, sum and sum of squares for each prompt, version and kind of feedback, and for `inference`, `cost`,
`latency` and `error`. Feedback that waits for its inference is counted under the empty prompt, version 0."""

erased = Table(
    "erased",
    metadata,
    Column("seq", RowNumber, primary_key=True, autoincrement=False),
    Column("id", String(LONGEST_ID), nullable=False),
    Column("what", String(10), nullable=False),
    Index(None, "id"),
)
"""Ids of what was deleted for somebody: a sender that repeats it does not bring it back, and a learner hears of it."""

traffic_head = Table(
    "traffic_head",
    metadata,
    Column("one", SmallInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    CheckConstraint("one = 1", name="one"),
)
"""The newest `seq`: the row that every writer of traffic locks first."""


def _after_create(table: Table, statement: str, dialect: str | None = None) -> None:
    """Run a statement when the table is created, in one dialect or in all."""
    ddl: DDL = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", ddl.execute_if(dialect=dialect))


_after_create(traffic_head, "INSERT INTO traffic_head (one, seq) VALUES (1, 0)")

SIGNS = string.punctuation
PLAIN_TEXT = f"""translate(text, '{SIGNS.replace("'", "''")}', '{" " * len(SIGNS)}')"""
"""The text of a row with blanks in the place of signs, as SQL: PostgreSQL takes `wrong.Please` for a host and `and/or` for a
path, and finds no word in them."""

_after_create(
    feedback,
    r"""
    CREATE INDEX feedback_words ON feedback USING gin (to_tsvector('simple',
      translate(text, '!"#$%%&''()*+,-./:;<=>?@[\]^_`{|}~', '                                ')))
    """,
    "postgresql",
)  # of all rows: PostgreSQL keeps no statistics of words that a query could use for a partial index

_SQLITE_WORDS = (
    """
    CREATE VIEW feedback_words_source AS
      SELECT seq, text, prompt, kind, strftime('%%Y%%m', time / 1000000, 'unixepoch') AS month FROM feedback
    """,
    """
    CREATE VIRTUAL TABLE feedback_words USING fts5(
      text, prompt, kind, month, content='feedback_words_source', content_rowid='seq',
      tokenize='unicode61 remove_diacritics 0')
    """,
    """
    CREATE TRIGGER feedback_words_added AFTER INSERT ON feedback WHEN new.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(rowid, text, prompt, kind, month) VALUES
        (new.seq, new.text, new.prompt, new.kind, strftime('%%Y%%m', new.time / 1000000, 'unixepoch'));
    END
    """,
    """
    CREATE TRIGGER feedback_words_removed AFTER DELETE ON feedback WHEN old.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(feedback_words, rowid, text, prompt, kind, month) VALUES
        ('delete', old.seq, old.text, old.prompt, old.kind, strftime('%%Y%%m', old.time / 1000000, 'unixepoch'));
    END
    """,
    """
    CREATE TRIGGER feedback_words_joined AFTER UPDATE OF prompt ON feedback WHEN old.text IS NOT NULL BEGIN
      INSERT INTO feedback_words(feedback_words, rowid, text, prompt, kind, month) VALUES
        ('delete', old.seq, old.text, old.prompt, old.kind, strftime('%%Y%%m', old.time / 1000000, 'unixepoch'));
      INSERT INTO feedback_words(rowid, text, prompt, kind, month) VALUES
        (new.seq, new.text, new.prompt, new.kind, strftime('%%Y%%m', new.time / 1000000, 'unixepoch'));
    END
    """,
)
"""The index of the words of feedback: an FTS5 table in SQLite."""

for _statement in _SQLITE_WORDS:
    _after_create(feedback, _statement, "sqlite")
