"""Tasks as callers have them: made from Python values or a folder, and saved as a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from whet._util.arguments import check_arguments, describe_keywords, select_keywords
from whet.errors import named_fields
from whet.prompt import Prompt
from whet.task import memory
from whet.task.keywords import AlphaKeywords, GateKeywords, RegionKeywords, TaskKeywords, TaskOfKeywords
from whet.task.load import read_folder
from whet.task.memory import prompt_of
from whet.task.save import save_task
from whet.task.spec import SPLITS, TaskContent, with_gate, with_longest


@named_fields
@dataclass(frozen=True)
class Task(TaskContent):
    """A task: a prompt, rows in three splits, and a reward. See `TaskContent` for its fields."""

    @classmethod
    @check_arguments
    @describe_keywords(TaskKeywords, RegionKeywords, AlphaKeywords, GateKeywords)
    def of(
        cls,
        prompt: str | Path | Prompt | Mapping[str, Any] | Sequence[object],
        **keywords: Unpack[TaskOfKeywords],
    ) -> Task:
        """A task in memory.

        `prompt` is a text, messages, a Prompt, the path of a file, or a dict of these by name with a `program`. Raises
        UsageError for everything that a task folder is refused for.
        """
        task = memory.build_task_of_kind(cls, prompt_of(prompt), select_keywords(TaskKeywords, keywords))
        gated = with_gate(
            task, keywords.get("alpha"), keywords.get("minimum_effect"), keywords.get("alpha_policy")
        )
        return with_longest(gated, keywords.get("longest"))

    @classmethod
    @check_arguments
    def load(cls, folder: str | Path) -> Task:
        """The task in a folder (or in the folder of a given task.yaml). Raises UsageError with file and line."""
        return read_folder(cls, folder)

    @check_arguments
    def save(self, folder: str | Path) -> Path:
        """Write the task into a new folder, from which `Task.load` gives the same task; the folder's path.

        Raises UsageError for what cannot be written, such as a reward that is a lambda.
        """
        return save_task(self, folder)


def load_task(folder: str | Path, needs: Sequence[str] = SPLITS) -> Task:
    """The task in a folder; see `whet.task.load.read_folder`."""
    return read_folder(Task, folder, needs)


def build_task(prompt: Prompt, words: TaskKeywords, needs: Sequence[str] = SPLITS) -> Task:
    """A task in memory; see `whet.task.memory.build_task_of_kind`."""
    return memory.build_task_of_kind(Task, prompt, words, needs)


def task_of(
    task: str | Path | Prompt | Task | Mapping[str, Any] | Sequence[object],
    words: TaskKeywords,
    needs: Sequence[str] = SPLITS,
) -> Task:
    """The task that a caller names; see `whet.task.memory.find_task`."""
    return memory.find_task(Task, task, words, needs)
