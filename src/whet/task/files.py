"""Text files of a task folder: read as UTF-8, or refused with the place and the remedy."""

from __future__ import annotations

import codecs
import difflib
import gzip
import os
import zlib
from pathlib import Path

from whet._util.storable import read_file
from whet.errors import UsageError

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte-order marks, those that begin like another one first, and what they mark."""
_UNMARKED = (
    ("utf-32-le", (False, True, True, True)),
    ("utf-32-be", (True, True, True, False)),
    ("utf-16-le", (False, True, False, True)),
    ("utf-16-be", (True, False, True, False)),
)
"""The bytes, of the first four, that are zero if a text without a mark begins with two letters of ASCII (RFC 4627, section 3).
"""
_PACKED = ".gz"


def kind_of(path: Path) -> str:
    """The ending that says what a file holds, in lower case: `.jsonl` for `rows.jsonl` and for `rows.jsonl.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == _PACKED else suffix


def read_text(path: Path, named_by: str = "") -> str:
    """The whole file, byte for byte: a byte-order mark of UTF-8 and CRLF line ends stay. A file that begins with the mark of
    UTF-16 or UTF-32 is read as that.

    `named_by` (file:line) says which entry named the file. Raises UsageError when there is no such file, it
    cannot be read, or it is not in that encoding, without a mark UTF-8 (with line and byte offset).
    """
    data = read_bytes(path, named_by)
    marked = decode_marked(path, data)
    return decode_text(path, data) if marked is None else marked


def read_bytes(path: Path, named_by: str = "") -> bytes:
    """The bytes of a file, unpacked where its name ends in .gz. Raises UsageError when there is no such file, or it cannot be
    read."""
    prefix = f"{named_by}: " if named_by else ""
    try:
        data = read_file(path)
        return gzip.decompress(data) if path.suffix.lower() == _PACKED else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{prefix}{path} cannot be unpacked: {error}. Write the file again.") from None
    except FileNotFoundError:
        raise UsageError(f"{prefix}there is no file {path}.{_nearest(path)}") from None
    except OSError as error:
        reason = "it is a folder" if isinstance(error, IsADirectoryError) else (error.strerror or str(error))
        raise UsageError(f"{prefix}{path} cannot be read: {reason}.{_nearest(path)}") from None


def decode_marked(path: Path, data: bytes) -> str | None:
    """The text of a file in UTF-16 or UTF-32, as its byte-order mark or the zeros among its first bytes show; None for any other.
    Raises UsageError."""
    zeros = tuple(byte == 0 for byte in data[:4])
    name = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    name = name or next((name for name, shape in _UNMARKED if zeros == shape), None)
    if name is None:
        return None
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:1: not {name.upper()}: {error.reason}. Save the file as UTF-8.") from None


def decode_text(path: Path, data: bytes) -> str:
    """The bytes of a file as text. Raises UsageError with line and offset of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}. "
            "Save the file as UTF-8."
        ) from None


def _nearest(path: Path) -> str:
    folder = path.parent
    if not os.path.isdir(folder):
        return f" The folder {folder} does not exist either."
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    close = difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f' Did you mean "{close[0]}"?'
    return f" Files there: {', '.join(names[:12])}." if names else " That folder holds no files."
