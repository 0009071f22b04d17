"""The task folder: task.yaml, prompt, data and reward, read and checked before anything is paid."""

from whet.task.load import load_task
from whet.task.prompts import load_prompt
from whet.task.spec import ModelSpec, Price, Task

__all__ = ["ModelSpec", "Price", "Task", "load_prompt", "load_task"]
