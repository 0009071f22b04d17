"""Messages between two processes by torch.distributed's gloo: a length, then bytes. The processes find each other by
a file, or by the store of torchrun."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

LONG = timedelta(days=365)
"""The longest wait of a process for the next message: paid calls lie between two steps of a training."""
dist: Any = torch.distributed  # its stores and groups have no types
_INTERFACE = "GLOO_SOCKET_IFNAME"


class GlooLink:
    """One end, once the other end is there: `rank` 0 or 1 of the two processes that share `store`. As a connection of
    multiprocessing it raises OSError and EOFError when the other process is gone."""

    def __init__(self, store: Any, rank: int, *, here: bool) -> None:
        self._peer, self._store = 1 - rank, store
        with _loopback() if here else nullcontext():
            self._group: Any = dist.ProcessGroupGloo(store, rank, 2, LONG)

    def send_bytes(self, data: bytes) -> None:
        """Send a message. Raises OSError."""
        try:
            self._all().send([torch.tensor([len(data)])], self._peer, 0).wait()
            self._all().send([torch.frombuffer(bytearray(data), dtype=torch.uint8)], self._peer, 0).wait()
        except RuntimeError as error:
            raise OSError(str(error)) from error

    def recv_bytes(self) -> bytes:
        """The next message. Raises EOFError, also while it waits."""
        try:
            length = torch.zeros(1, dtype=torch.long)
            self._all().recv([length], self._peer, 0).wait()
            message = torch.empty(int(length), dtype=torch.uint8)
            self._all().recv([message], self._peer, 0).wait()
        except RuntimeError as error:
            raise EOFError(str(error)) from error
        data: bytes = message.numpy().tobytes()
        return data

    def close(self) -> None:
        """Let the other end know that there is nothing more."""
        self._group = None

    def _all(self) -> Any:
        if self._group is None:
            raise OSError("the link is closed")
        return self._group


def store_in(folder: Path) -> Any:
    """The store by which two processes of this machine find each other."""
    return dist.FileStore(str(folder / "store"), 2)


def store_of_launcher() -> Any:
    """The store that torchrun gives all its processes, on any machine. Its `get` waits for a key."""
    store = next(dist.rendezvous("env://", timeout=LONG))[0]
    store.set_timeout(LONG)
    return store


@contextmanager
def _loopback() -> Iterator[None]:
    """Let gloo listen on this machine only, as long as it looks for an interface."""
    before = os.environ.get(_INTERFACE)
    os.environ[_INTERFACE] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_INTERFACE]
        else:
            os.environ[_INTERFACE] = before
