"""Leases: one worker at a time, also when workers are killed or stall."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, select

from whet.errors import RunLocked
from whet_live.database import Database, insert_into, new_id, now
from whet_live.learner.learner_tables import leases

SECONDS = 60.0


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
    holder, moment = new_id(), now()
    until = moment + int(seconds * 1e6)
    with database.begin() as connection:
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
    longer = (
        leases.update()
        .where(leases.c.name == lease.name, leases.c.token == lease.token)
        .values(until=now() + int(seconds * 1e6))
        .returning(leases.c.token)
    )
    with database.begin() as connection:
        return connection.execute(longer).scalar() is not None


def release(database: Database, lease: Lease) -> None:
    """Give it back."""
    renew(database, lease, -1.0)


@contextmanager
def hold(database: Database, name: str) -> Iterator[Lease | None]:
    """The lease, renewed in the background for as long as the block runs; None while somebody else holds it."""
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
        release(database, lease)


def _keep(database: Database, lease: Lease, done: threading.Event) -> None:
    while not done.wait(SECONDS / 3):
        if not renew(database, lease):
            return
