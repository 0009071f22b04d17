"""`whet.study_sensitivity`: the effect of each sentence or word of a prompt, and of its form.

A unit's contribution is the mean reward of the whole prompt minus the mean reward of the prompt without the unit (leave one
out). Two sentences that say the same contribute nothing by that measure. Their Shapley values share their joint contribution.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.comparison import found_candidate
from whet.api.keywords import MODEL_GROUPS, RUN_GROUPS, STUDY_GROUPS, SensitivityKeywords, SubjectKeywords
from whet.api.running import find_run, with_prompt
from whet.api.study.grid import Grid, StudyOptions, StudyPlan, run_study, study_rows
from whet.api.study.page import write_study
from whet.api.study.results import SensitivityResult
from whet.api.study.units import Unit, UnitKind, keep_units, other_forms, split_units, with_text
from whet.api.transferring import read_finished, task_of_run
from whet.engine.assemble import assemble
from whet.errors import UsageError, parameter, quantity
from whet.prompt import Prompt
from whet.reporting import display_progress, place_of
from whet.stats import ContrastTest, evaluate_contrasts
from whet.stats.shapley import Coalition, coalitions_of, order_error, sample_orders, shapley_weights
from whet.task import Task, TaskKeywords, prompt_of, task_of

Weights = NDArray[np.float64]


@check_arguments
@describe_keywords(SubjectKeywords, *STUDY_GROUPS, *MODEL_GROUPS, *RUN_GROUPS, defaults=StudyOptions)
async def astudy_sensitivity(
    prompt: str | Path | Prompt | Mapping[str, Any] | Sequence[Any],
    *,
    unit: UnitKind = "sentence",
    shapley: int = 0,
    forms: bool = True,
    **keywords: Unpack[SensitivityKeywords],
) -> SensitivityResult:
    """Measure the effect of each sentence or word of a prompt on the reward, and the effect of harmless changes of its form.

    `prompt`: the folder or the name of a finished run, whose best prompt is studied, or a prompt as in `whet.evaluate` together
    with its `task`. `unit`: sentence or word, by the default boundaries of Unicode. Each unit is left out once. `shapley`: the
    number of random orders in which units are added one by one, so that units with the same effect share it; each order takes
    about as many prompts as there are units. `forms`: whether to measure the text with other separators, with headings in other
    letters, and in another order. The same call again continues, and pays for nothing twice.

    Raises UsageError before anything is paid for a run without a result, a prompt of one unit, and limits that do not pay for
    all answers. Raises UsageError later if tokens or dollars run out, and ProviderError for a dead endpoint. Answers are kept.
    """
    if shapley < 0:
        raise UsageError(f"{parameter('shapley')} must be a number of orders, 0 or more; this is {shapley}.")
    options, task = build_from(StudyOptions, keywords), keywords.get("task")
    with display_progress(keywords.get("progress"), place_of(task)) as shown:
        loaded, options = _subject(prompt, task, options)
        study_rows(loaded, options)
        assembly = assemble(loaded, options, options.limits(loaded))
        try:
            variants = make_variants(loaded.prompt, options, unit, shapley, forms)
            setting = {"prompt": loaded.prompt.id, "unit": unit, "shapley": shapley, "region": options.region}
            rows = study_rows(loaded, options)
            plan = StudyPlan("sensitivity", loaded, options, assembly, variants.prompts, rows, setting)
            result = await run_study(plan, shown, variants.header(), variants.describe, variants.remedy)
            if not options.dry_run:
                write_study(Path(result["run"]), result)
            return SensitivityResult(result)
        finally:
            await assembly.close()


def _subject(prompt: Any, task: Any, options: StudyOptions) -> tuple[Task, StudyOptions]:
    """The task with the prompt that is studied in it; of a run, with its models where others are not named."""
    is_run = isinstance(prompt, str | Path) and any(
        (folder / "journal.sqlite").is_file() for folder in (Path(prompt), Path(options.root) / str(prompt))
    )
    if not is_run and task is None and isinstance(prompt, str | Path) and not Path(prompt).is_file():
        find_run(prompt, options.root)
    if not is_run:
        if task is None:
            raise UsageError(
                f"A study needs the rows of a task. Name the task with {parameter('task', 'FOLDER')}."
            )
        loaded = task_of(task, TaskKeywords(), needs=("train", options.split))
        named = Path(prompt) if isinstance(prompt, str) and Path(prompt).is_file() else prompt
        what = str(named) if isinstance(named, Path) else "The prompt"
        return with_prompt(loaded, prompt_of(named, parameter("prompt")), what), options
    folder = find_run(prompt, options.root)
    result, header = read_finished(folder)
    known = task_of_run(folder, header, task)
    models = header["models"]
    if options.lm is None and not known.models["task"].named:
        options = replace(options, lm=models.get("task"))
    if options.judge_lm is None and not known.models["judge"].named:
        options = replace(options, judge_lm=models.get("judge"))
    return replace(known, prompt=found_candidate(known, folder, result).prompt), options


@dataclass(frozen=True)
class PromptVariants:
    """A prompt, its units, and what is tried: it without each of them, with those of each coalition alone, and in other forms.

    `prompts` holds each different prompt once, the whole one first; the other fields say where in it each variant is.
    """

    text: str
    kind: UnitKind
    units: Sequence[Unit]
    prompts: Sequence[Prompt]
    without: Mapping[int, int]
    coalitions: Mapping[Coalition, int]
    orders: Sequence[Sequence[int]]
    forms: Mapping[str, int]

    @property
    def free(self) -> list[int]:
        """The units that are left out once, by number."""
        return list(self.without)

    def header(self) -> dict[str, Any]:
        """The tried variants, as in result.json."""
        units = quantity(len(self.free), self.kind)
        others = [quantity(len(self.forms), "other form")] if self.forms else []
        lines = [", ".join([f"{units} left out one at a time", *others])]
        if self.orders:
            lines.append(f"Shapley values by {quantity(len(self.orders), 'random order')}")
        return {"text": self.text, "unit": self.kind, "shapley": len(self.orders), "lines": lines}

    @property
    def remedy(self) -> str:
        """The remedy if a limit does not pay for the study."""
        words = f"Give fewer {parameter('rows')} or a larger limit"
        return f"{words}, or a smaller {parameter('shapley')}." if self.orders else f"{words}."

    def describe(self, grid: Grid) -> dict[str, Any]:
        """The contribution of each unit and the effect of each form, as in result.json."""
        carried = self._test_family(grid, [self._difference(0, place) for place in self.without.values()])
        shares = self._shares(grid)
        units = [
            {
                **asdict(unit),
                **carried.get(i, {}),
                **({"shapley": shares[i]} if i in shares else {}),
            }
            for i, unit in enumerate(self.units)
        ]
        means = grid.means()
        changed = self._tests(grid, [self._difference(place, 0) for place in self.forms.values()])
        forms = [
            {
                "name": name,
                **{key: means[place][key] for key in ("mean", "n")},
                "text": self.prompts[place].text,
                **asdict(one),
            }
            for (name, place), one in zip(self.forms.items(), changed, strict=True)
        ]
        return {
            "whole": means[0],
            "units": units,
            "forms": forms,
            "spread": spread_of_means(grid.rewards[:, [0, *self.forms.values()]]) if self.forms else None,
        }

    def _difference(self, plus: int, minus: int) -> Weights:
        weights = np.zeros(len(self.prompts))
        weights[plus] += 1.0
        weights[minus] -= 1.0
        return weights

    def _tests(self, grid: Grid, weights: Sequence[Weights] | Weights) -> list[ContrastTest]:
        if not len(weights):
            return []
        return evaluate_contrasts(grid.rewards, weights, grid.low, grid.high, grid.clusters)

    def _test_family(self, grid: Grid, weights: Sequence[Weights] | Weights) -> dict[int, dict[str, Any]]:
        """The tests of a family with one contrast for each free unit, by its number."""
        return dict(zip(self.free, map(asdict, self._tests(grid, weights)), strict=True))

    def _shares(self, grid: Grid) -> dict[int, dict[str, Any]]:
        """The Shapley value of each free unit, its interval over rows, and the standard error that comes from drawing orders."""
        if not self.orders:
            return {}
        places = {coalition: number for number, coalition in enumerate(self.coalitions)}
        weights = shapley_weights(self.orders, places)
        columns = list(self.coalitions.values())
        mean = np.zeros((len(self.free), len(self.prompts)))
        for number, column in enumerate(columns):
            mean[:, column] += weights[:, :, number].mean(axis=0)
        known = grid.rewards[:, columns]
        whole = known[~np.isnan(known).any(axis=1)]
        errors = order_error(whole.mean(axis=0), weights) if len(whole) else np.full(len(self.free), np.nan)
        tested = self._test_family(grid, mean)
        return {
            unit: {**tested[unit], "error": None if np.isnan(error) else float(error)}
            for unit, error in zip(self.free, errors, strict=True)
        }


def make_variants(
    prompt: Prompt, options: StudyOptions, kind: UnitKind, shapley: int, forms: bool
) -> PromptVariants:
    """All prompts of a study. Raises UsageError where no unit can be left out."""
    text = prompt.region_text(options.region)
    units = split_units(text, kind)
    prompts, places = [prompt], {prompt.id: 0}

    def place(made: Prompt) -> int:
        if made.id not in places:
            places[made.id] = len(prompts)
            prompts.append(made)
        return places[made.id]

    def keep(numbers: Coalition) -> Prompt | None:
        return keep_units(prompt, units, numbers, options.region)

    every = frozenset(i for i, unit in enumerate(units) if not unit.fixed)
    without = {i: place(made) for i in sorted(every) if (made := keep(every - {i})) is not None}
    if not without:
        raise UsageError(
            f"The editable text of the prompt has no {kind} that can be left out. "
            + (f"Try {parameter('unit', 'word')}." if kind == "sentence" else "Study a longer prompt.")
        )
    free, orders, coalitions = list(without), list[list[int]](), dict[Coalition, int]()
    if shapley:
        orders = sample_orders(len(free), shapley, random.Random(options.seed))
        always = every - set(free)
        for coalition in coalitions_of(orders):
            made = keep(frozenset(free[i] for i in coalition) | always)
            if made is None:
                raise UsageError(
                    f"Shapley values need the prompt without any {kind}, but a message would then be "
                    f"empty. Omit {parameter('shapley')} out."
                )
            coalitions[coalition] = place(made)
    others = {}
    if forms:
        for name, form in other_forms(text, split_units(text, "sentence"), options.seed):
            made = with_text(prompt, form, options.region)
            if made is not None and made.id not in places:
                others[name] = place(made)
    return PromptVariants(text, kind, units, prompts, without, coalitions, orders, others)


def spread_of_means(rewards: Weights) -> dict[str, Any]:
    """Measure how far the mean rewards of equivalent prompts lie apart: rows x prompts; rows without all answers are left out.

    `range` is the largest mean minus the smallest one, which chance alone makes larger than 0. `across` chooses the best and
    the worst prompt on every second row and takes their difference on the other rows, both ways: it is 0 on average where the
    form does not matter, and at most the true range where it does.
    """
    whole = rewards[~np.isnan(rewards).any(axis=1)]
    if not len(whole):
        return {"range": None, "across": None, "n": 0}
    means = whole.mean(axis=0)
    halves = whole[::2], whole[1::2]
    across = None
    if all(len(half) for half in halves):
        gaps = []
        for chosen, measured in (halves, halves[::-1]):
            order = chosen.mean(axis=0)
            other = measured.mean(axis=0)
            gaps.append(float(other[order.argmax()] - other[order.argmin()]))
        across = sum(gaps) / 2
    return {"range": float(means.max() - means.min()), "across": across, "n": len(whole)}


study_sensitivity = blocking(astudy_sensitivity)
