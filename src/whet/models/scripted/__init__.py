"""Deterministic simulators of language models, for tests and benchmarks; all they answer is simulated.

`scripted/NAME?option=value&...`; every simulator knows `seed` (which world is drawn) and `latency`
(seconds slept per call). The laws that they follow, with their numbers, stand in `docs/latent-rules.md`
(the latent-rules world) and in the docstrings of the small ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from whet.errors import UsageError, did_you_mean
from whet.models.scripted.simulator import Scripted

# Simulators are imported when they are asked for: the command line starts without any of them.
_SIMULATORS = {
    "echo": ("small", "Echo"),
    "constant": ("small", "Constant"),
    "labels": ("labels", "LabelSimulator"),
    "phrases": ("small", "Phrases"),
    "scorer": ("scorer", "Scorer"),
    "rules-generator": ("generator", "RulesGenerator"),
    "rules-optimizer": ("optimizer", "RulesOptimizer"),
}

NAMES = tuple(_SIMULATORS)


def load(name: str, options: Mapping[str, str] | None = None) -> Scripted:
    """The simulator `scripted/name` with its options.

    Raises UsageError for an unknown name, an unknown option or a value that cannot be read.
    """
    if name not in _SIMULATORS:
        raise UsageError(f'There is no simulator "scripted/{name}".{did_you_mean(name, NAMES)}')
    module, attribute = _SIMULATORS[name]
    simulator: type[Scripted] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return simulator(name, dict(options or {}))


__all__ = ["NAMES", "Scripted", "load"]
