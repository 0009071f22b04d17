"""The file of a prompt: which region is managed, and how a new text of it becomes new bytes of the file; and the ledger file
beside it, one line for each step, with the events of the instructions and what they did.

A step is appended before the prompt itself is replaced, and both are durable when `append` returns. A killed
process leaves at worst a step whose text never reached the prompt: the next one finds the fence as it is and
writes that down.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from whet._util import storable
from whet.errors import EditRejected, StorageError, UsageError
from whet.prompt import Prompt
from whet.prompt.events import Event, Read, event_to_json, from_json
from whet.prompt.instructions import Ledger
from whet.prompt.ledger import newline_of, read_back, render_instructions, write_ledger
from whet.task import PROMPT_FILES, load_prompt
from whet.types import Message
from whet_client.media import with_sources
from whet_client.prompt.chat import write_messages
from whet_client.prompt.fence import DEFAULT_REGION, MARKER, regions_of
from whet_client.storable import sync_folder

_YAML = (".yaml", ".yml")
LEARN, UNDO = "learn", "undo"
_VERSION = 1


@dataclass(frozen=True)
class Document:
    """A prompt file as it was read. `fence` is what was added at the end to have a fence at all, or empty."""

    path: Path
    data: bytes
    prompt: Prompt
    region: str
    fence: str = ""

    @property
    def text(self) -> str:
        """The file as text."""
        return self.data.decode("utf-8")

    @property
    def newline(self) -> str:
        """The line end of the file."""
        return newline_of(self.text)

    def events(self, stored: list[Event], at: str) -> list[Event]:
        """The ledger's events, with a last one for what a person wrote or changed by hand since."""
        events = read_back(self.prompt, stored, self.region, at)
        last = events[-1]
        if len(events) > len(stored) and isinstance(last, Read):
            lines = "\n" in self.prompt.region_text(
                self.region
            )  # one without takes the line ends of the file
            newline, author = last.newline if lines else self.newline, "hand" if stored else "author"
            events[-1] = Read(author=author, at=last.at, notes=last.notes, newline=newline)
        return events

    def bytes_with(self, ledger: Ledger) -> bytes:
        """The file with the ledger in its region. Raises EditRejected when anything else would change."""
        text = render_instructions(ledger)
        if text == self.prompt.region_text(self.region):
            return self.data
        edited = write_ledger(self.prompt, ledger, self.region) if text.strip() else self._empty_region(text)
        if self.path.suffix in _YAML:
            return self._yaml_with(edited, text)
        mark = "\ufeff" if self.text.startswith("\ufeff") else ""
        text = self.text.removeprefix(mark)
        chat = not self.prompt.marks and text == write_messages(self.prompt.messages)
        return (
            mark + (write_messages(edited.messages) if chat else with_sources(edited.source, text))
        ).encode()

    def _empty_region(self, text: str) -> Prompt:
        """The prompt with nothing in its region, as it was before anything was learned: no model empties a
        region, only an undo does."""
        region = self.prompt.region(self.region)
        messages = list(self.prompt.messages)
        old = messages[region.message]
        messages[region.message] = Message(
            old.role, old.content[: region.start] + text + old.content[region.stop :]
        )
        return Prompt(tuple(messages))

    def _yaml_with(self, edited: Prompt, text: str) -> bytes:
        """The region replaced in the YAML source, line by line at the indentation of its marker, then read
        again.
        """
        raw = self.text
        span = next(s for s in regions_of(raw) if s.name == self.region)
        body = raw[span.start : span.stop]
        begin = [m for m in MARKER.finditer(raw) if m.end() <= span.start][-1]
        indent = raw[raw.rfind("\n", 0, begin.start()) + 1 : begin.start()]
        lines = [indent + line if line else "" for line in text.split("\n")]
        tail = body[body.rfind("\n") :] if "\n" in body else ""
        new = (raw[: span.start] + self.newline.join(lines) + tail + raw[span.stop :]).encode("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self.path.name
            copy.write_bytes(new)
            try:
                reloaded = load_prompt(copy, folder=self.path.parent)
            except UsageError:
                reloaded = None
        if reloaded != edited:
            raise EditRejected(
                f"{self.path}: the fence cannot be edited in this YAML without changing something else. Write the "
                "message as a block: `content: |`, the markers on lines of their own."
            )
        return new


def open_document(path: Path, region: str | None = None) -> Document:
    """Read a prompt and choose the region that is managed: the named one, else `instructions`, else the
    first.

    A text without a fence gets an empty one at its end, in the value returned only. Raises UsageError for an
    unknown region, and for chat messages in YAML without a fence.
    """
    prompt = load_prompt(path)
    data = path.read_bytes()
    text = data.decode("utf-8").removeprefix("\ufeff")
    if path.suffix not in _YAML and text not in (
        with_sources(prompt.source, text),
        write_messages(prompt.messages),
    ):
        raise UsageError(
            f"{path}: what is learned cannot be written into this form of messages. Put them into prompt.yaml, a list of "
            "`role` and `content`."
        )
    if prompt.fenced:
        names = [r.name for r in prompt.regions]
        wanted = region or (DEFAULT_REGION if DEFAULT_REGION in names else names[0])
        return Document(path, data, prompt, prompt.region(wanted).name)
    if region is not None and region != DEFAULT_REGION:
        raise UsageError(f'{path}: the prompt has no fence, so it has no region "{region}". Draw one.')
    if path.suffix in _YAML or len(prompt.messages) > 1:
        raise UsageError(
            f"{path}: the messages have no fence. Put <!-- whet:begin --> and <!-- whet:end --> on lines of their "
            "own where instructions may stand."
        )
    fence = drawn_fence(data.decode("utf-8"))
    return Document(
        path, data, Prompt.parse(data.decode("utf-8") + fence, str(path), path.parent), DEFAULT_REGION, fence
    )


def drawn_fence(text: str) -> str:
    """An empty fence to put at the end of a text, after a blank line.

    >>> drawn_fence("Answer.")
    '\\n\\n<!-- whet:begin -->\\n\\n<!-- whet:end -->\\n'
    """
    end = newline_of(text)
    gap = end if text.endswith("\n") else end + end
    return f"{gap}<!-- whet:begin -->{end}{end}<!-- whet:end -->{end}"


def prompt_path(prompt: str | Path | Prompt) -> Path | None:
    """The file that a caller names; None for a prompt in memory, which is a Prompt, or a text of several lines, with slots, or
    with blanks where no file is called so."""
    if isinstance(prompt, Prompt):
        return None
    if not isinstance(prompt, str):
        return Path(prompt)
    path = Path(prompt)
    words = len(prompt.split()) > 1 and path.suffix.lower() not in PROMPT_FILES and not os.path.exists(path)
    return None if words or "\n" in prompt or "{{" in prompt else path


# The ledger file


@dataclass(frozen=True, slots=True)
class LearnStep:
    """One command that changed a prompt."""

    command: str
    at: str
    events: tuple[Event, ...]
    """Events that it added to the ledger."""
    feedback: tuple[str, ...] = ()
    """Ids of the rows that it learned from."""
    before: str = ""
    """SHA-256 of the whole file before it."""
    after: str = ""
    """SHA-256 of the whole file after it."""
    fence: str = ""
    """The text of a fence that it drew at the end of the file, or empty."""
    region: str = ""
    """The name of the region."""
    undone: int = 0
    """For an undo: the number (from 1) of the step that it takes back."""
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


def encode_step(step: LearnStep) -> bytes:
    """A step as one line."""
    value = {name: getattr(step, name) for name in LearnStep.__dataclass_fields__}
    value |= {"version": _VERSION, "events": [event_to_json(event) for event in step.events]}
    return storable.to_json(value) + b"\n"


def events_of(steps: Sequence[LearnStep], region: str) -> list[Event]:
    """The events of one region, in order."""
    return [event for step in steps if step.region == region for event in step.events]


def standing(steps: Sequence[LearnStep]) -> list[int]:
    """Numbers (from 1) of the steps that learned something and are not undone, in order."""
    undone = {step.undone for step in steps if step.command == UNDO}
    return [n for n, step in enumerate(steps, 1) if step.command == LEARN and n not in undone]


def append_step(path: Path, step: LearnStep) -> None:
    """Add a step durably. A torn last line is cut off first. Raises StorageError."""
    try:
        with open(path, "ab+") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.seek(0, os.SEEK_END)
            file.write(encode_step(step))
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
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: the file could not be written: {error}. The old one is intact."
        ) from error
    try:
        sync_folder(target.parent)
    except OSError as error:
        raise StorageError(
            f"{path}: the new text is in place, and the disk may not keep it: {error}. Look at the file before you go on."
        ) from error
