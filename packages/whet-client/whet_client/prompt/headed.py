"""Prompts of several messages as texts with headings: whet's own, and files of Prompty and dotprompt with their images."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from whet_client import media
from whet_client.errors import UsageError
from whet_client.prompt.fence import front_matter_of
from whet_client.prompt.slots import SLOT, is_slot_name
from whet_client.storable import show_value
from whet_client.types import Message

AUTO = "auto"
CHAT_ROLES = ("system", "user", "assistant")
ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model"), "assistant"),
}
_HEADING = re.compile(rf"(?:\A|\r?\n\r?\n)\[({'|'.join(CHAT_ROLES)})\](?:\r?\n|\Z)")
PROMPTY_HEADING = re.compile(
    r"^[ \t]*+#?[ \t]*+((?i:system|developer|user|assistant)|human|ai|model)(?:\[[^\]\r\n]*+\])?[ \t]*+:[ \t]*+(?:\r?\n|\Z)",
    re.MULTILINE,
)
_DOTPROMPT_HEADING = re.compile(
    rf"""\{{\{{~?[ \t]*+role[ \t]++["']({"|".join(ROLES)})["'][ \t]*+~?\}}\}}[ \t]*+(?:\r?\n)?"""
)
_BEFORE_HEADING = re.compile(r"(?:\r?\n){1,2}\Z")
"""The end of a message's last line and an empty line, or either."""
_MEDIA_HELPER = re.compile(r"\{\{\{?~?[ \t]*+media[ \t]([^{}\n]*+)\}\}\}?")
_MEDIA_OPTION = re.compile(r"""\b(\w++)[ \t]*+=[ \t]*+("[^"]*+"|'[^']*+'|[^\s"'~]++)""")
_PROMPTY_IMAGE = re.compile(
    r"!\[[^\[\]\n]*+\]\(((?:\{\{[^{}()\n]*+\}\}|[^()\s\"])++)(?:[ \t]++\"[^\"\n]*+\")?[ \t]*+\)"
)
_KINDS_OF_INPUTS = re.compile(r"^[ \t-]*+kind:", re.MULTILINE)
"""A line of front matter by which newer Prompty says what an input is; such a file has no images in its text."""
CODED = re.compile(r"\Adata:[^,{}]*+,[ \t]*+")
"""The beginning of a data URL."""
_log = logging.getLogger("whet.prompt")


def parse_headed_messages(text: str, heading: re.Pattern[str] = _HEADING) -> tuple[Message, ...] | None:
    """The messages of a text whose first line is `[system]`, `[user]` or `[assistant]`; None for any other text."""
    headings = list(heading.finditer(text))
    if not headings or headings[0].start():
        return None
    stops = [*(following.start() for following in headings[1:]), len(text)]
    return tuple(
        Message(ROLES[match[1].lower()], text[match.end() : stop])
        for match, stop in zip(headings, stops, strict=True)
    )


def _parse_below(body: str, heading: re.Pattern[str]) -> tuple[Message, ...] | None:
    """The messages of a text that begins with such a heading; None for any other text.

    One empty line between a message and the next heading belongs to neither.
    """
    messages = parse_headed_messages(body.lstrip("\r\n"), heading)
    if messages is None:
        return None
    return *(replace(m, content=_BEFORE_HEADING.sub("", m.content)) for m in messages[:-1]), messages[-1]


def parse_below_front_matter(text: str, where: str) -> tuple[Message, ...] | None:
    """The messages below front matter, headed as whet, Prompty (`system:`) or dotprompt (`{{role "system"}}`) heads them; None
    for any other text. The first message keeps the front matter, which no model gets. Front matter is optional in dotprompt."""
    front = front_matter_of(text)
    body = text[len(front) :]
    messages = parse_headed_messages(body) or _parse_below(body, PROMPTY_HEADING) if front else None
    if messages is not None and not _KINDS_OF_INPUTS.search(front) and not _HEADING.match(body):
        messages = tuple(replace(m, content=_PROMPTY_IMAGE.sub(_read_image, m.content)) for m in messages)
    messages = messages or _parse_dotprompt(body)
    if messages is None:
        return None
    messages = tuple(replace(m, content=_read_helpers(m.content, where)) for m in messages)
    return Message(messages[0].role, front + messages[0].content), *messages[1:]


def _parse_dotprompt(body: str) -> tuple[Message, ...] | None:
    """The messages of a text with a helper of dotprompt; None for any other text. What stands before the first role is the
    user's, as there."""
    first = _DOTPROMPT_HEADING.search(body)
    if first is None:
        return (Message(AUTO, body),) if _MEDIA_HELPER.search(body) else None
    before = body[: first.start()].strip("\r\n")
    messages = _parse_below(body[first.start() :], _DOTPROMPT_HEADING) or ()
    return (Message("user", before), *messages) if before.strip() else messages


def _read_image(match: re.Match[str]) -> str:
    """An image in Prompty's text as whet names it: the slot that it comes from, or its file or address."""
    source = CODED.sub("", match[1]) if SLOT.search(match[1]) else match[1]
    return note_media_slot(source) if SLOT.fullmatch(source) else f"[[whet:image:{source}]]"


def note_media_slot(slot: str) -> str:
    """The slot, after a warning about what rows hold."""
    _log.warning(
        'The slot %s stands for an image, a sound or a file here. Rows hold one as {"image": "FILE"} (or audio, file), or as a '
        "data URL; base64 without the beginning of a data URL stays text.",
        slot,
    )
    return slot


def _read_helpers(text: str, where: str) -> str:
    """A text of dotprompt in which slots and sources stand for what its helper `media` shows. Raises UsageError for a helper that
    computes something."""

    def read(match: re.Match[str]) -> str:
        options = dict(_MEDIA_OPTION.findall(match[1]))
        url = options.get("url", "")
        if options.keys() <= {"url", "contentType"} and is_slot_name(url) and url.partition(".")[0] != "this":
            return note_media_slot(f"{{{{{url}}}}}")
        source = url[1:-1] if url[:1] in ("'", '"') else ""
        if not source.startswith(("https://", "http://", "data:")):
            raise UsageError(
                f"{where}: {show_value(match[0])} is no image, sound or file with an address (url) or the name of an input. "
                "Write {{media url=NAME}}."
            )
        content = options.get("contentType", "").strip("\"'") or source.removeprefix("data:")
        kind = "image" if content.startswith("http") else content.partition("/")[0]
        return f"[[whet:{kind if kind in media.KINDS else 'file'}:{source}]]"

    return _MEDIA_HELPER.sub(read, text)
