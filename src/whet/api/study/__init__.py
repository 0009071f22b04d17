"""Studies: which part of a prompt, and which sentence of it, is worth how much on a task's training or validation rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.api.study.components import LAYOUTS, READY, Components, Part, read_components
    from whet.api.study.factorial import astudy_components, study_components
    from whet.api.study.grid import STUDY
    from whet.api.study.page import write_study
    from whet.api.study.results import ComponentsResult, PartEffect, SensitivityResult, UnitEffect
    from whet.api.study.sensitivity import astudy_sensitivity, study_sensitivity
    from whet.api.study.sentences import (
        FAMILIES,
        components_sentences,
        effect_cells,
        sensitivity_sentences,
        unit_rows,
    )

_HOMES = {
    "whet.api.study.components": "LAYOUTS READY Components Part read_components",
    "whet.api.study.factorial": "astudy_components study_components",
    "whet.api.study.grid": "STUDY",
    "whet.api.study.page": "write_study",
    "whet.api.study.results": "ComponentsResult PartEffect SensitivityResult UnitEffect",
    "whet.api.study.sensitivity": "astudy_sensitivity study_sensitivity",
    "whet.api.study.sentences": "FAMILIES components_sentences effect_cells sensitivity_sentences unit_rows",
}

__all__ = [
    "FAMILIES",
    "LAYOUTS",
    "READY",
    "STUDY",
    "Components",
    "ComponentsResult",
    "Part",
    "PartEffect",
    "SensitivityResult",
    "UnitEffect",
    "astudy_components",
    "astudy_sensitivity",
    "components_sentences",
    "effect_cells",
    "read_components",
    "sensitivity_sentences",
    "study_components",
    "study_sensitivity",
    "unit_rows",
    "write_study",
]

__getattr__ = lazy(__name__, _HOMES)
