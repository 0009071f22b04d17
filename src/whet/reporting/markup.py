"""HTML as escaped text: a string becomes markup only through `el`, and hidden characters become visible.

Text of a report comes from prompts, models and data, so it may be hostile. Every plain string is escaped;
characters that are invisible or that reorder the text around them (controls, bidirectional marks, zero-width
characters, variation selectors, tags, lone surrogates) are drawn as their name, in place.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from whet.errors import WhetError
from whet_client.media import MARK, MediaPart, pieces_of
from whet_client.prompt.fence import MARKER
from whet_client.prompt.slots import SLOT


class Html(str):
    """Markup that is already escaped."""

    __slots__ = ()


Child: TypeAlias = "str | bool | Iterable[Child] | None"
"""The content of an element; None and truth values are left out, so that `condition and element` is a child."""

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e]")
_MARKS = re.compile(f"(?:{MARKER.pattern})|(?:{SLOT.pattern})|(?:{MARK.pattern})")
LARGEST_PICTURE = 400_000
"""Characters of the data URL of a picture that a page shows."""
_VOID = frozenset({"meta", "br", "hr", "col", "input", "link", "img"})
_TEXT_ONLY = frozenset({"title", "desc", "text", "tspan", "option"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0\u180b\u180c\u180d\u180f")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def el(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """One element. `class_` is the attribute class, other underscores become hyphens, None and False nothing.

    >>> el("p", "a < b", el("b", "!"), class_="x")
    '<p class="x">a &lt; b<b>!</b></p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(
        f"<{tag}{written}>{_join(children, escape_plainly if tag in _TEXT_ONLY else escape_visibly)}</{tag}>"
    )


def join(*children: Child) -> Html:
    """Children one after another, each escaped."""
    return _join(children, escape_visibly)


def _join(children: Iterable[Child], escape: Callable[[str], Html]) -> Html:
    parts: list[str] = []
    for child in children:
        if child is None or isinstance(child, bool):
            continue
        if isinstance(child, str):
            parts.append(child if isinstance(child, Html) else escape(child))
        else:
            parts.append(_join(child, escape))
    return Html("".join(parts))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape_plainly(str(value))}"'


def escape_visibly(text: str) -> Html:
    """Escaped text in which each hidden character is a small box with its name."""
    return Html("".join(_box(piece) if hidden else html.escape(piece) for piece, hidden in _pieces(text)))


def escape_plainly(text: str) -> Html:
    """Escaped text for attributes and for elements that hold no markup; a hidden character is its name."""
    return Html("".join(f"[{_name(p)}]" if hidden else html.escape(p) for p, hidden in _pieces(text)))


def clip(text: str, limit: int) -> Html:
    """The first `limit` characters of a text, and how many were left out."""
    return join(escape_visibly(text[:limit]), _rest(text, limit))


def prompt_text(text: str, limit: int = 100_000) -> Html:
    """A prompt: slots and fence markers stand out, images are shown, everything else is as in `clip`."""
    shown, parts, last = text[:limit], [], 0
    for match in _MARKS.finditer(shown):
        kind = "fence" if match.group().startswith("<!--") else "slot"
        part = [picture(one) for one in pieces_of(match[0]) if not isinstance(one, str)]
        stands = part or el("span", match.group(), class_=kind)
        parts += [escape_visibly(shown[last : match.start()]), stands]
        last = match.end()
    return join(parts, escape_visibly(shown[last:]), _rest(text, limit))


def picture(part: MediaPart) -> Html:
    """An image that is not too large for the page; anything else by its name."""
    try:
        url = str(part.read().get("image_url", {}).get("url", "")) if part.kind == "image" else ""
    except (OSError, WhetError):
        url = ""
    if not url.startswith("data:image/") or len(url) > LARGEST_PICTURE:
        return el("span", f"[{part.kind}: {clip(part.name, 200)}]")
    return el("img", src=url, alt=part.name, class_="picture", loading="lazy")


def _rest(text: str, limit: int) -> Html | None:
    left = len(text) - limit
    return el("span", f" … and {left:,} more characters", class_="rest") if left > 0 else None


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text in order, cut into harmless stretches (False) and single hidden characters (True)."""
    last = 0
    for match in _SUSPECT.finditer(text):
        at = match.start()
        if _is_hidden(text, at):
            if last < at:
                yield text[last:at], False
            yield text[at], True
            last = at + 1
    if last < len(text):
        yield text[last:], False


def _is_hidden(text: str, at: int) -> bool:
    char = text[at]
    category = unicodedata.category(char)
    if char in "\ufe0e\ufe0f":
        return not (at and (unicodedata.category(text[at - 1])[0] == "S" or text[at - 1] in "0123456789#*"))
    if char == "\u200d":
        return not (_is_pictogram(text, at - 1) and _is_pictogram(text, at + 1))
    selector = 0xFE00 <= ord(char) <= 0xFE0F or 0xE0000 <= ord(char) <= 0xE0FFF
    return category in _HIDDEN or category == "Zs" or char in _BLANK or selector


def _is_pictogram(text: str, at: int) -> bool:
    """Whether an emoji, its skin tone or its selector stands there, so that a joiner belongs to it."""
    return 0 <= at < len(text) and (text[at] == "\ufe0f" or unicodedata.category(text[at]) in ("So", "Sk"))


def _box(char: str) -> str:
    title = f"U+{ord(char):04X} {unicodedata.name(char, 'control character')}"
    return f'<span class="ctl" title="{html.escape(title)}">{_name(char)}</span>'


def _name(char: str) -> str:
    """An open box for an unusual space, else the code point."""
    return "⍽" if unicodedata.category(char) == "Zs" else f"U+{ord(char):04X}"
