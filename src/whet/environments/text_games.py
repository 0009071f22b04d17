"""Games whose observations and actions are texts, as they are: TextWorld, Jericho, ScienceWorld, a Gymnasium environment of text.

A file of the task makes the game of a row. What it makes has `reset` and `step` in the way of Gymnasium, old or new.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from whet.environments.episodes import Conversation
from whet.environments.replayed import ReplayedEpisode
from whet.errors import UsageError
from whet.replies import without_thought
from whet.rewards.functions import function_of_setting
from whet.rewards.program import program_digest, read_number
from whet.types import JSON, Example

FUNCTION = "make"
Scores = Literal["turn", "total"]
_TAGGED = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL | re.IGNORECASE)
_OVER = "The game is over."


@dataclass(frozen=True)
class TextGame:
    """The games that the function `make(row)` of a file makes, at most `turns` actions long.

    The action is the text in the last `<action>...</action>` of an answer, else its last line. `low` and `high` bound the sum of
    an episode's rewards. `scores`: whether a step of the game brings the reward of the `turn`, or the `total` so far.
    """

    file: Path
    turns: int
    low: float = 0.0
    high: float = 1.0
    scores: Scores = "turn"
    graded: bool = False
    digest: str = ""
    """Of the file and those that it imports; empty: as they are now."""

    package = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UsageError(
                f"the range of a game needs low < high; this is low={self.low:g}, high={self.high:g}."
            )
        object.__setattr__(self, "digest", self.digest or program_digest(self.file))

    @property
    def name(self) -> str:
        """game/FILE."""
        return f"game/{self.file.name}"

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest return that counts."""
        return self.low, self.high

    def check(self, example: Example) -> None:
        """Refuse a row with which no game begins."""
        self._first(dict(example.row), example.place)

    def observe(self, example: Example) -> Example:
        """The example with the first observation as its text."""
        seen = self._first(dict(example.row), example.place)
        return replace(example, values={**example.values, "input": seen}, text=seen)

    def _first(self, row: dict[str, Any], place: str) -> str:
        try:
            env, seen = self._open(row)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"{self.file}: no game begins with {place}: {type(error).__name__}: {error}"
            ) from error
        _close(env)
        return seen

    def _open(self, row: dict[str, Any]) -> tuple[Any, str]:
        """A game and its first observation."""
        env = _load(str(self.file), self.digest)(row)
        seed = row.get("seed")
        began = env.reset(seed=seed) if seed is not None and _takes_seed(env.reset) else env.reset()
        return env, self._text(began[0] if isinstance(began, tuple) else began)

    def _text(self, seen: object) -> str:
        if not isinstance(seen, str):
            raise UsageError(
                f"{self.file}: an observation of the game is {type(seen).__name__}, and a model reads texts. Wrap the game, so "
                "that it describes in words what it shows."
            )
        return seen.strip()

    def reset(self, example: Example, opening: Conversation) -> ReplayedEpisode:
        """The game of the example's row."""
        return ReplayedEpisode(self, dict(example.row), opening)

    def describe(self) -> tuple[str, dict[str, JSON]]:
        """See `ReplayedWorld`."""
        how: dict[str, JSON] = {
            "low": self.low,
            "high": self.high,
            "scores": self.scores,
            "digest": self.digest,
        }
        return f"{__name__}:load_text_game", {"file": str(self.file.absolute()), "turns": self.turns, **how}

    def begin(self, start: JSON) -> tuple[Any, float, bool]:
        """A fresh game, the sum of its rewards so far, and whether it is over."""
        assert isinstance(start, dict)
        return self._open(dict(start))[0], 0.0, False

    def turn(
        self, live: tuple[Any, float, bool], text: str, last: bool
    ) -> tuple[tuple[Any, float, bool], list[JSON]]:
        """See `ReplayedWorld`."""
        env, total, _ = live
        action = action_in(text)
        if not action:
            return live, ["Write one action.", 0.0, False, True]
        try:
            step = env.step(action)
        except Exception as error:
            raise UsageError(
                f"{self.file}: the game failed at the action {action!r}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(step, tuple) or len(step) not in (4, 5):
            raise UsageError(
                f"{self.file}: a step of the game returns {type(step).__name__}, and not (observation, reward, done, info) or "
                "(observation, reward, terminated, truncated, info), as games of Gymnasium do."
            )
        gained, over = read_number(step[1]), any(bool(value) for value in step[2:-1])
        if gained is None or not math.isfinite(gained):
            raise UsageError(f"{self.file}: the reward of a step is {step[1]!r}, and no finite number.")
        reward = gained - total if self.scores == "total" else gained
        if over or last:
            _close(env)
        seen = self._text(step[0])
        return (env, total + reward, over), [(seen or _OVER) if over else seen, reward, over, False]


def action_in(text: str) -> str:
    """The action that an answer names: what stands in the last pair of tags, else the last line.

    >>> action_in("The lamp is off.\\n> light the lamp"), action_in("<action>go north</action> I hope.")
    ('light the lamp', 'go north')
    """
    plain = without_thought(text)
    tagged = _TAGGED.findall(plain)
    lines = [line.strip() for line in (tagged[-1] if tagged else plain).splitlines() if line.strip()]
    return lines[-1].lstrip("> ").strip("`*") if lines else ""


def load_text_game(file: str, turns: int, **options: Any) -> TextGame:
    """The game of a file, in another process. Raises UsageError where it is another file than that of the run."""
    made = TextGame(Path(file), turns, **options)
    if program_digest(made.file) != made.digest:
        raise UsageError(f"{file} was edited since the run began, or is another one on this machine.")
    _load(str(made.file), made.digest)
    return made


_LOADED: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {}


def _load(file: str, digest: str) -> Callable[[dict[str, Any]], Any]:
    if (file, digest) not in _LOADED:
        _LOADED[file, digest] = function_of_setting(file, FUNCTION, ("row",))
    return _LOADED[file, digest]


def _takes_seed(reset: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(reset).parameters
    except (TypeError, ValueError):
        return False


def _close(env: object) -> None:
    if callable(close := getattr(env, "close", None)):
        close()
