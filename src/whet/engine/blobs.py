"""Content-addressed files beside the journal: checkpoints of trained weights (safetensors)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container
from pathlib import Path

from whet.errors import ReplayDiverged, StorageError, parameter
from whet_client.storable import sync_folder


class Blobs:
    """A folder of files named by the SHA-256 of their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """The path of a blob."""
        return self.folder / f"{digest}.safetensors"

    def write(self, data: bytes) -> str:
        """Store bytes durably (the folder is fsynced where that is possible) and return their digest. Raises StorageError."""
        digest = hashlib.sha256(data).hexdigest()
        target = self.path(digest)
        partial = target.with_suffix(".partial")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.touch(mode=0o600)
            with open(partial, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
            sync_folder(self.folder)
        except OSError as error:
            raise StorageError(f"{target}: the checkpoint could not be written: {error}.") from error
        return digest

    def read(self, digest: str) -> bytes:
        """Bytes of a blob. Raises ReplayDiverged when the file is missing or its content is another's."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ReplayDiverged(
                f"{path}: the checkpoint is missing. Restore it, or start again with another {parameter('run')}."
            ) from error
        actual = hashlib.sha256(data).hexdigest()
        if actual != digest:
            raise ReplayDiverged(
                f"{path}: the content has hash {actual}, the journal says {digest}. The file was changed."
            )
        return data

    def keep_only(self, digests: Container[str]) -> None:
        """Drop every other blob; called after the journal names these."""
        for path in self.folder.glob("*.*"):
            if path.stem not in digests:
                path.unlink(missing_ok=True)
