"""What can be written and read: texts without halves of surrogate pairs, which are no characters, numbers, the words of an
exception, and files that end."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def repair_surrogates(text: str) -> str:
    """The text as UTF-8 can hold it: halves of a pair that stand together are joined, one that stands alone becomes U+FFFD.

    >>> repair_surrogates("a\\ud83d\\ude00b\\ud800")
    'a😀b�'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


LARGEST = 2**63 - 1
"""The largest whole number that a journal holds."""


LONGEST_WORDS = 2000
"""Characters of an exception's text that are kept."""


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a journal holds; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST if isinstance(value, int) else math.isfinite(value)


def to_json(value: Any, option: int = 0) -> bytes:
    """A value as JSON bytes, every text in it as `repair_surrogates` makes it. Raises TypeError for what JSON cannot hold."""
    import orjson  # the client, which knows prompts, does without it

    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | option)
    except TypeError:
        return orjson.dumps(_whole(value), option=orjson.OPT_SERIALIZE_NUMPY | option)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, Mapping):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
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


def shown(value: object, limit: int = 80) -> str:
    """A value as a message quotes it: its repr, cut at `limit` characters."""
    try:
        text = repair_surrogates(repr(value))
    except Exception:  # that of somebody's class
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[:limit] + "…"


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, also for a pipe or a device, which may never end."""
    try:
        kind = path.stat().st_mode
    except ValueError:
        raise OSError(errno.EINVAL, "no file has such a name") from None
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is a pipe or a device; save what it gives in a file")
    return path.read_bytes()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable where its file system can do that; Windows and some mounts cannot.

    Either way a file that was renamed there is in its place, and only a loss of power could take the new name back. Raises
    OSError for a disk that is broken or full.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC):
            raise
