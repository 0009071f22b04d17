"""A task folder is written, all of it or nothing; and a task in memory as one, so that loading it gives the same task."""

from __future__ import annotations

import base64
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet._util.arguments import check_path, write_fault
from whet.environments.tools import ToolWorld
from whet.errors import UsageError
from whet.rewards import FILE, ProgramReward, RewardFunction, Weighted
from whet.task.examples import MESSAGES
from whet.task.load import read_folder
from whet.task.prompts import prompt_file
from whet.task.spec import SPLITS, TaskContent
from whet.task.tree import write_yaml
from whet.types import Example
from whet_client.media import MARK, content_bytes, content_of, read_mime

_NUMBER = re.compile(r"[0-9]{1,9}")


def save_task(task: TaskContent, folder: str | Path) -> Path:
    """Write task.yaml, prompt, rows, reward and the files that it names into a new or empty folder; its path.

    Raises UsageError where the folder holds something, and for a task that would not be the same when it is loaded: a
    reward that is a lambda, a closure, a coroutine or a method.
    """
    target = check_folder(folder)
    if task.cases:
        raise UsageError(
            f"{task.name} is made of several tasks. Save each of them, and name their folders in `tasks`."
        )
    write_folder(target, dict(_files(task)), task.fingerprint)
    return target


def check_folder(folder: str | Path) -> Path:
    """The folder, when a task may be written there. Raises UsageError for one that holds something."""
    check_path("the folder", folder)
    path = Path(folder)
    if path.is_file():
        raise UsageError(f"{path} is a file, and nothing is overwritten. Name a new folder.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not empty, and nothing is overwritten. Name a new folder.")
    if (reason := write_fault(path)) is not None:
        raise UsageError(f"{path} cannot be made: {reason}. Name a folder elsewhere.")
    return path


def write_folder(
    target: Path,
    files: Mapping[str, bytes],
    fingerprint: str | None = None,
    places: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Make the folder, all of it or nothing. Raises UsageError for what would not load, or would be a task of
    another fingerprint. `places`: by file, where each of its lines came from, which the refusal names instead."""
    above = [path for path in target.parents if not path.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(target, files, fingerprint, places or {})
    except BaseException:
        for path in above:
            path.rmdir()
        raise


def _write(
    target: Path, files: Mapping[str, bytes], fingerprint: str | None, places: Mapping[str, Sequence[str]]
) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        made = Path(name) / "task"
        for file, content in files.items():
            path = made / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            task = read_folder(TaskContent, made)
        except UsageError as error:
            refusal = str(error.args[0])
            for file, lines in places.items():
                refusal = _named_by(refusal, f"{made / file}:", lines)
            refusal = refusal.replace(str(made), str(target))
            unwritten = f"{target / 'task.yaml'}:"  # nobody can look at a line of a file that is not there
            if refusal.startswith(unwritten):
                refusal = refusal.removeprefix(unwritten).partition(": ")[2]
            raise UsageError(f"Nothing is written, because it would not load: {refusal}") from None
        if fingerprint not in (None, task.fingerprint):
            raise UsageError(f"The task {task.name} would not be the same when it is loaded from a folder.")
        if target.exists():
            target.rmdir()
        shutil.move(made, target)


def _named_by(text: str, file: str, lines: Sequence[str]) -> str:
    """A message that names lines of a file (`PATH:` with a number) by where these came from."""
    before, *rest = text.split(file)
    named = [before]
    for piece in rest:
        number = _NUMBER.match(piece)
        known = number is not None and 0 < int(number[0]) <= len(lines)
        named.append(lines[int(number[0]) - 1] + piece[number.end() :] if number and known else file + piece)
    return "".join(named)


def _files(task: TaskContent) -> Iterator[tuple[str, bytes]]:
    """Names in the folder, and what the files hold."""
    document: dict[str, Any] = {"name": task.document["name"]}
    if task.program is None:
        prompt = prompt_file(task.prompt)
        yield prompt
        document["prompt"] = prompt[0]
    else:
        if task.program.file is None:
            raise UsageError(
                "A program that is handed over in Python cannot be written to a file. Put it into program.py."
            )
        files = {name: prompt_file(part, name) for name, part in task.prompt.parts.items()}
        yield from files.values()
        yield _inside(task, task.program.path), task.program.path.read_bytes()
        document["prompts"] = {name: file for name, (file, _) in files.items()}
    named = task.document.get("data")
    if named:
        document["data"] = {split: f"{split}.jsonl" for split in named}
        for split in named:
            yield f"{split}.jsonl", _jsonl(_rows_of(task, split, named))
    elif named is not None:
        document["data"] = "data.jsonl"
        yield "data.jsonl", _jsonl([*task.train, *task.validation, *task.test])
    for reward in (task.reward, task.second_opinion):
        yield from _reward_files(task, reward)
    if isinstance(task.world, ToolWorld) and task.world.path is not None:
        yield _inside(task, task.world.path), task.world.path.read_bytes()
    if task.shaping is not None and task.shaping.path is not None:
        yield _inside(task, task.shaping.path), task.shaping.path.read_bytes()
    yield (
        "task.yaml",
        write_yaml({**document, **{k: v for k, v in task.document.items() if k not in document}}).encode(),
    )


def _rows_of(task: TaskContent, split: str, named: Sequence[str]) -> list[Example]:
    """The rows of a file: those of its split, and of the validation split where that was cut from training rows."""
    cut = split == SPLITS[0] and SPLITS[1] not in named
    return [*getattr(task, split), *(task.validation if cut else ())]


def _jsonl(rows: Sequence[Example]) -> bytes:
    return "".join(
        json.dumps(_with_parts(_with_messages(e)), ensure_ascii=False) + "\n" for e in rows
    ).encode()


def _with_messages(example: Example) -> dict[str, Any]:
    """A row with its conversation as messages, which it holds as one text."""
    row = dict(example.row)
    messages = [m.as_object(content_of(m.content)) for m in example.messages]
    if messages:
        whole = row["input"]
        row["input"] = {**whole, MESSAGES: messages} if isinstance(whole, Mapping) else messages
    return row


def _with_parts(value: Any) -> Any:
    """A value of a row as another process reads it: a text that is an image, a sound or a file as its content, one that holds
    some as a list of texts and parts."""
    if isinstance(value, str):
        data = content_bytes(value)
        if (
            data is not None
            and (mime := read_mime(data)) is not None
            and mime.startswith(("image/", "audio/"))
        ):
            return f"data:{mime};base64,{base64.b64encode(data).decode()}"
        content = content_of(value)
        alone = isinstance(content, list) and len(content) == 1 and MARK.fullmatch(value)
        return content[0] if alone else content
    if isinstance(value, Mapping):
        return {key: _with_parts(one) for key, one in value.items()}
    return [_with_parts(item) for item in value] if isinstance(value, list) else value


def _reward_files(task: TaskContent, reward: RewardFunction | None) -> Iterator[tuple[str, bytes]]:
    """The files that a reward is made of. Raises UsageError for a function that cannot be written to one."""
    parts: Sequence[object] = [part for _, part in reward.parts] if isinstance(reward, Weighted) else [reward]
    for part in parts:
        if isinstance(part, Weighted):
            yield from _reward_files(task, part)
        elif isinstance(part, ProgramReward):
            if part.text is None:
                raise UsageError(
                    f"The reward {part.name} cannot be written to {FILE}: it is no plain function whose source, globals and "
                    "helpers can be copied (a lambda, a closure, a coroutine, a method). Write it as `def` in a file."
                )
            yield _inside(task, task.folder / part.file), part.text
        for path in getattr(part, "files", ()):
            yield _inside(task, path), path.read_bytes()


def _inside(task: TaskContent, path: Path) -> str:
    """The name of a file relative to the task's folder. Raises UsageError for one that lies outside."""
    try:
        return path.resolve().relative_to(task.folder.resolve()).as_posix()
    except ValueError:
        raise UsageError(
            f"{path} lies outside of the task's folder; a saved task could not name it."
        ) from None
