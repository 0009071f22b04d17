"""Rows that could not be sent yet, in files that the next process sends.

A file holds one row a line, `{"kind": ..., "row": {...}}`. Every row has an id of its own, so that a file that is sent
twice changes nothing; a lock only spares the effort.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from whet.client.ids import new_id

try:
    import fcntl
except ImportError:  # not a POSIX system: a file may be sent twice, which changes nothing
    fcntl = None  # type: ignore[assignment]

Line = tuple[str, bytes]
"""A kind, `inferences` or `feedback`, and a row as JSON."""


def default_folder() -> Path:
    """Where rows wait on this machine: XDG_STATE_HOME, else ~/.local/state, and there whet/spool."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "whet" / "spool"


class Spool:
    """Files of waiting rows for one server, at most `limit` bytes of them. The folder is made when it is needed and can
    be read by its owner only. Every method raises OSError when the disk refuses."""

    def __init__(self, folder: Path, url: str, limit: int) -> None:
        self.folder = folder / sha256(url.encode("utf-8")).hexdigest()[:16]
        self._limit = limit

    def waiting(self) -> list[Path]:
        """Files with rows, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(path for path in self.folder.iterdir() if path.suffix == ".jsonl")
        return []

    def write(self, lines: Iterable[Line]) -> int:
        """Write rows to a new file, durably; the number of rows that had no room any more."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        room = self._limit - sum(_size(path) for path in self.waiting())
        lost = 0
        part = self.folder / f"{new_id()}.part"
        descriptor = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            for kind, row in lines:
                line = b'{"kind": "%b", "row": %b}\n' % (kind.encode("ascii"), row)
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


def _size(path: Path) -> int:
    """Bytes of a file; none where another process has sent it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _settle(folder: Path) -> None:
    """Make the names in a folder as durable as the files. Where folders cannot be opened, the system does it."""
    if fcntl is None:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[list[Line] | None]:
    """The rows of a file while no other process sends them; None when one does, or when it is gone.

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
        yield [line for raw in file if (line := _line(raw)) is not None] if path.exists() else None


def _line(raw: bytes) -> Line | None:
    try:
        value = json.loads(raw)
        return str(value["kind"]), json.dumps(value["row"]).encode("ascii")
    except (ValueError, KeyError, TypeError):
        return None
