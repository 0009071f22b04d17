"""Rewards: numbers in a declared range computed from an example and a completion."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet._util import plugins
from whet._util.fields import check_options, options_of
from whet._util.storable import is_number
from whet.errors import UsageError, did_you_mean
from whet.rewards.asking import RewardOptions
from whet.rewards.checklist import Checklist, build_checklist
from whet.rewards.choose import RewardChoice, choose_reward
from whet.rewards.clip import build_clip
from whet.rewards.composite import Weighted, isinstance_label_reward
from whet.rewards.concise import Concise
from whet.rewards.dates import Date
from whet.rewards.fields_of_json import JsonFields
from whet.rewards.human_score import build_human_score
from whet.rewards.item_list import ItemList
from whet.rewards.judge import Judge, build_judge
from whet.rewards.listwise import build_listwise
from whet.rewards.numbers import Number
from whet.rewards.objectives import Objective, Objectives
from whet.rewards.preference import build_preference
from whet.rewards.program import FILE, ProgramReward, RewardFailed, program_of_file, program_of_function
from whet.rewards.reward import (
    JUDGE,
    LABELS,
    TARGET,
    TARGET_SCORE,
    AlarmedReward,
    LabelReward,
    RewardFunction,
)
from whet.rewards.scored import Confidence, Gap, Likelihood, Perplexity
from whet.rewards.text import F1, Contains, ExactMatch, Regex
from whet.rewards.verifiers import OWN_COLUMNS, VERIFIERS
from whet.rewards.yes_no import build_yes_no
from whet.types import Example
from whet_client.storable import show_value

__all__ = [
    "FILE",
    "JUDGE",
    "LABELS",
    "OWN_COLUMNS",
    "TARGET",
    "TARGET_SCORE",
    "WITHOUT_LABELS",
    "AlarmedReward",
    "Judge",
    "LabelReward",
    "Objective",
    "Objectives",
    "ProgramReward",
    "RewardChoice",
    "RewardFailed",
    "RewardFunction",
    "Weighted",
    "build_reward",
    "check_targets",
    "choose_reward",
    "isinstance_label_reward",
    "plain_reward",
    "with_timeout",
]

BUILT_IN: dict[str, type[Any]] = {
    "exact_match": ExactMatch,
    "f1": F1,
    "contains": Contains,
    "regex": Regex,
    "number": Number,
    "json": JsonFields,
    "list": ItemList,
    "date": Date,
    "gap": Gap,
    "likelihood": Likelihood,
    "confidence": Confidence,
    "perplexity": Perplexity,
}
READ: dict[str, Callable[[RewardOptions], RewardFunction]] = {
    "judge": build_judge,
    "clip": build_clip,
    "checklist": build_checklist,
    "yes_no": build_yes_no,
    "human_score": build_human_score,
    "listwise": build_listwise,
    "preference": build_preference,
    **VERIFIERS,
}
NAMES = (*BUILT_IN, *READ, "concise", "program", "return")
"""The names of rewards that a task file may use without a third-party package."""
WITHOUT_LABELS = frozenset({"number", "date", "json", "list", *VERIFIERS})
"""Rewards that compare values, items, calls or what code does: few different targets are no labels under them."""
FIXED = ("name", "low", "high", "needs")
"""Fields of a reward that a task file does not set."""
_NEEDS = frozenset({JUDGE, LABELS, TARGET, TARGET_SCORE})


def build_reward(spec: object, folder: Path, where: str) -> RewardFunction:
    """A reward from its description in a task file: a name, `{name: {options}}`, `reward.py`, or a weighted
    list.

    Raises UsageError naming `where` (file:line), the value, and what is possible.
    """
    if isinstance(spec, list):
        if not spec:
            raise UsageError(f"{where}: the list of rewards is empty. Name at least one.")
        parts = [_read_weighted(item, folder, where) for item in spec]
        names = [r.name for _, r in parts]
        if len(set(names)) < len(names):
            raise UsageError(
                f"{where}: a reward appears twice: {', '.join(names)}. "
                "Keep one of each name, or give a judge another one with `part: NAME`."
            )
        return Weighted(parts)
    name, options = _name_and_options(spec, where)
    if "weight" in options:
        return Weighted([_read_weighted(spec, folder, where)])
    if name.endswith(".py") or name == "program":
        return _program(name, options, folder, where)
    if name == "concise":
        return _build_concise(options, folder, where)
    if name in READ:
        return READ[name](RewardOptions(name, options, folder, where))
    if name in BUILT_IN:
        return _construct(BUILT_IN[name], name, options, where)
    plugin = plugins.find_plugin(plugins.REWARDS, name, NAMES)
    if plugin is None:
        known = plugins.plugin_names(plugins.REWARDS, (*BUILT_IN, *READ, "concise", "reward.py"))
        raise UsageError(f'{where}: there is no reward "{name}".{did_you_mean(name, known)}')
    return _load(plugin, options, where)


def _build_concise(options: dict[str, Any], folder: Path, where: str) -> Concise:
    """`reward: {concise: {reward: ..., share: 0.2, characters: 2000}}`. Raises UsageError with the place."""
    settings = {key: value for key, value in options.items() if key != "reward"}
    if "reward" not in options:
        raise UsageError(
            f"{where}: the option `reward` of concise is missing: the reward that says what is right."
        )
    for key, value in settings.items():
        if key not in ("share", "characters"):
            known = ["reward", "share", "characters"]
            raise UsageError(f'{where}: the reward concise has no option "{key}".{did_you_mean(key, known)}')
        if not is_number(value):
            raise UsageError(f"{where}: the option {key} of concise must be a number; this is {value!r}.")
    try:
        return Concise([(1.0, build_reward(options["reward"], folder, where))], **settings)
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error


def check_targets(reward: RewardFunction, examples: Iterable[Example]) -> None:
    """Raise UsageError for the first example whose target the reward, or a part of it, cannot compare with."""
    if isinstance(reward, Weighted):
        rows = list(examples)
        for _, part in reward.parts:
            check_targets(part, rows)
        return
    check: Callable[[Example], None] | None = getattr(reward, "check", None)
    if check is not None:
        for example in examples:
            check(example)


def _construct(cls: type[Any], name: str, options: dict[str, Any], where: str) -> RewardFunction:
    try:
        check_options(cls, options, FIXED, "reward", name)
        reward: RewardFunction = cls(**options)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    return reward


def _load(plugin: plugins.Plugin, options: dict[str, Any], where: str) -> RewardFunction:
    """The reward of another package. Raises UsageError naming the package."""
    reward: RewardFunction = plugin.call(_construct, plugin.load(_wrong_class), plugin.name, options, where)
    wrong: str | None = plugin.call(_wrong_reward, reward)
    if wrong is not None:
        plugin.refuse(wrong)
    return reward


def _wrong_class(cls: object) -> str | None:
    if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)):
        return "is no dataclass"
    options_of(cls, FIXED)
    return None if inspect.iscoroutinefunction(getattr(cls, "grade", None)) else "has no `async def grade`"


def _wrong_reward(reward: RewardFunction) -> str | None:
    if not (math.isfinite(reward.low) and math.isfinite(reward.high) and reward.low < reward.high):
        return f"its range is [{reward.low!r}, {reward.high!r}], not two finite numbers low < high"
    unknown = set(reward.needs) - _NEEDS
    if unknown:
        return f"it needs {', '.join(sorted(unknown))}, and a reward needs {', '.join(sorted(_NEEDS))} or nothing"
    return None if isinstance(reward.name, str) and reward.name else "it has no name"


def plain_reward(spec: object) -> object:
    """A description in which every function is named as the file `reward.py` that it is saved to."""
    if isinstance(spec, list):
        return [plain_reward(item) for item in spec]
    if isinstance(spec, Mapping):
        if "function" in spec:
            return {"file": FILE, **{key: value for key, value in spec.items() if key != "function"}}
        return {key: plain_reward(value) for key, value in spec.items()}
    return FILE if callable(spec) else spec


def _name_and_options(spec: object, where: str) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if callable(spec):
        return "program", {"function": spec}
    if isinstance(spec, Mapping):
        if isinstance(spec.get("name"), str):
            return spec["name"], {k: v for k, v in spec.items() if k != "name"}
        weight = {"weight": spec["weight"]} if "weight" in spec else {}
        rest = {k: v for k, v in spec.items() if k != "weight"}
        if len(rest) == 1:
            name, options = next(iter(rest.items()))
            if isinstance(options, int | float) and not isinstance(options, bool):
                return str(name), {"weight": options}
            if options is None or isinstance(options, Mapping):
                return str(name), {**(options or {}), **weight}
    raise UsageError(
        f"{where}: a reward is a name (reward: exact_match), a name with options "
        "(reward: {regex: {pattern: ...}}), a file (reward: reward.py), a function in Python, or a list of these with weights; "
        f"this is {spec!r}."
    )


def _read_weighted(item: object, folder: Path, where: str) -> tuple[float, RewardFunction]:
    name, options = _name_and_options(item, where)
    weight = options.pop("weight", 1.0)
    if not is_number(weight) or not 1e-9 <= abs(weight) <= 1e9:
        raise UsageError(
            f"{where}: the weight of {name} must be a finite number other than 0; this is {weight!r}. Write one from 1e-9 "
            "to 1e9, or such a number below 0."
        )
    return float(weight), build_reward({"name": name, **options}, folder, where)


def _program(name: str, options: dict[str, Any], folder: Path, where: str) -> ProgramReward:
    function = options.pop("function", None)
    file = options.pop("file", FILE) if name == "program" else name
    if function is not None and not callable(function):
        raise UsageError(f"{where}: the option function of program must be a function; this is {function!r}.")
    if not isinstance(file, str):
        raise UsageError(f"{where}: the option file of program must be a file name; this is {file!r}.")
    stated = "low" in options or "high" in options
    low, high = options.pop("low", 0.0), options.pop("high", 1.0)
    if options:
        key = next(iter(options))
        raise UsageError(
            f'{where}: a program reward has no option "{key}".{did_you_mean(key, ["file", "low", "high"])}'
        )
    if not (is_number(low) and is_number(high) and low < high):
        raise UsageError(
            f"{where}: the range of a reward needs finite numbers low < high; this is low={show_value(low)}, "
            f"high={show_value(high)}."
        )
    if function is not None:
        return program_of_function(function, where, float(low), float(high), stated)
    return program_of_file(folder, file, where, float(low), float(high), stated)


def with_timeout(reward: RewardFunction, seconds: float) -> RewardFunction:
    """The reward, with a time limit on each call of a user's function in it, and on each match of a pattern."""
    if isinstance(reward, Regex | Checklist):
        limited = copy.copy(reward)
        object.__setattr__(limited, "timeout", seconds)
        return limited
    if isinstance(reward, ProgramReward):
        return replace(reward, timeout=seconds)
    if isinstance(reward, Weighted):
        return replace(reward, parts=[(weight, with_timeout(part, seconds)) for weight, part in reward.parts])
    return reward
