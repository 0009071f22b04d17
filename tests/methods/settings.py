"""The settings with which every method runs in suites that judge all methods: each stands in the method's own test file."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from whet.methods import METHODS


def settings_of_tests(name: str) -> dict[str, dict[str, Any]]:
    """The dictionary called `name` in `tests/methods/test_METHOD.py`, by method, for the methods that have one there."""
    modules = {method: f"tests.methods.test_{method}" for method in METHODS}
    loaded = {
        method: importlib.import_module(module) for method, module in modules.items() if find_spec(module)
    }
    return {method: getattr(module, name) for method, module in loaded.items() if hasattr(module, name)}
