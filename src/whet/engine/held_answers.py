"""The answers of a run in memory: those beyond 64 KiB compressed, because a run holds all that it has paid for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, MutableMapping
from typing import Any

_LARGE = 64 << 10
_FASTEST = 1


class HeldAnswers(MutableMapping[str, bytes]):
    """Encoded answers by the digest of their request.

    >>> answers = HeldAnswers()
    >>> answers["a"] = b"no " * 100_000
    >>> len(answers["a"]), answers.size < 3_000
    (300000, True)
    """

    def __init__(self) -> None:
        self._plain: dict[str, bytes] = {}
        self._packed: dict[str, bytes] = {}

    def __getitem__(self, digest: str) -> bytes:
        value = self._plain.get(digest)
        return zlib.decompress(self._packed[digest]) if value is None else value

    def get(self, digest: str, default: Any = None) -> Any:
        """The answer, or `default`."""
        value = self._plain.get(digest)
        return (
            self[digest] if value is None and digest in self._packed else default if value is None else value
        )

    def __setitem__(self, digest: str, value: bytes) -> None:
        self._plain.pop(digest, None)
        self._packed.pop(digest, None)
        if len(value) > _LARGE:
            self._packed[digest] = zlib.compress(value, _FASTEST)
        else:
            self._plain[digest] = value

    def __delitem__(self, digest: str) -> None:
        del (self._plain if digest in self._plain else self._packed)[digest]

    def __contains__(self, digest: object) -> bool:
        return digest in self._plain or digest in self._packed

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        yield from self._packed

    def __len__(self) -> int:
        return len(self._plain) + len(self._packed)

    @property
    def size(self) -> int:
        """The bytes that the answers take here."""
        return sum(map(len, (*self._plain.values(), *self._packed.values())))
