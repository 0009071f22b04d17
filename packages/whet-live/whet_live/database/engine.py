"""Opening the database, and the two ways to use it: a transaction that writes, a snapshot that is read.

It is brought up to date in one transaction, by one process at a time. A new database gets every table as its module declares
it. An older one gets the migrations that it lacks: files NNNN_name.py in `migrations/versions`, whose revision is the file's
name, in a linear chain.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shutil import disk_usage
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, inspect, make_url, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
)

from whet._util.sqlite import keep_log
from whet._util.variables import variable
from whet.errors import StorageError, UsageError
from whet_client.ids import now
from whet_live.database.columns import metadata, probe

URL_VARIABLE = "WHET_DATABASE_URL"
DEFAULT_URL = "sqlite:///whet.db"

TABLES = (
    "whet_live.database.access_tables",
    "whet_live.registry.registry_tables",
    "whet_live.traffic.traffic_tables",
    "whet_live.experiments.experiment_tables",
    "whet_live.learner.learner_tables",
    "whet_live.quality.quality_tables",
)
"""The modules that declare tables."""
FOLDER = Path(__file__).parent / "migrations"
_LOCK = 7_748_305_109
"""The number of the PostgreSQL advisory lock that a migrating process holds."""
_WAIT_SECONDS = 30
_LEAST_FREE = 4 * 1024**2
_BEGIN = "whet_begin"
_CLOCK = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")
_ERASED = 1
"""SQLite's `user_version` while the write-ahead log may still hold words that were deleted."""


class Database:
    """A database with its tables in place. Threads may share it; a process that forks opens its own. `made`: the SQLite file that
    was not there before."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self._turn = threading.Lock()
        self._owner = 0
        path = Path(str(url.database)) if self.dialect == "sqlite" else None
        self.made = None if path is None or path.exists() else path.absolute()
        self._file = None if path is None else _identity(_make_private(path))
        try:
            self._engine = _engine(url)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"A PostgreSQL database needs {error.name}. Install it with: pip install 'whet[postgres]'"
            ) from error
        self._writer = self._engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        reading: dict[str, object] = {_BEGIN: "BEGIN"}
        if self.dialect == "postgresql":
            reading |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self._engine.execution_options(**reading)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.url.get_backend_name()

    @property
    def name(self) -> str:
        """The address as it may be shown: without the password."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that writes: committed and durable at the end of the block, undone when the block raises.

        Keep it short. In SQLite the block is alone with its writes from the first line on; in PostgreSQL others write
        meanwhile (read committed), so lock what you read before you write (`with_for_update`). It cannot be
        nested. Raises StorageError when the database cannot be reached, is full, or stays locked for 30 seconds, and when
        the file of an SQLite database was removed or replaced meanwhile: what is written into it then is lost.
        """
        with self._storage_errors(), self._alone(), self._writer.begin() as connection:
            if self._file is not None and _identity(Path(str(self.url.database))) != self._file:
                raise StorageError(
                    f"The file of the database {self.name} was removed or replaced. Put it back, or restart with the new one."
                )
            yield connection

    def check_writable(self) -> None:
        """Write something durably. Raises StorageError where that fails, and where the disk of an SQLite file is as good as full:
        the log may have room for a row that is not on the disk yet."""
        with self.begin() as connection:
            connection.execute(update(probe).where(probe.c.one == 1).values(count=probe.c.count + 1))
            if self._file is not None and disk_usage(Path(str(self.url.database)).parent).free < _LEAST_FREE:
                raise StorageError(f"The disk of the database {self.name} is full.")

    def clear_log(self, seconds: float) -> bool:
        """Empty the write-ahead log if it may hold deleted words. It waits at most `seconds` for readers, who need its older
        pages. Whether no deleted word is left in it; True where there is no such log."""
        if self.dialect != "sqlite":
            return True
        with contextlib.closing(
            sqlite3.connect(str(self.url.database), seconds, isolation_level=None)
        ) as raw:
            try:
                if raw.execute("PRAGMA user_version").fetchone()[0] != _ERASED:
                    return True
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    raw.execute("PRAGMA user_version = 0")
                return not busy
            except sqlite3.OperationalError:
                return False

    def back_up(self, path: Path) -> None:
        """Copy an SQLite database to a new file while it is in use; the copy holds every row committed before the call. Folders
        that the path lacks are made.

        Raises UsageError for PostgreSQL and for a file that exists, StorageError when the copy cannot be written.
        """
        if self.dialect != "sqlite":
            raise UsageError("This makes copies of SQLite files. Back a PostgreSQL database up with pg_dump.")
        if path.exists():
            raise UsageError(f"{path} exists. Name a new file.")
        part = path.with_name(path.name + ".part")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            _make_private(part)
            with (
                contextlib.closing(sqlite3.connect(str(self.url.database))) as source,
                contextlib.closing(sqlite3.connect(str(part))) as target,
            ):
                source.backup(target)
            os.replace(part, path)
        except (sqlite3.Error, OSError) as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise StorageError(f"{path}: the copy could not be written ({error}).") from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot: what is read in the block is of one moment, whatever others write. Raises StorageError."""
        with self._storage_errors(), self._reader.connect() as connection:
            yield connection

    def read_time(self) -> int:
        """The time in microseconds by the clock of `time_of`. Raises StorageError."""
        if self.dialect != "postgresql":
            return now()
        with self.read() as connection:
            return time_of(connection)

    def close(self) -> None:
        """Close every connection; one that a thread still uses is closed when the thread gives it back."""
        event.listen(self._engine, "checkin", _close)
        self._engine.dispose()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Writers of this process queue up here, in SQLite: its own waiting is polling."""
        if self.dialect != "sqlite":
            yield
            return
        if self._owner == threading.get_ident():
            raise RuntimeError("Database.begin() inside Database.begin(): pass the connection on instead.")
        with self._turn:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = 0

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Raise failures of the database as StorageError."""
        try:
            yield
        except DBAPIError as error:
            unusable = isinstance(error, OperationalError | InterfaceError | InternalError)
            if not unusable and type(error) is not DatabaseError:
                raise
            reason = " ".join(str(error.orig).split()).rstrip(".")
            if "locked" in reason:
                reason += f"; another process has been writing for more than {_WAIT_SECONDS} seconds"
            raise StorageError(f"The database {self.name} cannot be used: {reason}.") from error


def open_database(url: str | None = None, *, make: bool = True) -> Database:
    """Open a database and bring its tables up to date; any number of processes may do so at once.

    `url` is `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`, by default the environment variable
    WHET_DATABASE_URL, else `sqlite:///whet.db` in the working folder. A new SQLite file is readable by its owner only;
    with `make=False` no file is made. Raises UsageError for an address that cannot be used, for a file that is not there and
    must not be made, and for tables of another version, StorageError when the database cannot be reached.
    """
    address = url if url is not None else variable(URL_VARIABLE) or DEFAULT_URL
    place = _parse_address(address)
    if not make and place.get_backend_name() == "sqlite" and not Path(str(place.database)).exists():
        raise UsageError(
            f"There is no database {Path(str(place.database)).absolute()}. Name the one that you mean: --database "
            f"sqlite:///FILE, or {URL_VARIABLE}."
        )
    database = Database(place)
    try:
        with database._storage_errors():
            _migrate(database._engine, database._writer, database.name)
    except BaseException:
        database.close()
        raise
    return database


def revisions() -> list[str]:
    """The revisions that this version knows, oldest first."""
    return sorted(path.stem for path in (FOLDER / "versions").glob("[0-9]*.py"))


def _migrate(reader: Engine, writer: Engine, name: str) -> None:
    """Apply what is missing. Raises UsageError when the database (`name`) is of another version."""
    known = revisions()
    with reader.connect() as connection:
        current = _current(connection)
    if current == known[-1]:
        return
    with writer.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
        current = _current(connection)
        if current is not None and current not in known:
            raise UsageError(
                f"The database {name} was written before whet 0.1 or by a newer version (its tables are {current}, this one "
                f"knows {known[-1]}). Use the version that wrote it, or export the prompts with it (whet prompts export) and "
                "import them into a new database (whet prompts import)."
            )
        if current != known[-1]:
            _upgrade(connection, new=current is None)


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if revision is None else str(revision)


def _upgrade(connection: Connection, *, new: bool) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if not new:
        command.upgrade(config, "head")
        return
    for name in TABLES:
        import_module(name)
    metadata.create_all(connection)
    command.stamp(config, "head")


def _parse_address(address: str) -> URL:
    """The address with its driver."""
    try:
        url = make_url(address.replace("postgres://", "postgresql://", 1))
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend, url = "", URL.create("sqlite")
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise UsageError(
            f'The database address begins with "{address.partition(":")[0][:40]}". '
            "Write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME."
        )
    if url.database in (None, "", ":memory:") or str(url.database).startswith("file:"):
        raise UsageError(f'"{address}" names no file. Write for example sqlite:///whet.db.')
    return url.set(drivername="sqlite+pysqlite")


def _make_private(path: Path) -> Path:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise UsageError(f"The database file {path} cannot be opened: {error.strerror}.") from error
    return path


def _identity(path: Path) -> tuple[int, int]:
    """The identity of a file, by which a later file at the same place differs; (0, 0) without a file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        return create_engine(url, pool_size=8, max_overflow=24, pool_pre_ping=True)
    engine = create_engine(
        url, pool_size=16, max_overflow=48, connect_args={"timeout": _WAIT_SECONDS, "isolation_level": None}
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(raw: Any, record: object) -> None:
    """Durable commits that readers do not wait for, foreign keys that hold, deleted bytes that are overwritten."""
    keep_log(raw, _WAIT_SECONDS)
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("PRAGMA foreign_keys = ON")
    raw.execute("PRAGMA secure_delete = ON")


def _close(raw: object, record: Any) -> None:
    record.invalidate()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


def insert_into(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that knows `on_conflict_do_nothing` and `on_conflict_do_update`, in the words of this database.

    `insert(connection, table).values(...).on_conflict_do_nothing()` keeps the row that is there; both forms take
    `index_elements=[columns of a unique index]`. Whether a row was new tells `.returning(column)`, not `rowcount`.
    """
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def time_of(connection: Connection) -> int:
    """The time in microseconds by a clock that all processes with this database share: PostgreSQL's own, since the clocks of
    servers differ; with SQLite that of the machine."""
    if connection.dialect.name != "postgresql":
        return now()
    return int(connection.execute(_CLOCK).scalar_one())


def mark_erased(connection: Connection) -> None:
    """Note in this transaction, as `_ERASED`, that SQLite's write-ahead log holds deleted words until `Database.clear_log` has
    emptied it."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA user_version = 1")


def put(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Write a row, in place of the one that has its primary key."""
    new = insert_into(connection, table).values(row)
    connection.execute(new.on_conflict_do_update(index_elements=list(table.primary_key), set_=dict(row)))
