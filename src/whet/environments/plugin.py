"""Worlds that other packages bring: a frozen dataclass each, whose fields are `turns` and the options in a task file."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping

from whet._util.fields import check_options, options_of
from whet._util.plugins import Plugin
from whet.environments.episodes import RewardingWorld, World

FIXED = ("name", "turns", "graded", "range")
"""Fields of a world that its options in a task file do not set."""


def load_world(plugin: Plugin, turns: int, options: Mapping[str, object]) -> World:
    """The world of a plugin with its options. Raises UsageError, naming the package where that is at fault."""
    cls = plugin.load(_wrong_class)
    check_options(cls, options, FIXED, "environment", plugin.name)
    world: World = plugin.call(lambda: cls(turns=turns, **options))
    wrong: str | None = plugin.call(_wrong_world, world)
    if wrong is not None:
        plugin.refuse(wrong)
    return world


def _wrong_class(cls: object) -> str | None:
    if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)):
        return "is no dataclass"
    return None if "turns" in options_of(cls, ()) else "has no field `turns`"


def _wrong_world(world: object) -> str | None:
    if not isinstance(world, World):
        return "it lacks a part of whet.environments.World: name, turns, graded, check, observe, reset"
    if world.graded:
        return None
    if not isinstance(world, RewardingWorld):
        return "its episodes give rewards (`graded` is False), and it has no `range`"
    low, high = world.range
    good = math.isfinite(low) and math.isfinite(high) and low < high
    return None if good else f"its range is [{low!r}, {high!r}], not two finite numbers low < high"
