"""`environment:` in task.yaml: what it brings, what it refuses, and that a result depends on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whet.environments import Return
from whet.environments.games import GameWorld
from whet.environments.tools import ToolWorld
from whet.errors import UsageError
from whet.task import load_task

TOOLS = 'def add(a: int, b: int) -> int:\n    """The sum."""\n    return a + b\n'
GAME = "name: t\nprompt: prompt.md\n"
LAKE = "environment: {gymnasium: FrozenLake-v1, turns: 20, episodes: 10, seed: 5}\n"
Make = Callable[..., Path]


def game(make: Make, yaml: str = LAKE, **files: str) -> Path:
    named = {name.replace("_", ".", 1): text for name, text in files.items()}
    return make({"task.yaml": GAME + yaml, "prompt.md": "Cross the lake.\n", **named})


def test_tools_make_a_world_graded_by_the_task(make: Make) -> None:
    task = load_task(make({"tools.py": TOOLS}, yaml="environment: {tools: tools.py, turns: 5}\n"))
    assert isinstance(task.world, ToolWorld) and task.world.turns == 5
    assert [tool.name for tool in task.world.tools] == ["add"] and task.reward.name == "exact_match"
    assert task.world.seconds == 30.0


def test_a_task_says_how_long_a_tool_may_take(make: Make) -> None:
    yaml = "environment: {tools: tools.py, turns: 5, seconds: 2.5}\n"
    task = load_task(make({"tools.py": TOOLS}, yaml=yaml))
    assert isinstance(task.world, ToolWorld) and task.world.seconds == 2.5
    with pytest.raises(UsageError, match=r"environment: seconds must be a number above 0"):
        load_task(make({"tools.py": TOOLS}, yaml="environment: {tools: tools.py, turns: 5, seconds: 0}\n"))


def test_without_environment_there_is_no_world(make: Make) -> None:
    assert load_task(make()).world is None


def test_a_game_brings_its_rows_and_its_reward(make: Make) -> None:
    pytest.importorskip("gymnasium")
    task = load_task(game(make))
    rows = [*task.train, *task.validation, *task.test]
    assert sorted(e.row["seed"] for e in rows) == list(range(5, 15))
    assert (len(task.train), len(task.validation), len(task.test)) == (4, 3, 3)
    assert isinstance(task.world, GameWorld) and task.reward == Return(0.0, 1.0)
    assert task.warnings == ()


def test_a_game_takes_given_rows(make: Make) -> None:
    pytest.importorskip("gymnasium")
    rows = [{"input": f"game {i}", "seed": i * 7} for i in range(6)]
    folder = make(
        {
            "task.yaml": GAME + "data: data.jsonl\nenvironment: {gymnasium: Blackjack-v1, turns: 6}\n",
            "prompt.md": "{{input}}\nPlay well.",
        },
        rows=rows,
    )
    task = load_task(folder)
    assert sorted(e.row["seed"] for e in (*task.train, *task.validation, *task.test)) == [
        0,
        7,
        14,
        21,
        28,
        35,
    ]


def test_the_range_of_the_return_can_be_told(make: Make) -> None:
    pytest.importorskip("gymnasium")
    yaml = "environment: {gymnasium: Taxi-v3, turns: 20, episodes: 9}\nreward: {return: {low: -40}}\n"
    assert load_task(game(make, yaml)).reward == Return(-40.0, 20.0)


def test_a_program_may_reward_a_transcript(make: Make) -> None:
    pytest.importorskip("gymnasium")
    program = "def reward(example, output):\n    return float('hole' not in output)\n"
    task = load_task(game(make, LAKE + "reward: reward.py\n", reward_py=program))
    assert task.reward.name == "program"


def test_a_result_depends_on_the_environment(make: Make) -> None:
    pytest.importorskip("gymnasium")
    seen = {load_task(game(make, yaml)).fingerprint for yaml in (LAKE, LAKE.replace("20", "21"))}
    yaml = "environment: {tools: tools.py, turns: 5}\n"
    seen |= {load_task(make({"tools.py": text}, yaml=yaml)).fingerprint for text in (TOOLS, TOOLS + "\n")}
    seen.add(load_task(make()).fingerprint)
    assert len(seen) == 5


REFUSED = {
    "no mapping": (
        "environment: FrozenLake-v1",
        "task.yaml:3",
        "mapping",
        "gymnasium: FrozenLake-v1, turns: 20",
    ),
    "neither": (
        "environment: {turns: 5}",
        "task.yaml:3",
        "none of gymnasium, game, tools",
        "tools: tools.py",
    ),
    "misspelt": ("environment: {gymnasum: X, turns: 5}", "task.yaml:3", 'Did you mean "gymnasium"?', "Write"),
    "both": ("environment: {gymnasium: X, tools: y, turns: 5}", "task.yaml:3", "both", "Write"),
    "unknown key": (
        "environment: {gymnasium: FrozenLake-v1, turn: 5}",
        "task.yaml:3",
        'no key "turn"',
        'Did you mean "turns"?',
    ),
    "key of the other kind": (
        "environment: {tools: t.py, turns: 5, seed: 1}",
        "task.yaml:3",
        "seed",
        "turns",
    ),
    "no turns": ("environment: {gymnasium: FrozenLake-v1}", "task.yaml:3", "no `turns`", "Add turns: 20"),
    "turns": ("environment: {tools: t.py, turns: 0}", "task.yaml:3", "turns", "1 or more"),
    "game": (
        "environment: {gymnasium: FrozenLak-v1, turns: 5}",
        "task.yaml:3",
        'no game "FrozenLak-v1"',
        '"FrozenLake-v1"',
    ),
    "option": (
        "environment: {gymnasium: FrozenLake-v1, turns: 5, options: {slippery: true}}",
        "task.yaml:3",
        'no option "slippery"',
        '"is_slippery"',
    ),
    "penalty": (
        "environment: {gymnasium: FrozenLake-v1, turns: 5, penalty: -1}",
        "task.yaml:3",
        "penalty",
        "0 or more",
    ),
    "strict": (
        "environment: {gymnasium: FrozenLake-v1, turns: 5, strict: 1}",
        "task.yaml:3",
        "strict",
        "true or false",
    ),
    "few episodes": (
        "environment: {gymnasium: FrozenLake-v1, turns: 5, episodes: 2}",
        "task.yaml:3",
        "episodes",
        "3 or more",
    ),
    "no rows": (
        "environment: {gymnasium: FrozenLake-v1, turns: 5}",
        "task.yaml:1",
        "`data` is missing",
        "Add",
    ),
    "labels": (LAKE + "labels: [left, right]", "task.yaml:3", "labels", "Remove"),
    "range": (LAKE + "reward: {return: {low: 2}}", "task.yaml:4", "low < high", "low=2, high=1"),
    "range key": (LAKE + "reward: {return: {lower: 2}}", "task.yaml:4", 'no key "lower"', '"low"'),
    "return without game": ("reward: return\ndata: data.jsonl", "task.yaml:3", 'no reward "return"', "Known"),
    "no file": ("environment: {tools: tools.py, turns: 5}", "task.yaml:3", "no such file", "docstrings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(make: Make, name: str) -> None:
    if "gymnasium" in REFUSED[name][0]:
        pytest.importorskip("gymnasium")
    yaml, at, *said = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        load_task(game(make, yaml + "\n"))
    message = str(caught.value)
    assert message.split(": ")[0].endswith(at), message
    for piece in said:
        assert piece in message


def test_rows_of_a_game_need_seeds(make: Make) -> None:
    pytest.importorskip("gymnasium")
    yaml = "data: data.jsonl\nenvironment: {gymnasium: FrozenLake-v1, turns: 5}\n"
    with pytest.raises(UsageError, match=r"task.yaml:4: row \w+ at .* has the seed None"):
        load_task(game(make, yaml))


def test_a_missing_package_is_refused_in_one_line(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(
        UsageError, match=r"task.yaml:3: games need gymnasium. Install it with: pip install 'whet\[games\]'"
    ):
        load_task(game(make))
