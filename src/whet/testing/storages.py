"""Conformance suites for storages: bytes by key, and the completion cache. `whet_live.testing` has that of its database.

Every test is an ordinary function; no plugin is needed.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from whet.engine.cache import Cache

KEYS = ("plain", "with space/slash|bar", "é漢\U0001f600", "' OR 1=1 --", "k" * 500)
VALUES = (b"text", b"", b"\x00\xff\x00", bytes(range(256)) * 4096)
THREADS, EACH = 4, 25


class Storage(Protocol):
    """Bytes by key. The first value under a key stays."""

    def get(self, key: str) -> bytes | None:
        """The stored value, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Store a value; others see it after `close` at the latest."""
        ...

    def close(self) -> None:
        """Write the remaining entries and release everything. Calling it twice is harmless."""
        ...


class StorageConformance:
    """Conformance tests for every storage, on each back end. Each test has a separate, empty place."""

    def place(self) -> Any:
        """An empty place to store in: a path, an address."""
        return Path(tempfile.mkdtemp(prefix="whet-storage-")) / "storage"

    def open(self, place: object) -> Storage:
        """A storage at a place; several may be open at once."""
        raise NotImplementedError("Override `open`.")

    def test_what_is_put_can_be_read_at_once_and_later(self) -> None:
        place = self.place()
        storage = self.open(place)
        pairs = [(f"{key}{i}", value) for key in KEYS for i, value in enumerate(VALUES)]
        for key, value in pairs:
            storage.put(key, value)
        assert [storage.get(key) for key, _ in pairs] == [value for _, value in pairs]
        storage.close()
        again = self.open(place)
        assert [again.get(key) for key, _ in pairs] == [value for _, value in pairs]
        again.close()

    def test_what_is_absent_is_none(self) -> None:
        place = self.place()
        for _ in range(2):
            storage = self.open(place)
            assert storage.get("absent") is None
            storage.put("present", b"1")
            assert storage.get("absent") is None and storage.get("Present") is None
            storage.close()

    def test_the_first_value_of_a_key_stays(self) -> None:
        place = self.place()
        for value in (b"first", b"second"):
            storage = self.open(place)
            storage.put("key", value)
            storage.close()
        storage = self.open(place)
        assert storage.get("key") == b"first"
        storage.close()

    def test_writers_at_the_same_time_lose_nothing(self) -> None:
        place = self.place()
        first = self.open(place)
        first.put("begin", b"1")
        first.close()

        def write(number: int) -> None:
            storage = self.open(place)
            for i in range(EACH):
                storage.put(f"{number}-{i}", f"{number} {i}".encode())
            storage.close()

        in_threads(write)
        storage = self.open(place)
        for number in range(THREADS):
            for i in range(EACH):
                assert storage.get(f"{number}-{i}") == f"{number} {i}".encode(), f"{number}-{i} is lost"
        storage.close()

    def test_two_places_do_not_mix(self) -> None:
        one, other = self.open(self.place()), self.open(self.place())
        one.put("key", b"one")
        one.close()
        assert other.get("key") is None
        other.close()

    def test_can_be_closed_twice(self) -> None:
        storage = self.open(self.place())
        storage.put("key", b"1")
        storage.close()
        storage.close()


class CacheConformance(StorageConformance):
    """Conformance tests for the cache of completions: losing the cache costs money, but never changes results."""

    def open(self, place: Any) -> Storage:
        """whet's own cache in a file."""
        return Cache(place)

    def damage(self, place: Any) -> None:
        """Make the place unreadable."""
        Path(place).write_bytes(b"no database, and longer than the header of one. " * 40)

    def test_a_damaged_cache_is_no_cache(self) -> None:
        place = self.place()
        self.damage(place)
        storage = self.open(place)
        assert storage.get("key") is None
        storage.put("key", b"1")
        storage.close()


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work(number)` in several threads at once. Raises what the first of them raised."""
    errors: list[BaseException] = []

    def one(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
