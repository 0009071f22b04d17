"""Games of text that a file of the task makes: both forms of Gymnasium, scores, workers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet._util.workers.automatic import PROCESSES, make_executor
from whet.environments.text_games import TextGame
from whet.errors import UsageError
from whet.run import MemoryRun
from whet.types import Example

GAME = """
class Door:
    \"\"\"Opens to who unlocks it first; the lock is that of the row.\"\"\"

    def __init__(self, row):
        self.row, self.unlocked, self.total = row, False, 0

    def reset(self, seed=None):
        return f"A {self.row['colour']} door, number {seed}.", {}

    def step(self, action):
        if action == "break":
            raise RuntimeError("it is of steel")
        self.unlocked |= action == "unlock the door"
        opened = self.unlocked and action == "open the door"
        gained = 0.25 if action == "unlock the door" else 0.75 * opened
        self.total += gained
        return NEXT


def make(row):
    return Door(row)
"""
NEW = '"It is open." if opened else "A door.", gained, opened, False, {}'
OLD = '"It is open." if opened else "A door.", self.total, opened, {}'
ROW = Example("1", {"input": "q"}, row={"colour": "red", "seed": 7})
WAY = ("I think.\n> unlock the door", "", "<action>open the door</action>")


def game(folder: Path, returned: str = NEW, **options: Any) -> TextGame:
    (folder / "game.py").write_text(GAME.replace("NEXT", returned))
    return TextGame(folder / "game.py", 5, **options)


async def play(world: TextGame, run: MemoryRun, texts: tuple[str, ...] = WAY) -> list[Any]:
    episode = world.reset(ROW, ())
    return [await episode.step(run, text) for text in texts]


@pytest.mark.parametrize(("returned", "scores"), [(NEW, "turn"), (OLD, "total")])
async def test_a_game_is_played_as_it_is(tmp_path: Path, returned: str, scores: Any) -> None:
    world = game(tmp_path, returned, scores=scores)
    assert world.observe(ROW).text == "A red door, number 7."
    steps = await play(world, MemoryRun())
    assert [(step.reward, step.done, step.notes["wasted"]) for step in steps] == [
        (0.25, False, 0.0),
        (0.0, False, 1.0),
        (0.75, True, 0.0),
    ]
    assert steps[-1].observation == "It is open."


async def test_a_worker_plays_the_same_also_where_another_one_began(tmp_path: Path) -> None:
    world, run = game(tmp_path), MemoryRun()
    here = await play(world, run)
    run.executor = make_executor(PROCESSES, 1, None, 1, print)
    try:
        episode = world.reset(ROW, ())
        first = await episode.step(run, WAY[0])
        await run.executor.close()
        run.executor = make_executor(PROCESSES, 1, None, 1, print)
        assert [first, *[await episode.step(run, text) for text in WAY[1:]]] == here
        with pytest.raises(
            UsageError, match="the game failed at the action 'break': RuntimeError: it is of steel"
        ):
            await play(world, run, ("break",))
    finally:
        await run.executor.close()


def test_a_task_plays_it(tmp_path: Path) -> None:
    game(tmp_path)
    (tmp_path / "prompt.md").write_text("Play.\n\n{{input}}")
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"input": "x{seed}", "colour": "red", "seed": {seed}}}\n' for seed in range(6))
    )
    (tmp_path / "task.yaml").write_text(
        "name: door\nprompt: prompt.md\ndata: rows.jsonl\nenvironment: {game: game.py, turns: 5}\n"
    )

    def player(messages: Any) -> str:
        return "unlock the door" if len(messages) < 3 else "open the door"

    done = whet.evaluate(tmp_path, lm=player, split="test", run=tmp_path / "run", progress=False)
    assert done["score"]["mean"] == 1.0


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("[1, 2], 0.0, False, {}", "an observation of the game is list, and a model reads texts"),
        ("'on', 'much', False, {}", "the reward of a step is 'much', and no finite number"),
        ("'on'", "a step of the game returns str, and not"),
    ],
)
async def test_what_is_no_game_of_text_is_refused(tmp_path: Path, returned: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await play(game(tmp_path, returned), MemoryRun())
