"""A simulated stair: each improvement of a text is one of eight edits, of which one leads a level up; and a writer with a table.

The writer's table (`tests.rl.scribe`) has a row of its own for each level, so that it learns the edit of a level only from texts
of that level. Rows are solved up to the level of the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.environments.worlds import Scripted
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.types import Example, Message, Request

LEVELS = 6
START = Prompt.parse("<!-- whet:begin -->level 0<!-- whet:end --> {{input}}")


def level(text: str) -> int:
    """The level of a text."""
    return int(re.findall(r"level (\d+)", text)[-1])


def edits(conversation: Sequence[Message]) -> list[str]:
    """What the writer may make of the text that it is shown."""
    n = level(conversation[0].content)
    stay, place = [f"level {n}, wording {i}" for i in range(7)], 1 + n * 5 % 7
    return [*stay[:place], f"level {n + 1}" if n < LEVELS else f"level {n}, wording 7", *stay[place:]]


def writer() -> Any:
    """A writer that has learned nothing."""
    return Scribe(edits, gain=2.0)


def answer(request: Request) -> str:
    """Right where the prompt's level is above that of the row."""
    text = request.messages[-1].content
    return "yes" if level(text.partition("row")[0]) > int(re.findall(r"row (\d)", text)[0]) else "no"


def stairs() -> Environment:
    """A row of each level to train on, and two to validate on."""
    texts = [f"row {n % LEVELS}" for n in range(3 * LEVELS)]
    rows = tuple(Example(f"r{n}", {"input": text}, "yes", text=text) for n, text in enumerate(texts))
    model: Any = Scripted(answer)
    return Environment(model, ExactMatch(), rows[:LEVELS], rows[LEVELS:])
