"""A corridor whose far end pays, and a table of values that learns in it: for tests of bonuses."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from whet.environments import Conversation, World, WorldStep
from whet.run import MemoryRun, Run
from whet.types import Example, Message

CELLS, TURNS = 8, 24
ACTIONS = ("left", "right")
ROW = Example("walk", {"input": "0"}, row={"goal": "reach cell 7"})


@dataclass(frozen=True)
class Corridor:
    """Cells from 0; the last one ends the episode and pays 1."""

    name: str = "corridor"
    turns: int = TURNS
    graded: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    actions: tuple[str, ...] = ACTIONS

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        """The first cell."""
        return Example(example.id, {"input": "cell 0"}, row=example.row)

    def reset(self, example: Example, opening: Conversation) -> CorridorEpisode:
        return CorridorEpisode(opening)


@dataclass
class CorridorEpisode:
    """An episode on its way."""

    opening: Conversation
    turns: int = TURNS
    cell: int = 0

    async def step(self, run: Run, text: str) -> WorldStep:
        self.cell = max(0, self.cell + (1 if text == "right" else -1))
        end = self.cell == CELLS - 1
        return WorldStep(f"cell {self.cell}", float(end), done=end)


async def learn(
    world: World, seed: int, episodes: int, row: Example = ROW, run: MemoryRun | None = None
) -> list[float]:
    """Q-learning over what is seen (step 0.3, discount 0.95, one action in five at random): the plain return of each episode."""
    rng, run, returns = random.Random(seed), run or MemoryRun(), list[float]()
    table: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(world.actions))  # type: ignore[attr-defined]
    for _ in range(episodes):
        episode = world.reset(row, (Message("user", "cell 0"),))
        seen, plain = world.observe(row).user_text, 0.0
        for _ in range(world.turns):
            values = table[seen]
            best = max(values)
            greedy = rng.choice([i for i, value in enumerate(values) if value == best])
            action = rng.randrange(len(values)) if rng.random() < 0.2 else greedy
            step = await episode.step(run, world.actions[action])  # type: ignore[attr-defined]
            plain += step.reward - step.notes.get("shaped", 0.0)
            after = 0.0 if step.done else 0.95 * max(table[step.observation])
            values[action] += 0.3 * (step.reward + after - values[action])
            seen = step.observation
            if step.done:
                break
        returns.append(plain)
    return returns


def cell_of(seen: str) -> int:
    """The cell that an observation names."""
    return int(seen.split()[-1])
