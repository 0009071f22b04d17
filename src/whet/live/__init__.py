"""Another name of `whet_live`. The modules below are other names of its modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.errors import UsageError


def alias(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that stands for another one, of whet-live. Raises UsageError where that is not installed."""

    def attribute(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "whet_live":
                raise
            raise UsageError(
                f"{module} is a part of whet-live, which is not installed. Install it with: pip install 'whet[live]'"
            ) from None

    return attribute


if TYPE_CHECKING:
    from whet_live import *
else:
    __getattr__ = alias("whet_live")
