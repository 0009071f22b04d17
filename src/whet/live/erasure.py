"""Deletion of people's data, wherever it lies: traffic, what the learner quotes of it, and a line in the audit log.

What is deleted is deleted in the transaction that writes it down, so that the log never tells more or less than was done;
much of it goes in several such transactions, so that other writers need not wait.
The log says how much was deleted, by whom, and never whose it was.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection

from whet.errors import UsageError
from whet.live.database import Database, iso, now
from whet.live.experiments.experiment_store import open_ones
from whet.live.learner import learner_erasure
from whet.live.registry import audit
from whet.live.registry.names import check_actor
from whet.live.registry.provenance import replace_source
from whet.live.traffic import erase
from whet.live.traffic.erase import Deletion, Erased

FORGET, EXPIRE = "traffic.forget", "traffic.expire"
SUBJECT = "traffic"
DAY = 86_400_000_000
"""A day in microseconds."""
_PAGES = 500
"""Pages of the index of words that are merged in one step."""


def forget_user(database: Database, user: str, *, actor: str) -> Erased:
    """Delete every inference and all feedback of a user of the apps, and what quotes them.

    What quotes them goes in the first transaction, and so do up to a thousand rows: all of them, for most users. Others follow
    in transactions of their own, so that other writers need not wait; from the first one on, repeats of any row are dropped,
    no search finds it and no learner knows it. Proposals that rest on them are withdrawn and learned anew from the rest;
    versions stay, without the quotes. Each transaction has its line in the log, which says how many rows are `left` and
    names running experiments that counted some; there is a line also when there was nothing to delete. After a crash, the
    same call deletes what is left. Raises UsageError and StorageError.
    """
    check_actor(actor)
    if not user:
        raise UsageError("Name the user whose data is to be deleted.")

    def also(connection: Connection, part: Deletion) -> None:
        counted = sorted(part.experiments & {*open_ones(connection)})
        more: dict[str, Any] = {"experiments": counted} if counted else {}
        more |= {"left": part.left} if part.left else {}
        _note(connection, actor, FORGET, part.count, **more)

    gone = erase.forget_user(
        database,
        user,
        begin=partial(_change, database),
        erase_quotes=partial(_erase_quotes, actor, user),
        also=also,
    )
    _clear_files(database)
    return gone


def expire(database: Database, before: int, *, actor: str) -> Erased:
    """Delete what arrived before a time in microseconds by this server's clock, and what quotes it; versions stay.

    What is deleted is gone from the learner's tables and the files as after `forget_user`, and proposals that rest on it are
    withdrawn. What a running experiment counts is spared until it ends: its verdict would change otherwise. Each transaction
    has its line in the log. Raises UsageError and StorageError.
    """
    check_actor(actor)

    def also(connection: Connection, part: Deletion) -> None:
        _note(connection, actor, EXPIRE, part.count, before=iso(before))

    quotes = partial(_erase_quotes, actor, None)
    begin = partial(_change, database)
    gone = erase.expire(database, before, spare=open_ones, begin=begin, erase_quotes=quotes, also=also)
    _clear_files(database)
    return gone


def retain(database: Database, days: int, *, actor: str) -> Erased:
    """Delete what arrived more than so many days ago; see `expire`."""
    return expire(database, now() - days * DAY, actor=actor)


def _erase_quotes(
    actor: str,
    user: str | None,
    connection: Connection,
    ids: frozenset[str],
    prompts: frozenset[str],
    all_of_them: bool,
) -> Collection[str]:
    snapshot = learner_erasure.read_snapshot(connection)
    quoted = set[str]()
    if all_of_them and user is not None:
        replace_source(connection, user, actor)
        quoted = learner_erasure.rows_of_user(snapshot, user)
    learner_erasure.erase_rows(connection, snapshot, ids | quoted, prompts, actor)
    return quoted


@contextmanager
def _change(database: Database) -> Iterator[Connection]:
    with database.begin() as connection:
        audit.lock(connection)
        yield connection


def _note(connection: Connection, actor: str, action: str, count: Erased, **more: Any) -> None:
    details = {**more, "inferences": count.inferences, "feedback": count.feedback}
    audit.append(connection, actor=actor, action=action, subject=SUBJECT, details=details)


def _clear_files(database: Database) -> None:
    """Take deleted words out of SQLite's files as well: out of the index of words, which keeps them until its parts are
    merged, and out of the write-ahead log, which holds older pages; a reader in the way leaves that to the next checkpoint.

    The merge is one of many small steps, so that other writers need not wait (https://sqlite.org/fts5.html, section 6.8).
    """
    if database.dialect != "sqlite":
        return
    pages = -_PAGES
    while True:
        with database.begin() as connection:
            raw: Any = connection.connection.driver_connection
            before = raw.total_changes
            raw.execute("INSERT INTO feedback_words(feedback_words, rank) VALUES('merge', ?)", (pages,))
            done = raw.total_changes - before < 2
        if done and pages > 0:
            break
        pages = _PAGES
    with suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(str(database.url.database))) as raw:
        raw.execute("PRAGMA busy_timeout = 1000")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
