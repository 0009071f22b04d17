"""Rows that could not be sent yet, in files that the next process sends.

One of the files is the log of this process: every row that waits in its memory, for the case that it is killed. It is
locked while the process lives, so that no other one sends it. A file holds one row a line, `{"kind": ..., "row": {...}}`.
Every row has an id of its own, so that a file that is sent twice changes nothing; a lock only spares the effort.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from whet_client.ids import new_id
from whet_client.storable import sync_folder

try:
    import fcntl
except ImportError:  # not a POSIX system: a file may be sent twice, which changes nothing
    fcntl = None  # type: ignore[assignment]

Line = tuple[str, bytes]
"""A kind, `inferences` or `feedback`, and a row as JSON."""

_SLACK = 1_000_000
"""Bytes of the log that may be out of date before it is written anew."""


def default_folder() -> Path:
    """The folder in which rows wait on this machine: whet/spool in XDG_STATE_HOME, else in ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "whet" / "spool"


class Spool:
    """Files of waiting rows for one server, at most `limit` bytes of them. The folder is made when it is needed and can
    be read by its owner only. Every method raises OSError when the disk refuses."""

    def __init__(self, folder: Path, url: str, limit: int) -> None:
        from hashlib import sha256

        self.folder = folder / sha256(url.encode("utf-8")).hexdigest()[:16]
        self._limit = limit
        self._log: IO[bytes] | None = None
        self._logged: Path | None = None
        self._size = 0

    def waiting(self) -> list[Path]:
        """Files with rows, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(path for path in self.folder.iterdir() if path.suffix == ".jsonl")
        return []

    def write(self, lines: Iterable[Line]) -> int:
        """Write rows to a new file, durably; the number of rows that had no room any more."""
        room = self._limit - sum(_size(path) for path in self.waiting() if path != self._logged)
        lost = 0
        descriptor, part = self._new()
        with open(descriptor, "wb") as file:
            for one in lines:
                line = _raw(one)
                room -= len(line)
                if room < 0:
                    lost += 1
                else:
                    file.write(line)
            file.flush()
            os.fsync(file.fileno())
        part.rename(part.with_suffix(".jsonl"))
        for folder in (self.folder, self.folder.parent):
            _settle(folder)
        return lost

    def note(self, line: Line) -> None:
        """Add a row that waits in memory to the log of this process. It is with the operating system when this returns, so
        that a kill does not lose it; a power cut may."""
        if fcntl is not None:
            if self._log is None:
                self._begin([])
            self._append([line])

    def forget(self, rest: Sequence[Line]) -> None:
        """Of the rows in the log only `rest` waits still. The file is written anew only when most of it is out of date."""
        if self._log is None or not self._size:
            return
        if not rest:
            self._log.truncate(0)
            self._size = 0
        elif self._size > _SLACK + 2 * sum(len(row) for _, row in rest):
            self._begin(rest)

    def end(self, forked: bool = False) -> None:
        """The log is over; in a child process it stays, as it is the parent's."""
        if self._log is not None and self._logged is not None:
            if not forked:
                self._logged.unlink(missing_ok=True)
            self._log.close()
        self._log, self._logged, self._size = None, None, 0

    def _begin(self, rows: Sequence[Line]) -> None:
        """A new log with some rows, in the place of the old one."""
        descriptor, part = self._new()
        file = os.fdopen(descriptor, "wb", buffering=0)
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        before = self._log, self._logged
        self._log, self._logged, self._size = file, part, 0
        try:
            self._append(rows)
            self._logged = part.rename(part.with_suffix(".jsonl"))
        except OSError:
            self._log, self._logged = before
            file.close()
            raise
        if before[0] is not None and before[1] is not None:
            before[1].unlink(missing_ok=True)
            before[0].close()

    def _append(self, rows: Sequence[Line]) -> None:
        data = b"".join(_raw(row) for row in rows)
        if self._log is not None and data:
            written = self._log.write(data)
            self._size += written
            if written < len(data):
                raise OSError("the disk is full")

    def _new(self) -> tuple[int, Path]:
        """A new file, which nobody reads under its present name, and that name."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.folder / f"{new_id()}.part"
        return os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_APPEND, 0o600), part


def _raw(line: Line) -> bytes:
    return b'{"kind": "%b", "row": %b}\n' % (line[0].encode("ascii"), line[1])


def _size(path: Path) -> int:
    """Bytes of a file; none where another process has sent it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _settle(folder: Path) -> None:
    """Make the names in a folder as durable as the files. Where folders cannot be opened, the system does it."""
    if fcntl is not None:
        sync_folder(folder)


@contextlib.contextmanager
def claim(path: Path) -> Iterator[list[Line | None] | None]:
    """The rows of a file while no other process sends them, None in the place of a damaged one; None when another process does
    send them, or when the file is gone.

    A line that was cut off by a crash is left out.
    """
    try:
        file: IO[bytes] = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield None
                return
        yield [_line(raw) for raw in file if raw.endswith(b"\n")] if path.exists() else None


def _line(raw: bytes) -> Line | None:
    try:
        value = json.loads(raw)
        return str(value["kind"]), json.dumps(value["row"]).encode("ascii")
    except (ValueError, KeyError, TypeError):
        return None
