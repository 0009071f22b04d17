"""A task from Python values, by the same rules as a task folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rewards.targets import show_target
from whet.task.environment import read_environment
from whet.task.keywords import TaskKeywords
from whet.task.load import make_several, make_task, read_folder
from whet.task.prompts import load_prompt
from whet.task.sources import DATASETS, FILE
from whet.task.spec import ALIASES, SPLITS, TaskContent
from whet.task.table import python_number, table_of
from whet.task.tree import Node
from whet_client.prompt.chat import looks_like_chat
from whet_client.storable import show_value

T = TypeVar("T", bound=TaskContent)
LONGEST_PATH = 1000
PROMPT_FILES = (".md", ".txt", ".yaml", ".yml", ".json")
_FILE_NAME = re.compile(r"\S*[^\s.]\.[A-Za-z][A-Za-z0-9]{0,5}")
_WORD = re.compile(r"[\w.-]+")
_PART = r"[^\s/\\<>{}\"']+"
_WAY = re.compile(rf"(?:\.{{1,2}}|~|[A-Za-z]:)?[/\\]\S*|{_PART}(?:[/\\]{_PART})+[/\\]?|{_PART}[/\\]")


def find_task(
    kind: type[T],
    task: str | Path | Prompt | T | Mapping[str, object] | Sequence[object],
    words: TaskKeywords,
    needs: Sequence[str] = SPLITS,
) -> T:
    """The task that a caller names: one in memory, a folder, or the text of a prompt (of several by name) with `words`.

    `needs` are the splits that must be there.
    A text names a folder when there is one of that name with a task.yaml, or when no data comes with it. Raises UsageError
    for words that contradict the task, and for everything that a task folder is refused for.
    """
    if isinstance(task, kind):
        _refuse_words(words, f"the task {task.name}")
        return task
    if isinstance(task, Prompt | Mapping | list | tuple):
        return build_task_of_kind(kind, prompt_of(task), words, needs)
    if not isinstance(task, str | Path):
        raise UsageError(
            f"{show_value(task)} is no task. Give the text of a prompt, a whet.Prompt, a whet.Task or a task folder."
        )
    bare = all(words.get(name) is None for name in ("data", "environment", "tasks"))
    if names_prompt_file(str(task)) and not bare:
        return build_task_of_kind(kind, prompt_of(Path(task)), words, needs)
    if isinstance(task, Path) or _is_folder(task):
        _refuse_words(words, f"the task folder {task}")
        return read_folder(kind, task, needs)
    if bare and _may_be_path(task):
        return _folder_or_refused(kind, task, needs)
    return build_task_of_kind(kind, prompt_of(task), words, needs)


def prompt_of(prompt: str | Path | Prompt | Mapping[str, Any] | Sequence[Any], named_by: str = "") -> Prompt:
    """A prompt, its text, its messages, the file that holds it, or several of these by name. A text of one line that is called
    like a prompt file names a file. `named_by` is who names it. Raises UsageError for a file that is not there, too."""
    if isinstance(prompt, Prompt):
        return prompt
    if isinstance(prompt, list | tuple) or (isinstance(prompt, Mapping) and looks_like_chat(prompt)):
        return Prompt.of_chat(prompt, named_by or "prompt", Path())
    if isinstance(prompt, Mapping):
        unnamed = [name for name in prompt if not isinstance(name, str)]
        if unnamed or not prompt:
            what = f"this is {show_value(unnamed[0])}" if unnamed else "there is none"
            raise UsageError(f"The prompts of a program have names, which are texts; {what}.")
        return Prompt.of_parts({name: prompt_of(part, f'prompt "{name}"') for name, part in prompt.items()})
    if isinstance(prompt, Path) or (isinstance(prompt, str) and names_prompt_file(prompt)):
        return load_prompt(Path(prompt), named_by)
    if isinstance(prompt, str):
        _refuse_lost_path(prompt)
    text: Any = prompt
    return Prompt.parse(text, folder=Path())


def names_prompt_file(text: str) -> bool:
    """Whether a text of one line is the name of a prompt file, whether there is one or not."""
    if not _may_be_path(text) or not text.strip():
        return False
    suffix = Path(text).suffix.lower()
    try:
        there = Path(text).is_file()
    except (OSError, ValueError):
        there = False
    named = suffix in PROMPT_FILES and Path(text).name not in ("task.yaml", "task.yml")
    return named and (there or _FILE_NAME.fullmatch(text) is not None)


def _refuse_lost_path(text: str) -> None:
    """Raise UsageError for a text that looks like the path of a task folder or a file, and is none."""
    if not _may_be_path(text) or not text.strip():
        return
    path = Path(text)
    beside = (
        [p.name for p in Path().iterdir() if (p / "task.yaml").is_file()] if _WORD.fullmatch(text) else []
    )
    near = difflib.get_close_matches(text, beside, n=1, cutoff=0.75)
    if path.is_dir() or _WAY.fullmatch(text) or _FILE_NAME.fullmatch(text) or near:
        what = "is a folder without a task.yaml" if path.is_dir() else "is no file and no task folder"
        hint = f' Did you mean "{near[0]}"?' if near else " Correct the path."
        raise UsageError(
            f"{show_value(text)} {what}.{hint} For the text of a prompt, give whet.Prompt.parse(text)."
        )


def build_task_of_kind(
    kind: type[T], prompt: Prompt, words: TaskKeywords, needs: Sequence[str] = SPLITS
) -> T:
    """A task in memory. Raises UsageError for everything that a task folder is refused for."""
    document: dict[str, object] = {"name": f"prompt-{prompt.id}", **words}
    if "tasks" in document:
        return _build_several(kind, prompt, document, needs)
    data = document.pop("data", None)
    if (labels := words.get("labels")) is not None:
        document["labels"] = [_label(label) for label in labels]
    keys = {key: Node.of(value, key) for key, value in document.items()}
    environment = read_environment(keys, Path())
    if data is None and not (environment is not None and environment.brings("data")):
        raise UsageError(
            "A prompt needs rows to be tried on. Give data=: a list of dicts, a data frame, a datasets.Dataset, a path, or a "
            'dict {"train": ..., "validation": ..., "test": ...}.'
        )
    if (
        "reward" not in keys
        and "objectives" not in keys
        and not (environment is not None and environment.brings("reward"))
    ):
        raise UsageError(
            'A prompt needs a reward. Give reward=: a name such as "exact_match", or a function (example, output) -> float; or '
            "several as objectives=."
        )
    if data is not None:
        keys["data"] = _data(data)
    slots = {} if prompt.parts else dict.fromkeys(prompt.slots, "prompt")
    return make_task(kind, keys, Path(), prompt, slots, environment, needs)


def _label(label: object) -> object:
    """A label as its text; whatever can be none is left to the reader of labels."""
    plain = python_number(label)
    return show_target(plain) if isinstance(plain, str | int | float) else plain


def _build_several(kind: type[T], prompt: Prompt, document: dict[str, Any], needs: Sequence[str]) -> T:
    """A task made of several folders or tasks. Raises UsageError."""
    named = document["tasks"]
    if not isinstance(named, list | tuple):
        raise UsageError(f"tasks= is a list of task folders or whet.Tasks; this is {show_value(named)}.")
    members: list[T] = [find_task(kind, one, {}, needs) for one in named]
    document["tasks"] = [member.name for member in members]
    keys = {key: Node.of(value, key) for key, value in document.items()}
    return make_several(kind, keys, Path(), prompt, members)


def _data(data: object) -> Node:
    """Rows, a path, or one of them for each split, as the value of the key `data`."""
    if isinstance(data, Mapping) and {DATASETS, FILE} & data.keys():
        return Node.of(data, "data")
    if isinstance(data, Mapping) and type(data).__module__.partition(".")[0] == "datasets":
        data = {split: rows for split, rows in data.items() if split in (*SPLITS, *ALIASES)} or dict(data)
        data = next(iter(data.values())) if len(data) == 1 else data
    if isinstance(data, Mapping):
        inner = {str(split): _rows(rows, f'data["{split}"]') for split, rows in data.items()}
        return Node(Path(), 1, 1, inner, "", "data")
    return _rows(data, "data")


def _rows(data: object, place: str) -> Node:
    if isinstance(data, str | Path):
        return Node.of(data, place)
    return Node(Path(), 1, 1, table_of(data, place), "", place)


def _may_be_path(text: str) -> bool:
    return len(text) < LONGEST_PATH and "\n" not in text and "\x00" not in text and "{{" not in text


def _is_folder(text: str) -> bool:
    if not _may_be_path(text) or not text.strip():
        return False
    path = Path(text)
    try:
        return (path / "task.yaml").is_file() or (path.name == "task.yaml" and path.is_file())
    except OSError:
        return False


def _folder_or_refused(kind: type[T], text: str, needs: Sequence[str]) -> T:
    """The folder of that name. Raises UsageError that says what else the text may have been."""
    try:
        return read_folder(kind, text, needs)
    except UsageError as error:
        if Path(text).exists():
            raise
        raise UsageError(f"{error} For the text of a prompt, give data= and reward= too.") from None


def _refuse_words(words: TaskKeywords, what: str) -> None:
    name = next(iter(words), None)
    if name is not None:
        raise UsageError(
            f"{what} brings its own {name}, and {name}= is named too. Leave {name}= out, or give the prompt as text."
        )
