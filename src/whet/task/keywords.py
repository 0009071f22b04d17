"""The keywords with which a caller describes a task in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class RegionKeywords(TypedDict, total=False):
    """The fence.

    region: the name of the fence that may be edited.
    """

    region: str | None


class TaskKeywords(RegionKeywords, total=False):
    """The task, if the first argument is the text of a prompt and not a task folder. The keys are those of task.yaml.

    data: a list of dicts, a data frame, a datasets.Dataset, a path (.jsonl, .json, .csv, .py), or a dict of these with the keys
      train, validation, test. A row has `input` (a text, or a dict that fills the slots), `target`, and anything else; a row
      may leave out `input` if its keys fill the slots. If the prompt has no slots, all columns of a frame except `id` and
      `target` are the input. A column `split` with the values train, validation and test determines the split of each row.
    reward: a name, a value as in task.yaml, or a function (example, output) -> number, dict or Reward, sync or async. A reward
      between other bounds than 0 and 1 is {"program": {"function": f, "low": -1, "high": 1}}. `objectives` may replace it.
    labels: texts, whole numbers or truth values; a number or truth value of a row names the label of its text ("0", "true").
    verbalizer, description, splits, environment, second_opinion, name, group, reward_timeout, objectives: as in
      task.yaml.
    program: an async function (lm, prompts, example); the first argument is then a dict of its prompts by name
      (docs/programs.md).
    tasks: instead of data and reward, a list of task folders or Tasks that share the prompt (docs/several-tasks.md).
    """

    data: Any
    reward: Any
    labels: Sequence[Any] | None
    verbalizer: Mapping[str, str] | None
    description: str | None
    splits: Mapping[str, float | str] | None
    environment: Mapping[str, Any] | None
    second_opinion: Any
    name: str | None
    group: str | None
    reward_timeout: float | None
    program: Any
    objectives: Mapping[str, Any] | None
    tasks: Sequence[Any] | None


class AlphaKeywords(TypedDict, total=False):
    """The error rate, with any task; the value replaces that of the task.

    alpha: the chance of a false promotion, over all openings of the test rows together.
    alpha_policy: "strict" (the default), or "fdr": alpha then bounds the share of false promotions among all promotions on these
      rows, for teams that open them often (docs/openings.md).
    """

    alpha: float | None
    alpha_policy: str | None


class GateKeywords(TypedDict, total=False):
    """The gate, with any task; a value replaces that of the task.

    minimum_effect: the difference that the new prompt must exceed.
    longest: the tokens that the prompt may have at most; by default three times those of the start, at least 2,000.
    """

    minimum_effect: float | None
    longest: int | None


class TaskOfKeywords(TaskKeywords, AlphaKeywords, GateKeywords, total=False):
    """The keywords of `whet.Task.of`."""
