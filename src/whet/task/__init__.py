"""Tasks: task.yaml or Python values, prompt, data and reward, read and checked before anything is paid."""

from whet.rewards.choose import find_labels
from whet.task.columns import columns_of, describe_columns, guess
from whet.task.imported_data import ImportedData
from whet.task.keywords import AlphaKeywords, GateKeywords, RegionKeywords, TaskKeywords
from whet.task.marked_splits import NO_SPLIT, divide, find_split
from whet.task.material import read_material
from whet.task.memory import PROMPT_FILES, prompt_of
from whet.task.prompts import load_prompt
from whet.task.save import check_folder
from whet.task.spec import SPLITS, ModelSpec
from whet.task.starting import (
    NO_LABELS,
    NewTaskChoices,
    StartedTask,
    start_task,
    starting_prompt,
)
from whet.task.task import Task, build_task, load_task, task_of

__all__ = [
    "NO_LABELS",
    "NO_SPLIT",
    "PROMPT_FILES",
    "SPLITS",
    "AlphaKeywords",
    "GateKeywords",
    "ImportedData",
    "ModelSpec",
    "NewTaskChoices",
    "RegionKeywords",
    "StartedTask",
    "Task",
    "TaskKeywords",
    "build_task",
    "check_folder",
    "columns_of",
    "describe_columns",
    "divide",
    "find_labels",
    "find_split",
    "guess",
    "load_prompt",
    "load_task",
    "prompt_of",
    "read_material",
    "start_task",
    "starting_prompt",
    "task_of",
]
