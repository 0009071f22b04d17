"""The file of a prompt: which region is managed, and how a new text of it becomes new bytes of the file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt
from whet.prompt.events import Event, Read
from whet.prompt.fence import DEFAULT_REGION, MARKER, regions_of
from whet.prompt.instructions import Ledger
from whet.prompt.ledger import read_back, render, written
from whet.task import load_prompt
from whet.types import Message

_YAML = (".yaml", ".yml")


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
        """How the file ends its lines."""
        return newline_of(self.text)

    def events(self, stored: list[Event], at: str) -> list[Event]:
        """The ledger's events, with a last one for what a person wrote or changed by hand since."""
        events = read_back(self.prompt, stored, self.region, at)
        last = events[-1]
        if len(events) > len(stored) and isinstance(last, Read):
            author = "hand" if stored else "author"
            events[-1] = Read(author=author, at=last.at, notes=last.notes, newline=self._newline_of(last))
        return events

    def _newline_of(self, event: Read) -> str:
        """A region of one line or none takes the line ends of the file."""
        return event.newline if "\n" in self.prompt.region_text(self.region) else self.newline

    def bytes_with(self, ledger: Ledger) -> bytes:
        """The file with the ledger in its region. Raises EditRejected when anything else would change."""
        text = render(ledger)
        if text == self.prompt.region_text(self.region):
            return self.data
        edited = written(self.prompt, ledger, self.region) if text.strip() else self._emptied(text)
        if self.path.suffix in _YAML:
            return self._yaml_with(edited, text)
        return edited.messages[0].content.encode("utf-8")

    def _emptied(self, text: str) -> Prompt:
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
                reloaded = load_prompt(copy)
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
    if prompt.fenced:
        names = [r.name for r in prompt.regions]
        wanted = region or (DEFAULT_REGION if DEFAULT_REGION in names else names[0])
        return Document(path, data, prompt, prompt.region(wanted).name)
    if region is not None and region != DEFAULT_REGION:
        raise UsageError(f'{path}: the prompt has no fence, so it has no region "{region}". Draw one.')
    if path.suffix in _YAML:
        raise UsageError(
            f"{path}: the messages have no fence. Put <!-- whet:begin --> and <!-- whet:end --> on lines of their "
            "own where instructions may stand."
        )
    fence = drawn_fence(data.decode("utf-8"))
    return Document(path, data, Prompt.parse(data.decode("utf-8") + fence, str(path)), DEFAULT_REGION, fence)


def newline_of(text: str) -> str:
    """How a text ends its lines."""
    return "\r\n" if "\r\n" in text and text.count("\r\n") == text.count("\n") else "\n"


def drawn_fence(text: str) -> str:
    """An empty fence to put at the end of a text, after a blank line.

    >>> drawn_fence("Answer.")
    '\\n\\n<!-- whet:begin -->\\n\\n<!-- whet:end -->\\n'
    """
    end = newline_of(text)
    gap = end if text.endswith("\n") else end + end
    return f"{gap}<!-- whet:begin -->{end}{end}<!-- whet:end -->{end}"


def prompt_path(prompt: str | Path | Prompt) -> Path | None:
    """The file that a caller names; None for a prompt in memory, which is a Prompt or a text of several lines or with slots."""
    if isinstance(prompt, Prompt):
        if len(prompt.messages) > 1:
            raise UsageError("A prompt of several messages learns from its file, prompt.yaml. Give its path.")
        return None
    return None if isinstance(prompt, str) and ("\n" in prompt or "{{" in prompt) else Path(prompt)
