"""Games of Gymnasium: what is shown, what counts as an action, what is rewarded, and replay."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from tests.engine.world import Model, close, open_core, run_of
from tests.environments.worlds import seeded

from whet.environments import Trajectory, play
from whet.environments.games import GAMES, GameWorld, find_action, game_world, seed_of
from whet.errors import UsageError
from whet.run import MemoryRun
from whet.types import Example, Message

LAKE = {"is_slippery": False}
SAFE = ("down", "down", "right", "right", "down", "right")
OPENING = (Message("user", "go"),)


class Walk:
    """An actor that says given texts, one a turn."""

    calls = 1

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    async def act(self, run: object, heard: list[object], sample: int = 0) -> list[object]:
        from whet.environments import ActorAction

        at = sum(m.role == "assistant" for m in heard[0].messages)  # type: ignore[attr-defined]
        return [ActorAction(self.texts[at]) for _ in heard]


async def walk(world: GameWorld, *texts: str, seed: int = 0) -> Trajectory:
    (played,) = await play(MemoryRun(), Walk(*texts), [world.reset(seeded(seed), OPENING)])  # type: ignore[arg-type]
    return played


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("right", "right"),
        ("I go **Right**.", "right"),
        ("Left is a hole, so I must not.\nAction: down", "down"),
        ("left or right", None),
        ("Down.\nEither left or right would do.", None),
        ("upright", None),
        ("", None),
    ],
)
def test_the_action_in_a_text(text: str, action: str | None) -> None:
    assert find_action(text, ["left", "down", "right", "up"]) == action


async def test_the_lake_can_be_crossed() -> None:
    played = await walk(game_world("FrozenLake-v1", 10, LAKE), *SAFE)
    assert (played.value, played.end, len(played.turns)) == (1.0, "done", 6)
    assert played.last == "The game is over." and played.notes == {"wasted": 0.0}


async def test_a_hole_ends_the_walk_without_reward() -> None:
    played = await walk(game_world("FrozenLake-v1", 10, LAKE), "down", "right")
    assert (played.value, played.end) == (0.0, "done")


def test_the_lake_as_text() -> None:
    shown = game_world("FrozenLake-v1", 10, LAKE).observe(seeded(3)).text
    assert shown == (
        "You stand in row 1, column 1 of a frozen lake (S start, F ice, H hole, G goal):\n"
        "SFFF\nFHFH\nFFFH\nHFFG\nChoose one action: left, down, right or up."
    )


def test_the_cards_as_text() -> None:
    world = game_world("Blackjack-v1", 5, {})
    shown = {seed: world.observe(seeded(seed)).text or "" for seed in range(40)}
    assert all("Choose one action: stick or hit." in text for text in shown.values())
    assert any("an ace that counts as 11" in text for text in shown.values())
    assert any("The dealer shows an ace." in text for text in shown.values())
    assert len(set(shown.values())) > 20, "seeds deal different cards"


def test_the_streets_as_text() -> None:
    shown = game_world("Taxi-v3", 5, {}).observe(seeded(3)).text or ""
    assert shown.count("\n") == 9 and "|R: | : :G|" in shown
    assert "The passenger is at the" in shown and "wants to go to the" in shown


async def test_a_passenger_can_be_taken_and_brought() -> None:
    world = game_world("Taxi-v3", 40, {})
    env, _ = world.begin(3)
    names = {number: word for word, number in world.game.actions.items()}
    texts = [names[a] for a in plan_taxi(env.unwrapped)]
    played = await walk(world, *texts, seed=3)
    assert played.end == "done" and played.value == 20 - (len(texts) - 1)
    assert "The passenger is in the taxi" in played.transcript()


def plan_taxi(env: object) -> list[int]:
    """Fewest actions to the reward of 20, by breadth-first search over the game's own table."""
    paths: dict[int, list[int]] = {env.s: []}  # type: ignore[attr-defined]
    queue = [env.s]  # type: ignore[attr-defined]
    while queue:
        state = queue.pop(0)
        for action in range(6):
            _, after, reward, _ = env.P[state][action][0]  # type: ignore[attr-defined]
            if reward == 20:
                return [*paths[state], action]
            if after not in paths:
                paths[after] = [*paths[state], action]
                queue.append(after)
    raise AssertionError("there is a way")


async def test_a_text_without_an_action_wastes_the_turn_and_costs_the_penalty() -> None:
    world = game_world("FrozenLake-v1", 8, LAKE, penalty=0.25)
    played = await walk(world, "hm", *SAFE)
    assert played.rewards == (-0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert played.turns[1].observation.startswith(
        "That names no single action.\nYou stand in row 1, column 1"
    )
    assert played.notes == {"wasted": 1.0} and world.range == (-0.25 * 8, 1.0)


async def test_a_strict_game_ends_at_a_text_without_an_action() -> None:
    world = game_world("FrozenLake-v1", 8, LAKE, penalty=0.5, strict=True)
    played = await walk(world, "down", "hm")
    assert (played.rewards, played.end) == ((0.0, -0.5), "done")


async def test_silence_does_not_pay() -> None:
    world = game_world("Blackjack-v1", 3, {})
    played = await walk(world, "hm", "hm", "hm")
    assert (played.value, played.end) == (-1.0, "turns"), "who never sticks forfeits the game"
    taxi = await walk(game_world("Taxi-v3", 3, {}), "hm", "hm", "hm")
    assert taxi.value == -3.0, "a wasted turn costs what any other turn costs"


@pytest.mark.parametrize("id", ["Blackjack-v1", "FrozenLake-v1", "Taxi-v3"])
async def test_returns_stay_in_the_range_that_is_told(id: str) -> None:
    world = game_world(id, 7, {}, penalty=0.5)
    low, high = world.range
    words = [*world.game.actions, "hm"]
    values = []
    for seed in range(40):
        texts = random.Random(seed).choices(words, k=7)
        values.append((await walk(world, *texts, seed=seed)).value)
    assert all(low <= value <= high for value in values) and math.isfinite(low) and len(set(values)) > 1


async def test_a_seed_is_a_game() -> None:
    world = game_world("FrozenLake-v1", 20, {})
    texts = ["down"] * 20
    walks = [(await walk(world, *texts, seed=seed)).transcript() for seed in (1, 1, 2, 3, 4)]
    assert walks[0] == walks[1] and len(set(walks)) > 2, "slips come from the seed"


def test_a_random_map_comes_from_the_seed() -> None:
    world = game_world("FrozenLake-v1", 20, {"map_name": "random", "size": 5})
    maps = [world.observe(seeded(seed)).text or "" for seed in (1, 1, 2)]
    assert maps[0] == maps[1] != maps[2]
    assert all(len(line) == 5 for text in maps for line in text.splitlines()[1:6])


@pytest.mark.parametrize(
    ("id", "options", "said"),
    [
        ("FrozenLak-v1", {}, 'Did you mean "FrozenLake-v1"'),
        ("CartPole-v1", {}, "Known: Blackjack-v1"),
        ("FrozenLake-v1", {"is_slipery": False}, 'Did you mean "is_slippery"'),
        ("FrozenLake-v1", {"is_slippery": 1}, "must be of type bool; this is 1"),
        ("FrozenLake-v1", {"map_name": "16x16"}, "is one of 4x4, 8x8, random"),
        ("FrozenLake-v1", {"size": True}, "must be of type int"),
        ("Taxi-v3", {"is_rainy": True, "rainy_probability": "x"}, "must be of type float"),
    ],
)
def test_what_is_unknown_is_refused(id: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        game_world(id, 5, options)


@pytest.mark.parametrize("seed", [None, "3", -1, True, 1.5])
def test_a_row_without_a_seed_is_refused(seed: object) -> None:
    with pytest.raises(UsageError, match="whole number of 0 or more"):
        seed_of(Example("a", {}, row={"seed": seed}))


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(
        UsageError, match=r"games need gymnasium. Install it with: pip install 'whet\[games\]'"
    ):
        game_world("FrozenLake-v1", 5, {})


class Killed(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("last", [1, 2, 4, 6])
async def test_a_game_that_is_killed_goes_on_where_it_was(tmp_path: Path, last: int) -> None:
    """Slips and rewards of a resumed game are those of the uninterrupted one; nothing is asked twice."""
    world = game_world("FrozenLake-v1", 6, {"success_rate": 0.6})
    texts = ("down", "down", "right", "hm", "right", "down")

    async def attempt(folder: Path, dies: Callable[[int], None]) -> Trajectory:
        core = open_core(folder, Model())
        try:
            (played,) = await play(run_of(core), Recorded(dies), [world.reset(seeded(5), OPENING)])
            return played
        finally:
            await close(core)

    asked: list[int] = []

    class Recorded:
        """An actor whose texts are recorded effects, as those of a model are."""

        calls = 1

        def __init__(self, dies: Callable[[int], None]) -> None:
            self.dies = dies

        async def act(self, run: object, heard: list[object], sample: int = 0) -> list[object]:
            from whet.environments import ActorAction

            at = sum(m.role == "assistant" for m in heard[0].messages)  # type: ignore[attr-defined]

            async def say() -> object:
                self.dies(at)
                asked.append(at)
                return texts[at]

            return [ActorAction(str(await run.effect("say", say)))]  # type: ignore[attr-defined]

    def dies(at: int) -> None:
        if at == last and not asked.count(-1):
            asked.append(-1)
            raise Killed

    whole = await attempt(tmp_path / "whole", lambda at: None)
    asked.clear()
    if last < len(whole.turns):
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", dies)
    assert await attempt(tmp_path / "killed", lambda at: None) == whole
    assert [at for at in asked if at >= 0] == list(range(len(whole.turns)))


def test_every_game_says_what_its_turns_can_bring() -> None:
    for game in GAMES.values():
        assert game.turn[0] <= game.turn[1] and game.end[0] < game.end[1]
        assert sorted(game.actions.values()) == list(range(len(game.actions)))
