"""Text and values that can be stored: texts without halves of surrogate pairs, which are not characters, numbers, the words
of an exception, and files that end."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from whet_client.storable import repair_surrogates

LARGEST = 2**63 - 1
"""The largest whole number that a journal holds."""


_MOST_BITS = 63
"""Bits of the whole numbers that orjson writes itself."""
LONGEST_WORDS = 2000
"""Characters of an exception's text that are kept."""


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a journal holds; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST if isinstance(value, int) else math.isfinite(value)


def to_json(value: object, option: int = 0) -> bytes:
    """A value as JSON bytes: every text as `repair_surrogates` makes it, whole numbers of any size. Raises TypeError for
    what JSON cannot hold."""
    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | option)
    except TypeError:
        return orjson.dumps(_whole(value), option=orjson.OPT_SERIALIZE_NUMPY | option)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that only its owner reads, in the place of an older one: who reads it meanwhile sees the whole of one of them.
    Raises OSError where the disk refuses it; the older one then stays as it was."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.touch(mode=0o600)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # a disk that takes no file may not take its removal either
            partial.unlink(missing_ok=True)
        raise


def _whole(value: object) -> object:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, Mapping):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        import orjson

        return orjson.Fragment(str(value))
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def describe_exception(error: BaseException) -> str:
    """Type and text of an exception that somebody's code raised; its text may fail too."""
    error = getattr(error, "original", error)
    try:
        text = repair_surrogates(str(error))
        text = text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}…"
    except Exception as other:
        text = f"its text cannot be read ({type(other).__name__})"
    return f"{type(error).__name__}: {text}"


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, also for a pipe or a device, which may never end."""
    try:
        kind = path.stat().st_mode
    except ValueError:
        raise OSError(errno.EINVAL, "no file has such a name") from None
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is a pipe or a device; save what it gives in a file")
    return path.read_bytes()
