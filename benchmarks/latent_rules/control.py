"""The control of the benchmark: the published way, one call per loop that rewrites the whole prompt.

Pure helpers; whoever runs the loop makes the calls. One loop: write pages with the current instructions, send
every critique with the instructions to the optimizer, take the text in its tags as the new instructions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.types import Message, Request

_BEFORE = """You improve the instructions of a prompt that makes a model write web pages as JSON.

<current_instructions>
"""
_BETWEEN = """
</current_instructions>

<critiques>
"""
_AFTER = """
</critiques>

Rewrite the whole prompt so that these complaints do not come up again. Keep what is still needed.
Answer with the new prompt in <new_prompt>...</new_prompt>.
"""


def rewrite_request(instructions: str, critiques: Sequence[str], max_tokens: int = 8192) -> Request:
    """The one optimizer call of a loop: the instructions and all critiques, one after the other."""
    listed = "\n".join(critique if critique.startswith("- ") else f"- {critique}" for critique in critiques)
    text = "".join((_BEFORE, instructions, _BETWEEN, listed, _AFTER))
    return Request((Message("user", text),), temperature=0.7, max_tokens=max_tokens)


def read_rewrite(reply: str) -> str | None:
    """The new instructions in a reply; None when it has no such tags or nothing in them."""
    found = re.search(r"<new_prompt>(.*)</new_prompt>", reply, re.DOTALL)
    return found.group(1).strip() or None if found else None
