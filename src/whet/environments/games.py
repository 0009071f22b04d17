"""Games of Gymnasium as worlds: text observations, actions read from the model's text, an example = a seed.

Gymnasium (Towers et al. 2024, arXiv:2407.17032) is the extra `whet[games]`; this module imports it when a game begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from whet.environments.episodes import Conversation
from whet.environments.replayed import ReplayedEpisode
from whet.errors import UsageError, did_you_mean
from whet.types import JSON, Example

INSTALL = "pip install 'whet[games]'"
RANDOM = "random"
_SIDES = {"left": 0, "down": 1, "right": 2, "up": 3}
_PADS = ("the red pad (R)", "the green pad (G)", "the yellow pad (Y)", "the blue pad (B)")


def _lake(env: Any, state: Any) -> str:
    rows = ["".join(cell.decode() for cell in row) for row in env.unwrapped.desc]
    row, column = divmod(int(state), len(rows[0]))
    return (
        f"You stand in row {row + 1}, column {column + 1} of a frozen lake (S start, F ice, H hole, G goal):\n"
        + "\n".join(rows)
    )


def _cards(env: object, state: Any) -> str:
    total, shown, ace = (int(value) for value in state)
    held = ", with an ace that counts as 11" if ace else ""
    dealer = "an ace" if shown == 1 else str(shown)
    return f"Your cards sum to {total}{held}. The dealer shows {dealer}."


def _streets(env: Any, state: Any) -> str:
    row, column, passenger, goal = (int(value) for value in env.unwrapped.decode(int(state)))
    where = "in the taxi" if passenger == len(_PADS) else f"at {_PADS[passenger]}"
    rows = "\n".join("".join(cell.decode() for cell in line) for line in env.unwrapped.desc)
    return (
        f"Your taxi is in row {row + 1}, column {column + 1} (a wall is |, an open side is :):\n{rows}\n"
        f"The passenger is {where} and wants to go to {_PADS[goal]}."
    )


@dataclass(frozen=True)
class Game:
    """The description of a game: its actions by word, its text, its options (a type, or the possible texts), and the range of
    its rewards.

    `turn` is the lowest and the highest reward of a turn that does not end the game, `end` that of the last turn.
    `wasted` is the reward of a turn whose text names no action, `forfeit` that of running out of turns.
    """

    actions: Mapping[str, int]
    text: Callable[[Any, Any], str]
    options: Mapping[str, type | tuple[str, ...]]
    turn: tuple[float, float]
    end: tuple[float, float]
    wasted: float = 0.0
    forfeit: float = 0.0


_TAXI = Game(
    {"south": 0, "north": 1, "east": 2, "west": 3, "pickup": 4, "dropoff": 5},
    _streets,
    {"is_rainy": bool, "fickle_passenger": bool, "rainy_probability": float, "fickle_probability": float},
    (-10.0, -1.0),
    (-10.0, 20.0),
    wasted=-1.0,
)
GAMES: Mapping[str, Game] = {
    "Blackjack-v1": Game(
        {"stick": 0, "hit": 1},
        _cards,
        {"sab": bool},
        (0.0, 0.0),
        (-1.0, 1.0),
        forfeit=-1.0,
    ),
    "FrozenLake-v1": Game(
        _SIDES,
        _lake,
        {"map_name": ("4x4", "8x8", RANDOM), "is_slippery": bool, "success_rate": float, "size": int},
        (0.0, 0.0),
        (0.0, 1.0),
    ),
    "Taxi-v3": _TAXI,
    "Taxi-v4": _TAXI,
}
"""The games that are known, by their name in Gymnasium. Taxi-v3 and Taxi-v4 are one game when it is dry."""


@dataclass(frozen=True)
class GameWorld:
    """A game of Gymnasium, at most `turns` actions long.

    `penalty` (0 or more) is taken off the reward of a turn whose text names no single action; with `strict` such a
    turn ends the game. `options` go to the game: those of Gymnasium, and for FrozenLake `map_name: random` with
    `size` (4 by default): another map for every seed. An example's seed is `seed` of its row.
    """

    id: str
    turns: int
    options: Mapping[str, Any] = field(default_factory=dict)
    penalty: float = 0.0
    strict: bool = False
    graded: bool = False

    @property
    def name(self) -> str:
        """gymnasium/ID."""
        return f"gymnasium/{self.id}"

    @property
    def game(self) -> Game:
        """The description of the game."""
        return GAMES[self.id]

    @property
    def actions(self) -> tuple[str, ...]:
        """The words of its actions."""
        return tuple(self.game.actions)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest return that is possible."""
        game, before = self.game, self.turns - 1
        wasted = game.wasted - self.penalty
        low = before * min(game.turn[0], wasted) + min(
            game.end[0], game.turn[0] + game.forfeit, wasted + game.forfeit
        )
        return low, before * max(0.0, game.turn[1]) + game.end[1]

    def check(self, example: Example) -> None:
        """Refuse a row without a seed."""
        seed_of(example)

    def observe(self, example: Example) -> Example:
        """The example with the first observation as its text."""
        env, state = self.begin(seed_of(example))
        env.close()
        text = f"{self.game.text(env, state)}\n{self.choice()}"
        return replace(example, values={**example.values, "input": text}, text=text)

    def choice(self) -> str:
        """The question after each observation."""
        words = list(self.game.actions)
        return f"Choose one action: {', '.join(words[:-1])} or {words[-1]}."

    def reset(self, example: Example, opening: Conversation) -> ReplayedEpisode:
        """The game of the example's seed."""
        return ReplayedEpisode(self, seed_of(example), opening)

    package = "gymnasium"

    def describe(self) -> tuple[str, dict[str, JSON]]:
        """See `ReplayedWorld`."""
        options: dict[str, JSON] = dict(self.options)
        how: dict[str, JSON] = {"penalty": self.penalty, "strict": self.strict}
        return f"{__name__}:game_world", {"id": self.id, "turns": self.turns, "options": options, **how}

    def begin(self, start: JSON) -> tuple[Any, Any]:
        """A fresh game of Gymnasium, of a seed, and its first state."""
        assert isinstance(start, int)
        seed = start
        env = make_game(self.id, _options(self, seed))
        return env, env.reset(seed=seed)[0]

    def turn(self, live: tuple[Any, Any], text: str, last: bool) -> tuple[tuple[Any, Any], list[JSON]]:
        """See `ReplayedWorld`."""
        env, state = live
        game, action = self.game, self.action(text)
        if action is None:
            reward, over = game.wasted - self.penalty, self.strict
            seen = f"That names no single action.\n{game.text(env, state)}"
        else:
            state, gained, terminated, truncated, _ = env.step(action)
            reward, over = float(gained), bool(terminated or truncated)
            seen = "The game is over." if over else game.text(env, state)
        if (last and not over) or (over and action is None):
            reward += game.forfeit
        outcome: list[JSON] = [seen if over else f"{seen}\n{self.choice()}", reward, over, action is None]
        return (env, state), outcome

    def action(self, text: str) -> int | None:
        """The action that a text names; None when it names none or several (see `find_action`)."""
        word = find_action(text, list(self.game.actions))
        return None if word is None else self.game.actions[word]


def find_action(text: str, words: list[str]) -> str | None:
    """The one action that a text names; None when it names none or several.

    The last line that names exactly one counts, so that a model may think before it acts.

    >>> find_action("Left is a hole.\\nSo: down.", ["left", "down", "right", "up"])
    'down'
    >>> find_action("left or right", ["left", "down", "right", "up"])
    """
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)
    for line in reversed([line for line in text.splitlines() if line.strip()]):
        named = {str(match).lower() for match in pattern.findall(line)}
        if len(named) == 1:
            return named.pop()
        if named:
            return None
    return None


def seed_of(example: Example) -> int:
    """The seed of an example. Raises UsageError when its row has no whole number `seed` of 0 or more."""
    seed = example.row.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(
            f'{example.place} has the seed {seed!r}. Give every row of a game "seed", a whole number of 0 or more.'
        )
    return seed


def game_world(
    id: str, turns: int, options: Mapping[str, Any], penalty: float = 0.0, strict: bool = False
) -> GameWorld:
    """A game by its name, checked. Raises UsageError for an unknown game or option, or when Gymnasium is missing."""
    if id not in GAMES:
        raise UsageError(f'there is no game "{id}".{did_you_mean(id, GAMES)}')
    for key, value in options.items():
        _check_option(id, key, value)
    world = GameWorld(_registered_name(id), turns, dict(options), penalty, strict)
    world.begin(0)[0].close()
    return world


def _check_option(id: str, key: str, value: Any) -> None:
    known = GAMES[id].options
    if key not in known:
        raise UsageError(f'{id} has no option "{key}".{did_you_mean(key, known)}')
    kind = known[key]
    if isinstance(kind, tuple):
        if value not in kind:
            raise UsageError(f"the option {key} of {id} is one of {', '.join(kind)}; this is {value!r}.")
        return
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"the option {key} of {id} must be of type {kind.__name__}; this is {value!r}.")


def _registered_name(id: str) -> str:
    """The name under which the installed Gymnasium has the game."""
    registry = _gymnasium().registry
    names = [name for name in GAMES if GAMES[name] is GAMES[id] and name in registry]
    return id if id in registry or not names else names[0]


def make_game(id: str, options: Mapping[str, Any]) -> Any:
    """A game of Gymnasium without its time limit and checks. Raises UsageError for options it refuses."""
    gymnasium = _gymnasium()
    try:
        return gymnasium.make(id, max_episode_steps=-1, disable_env_checker=True, **options)
    except (KeyError, TypeError, ValueError, gymnasium.error.Error) as error:
        raise UsageError(f"gymnasium refuses {id} with the options {dict(options)}: {error}.") from error


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UsageError(f"games need gymnasium. Install it with: {INSTALL}") from error
    return gymnasium


def _options(world: GameWorld, seed: int) -> dict[str, object]:
    """The options for Gymnasium: a random map is drawn from the seed."""
    options = dict(world.options)
    size = options.pop("size", 4)
    if options.get("map_name") == RANDOM:
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map

        options |= {"map_name": None, "desc": generate_random_map(size=size, seed=seed)}
    return options
