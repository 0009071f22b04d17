"""The folder in which a run keeps images, sounds and files by the hash of their content (`whet_client.media`)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path

from whet.errors import StorageError
from whet_client.media import contents_of, keep_content, look_for_images_in, media_kind, read_mime

_FOLDER: ContextVar[Path | None] = ContextVar("images", default=None)


def keep_images_in(folder: Path) -> None:
    """From now on, this task keeps what models paint in a folder, which is made for the first picture, and looks there for it."""
    _FOLDER.set(folder)
    look_for_images_in(folder)


def keep_painted(data: bytes) -> str | None:
    """Remember a picture that a model painted, in the folder of the task by its hash. Returns its mark; None where it is no
    image. Raises StorageError."""
    mime = read_mime(data)
    if mime is None or media_kind(mime) != "image":
        return None
    mark = keep_content(data)
    folder = _FOLDER.get()
    if folder is not None and mark is not None:
        _write(folder, contents_of(mark))
    return mark


def write_parts(texts: Iterable[str], folder: Path) -> None:
    """Keep the parts of a prompt's texts in a folder, which is made for the first one, and look there for them. Raises
    StorageError, and UsageError for a file that has changed."""
    for text in texts:
        _write(folder, contents_of(text))
    look_for_images_in(folder)


def _write(folder: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    try:
        for digest, data in contents:
            if (folder / digest).exists():
                continue
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            os.replace(file.name, folder / digest)
    except OSError as error:
        raise StorageError(f"{folder}: a picture could not be written: {error}.") from error
