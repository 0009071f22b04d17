"""What a study found, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.errors import quantity, show_reward

UNSEALED = "No sealed test row was answered. A prompt that is chosen here still needs a test of its own."
FAMILIES = (
    "The intervals of the main effects hold together at 95%, and so do those of the interactions; p-values are corrected by "
    "Holm."
)


def is_shown(effect: Mapping[str, Any]) -> bool:
    """Whether the interval of an effect excludes 0."""
    return bool(effect["low"] > 0 or effect["high"] < 0)


def effect_cells(effect: Mapping[str, Any]) -> list[str]:
    """The estimate of an effect, its interval, and its corrected p-value."""
    if effect["difference"] is None:
        return ["no answer", "-", "-"]
    difference, low, high = (show_reward(effect[key], sign=True) for key in ("difference", "low", "high"))
    return [difference, f"[{low}, {high}]", f"{effect['p_adjusted']:.3g}"]


def say_effects(effects: Sequence[Mapping[str, Any]], what: str, verb: str = "changes") -> str:
    """Which effects of a family are shown, in one sentence."""
    shown = [effect for effect in effects if is_shown(effect)]
    whole = quantity(len(effects), what)
    if not shown:
        return f"None of {whole} {verb} the mean reward by an amount that these rows can show."
    each = ", ".join(
        f"{effect['name']} {show_reward(effect['difference'] or 0.0, sign=True)} "
        f"[{show_reward(effect['low'], sign=True)}, {show_reward(effect['high'], sign=True)}]"
        for effect in shown
    )
    return f"{len(shown)} of {whole} {verb if len(shown) == 1 else verb.removesuffix('s')} the mean reward: {each}."


def components_sentences(result: Mapping[str, Any]) -> list[str]:
    """Main effects, interactions, and what the study did not touch."""
    lines = [say_effects(result["effects"], "part")]
    if result["interactions"]:
        lines.append(say_effects(result["interactions"], "interaction"))
    return [*lines, UNSEALED]
