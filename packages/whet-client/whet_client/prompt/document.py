"""Prompt: one or more messages with slots and editable regions. Identity is the content hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from whet_client import media
from whet_client.errors import EditRejected, UsageError, did_you_mean
from whet_client.prompt.chat import AUTO as AUTO
from whet_client.prompt.chat import (
    join_messages,
    parse_messages,
    read_messages,
    reads_as_chat,
    write_messages,
)
from whet_client.prompt.fence import (
    DEFAULT_REGION,
    LOOKS_LIKE_MARKER,
    MARKER,
    Region,
    front_matter_of,
    regions_of,
    without_markers,
)
from whet_client.prompt.length import LengthLimit
from whet_client.prompt.sections import join_sections, sections_of
from whet_client.prompt.slots import (
    SLOT,
    canonical_name,
    checked_text,
    fill,
    slot_names,
    slots,
    slots_in_addresses,
)
from whet_client.storable import repair_surrogates, show_value
from whet_client.types import Example, Message, content_hash

MASK = "mask"
CONVERSATION_SLOTS = frozenset(("input", "messages"))
"""The slots that a conversation fills as one text."""


@dataclass(frozen=True)
class Prompt:
    """Messages exactly as their author wrote them, fence markers included.

    A prompt from one text has a single message with role `auto`: it is the user message when it
    uses a slot of the example, otherwise the system message, and the input follows as the user message.
    All prompts of a program are one such text (`whet_client.prompt.sections`), and `parts` are the prompts in it.
    `focus` names the region that methods use if the caller names no region. `limit` bounds the length of edited prompts. Neither
    field is part of the prompt's identity.
    """

    messages: tuple[Message, ...]
    focus: str | None = field(default=None, compare=False)
    limit: LengthLimit | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, where: str = "prompt", folder: Path | None = None) -> Prompt:
        """Prompt from one text, without its byte-order mark. A text that lists messages gives a prompt of several messages
        (`whet_client.prompt.chat`: the JSON of APIs, Langfuse and LangChain, or a line such as `[system]` above each message).

        `folder`: where the files lie that the text names as parts (`[[whet:image:legend.png]]`). Raises UsageError (file:line)
        for a broken fence, an empty text, messages and parts that cannot be read.
        """
        _check_text(text, where)
        if "\x00" in text:
            raise UsageError(f"{where}: a NUL character. Remove it.")
        return cls.from_messages(parse_messages(text, where), where, folder)

    @classmethod
    def of_chat(cls, value: object, where: str = "prompt", folder: Path | None = None) -> Prompt:
        """Prompt from a list of messages, or from a template of another tool, as a value of Python or JSON. Raises UsageError."""
        return cls.from_messages(read_messages(value, where), where, folder)

    @classmethod
    def from_messages(
        cls, messages: tuple[Message, ...], where: str = "prompt", folder: Path | None = None
    ) -> Prompt:
        """Prompt from several messages; `folder` as for `parse`. Raises UsageError for a broken fence, a repeated name, no text,
        a part that cannot be read, and one inside a region."""
        for message in messages:
            _check_text(message.content, where)
        messages = tuple(
            replace(m, content=media.read_sources(m.content, where, folder)) if "[[whet:" in m.content else m
            for m in messages
        )
        prompt = cls(messages)
        if len(messages) == 1 and messages[0].role == AUTO and sections_of(messages[0].content, where):
            for name, part in prompt.parts.items():
                cls.from_messages(part.messages, f"{where}, prompt {name}")
            return prompt
        names: set[str] = set()
        for message in messages:
            for region in regions_of(message.content, where):
                if region.name in names:
                    raise UsageError(
                        f'{where}: two fences are named "{region.name}". Give each a name: <!-- whet:begin NAME -->.'
                    )
                names.add(region.name)
        if not any(without_markers(m.content).strip() for m in messages) and not names:
            raise UsageError(f"{where}: the prompt is empty.")
        _check_places(prompt, where)
        return prompt

    @classmethod
    def of_parts(cls, parts: Mapping[str, str | Prompt]) -> Prompt:
        """The prompts of a program as one prompt, by name. Raises UsageError as `parse` does."""
        prompts = {n: Prompt.parse(p, f"prompt {n}") if isinstance(p, str) else p for n, p in parts.items()}
        for name, prompt in prompts.items():
            if prompt.parts:
                raise UsageError(f"the prompt {name} holds several prompts itself. Name each of them here.")
            if any(message.name is not None for message in prompt.messages):
                raise UsageError(
                    f"the prompt {name} of a program has a message with a `name`. Write who speaks into its content."
                )
        sections = (
            (name, None if message.role == AUTO else message.role, message.content)
            for name, prompt in prompts.items()
            for message in prompt.messages
        )
        return cls.parse(join_sections(sections))

    @cached_property
    def parts(self) -> Mapping[str, Prompt]:
        """The named prompts of a program, in order; empty for an ordinary prompt."""
        if len(self.messages) != 1 or self.messages[0].role != AUTO:
            return {}
        text, parts = self.messages[0].content, dict[str, tuple[Message, ...]]()
        for section in sections_of(text):
            message = Message(section.role or AUTO, text[section.start : section.stop])
            parts[section.name] = (*parts.get(section.name, ()), message)
        return {name: Prompt(messages) for name, messages in parts.items()}

    @cached_property
    def id(self) -> str:
        """First 12 hex digits of the content hash."""
        return content_hash([m.as_list() for m in self.messages])[:12]

    @cached_property
    def names(self) -> tuple[str, str]:
        """The id, and that of what models receive: equal for a prompt and a copy of it without markers or blank ends."""
        shown = content_hash([replace(m, content=m.content.strip()).as_list() for m in self.clean])[:12]
        return self.id, f"shown-{shown}"

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """The marks of its images, sounds and files, in order and as often as they stand there (`whet_client.media`)."""
        return tuple(mark for m in self.messages for mark in media.marks_of(m.content))

    def _repr_html_(self) -> str:
        """The prompt in a notebook, each message under its role where it has several."""
        import html

        several = len(self.messages) > 1
        heads = [f"<p><b>{html.escape(m.role)}</b></p>" if several else "" for m in self.messages]
        texts = [
            f'<pre style="white-space: pre-wrap">{html.escape(media.without_parts(m.content))}</pre>'
            for m in self.messages
        ]
        return "".join(head + text for head, text in zip(heads, texts, strict=True))

    @cached_property
    def slots(self) -> frozenset[str]:
        """Names of all slots."""
        return frozenset().union(*(slots(m.content) for m in self.messages))

    @cached_property
    def fenced(self) -> bool:
        """Whether its author drew a fence; without one the prompt is editable as a whole."""
        return any(MARKER.search(m.content) for m in self.messages)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Editable regions in order; at least one. That of a program's prompt is named after the prompt, `PROMPT.NAME` where
        the prompt has several."""
        if self.parts:
            return tuple(region for region, _, _ in self._inner.values())
        regions = [
            region
            for number, message in enumerate(self.messages)
            for region in regions_of(message.content, message=number)
        ]
        if regions:
            return tuple(regions)
        number = next((i for i, m in enumerate(self.messages) if m.role == "system"), 0)
        start, stop = _free_block(self.messages[number].content)
        return (Region(DEFAULT_REGION, number, start, stop),)

    def region(self, name: str | None = None) -> Region:
        """The named region, else the region in focus, else the first region. Raises UsageError with the known names."""
        name = self.focus if name is None else name
        if name is None:
            return self.regions[0]
        for region in self.regions:
            if region.name == name:
                return region
        raise UsageError(
            f'The prompt has no region "{name}".{did_you_mean(name, [r.name for r in self.regions])}'
        )

    @cached_property
    def _inner(self) -> Mapping[str, tuple[Region, str, str]]:
        """Of each region of a program: where it lies in the text, its prompt, and its name there."""
        sections = sections_of(self.messages[0].content)
        regions = {}
        for name, part in self.parts.items():
            starts = [section.start for section in sections if section.name == name]
            for r in part.regions:
                own, at = name if len(part.regions) == 1 else f"{name}.{r.name}", starts[r.message]
                regions[own] = (Region(own, 0, at + r.start, at + r.stop), name, r.name)
        return regions

    def part_of(self, region: str | None = None) -> tuple[str, str]:
        """The prompt of a program in which a region lies, and its name there."""
        _, part, inner = self._inner[self.region(region).name]
        return part, inner

    def with_focus(self, region: str) -> Prompt:
        """The same prompt with this region in focus. Raises UsageError with the known names."""
        return replace(self, focus=self.region(region).name)

    def region_text(self, name: str | None = None) -> str:
        """Editable text of a region."""
        region = self.region(name)
        return self.messages[region.message].content[region.start : region.stop]

    def edit(self, text: str, name: str | None = None) -> Prompt:
        """A new prompt with the region's text replaced and every other byte as it was.

        Without a fence, a text that carries all slots of its message replaces the whole message; one
        without slots replaces the largest part of it that has none. The region keeps its slots, each as often as it stood
        there, and none gets into an address. Raises EditRejected (never repairs).
        """
        if media.SOURCE.search(text):
            raise EditRejected(
                "The edit holds an image, a sound or a file. Regions are text; parts belong to the prompt's author."
            )
        if self.parts:
            part, inner = self.part_of(name)
            return self._within(self._with_part(part, self.parts[part].edit(text, inner)))
        region = self.region(name)
        old = self.messages[region.message].content
        self._check_text(text)
        new = old[: region.start] + text + old[region.stop :]
        if not self.fenced and slots(old) and slots(text):
            new = front_matter_of(old) + text
        messages = list(self.messages)
        messages[region.message] = replace(messages[region.message], content=new)
        edited = Prompt(tuple(messages), self.focus, self.limit)
        if media.marks_of(new) != media.marks_of(old):
            raise EditRejected(
                "The edit loses an image, a sound or a file of the prompt. Edit the text beside it."
            )
        _check_slots(old, new)
        if self.fenced:
            _check_slots(old[region.start : region.stop], text)
        if edited.messages[0].role == AUTO and reads_as_chat(new) and not reads_as_chat(old):
            raise EditRejected(
                "The edit turns the text into a list of messages with roles. Keep it one text."
            )
        if front_matter_of(new).rstrip() != front_matter_of(old).rstrip():
            raise EditRejected(
                "The edit changes what stands above the prompt as front matter. Keep it as it is."
            )
        return self._within(edited)

    def _within(self, edited: Prompt) -> Prompt:
        """An edited prompt that is not too long. Raises EditRejected."""
        if self.limit is not None:
            self.limit.check(self.text, edited.text)
        return edited

    def restore(self, name: str, earlier: Prompt) -> Prompt:
        """The same prompt with a region from an earlier version."""
        if self.parts:
            part, inner = self.part_of(name)
            return self._with_part(part, self.parts[part].restore(inner, earlier.parts[part]))
        region, messages = self.region(name), list(self.messages)
        content = messages[region.message].content
        new = content[: region.start] + earlier.region_text(name) + content[region.stop :]
        messages[region.message] = replace(
            messages[region.message], content=new if self.fenced else earlier.messages[region.message].content
        )
        return Prompt(tuple(messages), self.focus, self.limit)

    def _with_part(self, name: str, part: Prompt) -> Prompt:
        """The program with another text of one of its prompts; every other byte as it was."""
        text = self.messages[0].content
        own = [section for section in sections_of(text) if section.name == name]
        for section, message in reversed(list(zip(own, part.messages, strict=True))):
            text = text[: section.start] + message.content + text[section.stop :]
        return Prompt((Message(AUTO, text),), self.focus, self.limit)

    @staticmethod
    def _check_text(text: str) -> None:
        if not text.strip():
            raise EditRejected("The edit would leave the region empty.")
        if LOOKS_LIKE_MARKER.search(text):
            raise EditRejected(
                "The edit contains a whet fence marker. Markers belong to the prompt's author."
            )
        if "\x00" in text:
            raise EditRejected("The edit contains a NUL character.")

    def render(self, example: Example) -> tuple[Message, ...]:
        """The messages that a model receives for one example. A conversation follows the prompt, unless a slot shows it."""
        if example.messages and self.slots.isdisjoint(CONVERSATION_SLOTS):
            shown = (m if m.role != AUTO else replace(m, role="system") for m in self.clean)
            return (*(replace(m, content=fill(m.content, example.values)) for m in shown), *example.messages)
        if len(self.messages) == 1 and self.messages[0].role == AUTO:
            text = self.clean[0].content
            if self._is_filled_by(example):
                return (Message("user", fill(text, example.values)),)
            return (Message("system", text), Message("user", example.user_text))
        rendered = tuple(replace(m, content=fill(m.content, example.values)) for m in self.clean)
        if self._is_filled_by(example):
            return rendered
        return (*rendered, Message("user", example.user_text))

    def fill_slots(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The messages for one input as chat APIs take them: `{"role": ..., "content": ...}`, without markers; a content with
        images, sounds or files is a list of parts.

        `values`: the value for each slot, a text or what JSON holds, as rows have it; for a prompt without slots
        `{"input": value}`, which follows it as the user's message. Raises UsageError for a slot without a value, for a value
        without a slot, and for one that JSON cannot hold.
        """
        slots = sorted(self.slots - {MASK}) or ["input"]
        names = {canonical_name(name): name for name in values}
        wanted = {canonical_name(name) for name in slots}
        call = f"Write fill_slots({{{', '.join(f'{name!r}: ...' for name in slots)}}})."
        for name in slots:
            if canonical_name(name) not in names:
                what = f"there are {show_value(list(values))}" if values else "no values were given"
                raise UsageError(f"The slot {{{{{name}}}}} of the prompt has no value; {what}. {call}")
        for key, name in names.items():
            if key not in wanted:
                raise UsageError(f'The prompt has no slot "{name}".{did_you_mean(name, slots)} {call}')
        texts = {name: checked_text(name, value) for name, value in values.items()}
        return [m.as_object(media.content_of(m.content)) for m in self.render(Example("", texts))]

    def _is_filled_by(self, example: Example) -> bool:
        """Whether the example has a value for a slot."""
        return bool(self.slots) and not self.slots.isdisjoint(map(canonical_name, example.values))

    def render_text(self, values: Mapping[str, str]) -> str:
        """All messages as one text, with filled slots and without markers; unknown slots stay unchanged."""
        return "\n".join(fill(m.content, values) for m in self.clean)

    @cached_property
    def source(self) -> str:
        """The document as its author would store it; several messages are headed by their role. `parse` reads it back. A mark
        stands for each image, sound or file; `portable` holds them."""
        return self._join(self.messages)

    @property
    def portable(self) -> Prompt:
        """The same document for another process: its parts are data URLs instead of marks, and `parse` reads them back.

        Raises UsageError for a file that has changed.
        """
        messages = (replace(m, content=media.with_contents(m.content)) for m in self.messages)
        return Prompt(tuple(messages), self.focus, self.limit) if self.marks else self

    @cached_property
    def clean(self) -> tuple[Message, ...]:
        """The messages without front matter and fence markers, slots as they are."""
        return tuple(replace(m, content=without_markers(m.content)) for m in self.messages)

    @cached_property
    def text(self) -> str:
        """The document without front matter and fence markers, slots as they are: the prompt to copy."""
        return self._join(self.clean)

    @cached_property
    def chat(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as APIs take them, without markers; none for a prompt that is one text, whose role its slots decide. Where
        it holds an image, a sound or a file, it is a message of the user."""
        if [m.role for m in self.messages] == [AUTO] and (self.parts or not self.marks):
            return ()
        return tuple(
            replace(m, role="user" if m.role == AUTO else m.role).as_object(media.content_of(m.content))
            for m in self.clean
        )

    @cached_property
    def plain(self) -> str:
        """The text to paste into an application: without markers, or, for several messages or a message with images, sounds
        or files, the `chat` as JSON."""
        return write_messages(self.clean) if self.chat else self.text

    @cached_property
    def shown(self) -> str:
        """`plain` for people to read: the kind and the beginning of the hash stand for each image, sound or file."""
        return media.without_parts(self.text) if self.marks else self.plain

    @staticmethod
    def _join(messages: Sequence[Message]) -> str:
        return messages[0].content if [m.role for m in messages] == [AUTO] else join_messages(messages)


def _free_block(text: str) -> tuple[int, int]:
    """The largest run of lines without a slot or a part below the front matter, trimmed of blank edges; all of them when every
    line has one."""
    first = len(front_matter_of(text))
    if not SLOT.search(text) and not media.marks_of(text):
        return first, len(text)
    best, start, at = (first, first), first, first
    for line in text[first:].splitlines(keepends=True):
        if SLOT.search(line) or media.marks_of(line):
            best = max(best, (start, at), key=lambda s: len(text[s[0] : s[1]].strip()))
            start = at + len(line)
        at += len(line)
    best = max(best, (start, at), key=lambda s: len(text[s[0] : s[1]].strip()))
    block = text[best[0] : best[1]]
    if not block.strip():
        return first, len(text)
    head = len(block) - len(block.lstrip())
    tail = len(block) - len(block.rstrip())
    return best[0] + head, best[1] - tail


def _check_places(prompt: Prompt, where: str) -> None:
    """Raise UsageError for an image, a sound or a file in a message that no model reads it in, or in a region."""
    for number, message in enumerate(prompt.messages):
        marks = [mark for mark in media.marks_of(message.content) if media.is_known(mark)]
        if not marks:
            continue
        kind = marks[0].removeprefix("[[whet:").partition(":")[0]
        if message.role not in ("user", AUTO) or (message.role == AUTO and not prompt.slots):
            role = "system" if message.role == AUTO else message.role
            raise UsageError(
                f"{where}: a part ({kind}) stands in the {role} message, and models read parts in messages of the user only. "
                "Put it below a line [user], or beside a slot of the one text."
            )
        texts = (message.content[r.start : r.stop] for r in prompt.regions if r.message == number)
        if any(mark in text for text in texts for mark in marks):
            raise UsageError(
                f"{where}: the text that may change holds a part ({kind}). Regions are text: draw a fence "
                "(<!-- whet:begin -->, <!-- whet:end -->) around the text beside it."
            )


def _check_slots(before: str, after: str) -> None:
    """Raise EditRejected unless both texts have the same slots, each as often, and no more of them inside addresses."""
    old, new = Counter(slot_names(before)), Counter(slot_names(after))
    if old != new:
        problems = [f"lost {{{{{name}}}}}" for name in sorted((old - new).keys() - new.keys())]
        problems += [f"invented {{{{{name}}}}}" for name in sorted((new - old).keys() - old.keys())]
        problems += [
            f"has {{{{{name}}}}} {new[name]} times and not {old[name]}"
            for name in sorted(old.keys() & new.keys())
            if old[name] != new[name]
        ]
        raise EditRejected(
            f"The edit changes the prompt's slots: {', '.join(problems)}. Keep every slot as often as it stood there."
        )
    if moved := slots_in_addresses(after) - slots_in_addresses(before):
        raise EditRejected(
            f"The edit puts {{{{{min(moved)}}}}} into an address, which would carry the input away. Keep it outside."
        )


def _check_text(text: object, where: str) -> None:
    """Raise UsageError for a value that is no text, or a text that no file and no model can take."""
    if not isinstance(text, str):
        raise UsageError(f"{where}: a prompt is a text; this is {show_value(text)}.")
    if repair_surrogates(text) != text:
        raise UsageError(
            f"{where}: half of a surrogate pair (\\ud800 to \\udfff) stands alone; it is no character. Remove it."
        )
