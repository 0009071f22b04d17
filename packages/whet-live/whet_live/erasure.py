"""Deletion of people's data, wherever it lies: traffic, what the learner quotes of it, and a line in the audit log.

What is deleted is deleted in the transaction that writes it down, so that the log never tells more or less than was done;
much of it goes in several such transactions, so that other writers need not wait.
The log says how much was deleted, by whom, and never whose it was.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection

from whet.errors import UsageError
from whet_live.database import Database, iso, mark_erased
from whet_live.experiments.experiment_store import open_ones
from whet_live.learner import learner_erasure
from whet_live.registry import audit
from whet_live.registry.names import check_actor
from whet_live.registry.provenance import replace_source
from whet_live.traffic import erase
from whet_live.traffic.adapters import fit_id
from whet_live.traffic.erase import Deletion, Erased, OwnedRows
from whet_live.traffic.write import take_turn

FORGET, EXPIRE = "traffic.forget", "traffic.expire"
SUBJECT = "traffic"
DAY = 86_400_000_000
"""A day in microseconds."""
_PAUSE = 0.05
"""Seconds between two transactions; writers of other processes look that often whether they may write."""
_PAGES = 500
"""Pages of the index of words that are merged in one step."""
_READERS_SECONDS = 2.0
"""The longest wait of an erasure for readers of the database, before the erasure leaves the write-ahead log to the server's
next attempt."""


def forget_user(database: Database, user: str, *, actor: str) -> Erased:
    """Delete every inference of a user, every feedback by that user and about those inferences, and what quotes them.

    The first transaction settles it: what quotes the rows goes, their ids are written down as erased, and up to a thousand rows
    are deleted: all of them, for most users. Others follow in transactions of their own, with pauses in which others write; no
    search finds them meanwhile. Each transaction has its line in the log, which says how many rows are `left` and
    names running experiments that counted some; there is a line also when there was nothing to delete. After a crash, the
    same call deletes what is left. What the user does after the first transaction stays, what others say about the rows until
    they are gone goes with them. Raises UsageError and StorageError.
    """
    check_actor(actor)
    if not user:
        raise UsageError("Name the user whose data is to be deleted.")
    user = fit_id(user, "user", [])
    with database.read() as connection:
        owned = erase.owned_by(connection, user)
    with audit.audited_transaction(database) as connection:
        take_turn(connection)
        owned += erase.owned_by(connection, user, owned.head)
        snapshot = learner_erasure.read_snapshot(connection)
        replace_source(connection, user, actor)
        quoted = learner_erasure.rows_of_user(snapshot, user)
        learner_erasure.erase_rows(connection, snapshot, owned.ids | quoted, owned.prompts, actor)
        erase.settle(connection, user, owned, quoted)
        total = _take(connection, owned, actor, first=True)
    while owned.left:
        time.sleep(_PAUSE)
        with audit.audited_transaction(database) as connection:
            total += _take(connection, owned, actor, first=False)
    _clear_files(database)
    return total


def _take(connection: Connection, owned: OwnedRows, actor: str, *, first: bool) -> Erased:
    part = erase.take(connection, owned, first=first)
    _erase_quotes(connection, part, actor)
    counted = sorted(part.experiments & {*open_ones(connection)})
    more: dict[str, object] = {"experiments": counted} if counted else {}
    more |= {"left": part.left} if part.left else {}
    _note(connection, actor, FORGET, part.count, **more)
    return part.count


def expire(database: Database, before: int, *, actor: str) -> Erased:
    """Delete what arrived before a time in microseconds by the database's clock, and what quotes it; versions stay. What the
    senders say about the time does not count.

    What is deleted is gone from the learner's tables and the files as after `forget_user`, and proposals that rest on it are
    withdrawn. What a running experiment counts is spared until it ends: its verdict would change otherwise. Each transaction
    has its line in the log. Raises UsageError and StorageError.
    """
    check_actor(actor)
    total, start, more = Erased(), 0, True
    while more:
        with audit.audited_transaction(database) as connection:
            part, start = erase.expire_batch(connection, before, start, open_ones(connection))
            total += part.count
            more = bool(part.count.inferences or part.count.feedback)
            if more:
                _erase_quotes(connection, part, actor)
                _note(connection, actor, EXPIRE, part.count, before=iso(before))
        if more:
            time.sleep(_PAUSE)
    _clear_files(database)
    return total


def retain(database: Database, days: int, *, actor: str) -> Erased:
    """Delete what arrived more than so many days ago; see `expire`."""
    return expire(database, database.read_time() - days * DAY, actor=actor)


def everything_is_older(database: Database, days: int) -> bool:
    """Whether there is traffic, and all of it arrived more than so many days ago."""
    with database.read() as connection:
        latest = erase.latest_arrival(connection)
    return latest is not None and latest < database.read_time() - days * DAY


def _erase_quotes(connection: Connection, part: Deletion, actor: str) -> None:
    if part.quoted:
        snapshot = learner_erasure.read_snapshot(connection)
        learner_erasure.erase_rows(connection, snapshot, part.quoted, part.prompts, actor)


def _note(connection: Connection, actor: str, action: str, count: Erased, **more: object) -> None:
    mark_erased(connection)
    details = {**more, "inferences": count.inferences, "feedback": count.feedback}
    audit.append_entry(connection, actor=actor, action=action, subject=SUBJECT, details=details)


def erased_completely(database: Database, seconds: float = 0.0) -> bool:
    """Whether SQLite's files hold no deleted word any more; what readers kept from being removed is removed now, if they are
    done within `seconds`. True for PostgreSQL, whose own maintenance overwrites deleted rows."""
    return database.clear_log(seconds)


def _clear_files(database: Database) -> None:
    """Take deleted words out of SQLite's files as well: out of the index of words, which keeps them until its parts are
    merged, and out of the write-ahead log, which holds older pages. Where readers take longer than some seconds, a server
    empties the log when they are done (`erased_completely`).

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
            mark_erased(connection)
        if done and pages > 0:
            break
        pages = _PAGES
    database.clear_log(_READERS_SECONDS)
