"""Optimizer models for tests: each request's text goes to a function, which returns the answer as a value or as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from whet.instructions.questions import Critique
from whet.run import MemoryRun
from whet.types import Completion, Request

READ, RESTATE, CONSOLIDATE, REWRITE = "Critiques:", '{"texts"', '{"duplicates"', '{"rewrites"'


@dataclass
class Optimizer:
    """Answers by `reply(stage, text)`: a text as it is, anything else as JSON, a Completion as such."""

    reply: Callable[[str, str], Any]
    address: str = "test/optimizer"
    simulated: bool = True
    local: bool = True
    seen: list[tuple[str, str]] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)

    async def generate(self, request: Request) -> list[Completion]:
        text = request.messages[0].content
        stages = {RESTATE: "restate", CONSOLIDATE: "consolidate", REWRITE: "rewrite"}
        stage = next((name for mark, name in stages.items() if mark in text), "read")
        self.seen.append((stage, text))
        self.temperatures.append(request.temperature)
        answer = self.reply(stage, text)
        if isinstance(answer, Completion):
            return [answer]
        return [Completion(answer if isinstance(answer, str) else json.dumps(answer))]

    def calls(self, stage: str) -> int:
        """How often it was asked for something."""
        return sum(name == stage for name, _ in self.seen)


def run_with(reply: Callable[[str, str], Any]) -> tuple[MemoryRun, Optimizer]:
    """A run whose optimizer model answers by `reply`."""
    optimizer = Optimizer(reply)
    return MemoryRun({"optimizer": optimizer}), optimizer


def constant(answer: Any) -> Callable[[str, str], Any]:
    """The same answer to everything."""
    return lambda stage, text: answer


def critiques(*texts: str, row: bool = False) -> list[Critique]:
    """Critiques of as many answers, or whole rows."""
    return [Critique(text, f"row {n}", row=row) for n, text in enumerate(texts, 1)]


def numbered(text: str) -> dict[int, str]:
    """The numbered lines of a request."""
    return {int(n): line for n, line in re.findall(r"(?m)^(\d+)\. (.*)$", text)}


def entry(
    critiques: Any = (), violates: Any = None, instruction: Any = None, contradicts: Any = None
) -> dict[str, Any]:
    """One requirement of the reader's form."""
    shown = list(critiques) if isinstance(critiques, tuple) else critiques
    return {"critiques": shown, "violates": violates, "instruction": instruction, "contradicts": contradicts}


def form(*entries: dict[str, Any], **dismissed: list[int]) -> dict[str, Any]:
    """The reader's form."""
    return {"requirements": list(entries), "no_demand": [], "vague": [], "to_the_reader": [], **dismissed}
