"""Differences between prompts, as text."""

from __future__ import annotations

import difflib
import re

from whet_client.prompt.document import Prompt

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NO_END = "\\ No newline at end of file\n"


def unified_diff(before: Prompt, after: Prompt) -> str:
    """Unified diff of two prompts' sources; empty when they are equal."""
    return text_diff(before.source, after.source, before.id, after.id)


def text_diff(before: str, after: str, old: str = "baseline", new: str = "best") -> str:
    """Unified diff of two texts by line; empty when they are equal, and only then.

    Line ends are shown where they differ: a carriage return as it is, and a last line without an end by a line that says so.
    """
    texts = [before, after]
    if len({_line_ends(text) for text in texts}) == 1:
        texts = [text.replace("\r\n", "\n") for text in texts]
    if before.endswith("\n") == after.endswith("\n"):
        texts = [text and text.removesuffix("\n") + "\n" for text in texts]
    one, other = (_LINE.findall(text) for text in texts)
    lines = difflib.unified_diff(one, other, old, new)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines).removesuffix("\n")


def _line_ends(text: str) -> tuple[bool, bool]:
    """Whether a text has ends of Windows, and whether it has plain ones."""
    windows = text.count("\r\n")
    return windows > 0, text.count("\n") > windows
