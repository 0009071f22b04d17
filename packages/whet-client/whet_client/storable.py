"""Text and values that can be stored and shown: texts without halves of surrogate pairs, values as messages quote them,
folders that keep their names."""

from __future__ import annotations

import errno
import os
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


def plain_number(value: Any) -> Any:
    """A number of numpy and its kin, a Decimal or a Fraction as a plain one; anything else as it is."""
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    from decimal import Decimal
    from fractions import Fraction

    return float(value) if isinstance(value, Decimal | Fraction) else value


def show_value(value: object, limit: int = 80) -> str:
    """A value as a message quotes it: its repr, cut at `limit` characters."""
    try:
        text = repair_surrogates(repr(value))
    except Exception:  # that of somebody's class
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[:limit] + "…"


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
