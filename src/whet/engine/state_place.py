"""The place of a user's or a team's state: a folder of this machine, or a PostgreSQL database that several machines share.

State is what outlives run folders: the ledger of openings, the index of runs and, in a database, paid answers. The password of a
database leaves this module only towards its driver: no name, error or log has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote

from whet._util.variables import variable
from whet.errors import StorageError, UsageError

if TYPE_CHECKING:
    from psycopg import Connection

STATE = "WHET_STATE"
INSTALL = "pip install 'whet[postgres]'"
CONNECT_SECONDS = 10
"""The longest wait for a database, unless its address has a `connect_timeout`."""
LOCK_SECONDS = 15.0
"""The longest wait for the writers of other machines."""
_FORM = "Write a folder, or postgresql://USER:PASSWORD@HOST/DATABASE."
_SCHEMES = ("postgresql://", "postgres://")
_HIDDEN = "[password]"
_LOCK = 7_748_305_110
"""The number of the advisory lock that a writer of the state holds, also while it makes the tables."""
_FORMAT = 1
"""The format of the tables, which they hold themselves."""
_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS whet_state",
    "SET LOCAL search_path TO whet_state",
    "CREATE TABLE format(number INTEGER NOT NULL)",
    "INSERT INTO format VALUES (1)",
    "CREATE TABLE openings(run TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, number INTEGER NOT NULL, "
    "alpha DOUBLE PRECISION NOT NULL, seq BIGINT GENERATED ALWAYS AS IDENTITY)",
    "CREATE TABLE rows(hash TEXT NOT NULL, run TEXT NOT NULL, split TEXT NOT NULL, PRIMARY KEY (hash, run, split))",
    "CREATE TABLE members(family TEXT NOT NULL, run TEXT NOT NULL, opening TEXT NOT NULL, PRIMARY KEY (family, run))",
    "CREATE TABLE reserved(run TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, place TEXT NOT NULL)",
    "CREATE TABLE compared(run TEXT PRIMARY KEY, digest TEXT NOT NULL)",
    "CREATE TABLE policies(run TEXT PRIMARY KEY, policy TEXT NOT NULL)",
    "CREATE TABLE verdicts(run TEXT PRIMARY KEY, promoted INTEGER NOT NULL)",
    "CREATE TABLE answers(key TEXT PRIMARY KEY, value BYTEA NOT NULL, made DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE runs(id TEXT PRIMARY KEY, machine TEXT NOT NULL, began DOUBLE PRECISION NOT NULL, "
    "changed DOUBLE PRECISION NOT NULL, figures TEXT NOT NULL)",
)


@dataclass(frozen=True)
class StateDatabase:
    """A PostgreSQL database that holds the state of a team. `name`: its address as it may be shown."""

    address: str = field(repr=False)
    name: str

    def connect(self) -> Connection[Any]:
        """A connection in which each statement is a transaction of its own. Raises UsageError without the driver and for an
        address that it cannot read, StorageError where the database cannot be reached."""
        driver, settings = self._driver(), self.check()
        usual = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "whet",
            "tcp_user_timeout": 1000 * CONNECT_SECONDS,
            "target_session_attrs": "read-write",
        }
        with self.errors():
            connection = driver.connect(**{**usual, **settings}, autocommit=True, prepare_threshold=None)
        return cast("Connection[Any]", connection)

    def check(self) -> dict[str, Any]:
        """The parts of the address, by the driver's names. Raises UsageError without the driver and for an address that it
        cannot read."""
        driver = self._driver()
        try:
            return dict(driver.conninfo.conninfo_to_dict(self.address))
        except driver.Error:
            raise UsageError(f"{STATE} ({self.name}) cannot be read as an address. {_FORM}") from None

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """A transaction that writes, one at a time over all machines: committed and durable at the end of the block, undone when
        the block raises. Raises StorageError.

        The lock is taken before anything is read. Under `read committed` every statement after it sees what all earlier
        holders of the lock have committed, whatever isolation the server has as its default.
        """
        with self.errors(), self.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
            set_here = (
                "SELECT set_config('lock_timeout', %s, true), set_config('synchronous_commit', 'on', true)"
            )
            connection.execute(set_here, (f"{round(1000 * LOCK_SECONDS)}ms",))
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            self._enter(connection, make=True)
            yield connection

    def try_out(self) -> dict[str, Any]:
        """The findings of a connection that changes nothing: `version` of the server, whether it is `encrypted` or `local`, and
        the number of `openings`. Raises UsageError or StorageError where it could not be written."""
        with self.errors(), self.connect() as connection, connection.transaction(force_rollback=True):
            self._enter(connection, make=True)
            connection.execute("LOCK TABLE openings, rows, answers, runs IN ROW EXCLUSIVE MODE")
            openings = connection.execute("SELECT count(*) FROM openings").fetchone()
            host = connection.info.host
            return {
                "version": str(connection.info.parameter_status("server_version")),
                "encrypted": connection.pgconn.ssl_in_use,
                "local": not host or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1"),
                "openings": int(openings[0]) if openings else 0,
            }

    @contextmanager
    def reading(self) -> Iterator[Connection[Any] | None]:
        """A snapshot of one moment; None where nothing was ever written. Raises StorageError."""
        with self.errors(), self.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection if self._enter(connection, make=False) else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise failures of the database as StorageError, without its password."""
        driver = self._driver()
        try:
            yield
        except driver.errors.LockNotAvailable:
            raise StorageError(f"{self.name}: other writers have locked it for {LOCK_SECONDS:g} s") from None
        except driver.Error as error:
            # the chain of the driver's own errors may hold the address
            raise StorageError(f"{self.name}: {self.hide(_words(error))}") from None

    def hide(self, text: str) -> str:
        """A text without the password, as it stands in the address and as it is meant."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        """Every form of what is secret in the address."""
        users, _, rest = _parts(self.address)
        password = users.partition(":")[2]
        values = [value for key, value in parse_qsl(rest.partition("?")[2]) if "password" in key]
        return {form for one in (password, *values) for form in (one, unquote(one)) if form}

    def _enter(self, connection: Connection[Any], *, make: bool) -> bool:
        """Whether the tables are there, to be named without their schema from now on. Raises StorageError for those of a newer
        version."""
        name = connection.execute("SELECT to_regclass('whet_state.format')").fetchone()
        there = bool(name and name[0])
        if not there and not make:
            return False
        if there:
            connection.execute("SET LOCAL search_path TO whet_state")
            row = connection.execute("SELECT max(number) FROM format").fetchone()
            if row is None or row[0] != _FORMAT:
                raise StorageError(
                    f"{self.name}: its tables have format {row[0] if row else None}, and this version of whet reads format "
                    f"{_FORMAT}. Use the version that wrote them, or another database"
                )
            return True
        for statement in _TABLES:
            connection.execute(cast("Any", statement))
        return True

    def _driver(self) -> ModuleType:
        """psycopg. Raises UsageError where it is not installed."""
        try:
            import psycopg
            import psycopg.conninfo
        except ImportError as error:
            missing = find_spec("psycopg") is None
            why = (
                "the package psycopg, which is not installed" if missing else f"the package psycopg ({error})"
            )
            raise UsageError(
                f"{STATE} names a PostgreSQL database, which needs {why}. Install it: {INSTALL}"
            ) from None
        return psycopg


def state_place() -> Path | StateDatabase:
    """The value of `$WHET_STATE`, else `$XDG_STATE_HOME/whet`, else `~/.local/state/whet`.

    Raises UsageError for an address that is neither a folder nor a PostgreSQL database.
    """
    named = variable(STATE)
    if not named:
        base = os.environ.get("XDG_STATE_HOME")
        return (Path(base) if base else Path.home() / ".local" / "state") / "whet"
    if "://" not in named:
        return Path(named)
    if not named.lower().startswith(_SCHEMES):
        raise UsageError(
            f"{STATE} begins with {named.partition('://')[0][:40]}://, an unknown scheme. {_FORM}"
        )
    users, hosts, rest = _parts(named)
    if "@" in hosts + rest:
        raise UsageError(
            f"{STATE} has an @ that does not end the password. In a user name or password write %40 for @, %2F for / and %3F "
            "for ?."
        )
    user = users.partition(":")[0]
    shown = f"postgresql://{user + '@' if user else ''}{hosts}{rest.partition('?')[0]}"
    return StateDatabase(named, shown)


def is_shared() -> bool:
    """Whether somebody has said where state lies: others may use the same place."""
    return bool(variable(STATE))


def _parts(address: str) -> tuple[str, str, str]:
    """User and password, hosts, and what follows, of an address with a scheme."""
    place = address.partition("://")[2]
    at = next((at for at, letter in enumerate(place) if letter in "@/"), len(place))  # as libpq reads it
    users, rest = (place[:at], place[at + 1 :]) if place[at : at + 1] == "@" else ("", place)
    end = next((end for end, letter in enumerate(rest) if letter in "/?"), len(rest))
    return users, rest[:end], rest[end:]


def _words(error: BaseException) -> str:
    """The message of the driver in one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
