"""A stand-in for a rewriter of requests: it learns which style of writing to choose, for all requests alike.

What it writes in a style is a function of the request; the requests are those of the simulated painter.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.rl.scribe import Conversation, Scribe

from whet.environments.environment import Environment
from whet.models.scripted import load
from whet.models.scripted_painter import mentions_of
from whet.prompt import Prompt
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rl.policy_model import Sample
from whet.types import Example

START = Prompt.parse("<!-- whet:begin -->\nPaint this.\n<!-- whet:end -->\n\n{{input}}")
NOUNS = {"circle": "circle", "rect": "square", "polygon": "triangle", "ellipse": "ellipse"}
WORDS = {"left": "left of", "right": "right of"}
_DATA = Path(__file__).parents[2] / "examples" / "painting" / "data.jsonl"
ROWS = [json.loads(line) for line in _DATA.read_text().splitlines()]


def clear(request: str) -> str:
    """A request of the painting example as the painter misreads it least: statement by statement, with digits."""
    mentions, places = mentions_of(re.findall(r"[a-z]+|\d+", request.lower()))
    said = [f"{m.count or 1} {m.colour} {NOUNS[m.element]}s." for m in mentions]
    for one, place, other in places:
        names = [f"the {mentions[i].colour} {NOUNS[mentions[i].element]}" for i in (one, other)]
        said.append(f"{names[0]} {WORDS.get(place, place)} {names[1]}.")
    return " ".join(said)


@dataclasses.dataclass
class Stylist(Scribe):
    """A `Scribe` over the names of `styles`; a sample's text is what the style makes of the request."""

    styles: Mapping[str, Callable[[str], str]] = dataclasses.field(default_factory=dict)

    def sample(self, conversations: Sequence[Conversation], n: int = 1, **how: Any) -> list[list[Sample]]:
        groups = super().sample(conversations, n, **how)
        requests = [conversation[-1].content.rpartition("\n\n")[2] for conversation in conversations]
        return [
            [dataclasses.replace(sample, text=self.styles[sample.text](request)) for sample in group]
            for request, group in zip(requests, groups, strict=True)
        ]

    def share(self, style: str) -> float:
        """The probability of a style."""
        return float(self.probabilities(list(self.styles))[list(self.styles).index(style)])


def stylist(styles: Mapping[str, Callable[[str], str]], gain: float = 4.0) -> Any:
    """A stylist that knows these styles, all alike at first."""
    return Stylist(lambda conversation: list(styles), gain=gain, styles=styles)


def painting(train: int = 20, validation: int = 12, reward: Any = None, **options: str) -> Environment:
    """Requests to the simulated painter, graded by their scenes."""
    rows = [Example(r["id"], {"input": r["input"]}, None, r, r["input"]) for r in ROWS]
    return Environment(
        load("painter", options),
        reward or SvgScene(),
        tuple(rows[:train]),
        tuple(rows[train : train + validation]),
    )
