"""The findings of a study, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.errors import quantity, show_reward
from whet.stats.intervals import show_p

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
    return [difference, f"[{low}, {high}]", show_p(effect["p_adjusted"])]


def say_effects(
    effects: Sequence[Mapping[str, Any]],
    what: str,
    verbs: tuple[str, str] = ("changes the mean reward", "change the mean reward"),
) -> str:
    """Say in one sentence which effects of a family are shown; `verbs` say what one and what several of them do."""
    shown = [effect for effect in effects if is_shown(effect)]
    whole = quantity(len(effects), what)
    if not shown:
        return f"These rows show for none of {whole} that it {verbs[0]}."
    each = ", ".join(
        f"{' or '.join([effect['name'], *effect.get('aliases', ())])} {show_reward(effect['difference'] or 0.0, sign=True)} "
        f"[{show_reward(effect['low'], sign=True)}, {show_reward(effect['high'], sign=True)}]"
        for effect in shown
    )
    return f"{len(shown)} of {whole} {verbs[len(shown) > 1]}: {each}."


def components_sentences(result: Mapping[str, Any]) -> list[str]:
    """Main effects, interactions, and what the study did not touch."""
    lines = [say_effects(result["effects"], "part")]
    if result["interactions"]:
        lines.append(say_effects(result["interactions"], "interaction"))
    return [*lines, UNSEALED]


def unit_rows(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The units that were left out, what carries most first."""
    rows = [row for row in result["units"] if "low" in row]
    return sorted(rows, key=lambda row: -abs(unit_value(row) or 0.0))


def unit_value(row: Mapping[str, Any]) -> float | None:
    """The contribution of a unit: its Shapley value where there is one; None for a unit that was not left out."""
    value = row["shapley"]["difference"] if "shapley" in row else row.get("difference")
    return None if value is None else float(value)


def sensitivity_sentences(result: Mapping[str, Any]) -> list[str]:
    """The contributions of the units, the effects of the forms, and the parts that the study did not change."""
    kind, rows = result["unit"], unit_rows(result)
    named = [{**row, "name": f'"{" ".join(row["text"].split())}"'} for row in rows]
    lines = [say_effects(named, kind, ("carries or costs reward", "carry or cost reward"))]
    if spread := result["spread"]:
        lines.append(say_effects(result["forms"], "other form"))
        across = (
            ""
            if spread["across"] is None
            else (
                f" Chosen on half of the rows and measured on the other, they are "
                f"{show_reward(spread['across'], sign=True)} apart."
            )
        )
        if spread["range"] is not None:
            lines.append(
                f"The best and the worst form are {show_reward(spread['range'])} apart, of which chance is a part.{across}"
            )
    return [*lines, UNSEALED]
