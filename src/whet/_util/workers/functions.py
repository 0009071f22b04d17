"""Functions of the user in a form that a worker process can load."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from whet.errors import UsageError, parameter


class LoadedFunction(Protocol):
    """A function in that form."""

    def load(self) -> Callable[..., Any]:
        """The function. Raises UsageError for one that is not what it was when the run began."""
        ...


@dataclass(frozen=True)
class FileFunction:
    """A function of a Python file: `read` loads it from the path, `digest_of` says the identity of the file, which is to be
    `digest`."""

    path: str
    digest: str
    read: Callable[[Path], Callable[..., Any]]
    digest_of: Callable[[Path], str]

    def load(self) -> Callable[..., Any]:
        """See `LoadedFunction`."""
        return _read_file(self)


@cache
def _read_file(named: FileFunction) -> Callable[..., Any]:
    path = Path(named.path)
    function = named.read(path)
    if named.digest_of(path) != named.digest:
        raise UsageError(
            f"{path} was edited since the run began. Run the same command again: it reads the file anew."
        )
    return function


@dataclass(frozen=True)
class PickledFunction:
    """A function as pickle writes it: by its name where it can be imported, else with its code."""

    pickled: bytes

    def load(self) -> Callable[..., Any]:
        """See `LoadedFunction`."""
        return _unpickle(self.pickled)


@cache
def _unpickle(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(pickled)  # noqa: S301 (the parent wrote it)
    return function


def send_function(function: Callable[..., Any], what: str) -> PickledFunction:
    """A function that was handed over in Python. Raises UsageError naming `what` for one that another process cannot load: one of
    a script or a notebook needs the package cloudpickle."""
    own = getattr(function, "__module__", None) == "__main__"
    try:
        if own:
            raise pickle.PicklingError(
                "it is defined in a script or a notebook, which no other process can import"
            )
        return PickledFunction(pickle.dumps(function))
    except Exception as error:
        if importlib.util.find_spec("cloudpickle") is not None:
            return PickledFunction(_pickle_with_code(function, what))
        raise UsageError(
            f"{what} cannot be sent to a worker process: {error}. Put it into a module, or `pip install cloudpickle`, or leave "
            f"out {parameter('workers')}."
        ) from None


def _pickle_with_code(function: Callable[..., Any], what: str) -> bytes:
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise UsageError(
            f"{what} cannot be sent to a worker process: {error}. Make what it holds plain values, or leave out "
            f"{parameter('workers')}."
        ) from None
    return pickled
