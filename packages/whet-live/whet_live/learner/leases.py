"""Leases: one worker at a time, also when workers are killed or stall, and when the clocks of their machines differ."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection, select

from whet.errors import RunLocked, StorageError
from whet_live.database import Database, insert_into, new_id, time_of
from whet_live.learner.learner_tables import leases

SECONDS = 60.0
AGAIN_SECONDS = 1.0
"""The time between a failed renewal and the next try."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on `name`. Another one may take it when it was not renewed for a minute."""

    name: str
    token: int

    def check(self, connection: Connection) -> None:
        """Raise RunLocked when somebody else works on it by now; call it in the transaction that writes."""
        query = select(leases.c.token).where(leases.c.name == self.name).with_for_update()
        if connection.execute(query).scalar() != self.token:
            raise RunLocked(f"Another process took over {self.name}; nothing is written here.")


def acquire(database: Database, name: str, seconds: float = SECONDS) -> Lease | None:
    """The lease, or None while somebody else holds it."""
    holder = new_id()
    with database.begin() as connection:
        moment = time_of(connection)
        until = moment + int(seconds * 1e6)
        new = insert_into(connection, leases).values(name=name, holder=holder, token=1, until=until)
        taken = new.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={"holder": holder, "token": leases.c.token + 1, "until": until},
            where=leases.c.until < moment,
        ).returning(leases.c.token)
        token = connection.execute(taken).scalar()
    return None if token is None else Lease(name, token)


def renew(database: Database, lease: Lease, seconds: float = SECONDS) -> bool:
    """Hold it for longer; False when somebody else took it."""
    mine = leases.update().where(leases.c.name == lease.name, leases.c.token == lease.token)
    with database.begin() as connection:
        until = time_of(connection) + int(seconds * 1e6)
        return connection.execute(mine.values(until=until).returning(leases.c.token)).scalar() is not None


def release(database: Database, lease: Lease) -> None:
    """Give it back."""
    renew(database, lease, -1.0)


@contextmanager
def hold(database: Database, name: str) -> Iterator[Lease | None]:
    """The lease, renewed in the background for as long as the block runs; None while somebody else holds it. Where it cannot be
    given back, because the database is away, it ends by itself."""
    lease = acquire(database, name)
    if lease is None:
        yield None
        return
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(database, lease, done), name="whet-lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        done.set()
        keeper.join()
        with suppress(StorageError):
            release(database, lease)


def _keep(database: Database, lease: Lease, done: threading.Event) -> None:
    """Renew a lease until it is over or somebody else has it; a database that is away for a moment ends nothing."""
    pause = SECONDS / 3
    while not done.wait(pause):
        try:
            if not renew(database, lease):
                return
            pause = SECONDS / 3
        except StorageError:
            pause = min(AGAIN_SECONDS, SECONDS / 3)
