"""Functions of the user that a setting names: handed over in Python, or in a Python file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.rewards.program import load_module
from whet_client.storable import show_value


def function_of_setting(value: object, name: str, arguments: Sequence[str]) -> Callable[..., Any]:
    """The function that is the value of a setting, or the one called `name` in the Python file that it names.

    Raises UsageError for anything else, and for a function that cannot be called with these arguments.
    """
    form = f"def {name}({', '.join(arguments)})"
    if isinstance(value, str) and value.endswith(".py"):
        module = load_module(Path(value), f"the setting {name}", f"Write `{form}` in it")
        place = f"{value}:1: "
        function: Any = getattr(module, name, None)
    else:
        place, function = "", value
    if not callable(function):
        where = f"{place}there is no function `{name}` in it" if place else f"{name} is {show_value(value)}"
        raise UsageError(f"{where}. Give a function, or a Python file with `{form}`.")
    named: Callable[..., Any] = function
    try:
        inspect.signature(named).bind(*arguments)
    except ValueError:  # a function without a signature: it is called as it is
        return named
    except TypeError:
        raise UsageError(
            f"{place}the function of {name} cannot be called as `{form}`. Write it so."
        ) from None
    return named
