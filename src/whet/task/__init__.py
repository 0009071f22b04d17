"""Tasks: task.yaml or Python values, prompt, data and reward, read and checked before anything is paid."""

from whet.task.load import load_task
from whet.task.memory import TaskKeywords, build_task, prompt_of, task_of
from whet.task.prompts import load_prompt
from whet.task.spec import ModelSpec, Task

__all__ = [
    "ModelSpec",
    "Task",
    "TaskKeywords",
    "build_task",
    "load_prompt",
    "load_task",
    "prompt_of",
    "task_of",
]
