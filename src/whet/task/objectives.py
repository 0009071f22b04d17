"""The contents of `objectives:` in task.yaml: several rewards and metrics with directions, margins and bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from whet.rewards import LABELS, TARGET_SCORE, Objective, Objectives, RewardFunction, build_reward
from whet.stats import Bound, Goal
from whet.task.decode import decode, field_names, set_fields
from whet.task.task_file import ObjectiveEntry
from whet.task.tree import Node
from whet_client.storable import show_value

EXAMPLE = (
    "objectives: {accuracy: {reward: exact_match, goal: max}, "
    "length: {metric: output_tokens, goal: min, at_most: 1.1x}}"
)
BOUNDS = {"max": "at_least", "min": "at_most"}


def read_objectives(
    node: Node, reward: RewardFunction | None, folder: Path, labels: Mapping[str, str]
) -> Objectives:
    """The objectives of a task; `reward` is what its key `reward` names. Raises UsageError with file and line."""
    keys = node.mapping("`objectives`")
    if not keys:
        node.refuse(f"`objectives` is empty. Name at least one: {EXAMPLE}.")
    parts: list[RewardFunction] = [] if reward is None else [reward]
    items: list[Objective] = []
    for name, entry in keys.items():
        items.append(_objective(name, entry, parts, folder))
        own = parts[items[-1].part] if items[-1].part is not None else None
        if own is not None and TARGET_SCORE in own.needs:
            entry.refuse(
                f"the reward {own.name} is no objective: it scores targets. Name one that reads answers."
            )
        if own is not None and LABELS in own.needs and not labels:
            entry.refuse(
                f"the reward {own.name} works on labels. Add labels: [a, b, ...], or name another reward."
            )
    return Objectives([(1.0, part) for part in parts], items=tuple(items), own=reward is not None)


def _objective(name: str, node: Node, parts: list[RewardFunction], folder: Path) -> Objective:
    what = f"the objective {name}"
    if not name.strip():
        node.refuse(f"an objective has no name. Write {EXAMPLE}.")
    keys = node.mapping(what, field_names(ObjectiveEntry))
    entry = set_fields(decode(node, ObjectiveEntry, what))
    if ("reward" in keys) == ("metric" in keys):
        both = "both a reward and a metric" if "reward" in keys else "neither a reward nor a metric"
        node.refuse(f"{what} names {both}. Name one of them: {EXAMPLE}.")
    metric, part = entry.get("metric"), None
    low, width = 0.0, None
    if metric is None:
        built = build_reward(keys["reward"].plain(), folder, keys["reward"].where)
        if built not in parts:
            parts.append(built)
        part, low, width = parts.index(built), built.low, built.high - built.low
    goal = entry.get("goal", "min" if metric else "max")
    wrong = next((key for word, key in BOUNDS.items() if word != goal and key in keys), None)
    if wrong is not None:
        keys[wrong].refuse(
            f"{what} has the goal {goal}, and is bounded by {BOUNDS[goal]}. Write {BOUNDS[goal]}."
        )
    ends = low, math.inf if width is None else low + width
    bounds = tuple(_read_bound(keys[key], what, key, ends) for key in BOUNDS.values() if key in keys)
    margin = entry.get("margin")
    if margin is not None and width is not None and margin >= width:
        keys["margin"].refuse(
            f"{what}: margin is {margin:g}, and the range of its reward is only {width:g} wide. Write a smaller one."
        )
    weight = entry.get("weight", 1.0)
    exact = metric == "prompt_tokens"
    return Objective(Goal(name, goal == "max", width, margin, bounds, exact), metric, part, low, weight)


def _read_bound(node: Node, what: str, key: str, ends: tuple[float, float]) -> Bound:
    """A number that the mean can reach, whose values lie between the ends, or a multiple of the baseline's mean such as 1.1x."""
    low, high = ends
    text = str(node.value).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)x", text)
    if match is None and (isinstance(node.value, str | bool) or not _is_finite(node.value)):
        node.refuse(
            f"{what}: {key} is a number, or a multiple of the baseline's mean such as 1.1x; this is {show_value(text)}."
        )
    value = float(match.group(1)) if match else float(node.value)
    if match and low < 0:
        node.refuse(
            f"{what}: {key} is a multiple of the baseline, and its reward may be negative. Write a number."
        )
    if match and not value:
        node.refuse(
            f"{what}: {key} is a multiple above 0; this is {show_value(text)}. Write 1.1x, or a number."
        )
    if match is None and (value < low if key == "at_most" else value > high):
        end = f"below {low:g}" if key == "at_most" else f"above {high:g}"
        node.refuse(
            f"{what}: {key} is {value:g}, and no value is {end}: no prompt could meet it. Write another number."
        )
    return Bound(key == "at_most", value, match is not None)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
