"""Several named prompts in one text: a line `<!-- whet:prompt NAME -->` heads each, and one newline ends it before the next.

`<!-- whet:prompt NAME system -->` heads one message of a prompt of several messages. Joining and cutting are exact inverses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from whet_client.errors import UsageError

HEADING = re.compile(
    r"^<!--[ \t]*whet:prompt[ \t]+([A-Za-z_][A-Za-z0-9_-]*)(?:[ \t]+(system|user|assistant))?[ \t]*-->[ \t]*\r?\n",
    re.MULTILINE,
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class PromptSection:
    """One message of a named prompt, text[start:stop]; `role` is None where the prompt is one text."""

    name: str
    role: str | None
    start: int
    stop: int


def sections_of(text: str, where: str = "prompt") -> tuple[PromptSection, ...]:
    """The sections of a text in order; none for an ordinary prompt.

    Raises UsageError for text before the first heading, and for a name that two prompts have.
    """
    headings = list(HEADING.finditer(text))
    if not headings:
        return ()
    if headings[0].start():
        raise UsageError(f"{where}:1: there is text before the first <!-- whet:prompt NAME -->. Remove it.")
    stops = [*(following.start() - 1 for following in headings[1:]), len(text)]
    sections = tuple(
        PromptSection(match[1], match[2], match.end(), max(match.end(), stop))
        for match, stop in zip(headings, stops, strict=True)
    )
    closed: set[str] = set()
    for before, section in zip((None, *sections), sections, strict=False):
        whole = before is not None and None in (before.role, section.role)
        if before is not None and (before.name != section.name or whole):
            closed.add(before.name)
        if section.name in closed:
            raise UsageError(f'{where}: two prompts are named "{section.name}". Give each a name of its own.')
    return sections


def join_sections(parts: Iterable[tuple[str, str | None, str]]) -> str:
    """The text of these (name, role, text). Raises UsageError for a name that is none, or a text with a heading of its own."""
    texts = []
    for name, role, text in parts:
        if not NAME.fullmatch(name):
            raise UsageError(
                f'"{name}" is no name for a prompt. Use letters, digits, "_" and "-", a letter first.'
            )
        if HEADING.search(f"{text}\n"):
            raise UsageError(f"the prompt {name} holds a line <!-- whet:prompt ... -->. Remove it.")
        texts.append(f"<!-- whet:prompt {name if role is None else f'{name} {role}'} -->\n{text}")
    return "\n".join(texts)
