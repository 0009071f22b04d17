"""`whet.study_components`: a factorial study of the parts of a prompt, with main effects and interactions of two.

The main effect of a part is the mean reward of the prompts with it minus that of the prompts without; an interaction of two is
half of what the effect of the one changes by the other. Both are contrasts of the same rows (`whet.stats.contrasts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.keywords import MODEL_GROUPS, RUN_GROUPS, STUDY_GROUPS, StudyCallKeywords
from whet.api.study.components import (
    Components,
    assemble_prompts,
    fill_examples,
    read_components,
    without_rows,
)
from whet.api.study.grid import (
    Grid,
    StudyOptions,
    StudyPlan,
    calls_of_answer,
    run_study,
    study_rows,
)
from whet.api.study.page import write_study
from whet.api.study.results import ComponentsResult
from whet.engine.assemble import Assembly, assemble
from whet.errors import UsageError, did_you_mean, parameter, quantity
from whet.prompt import Prompt
from whet.reporting import display_progress, place_of
from whet.stats import Design, evaluate_contrasts, fractional_design, full_design, letters
from whet.task import Task, TaskKeywords, task_of

MOST_PROMPTS = 64
"""Prompts of a design that nobody chose, at most, where a smaller one will do."""
SMALL = 4
"""Parts up to which all combinations are taken."""
CHOICES = ("auto", "full", "5", "4", "3")


@check_arguments
@describe_keywords(*STUDY_GROUPS, *MODEL_GROUPS, *RUN_GROUPS, defaults=StudyOptions)
async def astudy_components(
    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[Any],
    components: str | Path | Sequence[Any] = "folklore",
    *,
    resolution: str | int = "auto",
    **keywords: Unpack[StudyCallKeywords],
) -> ComponentsResult:
    """Measure the effect of each part of a prompt, with and without each part, in a factorial design on the same rows.

    `task`: as in `whet.optimize`; the parts are added to its prompt. `components`: `folklore` or `parts`, the file of a
    list of parts, or a list of `whet.api.study.Part` or mappings with the keys of such a file. `resolution`: `full` takes all
    combinations; 5, 4 and 3 the smallest design of that resolution; `auto` the best of these with at most 64 prompts that the
    limit on calls pays for, all combinations of up to 4 parts. The same call again continues and pays for nothing twice.

    Raises UsageError before anything is paid for a file that cannot be read, for parts that the prompt refuses, and for limits
    that do not pay for all answers. Raises it later where tokens or dollars run out. Raises ProviderError for a dead endpoint.
    The answers so far are kept.
    """
    options = build_from(StudyOptions, keywords)
    with display_progress(keywords.get("progress"), place_of(task)) as shown:
        loaded = task_of(task, TaskKeywords(), needs=("train", options.split))
        study_rows(loaded, options)
        read = read_components(components)
        assembly = assemble(loaded, options, options.limits(loaded))
        try:
            study = _plan(loaded, read, options, assembly, str(resolution))
            result = await run_study(study.plan, shown, study.header(), study.describe, study.remedy)
            if not options.dry_run:
                write_study(Path(result["run"]), result)
            return ComponentsResult(result)
        finally:
            await assembly.close()


@dataclass(frozen=True)
class ComponentsStudy:
    """The design of a study, its parts with their texts, and the plan of its answers."""

    design: Design
    components: Components
    plan: StudyPlan

    def describe(self, grid: Grid) -> dict[str, Any]:
        """Design, parts, prompts with their means, main effects and interactions, as in result.json."""
        mains, pairs = self.design.estimates()
        names = self.components.factors
        return {
            "prompts": [
                {
                    "id": prompt.id,
                    "parts": [names[i] for i in np.flatnonzero(levels > 0)],
                    "text": prompt.text,
                    **mean,
                }
                for prompt, levels, mean in zip(
                    self.plan.prompts, self.design.levels, grid.means(), strict=True
                )
            ],
            "effects": self._effects(grid, mains),
            "interactions": self._effects(grid, pairs),
        }

    def header(self) -> dict[str, Any]:
        """Design and parts."""
        design, names = self.design, self.components.factors
        mains, _ = design.estimates()
        header = {
            "design": {
                "name": design.name,
                "prompts": design.runs,
                "resolution": design.resolution,
                "generators": list(design.generators),
                "aliases": [self._name(group) for group in mains if len(group) > 1],
            },
            "parts": [
                {"letter": letters((i,)), **asdict(part)} for i, part in enumerate(self.components.parts)
            ],
            "layouts": list(self.components.layouts),
            "factors": {letters((i,)): name for i, name in enumerate(names)},
        }
        return {**header, "lines": describe_design(header)}

    @property
    def remedy(self) -> str:
        """The remedy where a limit does not pay for the study."""
        smallest, words = (
            fractional_design(self.design.factors, 3).runs,
            f"Give fewer {parameter('rows')} or a larger limit",
        )
        if smallest == self.design.runs:
            return f"{words}."
        return f"{words}, or {parameter('resolution', 3)}, which takes {quantity(smallest, 'prompt')}."

    def _effects(self, grid: Grid, groups: Sequence[tuple[tuple[int, ...], ...]]) -> list[dict[str, Any]]:
        """One family of contrasts; the largest first."""
        if not groups:
            return []
        weights = [self.design.contrast(group[0]) * (2 / self.design.runs) for group in groups]
        tested = evaluate_contrasts(grid.rewards, weights, grid.low, grid.high, grid.clusters)
        rows = [
            {
                "name": self._words(group[0]),
                "letters": letters(group[0]),
                "aliases": [*map(self._words, group[1:])],
                **asdict(one),
            }
            for group, one in zip(groups, tested, strict=True)
        ]
        return sorted(rows, key=lambda row: -abs(row["difference"] or 0.0))

    def _words(self, word: tuple[int, ...]) -> str:
        return " × ".join(self.components.factors[i] for i in word)

    def _name(self, group: Sequence[tuple[int, ...]]) -> str:
        return " = ".join(letters(word) for word in group)


def choose_design(factors: int, resolution: str, affordable: int | None) -> Design:
    """The design that a resolution names; for `auto` the best that `affordable` prompts (None: any number) pay for.

    Raises UsageError for an unknown resolution. Where nothing is affordable, it is the smallest one.
    """
    if resolution not in CHOICES:
        raise UsageError(
            f"{parameter('resolution', resolution)} is one of {', '.join(CHOICES)}.{did_you_mean(resolution, CHOICES)}"
        )
    if resolution == "full":
        return full_design(factors)
    if resolution != "auto":
        return fractional_design(factors, int(resolution))
    ranked = [fractional_design(factors, each) for each in (5, 4, 3)]
    if factors <= SMALL:
        ranked.insert(0, full_design(factors))
    most = MOST_PROMPTS if affordable is None else min(MOST_PROMPTS, affordable)
    return next((design for design in ranked if design.runs <= most), ranked[-1])


def _plan(
    task: Task, read: Components, options: StudyOptions, assembly: Assembly, resolution: str
) -> ComponentsStudy:
    components, hidden = fill_examples(read, assembly.env, task.prompt, options.seed)
    rows = without_rows(study_rows(task, options), hidden if options.split == "train" else set())
    limits = options.limits(task)
    bounds = [n for n in (limits.calls, limits.task_calls) if n is not None]
    affordable = min(bounds) // (len(rows) * calls_of_answer(assembly)) if bounds else None
    design = choose_design(len(components.factors), resolution, affordable)
    prompts = assemble_prompts(components, task.prompt, options.region, (design.levels > 0).tolist())
    setting = {
        "design": design.name,
        "parts": [asdict(part) for part in components.parts],
        "layouts": list(components.layouts),
        "region": options.region,
    }
    plan = StudyPlan("components", task, options, assembly, prompts, rows, setting)
    return ComponentsStudy(design, components, plan)


def describe_design(header: Mapping[str, Any]) -> list[str]:
    """The design in sentences: its name, how further factors are made, and which effects one estimate holds together."""
    design, lines = header["design"], []
    lines.append(
        f"design {design['name']}: {', '.join(f'{k} {name}' for k, name in header['factors'].items())}"
    )
    if design["generators"]:
        lines.append(f"generators {', '.join(design['generators'])}")
    lines += {
        3: [
            "resolution III: a main effect is estimated together with interactions of two: "
            + "; ".join(design["aliases"])
        ],
        4: [
            "resolution IV: main effects are clear of interactions of two, and some of these are estimated together"
        ],
    }.get(design["resolution"] or 0, [])
    return lines


study_components = blocking(astudy_components)
