"""A simulated chain: the middle of it pays, once, to who claims there; and a model that reads what it is shown of it.

The model continues what it is shown: it predicts an outcome that was shown of the same state and action, moves as far as the
shown moves of the action went, and does in a state what was shown to succeed there. Of what it is not shown it knows nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from whet.environments import Conversation, Return, WorldStep
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.models.scripted import chance, choose_by_luck
from whet.prompt import Prompt
from whet.run import Run
from whet.testing.simulated_task import Answers
from whet.types import Example

PLACES, TURNS = 7, 10
ACTIONS = ("left", "right", "claim")
START = Prompt.parse("Walk.\n<!-- whet:begin -->\nFind the place that pays.\n<!-- whet:end -->\n{{input}}")
ITEM = re.compile(r"Seen: place (\d+)\n(?:Action: (\w+)\n)?(\w[\w ]*):[ ]?([^\n]*)")


@dataclass(frozen=True)
class Chain:
    """Places in a row; `claim` ends the episode, and pays 1 at the goal and nothing elsewhere."""

    goal: int
    name: str = "chain"
    turns: int = TURNS
    graded: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    actions: tuple[str, ...] = ACTIONS

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        """The first place."""
        return Example(example.id, {"input": f"place {example.user_text}"})

    def reset(self, example: Example, opening: Conversation) -> ChainEpisode:
        return ChainEpisode(opening, self.goal, int(example.user_text))


@dataclass
class ChainEpisode:
    """An episode on its way."""

    opening: Conversation
    goal: int
    place: int
    turns: int = TURNS

    async def step(self, run: Run, text: str) -> WorldStep:
        if text == "claim":
            return WorldStep("the end", float(self.place == self.goal), done=True)
        self.place = min(PLACES - 1, max(0, self.place + {"left": -1, "right": 1}.get(text, 0)))
        return WorldStep(f"place {self.place}")


def reader(question: str, sample: int) -> str:
    """Continues what it is shown; a question of another form is answered by any action."""
    *shown, last = [match.groups() for match in ITEM.finditer(question)] or [("", "", "", "")]
    place, action, kind, _ = last
    same = [value for seen, did, _, value in shown if (seen, did) == (place, action)]
    if kind == "Reward":
        return (same or ["0"])[0]
    if kind == "Over":
        return ([value for _, did, _, value in shown if did == action] or ["no"])[0]
    if kind == "Seen next":
        moved = [int(value.split()[1]) - int(seen) for seen, *_, value in shown]
        return f"place {int(place) + max(set(moved), key=moved.count)}"
    return (same or [choose_by_luck(ACTIONS, question, sample)])[0]


def chain(seed: int) -> MultiTurn:
    """The task of a seed: the goal, and where each row begins."""
    goal = 2 + int(chance(seed, "goal") * (PLACES - 4))
    rows = [Example(f"walk-{n}", {"input": str(int(chance(seed, n) * PLACES))}) for n in range(60)]
    env: Any = Environment(Answers(reader), Return(0.0, 1.0), tuple(rows[:40]), tuple(rows[40:]))
    return multiturn(env, Chain(goal))
