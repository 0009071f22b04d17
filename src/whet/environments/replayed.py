"""Episodes that are their actions: a game is played again from the texts so far wherever it is needed, here or in a worker."""

from __future__ import annotations

import importlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from whet._util.workers import Job, Work
from whet._util.workers.surroundings import find_version
from whet.environments.episodes import Conversation, WorldStep
from whet.errors import UsageError
from whet.run import Run, convert_record
from whet.types import JSON, content_hash

_LONGEST = 600.0
"""Seconds after which a turn is taken for lost."""
_KEPT = 64
"""Games that a worker keeps between turns."""


class ReplayedWorld(Protocol):
    """A world whose episodes are replayed: the same start and texts bring the same."""

    @property
    def name(self) -> str: ...
    @property
    def turns(self) -> int: ...
    @property
    def package(self) -> str:
        """The distribution that plays it; empty where a file of the user does."""
        ...

    def describe(self) -> tuple[str, dict[str, JSON]]:
        """`module:function` of the installed code, and its arguments: what makes this world in another process."""
        ...

    def begin(self, start: JSON) -> Any:
        """A fresh game."""
        ...

    def turn(self, live: Any, text: str, last: bool) -> tuple[Any, list[JSON]]:
        """The game after a text, and [observation, reward, whether it is over, whether the turn was wasted]; `last`: no turn is
        left behind it."""
        ...


class ReplayedEpisode:
    """A game on its way. Texts are the actions so far; the game itself is replayed from them when it is needed."""

    def __init__(self, world: ReplayedWorld, start: JSON, opening: Conversation) -> None:
        self.opening, self.turns = opening, world.turns
        self._world, self._start = world, start
        self._texts: list[str] = []
        self._live: Any = None
        self._played = 0

    async def step(self, run: Run, text: str) -> WorldStep:
        """One action: recorded, so that a resumed run finds the same answer even when the game's package has changed."""
        self._texts.append(text)
        texts = list(self._texts)

        async def compute() -> object:
            done = await run.executor.run(self._job(texts))
            if isinstance(done, str):
                raise UsageError(done)
            return done

        outcome = await run.effect("step", compute, [len(texts), content_hash(text)])
        observation, reward, done, wasted = convert_record(outcome, tuple[str, float, bool, bool])
        return WorldStep(observation, reward, done, notes={"wasted": float(wasted)})

    def catch_up(self, texts: Sequence[str]) -> list[JSON]:
        """Play the texts that the live game has not seen; what the last one brought."""
        if self._live is None:
            self._live, self._played = self._world.begin(self._start), 0
        outcome: list[JSON] = []
        while self._played < len(texts):
            self._played += 1
            text, last = texts[self._played - 1], self._played == self.turns
            self._live, outcome = self._world.turn(self._live, text, last)
        return outcome

    def _job(self, texts: list[str]) -> Job:
        async def here() -> object:
            return self.catch_up(texts)

        def make_work() -> Work:
            return _make_work(self._world, self._start, texts)

        name = f"a turn of {self._world.name}"
        return Job(here, make_work, _LONGEST, name, lambda: UsageError(f"{name} does not end."))


def _make_work(world: ReplayedWorld, start: JSON, texts: list[str]) -> Work:
    loader, arguments = world.describe()
    version = find_version(world.package) if world.package else None
    described: dict[str, JSON] = {"loader": loader, "arguments": arguments}
    needs: dict[str, JSON] = {"package": world.package, "version": version}
    return Work(
        f"{__name__}:load_turn", {"world": described, "needs": needs, "start": start, "texts": list(texts)}
    )


def make_world_work(world: object) -> Work | None:
    """Work that makes a world in a worker and plays nothing; None for one that is not replayed."""
    return _make_work(world, None, []) if hasattr(world, "describe") else None  # type: ignore[arg-type]


_EPISODES: OrderedDict[str, ReplayedEpisode] = OrderedDict()
"""Games in this worker, by what they began with and the texts so far."""


@cache
def _make_world(loader: str, arguments: str) -> ReplayedWorld:
    module, _, name = loader.partition(":")
    made: ReplayedWorld = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    return made


def load_turn(
    world: dict[str, Any], needs: dict[str, Any], start: JSON, texts: list[str]
) -> Callable[[], JSON]:
    """The result of the last text, computed in a worker, or a text that says what is wrong. Raises UsageError if the worker
    has another version of the package than the run."""
    own = find_version(needs["package"]) if needs["package"] else None
    if own != needs["version"]:
        there = f"is {own}" if own else "is missing"
        raise UsageError(
            f"{needs['package']} {there}, and the run has {needs['version']}. Install the same version there."
        )
    made = _make_world(world["loader"], json.dumps(world["arguments"]))
    key = [world, start]

    def play() -> JSON:
        episode = _EPISODES.pop(json.dumps([*key, texts[:-1]]), None) or ReplayedEpisode(made, start, ())
        try:
            outcome = episode.catch_up(texts)
        except UsageError as error:
            return str(error)
        _EPISODES[json.dumps([*key, texts])] = episode
        while len(_EPISODES) > _KEPT:
            _EPISODES.popitem(last=False)
        return outcome

    return play
