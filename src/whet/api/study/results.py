"""The results of the studies: read-only mappings of their JSON, with typed names for the most important values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.api.results import JSONResult
from whet.errors import show_reward


@dataclass(frozen=True)
class PartEffect:
    """The effect of a part, or of two parts together, on the mean reward: the estimate (None: no row was answered by all
    prompts), the ends of an interval that holds together with the others of its family at 95%, and the p-value, corrected for
    the family. `aliases`: other effects that the same estimate includes."""

    name: str
    difference: float | None
    low: float
    high: float
    p_adjusted: float
    aliases: tuple[str, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def effects_of(rows: Sequence[Mapping[str, Any]]) -> tuple[PartEffect, ...]:
    """Effects out of their JSON."""
    keys = ("name", "difference", "low", "high", "p_adjusted")
    return tuple(
        PartEffect(**{key: row[key] for key in keys}, aliases=tuple(row.get("aliases", ()))) for row in rows
    )


@dataclass(frozen=True)
class UnitEffect:
    """The effect of a sentence or word: the mean reward of the whole prompt minus that of the prompt without it (None: no row
    has both answers), the ends of an interval that holds together with those of the other units at 95%, and the corrected
    p-value. With orders, also its Shapley value and the standard error of drawing orders (None for one order)."""

    text: str
    difference: float | None
    low: float
    high: float
    p_adjusted: float
    shapley: float | None = None
    shapley_error: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


class ComponentsResult(JSONResult[Mapping[str, Any]]):
    """The result of `whet.study_components`. `status` is completed, or planned (a dry run, without effects)."""

    @property
    def effects(self) -> tuple[PartEffect, ...]:
        """The main effect of each part, the largest first."""
        return effects_of(self.get("effects", ()))

    @property
    def interactions(self) -> tuple[PartEffect, ...]:
        """The interactions of two parts, the largest first; interactions that the design cannot separate are one entry."""
        return effects_of(self.get("interactions", ()))

    @property
    def report(self) -> Path:
        """The page of the study."""
        return Path(str(self["run"])) / "report.html"

    def __repr__(self) -> str:
        effects = ", ".join(
            f"{effect.name}: {'no answer' if effect.difference is None else show_reward(effect.difference, sign=True)}"
            for effect in self.effects
        )
        return f"ComponentsResult({self['task']!r}, {self['design']['name']}, {effects or self['status']})"


class SensitivityResult(JSONResult[Mapping[str, Any]]):
    """The result of `whet.study_sensitivity`. `status` is completed, or planned (a dry run, without units)."""

    @property
    def units(self) -> tuple[UnitEffect, ...]:
        """The sentences or words that were left out, in the order of the text."""
        rows = [row for row in self.get("units", ()) if "low" in row]
        keys = ("text", "difference", "low", "high", "p_adjusted")
        return tuple(
            UnitEffect(
                **{key: row[key] for key in keys},
                shapley=row.get("shapley", {}).get("difference"),
                shapley_error=row.get("shapley", {}).get("error"),
            )
            for row in rows
        )

    @property
    def forms(self) -> tuple[PartEffect, ...]:
        """The effect of each other form of the text."""
        return effects_of(self.get("forms", ()))

    @property
    def spread(self) -> float | None:
        """The difference between the best and the worst form, chosen on half of the rows and measured on the other half; None
        without forms."""
        return None if self.get("spread") is None else self["spread"]["across"]

    @property
    def report(self) -> Path:
        """The page of the study."""
        return Path(str(self["run"])) / "report.html"

    def __repr__(self) -> str:
        what = f"{len(self.units)} units left out" if "units" in self else self["status"]
        return f"SensitivityResult({self['task']!r}, {what})"
