"""The ledger file beside a prompt: one line for each step, with the events of the instructions and what they
did.

A step is appended before the prompt itself is replaced, and both are durable when `append` returns. A killed
process leaves at worst a step whose text never reached the prompt: the next one finds the fence as it is and
writes that down.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from whet.errors import StorageError, UsageError
from whet.prompt.events import Event, from_json, to_json

LEARN, UNDO = "learn", "undo"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class LearnStep:
    """One command that changed a prompt.

    `events` are those that it added to the ledger, `feedback` the ids of the rows it learned from, `before`
    and `after` the SHA-256 of the whole file, `fence` the text of a fence that was drawn at the end of the
    file (or empty), `region` the name of the region, `undone` the number (from 1) of the step that an undo
    takes back.
    """

    command: str
    at: str
    events: tuple[Event, ...]
    feedback: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    fence: str = ""
    region: str = ""
    undone: int = 0
    run: str = ""


def ledger_path(prompt: Path) -> Path:
    """PROMPT.ledger.jsonl, beside the prompt."""
    return prompt.with_name(f"{prompt.name}.ledger.jsonl")


def digest(data: bytes) -> str:
    """SHA-256, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def read_steps(path: Path) -> list[LearnStep]:
    """All steps of a ledger file, none when there is no file.

    A last line without an end is what a killed process left and is not read. Raises UsageError with file and
    line for any other line that is no step.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path}: the ledger cannot be read: {error}.") from error
    return [_step(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], 1) if line.strip()]


def _step(line: bytes, where: str) -> LearnStep:
    try:
        value: dict[str, Any] = orjson.loads(line)
        if value.pop("version") != _VERSION:
            raise UsageError(f"{where}: the ledger was written by another version. Use that one.")
        events = tuple(from_json(event) for event in value.pop("events"))
        feedback = tuple(str(key) for key in value.pop("feedback"))
        return LearnStep(events=events, feedback=feedback, **value)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{where}: this line is no step of a ledger ({error}). Restore the file.") from error
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def encode(step: LearnStep) -> bytes:
    """A step as one line."""
    value = {name: getattr(step, name) for name in LearnStep.__dataclass_fields__}
    value |= {"version": _VERSION, "events": [to_json(event) for event in step.events]}
    return orjson.dumps(value) + b"\n"


def events_of(steps: Sequence[LearnStep], region: str) -> list[Event]:
    """The events of one region, in order."""
    return [event for step in steps if step.region == region for event in step.events]


def standing(steps: Sequence[LearnStep]) -> list[int]:
    """Numbers (from 1) of the steps that learned something and are not undone, in order."""
    undone = {step.undone for step in steps if step.command == UNDO}
    return [n for n, step in enumerate(steps, 1) if step.command == LEARN and n not in undone]


def append(path: Path, step: LearnStep) -> None:
    """Add a step durably. A torn last line is cut off first. Raises StorageError."""
    try:
        with open(path, "ab+") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.seek(0, os.SEEK_END)
            file.write(encode(step))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(
            f"{path}: the ledger could not be written: {error}. The prompt is unchanged."
        ) from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file durably and at once: a reader sees the old or the new one. Keeps its permissions and
    links.
    """
    target = path.resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(partial, target.stat().st_mode & 0o7777)
        os.replace(partial, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: the file could not be written: {error}. The old one is intact."
        ) from error
