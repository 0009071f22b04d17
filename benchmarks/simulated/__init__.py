"""Simulated models with laws of their own: the generator and optimizer of the latent-rules benchmark, and a scorer.

They are the models `simulated/NAME?option=value`, which whet finds by the entry point of this project
(`benchmarks/pyproject.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.models.scripted import Scripted, split_options

SIMULATORS = {
    "scorer": ("scorer", "Scorer"),
    "rules-generator": ("generator", "RulesGenerator"),
    "rules-optimizer": ("optimizer", "RulesOptimizer"),
    "lesson-task": ("lessons", "LessonTask"),
    "lesson-writer": ("lesson_writer", "LessonWriter"),
}
"""Module and class by name."""


def load(name: str, options: Mapping[str, str] | None = None) -> Scripted:
    """The simulator `simulated/name` with its options. Raises UsageError."""
    if name not in SIMULATORS:
        raise UsageError(f'There is no simulator "simulated/{name}".{did_you_mean(name, SIMULATORS)}')
    module, attribute = SIMULATORS[name]
    simulator: type[Scripted] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return simulator(name, dict(options or {}))


def provide(name: str, base_url: str | None, options: Mapping[str, Any]) -> Scripted:
    """The simulator at `simulated/NAME?key=value`; `options` add to those of the address. Raises UsageError."""
    return load(*split_options("simulated", name, options))
