"""Reports that take long and that several people read at once: one reader computes, and the others get the same."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

LARGE = 5_000
"""Answers from which a report is kept, so that it may be a little older than the newest answer."""
KEPT_SECONDS = 30.0
_MOST = 100
T = TypeVar("T")


class SharedReports:
    """The reports that are under way, and those of at least `LARGE` answers for `KEPT_SECONDS`. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, compute: Callable[[], T], count: Callable[[T], int]) -> T:
        """The report with a key: kept, computed by another reader, or computed now. `count` says of how many answers it is; a
        smaller one is always computed after the call began. Raises what `compute` raises."""
        with self._lock:
            due, report = self._kept.get(key, (0.0, None))
            if due > self._clock():
                return report  # type: ignore[no-any-return]
            other = self._under_way.get(key)
            own = Future[T]()
            if other is None:
                self._under_way[key] = own
        if other is not None:
            with contextlib.suppress(Exception):
                report = other.result()
                if count(report) >= LARGE:
                    return report  # type: ignore[no-any-return]
            return compute()
        try:
            own.set_result(compute())
        except BaseException as error:
            own.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[key]
        if count(own.result()) >= LARGE:
            with self._lock:
                self._kept[key] = (self._clock() + KEPT_SECONDS, own.result())
                self._kept.move_to_end(key)
                while len(self._kept) > _MOST:
                    self._kept.popitem(last=False)
        return own.result()
