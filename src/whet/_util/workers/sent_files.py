"""Files of a local model that a run sends to machines which lack them, through the object store of a Ray cluster.

The run puts each file into the store once, in parts. A machine writes them into a folder that is named by their contents, and
all of its workers read that one copy. A machine that has the same files at the same place reads its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILES_AT = "WHET_MODEL_FILES"
"""The variable that tells a worker process where on its machine the files of its model lie."""
PART = 64 * 1024 * 1024
"""Bytes of a file that are one object of the store."""
_SUFFIXES = (".json", ".safetensors", ".gguf", ".model", ".txt", ".jinja")

FileDigests: TypeAlias = dict[str, str]
"""Size and SHA-256 of each file of a model, by its name."""
Parts: TypeAlias = Mapping[str, Sequence[Any]]
"""References to the parts of each file in the object store, by its name."""


def describe_files(place: str) -> FileDigests:
    """The digests of a model's files in a folder, or of one GGUF file; empty where there is none. It reads them all."""
    return {path.name: f"{path.stat().st_size}:{_digest(path)}" for path in _list_files(place)}


def _list_files(place: str) -> list[Path]:
    root = Path(place)
    paths = [root] if root.is_file() else sorted(path for path in root.glob("*") if path.suffix in _SUFFIXES)
    return [path for path in paths if path.is_file()]


def measure_files(place: str) -> int:
    """Bytes of the files that `describe_files` describes."""
    return sum(path.stat().st_size for path in _list_files(place))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class SentFiles:
    """The files of a model in a folder of the run's machine, or its one GGUF file."""

    place: str
    digests: FileDigests

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(digest.partition(":")[0]) for digest in self.digests.values())

    def put(self, ray: ModuleType) -> Parts:
        """Put all files into the object store."""
        root = Path(self.place)
        folder = root.parent if root.is_file() else root
        return {name: [ray.put(part) for part in _read_parts(folder / name)] for name in self.digests}

    def find(self) -> str | None:
        """Where this machine has the files: at their own place, or in its cache; None where it has not."""
        if describe_files(self.place) == self.digests:
            return self.place
        copy = self._copy()
        if describe_files(str(copy)) != self.digests:
            return None
        return str(copy / next(iter(self.digests))) if self._is_one_file() else str(copy)

    async def keep(self, parts: Parts) -> str:
        """The place of the copy in this machine's cache, which is written from the object store unless somebody has written it.

        Raises OSError where it cannot be written.
        """
        copy = self._copy()
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with _hold_lock(copy.with_suffix(".lock")):
            found = await asyncio.to_thread(self.find)
            if found is None:
                await self._write(copy, parts)
                found = await asyncio.to_thread(self.find)
        if found is None:
            raise OSError(errno.EIO, "the files of the model changed while they were sent", str(copy))
        return found

    async def _write(self, copy: Path, parts: Parts) -> None:
        free = shutil.disk_usage(copy.parent).free
        if free < self.size:
            raise OSError(errno.ENOSPC, f"no room for {show_bytes(self.size)}", str(copy.parent))
        for old in copy.parent.glob(f"{copy.name}*.part"):  # of a worker that died
            await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        new = Path(tempfile.mkdtemp(".part", copy.name, copy.parent))
        try:
            for name, references in parts.items():
                with (new / name).open("wb") as file:
                    for reference in references:
                        await asyncio.to_thread(file.write, await reference)
                    file.flush()
                    await asyncio.to_thread(os.fsync, file.fileno())
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)
            new.replace(copy)
        finally:
            await asyncio.to_thread(shutil.rmtree, new, ignore_errors=True)

    def _copy(self) -> Path:
        name = hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()[:32]
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "whet" / "models" / name

    def _is_one_file(self) -> bool:
        return list(self.digests) == [Path(self.place).name]


def _read_parts(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    with path.open("rb") as file:
        while part := file.read(PART):
            yield np.frombuffer(part, np.uint8)


@contextlib.asynccontextmanager
async def _hold_lock(path: Path) -> AsyncIterator[None]:
    """One process of this machine at a time."""
    with path.open("a") as file:
        if fcntl is not None:
            with contextlib.suppress(
                OSError
            ):  # a file system without locks: both write, and the last one stays
                await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield


def show_bytes(size: int) -> str:
    """Bytes for people.

    >>> show_bytes(1_300_000), show_bytes(3 * 2**30)
    ('1.2 MiB', '3.0 GiB')
    """
    return f"{size / 2**20:.1f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"
