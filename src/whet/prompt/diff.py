"""Differences between prompts, as text."""

from __future__ import annotations

import difflib

from whet_client.prompt.document import Prompt


def unified_diff(before: Prompt, after: Prompt) -> str:
    """Unified diff of two prompts' sources; empty when they are equal."""
    return text_diff(before.source, after.source, before.id, after.id)


def text_diff(before: str, after: str, old: str = "baseline", new: str = "best") -> str:
    """Unified diff of two texts by line; empty when they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="")
    return "\n".join(lines)
