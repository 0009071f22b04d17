"""Run: the only object a method may touch besides its environment and its policy.

Everything that costs money, time or chance goes through it, so that rerunning the same command replays
what is recorded and goes on where it stopped. The durable implementation lives in `whet.engine`; the
in-memory one here serves tests and notebooks.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import msgspec
import orjson

from whet._util.storable import to_json
from whet._util.workers import HERE, Executor
from whet.errors import ReplayDiverged, UsageError, named_fields
from whet.prompt import Prompt
from whet.replies import separate_thought
from whet.types import JSON, Completion, Request

T = TypeVar("T")
R = TypeVar("R")


@named_fields
@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend at most; None means no limit. Retries and the sealed test count."""

    calls: int | None = None
    """Calls of all roles together."""
    task_calls: int | None = None
    """Calls of the task model."""
    optimizer_calls: int | None = None
    """Calls of the optimizer model."""
    judge_calls: int | None = None
    """Calls of the judge."""
    tokens: int | None = None
    """Tokens read and written, by all roles."""
    cost_usd: float | None = None
    """US dollars, for models with a price."""
    seconds: float | None = None
    """Seconds of wall time over all sessions of the run."""

    def as_json(self) -> dict[str, float | None]:
        """The limits as a journal holds them."""
        return {name.removesuffix("_usd"): getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Budget:
        """What `as_json` wrote."""
        return cls(**{"cost_usd" if name == "cost" else name: limit for name, limit in value.items()})


def less_calls(limits: Budget, spent: Mapping[str, int]) -> Budget:
    """What limits leave after so many calls by role; none below 0."""
    used = {f"{role}_calls": calls for role, calls in spent.items()} | {"calls": sum(spent.values())}
    left = {
        name: max(0, getattr(limits, name) - calls)
        for name, calls in used.items()
        if getattr(limits, name, None) is not None
    }
    return replace(limits, **left)


_MAY_WAIT: ContextVar[bool] = ContextVar("may_wait", default=False)


@contextmanager
def waiting_allowed() -> Iterator[None]:
    """Nothing else of the run waits for the calls that begin until it ends: they may be made in a batch, hours later, where the
    user allows that."""
    token = _MAY_WAIT.set(True)
    try:
        yield
    finally:
        _MAY_WAIT.reset(token)


def may_wait() -> bool:
    """Whether a call that begins here may be made in a batch."""
    return _MAY_WAIT.get()


def convert_record(record: JSON, kind: type[T]) -> T:
    """A JSON value that `Run.effect` returned, as a type: `convert_record(await run.effect("pair", draw), list[int])`.

    `kind` is made of lists, tuples, dicts, dataclasses, TypedDicts and plain values; msgspec reads it. Raises ReplayDiverged for
    a value that is not of this type: other code has recorded it.
    """
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise ReplayDiverged(
            f"A recorded value cannot be read: {error}. Other code has written this run: resume it with that version of whet and "
            "of its method, or start a new run."
        ) from None


class Trainable(Protocol):
    """State that training changes: everything a resume needs, as one safetensors blob."""

    def save(self) -> bytes:
        """Weights, optimiser state, generator state and bookkeeping as safetensors bytes."""
        ...

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned."""
        ...


class Run(Protocol):
    """Durable execution of one method. `rng` is seeded by run seed and position in the program."""

    @property
    def seed(self) -> int: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def limits(self) -> Budget: ...
    @property
    def executor(self) -> Executor:
        """Who calls the functions of the user: this process or others."""
        ...

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        """Run `fn` once in the life of the run and return its recorded JSON value ever after (typed by `convert_record`).

        Position in the program is the key; `args` are checked against the recorded ones. `calls` model
        calls of `role` are charged. Raises BudgetExceeded and ReplayDiverged.
        """
        ...

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """Ask a model: retried, limited, budgeted, recorded. A request that fails for good is a
        Completion with `error`; only a failure that concerns every request raises ProviderError."""
        ...

    async def recall_answers(
        self, folder: str, ask: Callable[[Prompt], Sequence[Request]]
    ) -> list[tuple[Prompt, dict[int, Completion]]]:
        """The prompts that the run in another folder measured, each with the task model's answers that its journal holds to the
        requests which `ask` makes of it, by their place. No call is made. Raises UsageError for a folder without a run."""
        ...

    async def read_remaining(self) -> Budget:
        """What of `limits` is left by now, fixed once at this place of the program, so that a resume plans the same. Recorded
        answers that were asked for again took nothing."""
        ...

    def branch(self, name: str) -> Run:
        """A branch whose place in the program is its name, for work whose order is not known. A name is used once."""
        ...

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Run `fn(branch, item)` for all items concurrently; results in the order of the items."""
        ...

    async def first(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> tuple[int, R]:
        """Index and result of the branch that finishes first; the others are abandoned."""
        ...

    async def train(self, steps: int, body: Callable[[Run, int], Awaitable[None]], state: Trainable) -> None:
        """Run `body(branch, step)` for `steps` steps, checkpointing `state` in segments of a few seconds."""
        ...

    async def keep(self, state: Trainable) -> str:
        """Store what `state` is now for good and return its digest: the `system` of a candidate that needs it.

        Only the newest one and that of the incumbent stay on the disk.
        """
        ...

    def log(self, name: str, value: JSON) -> None:
        """Note a figure or a fact for progress and report. Never read back by a method."""
        ...

    def note_rounds(self, paid: int, wanted: int) -> None:
        """Say how many of the rounds that the settings want the limits pay for."""
        ...


class MemoryRun:
    """A run without a journal, for tests and notebooks: same seeds and positions, nothing recorded."""

    def __init__(self, models: Mapping[str, Any] | None = None, seed: int = 0, path: str = "") -> None:
        self.models, self.seed, self.path = models or {}, seed, path
        self.limits, self.executor = Budget(), HERE
        self.logged: list[tuple[str, JSON]] = []
        self.kept: dict[str, bytes] = {}
        self._position = 0

    @cached_property
    def rng(self) -> random.Random:
        """A generator of this branch's own: most branches draw nothing, so it is made on first use."""
        return random.Random(f"{self.seed}|{self.path}")

    def branch(self, name: str) -> Self:
        """A run that shares everything with this one but its place in the program. A simulation makes them by the million."""
        branch = object.__new__(type(self))
        branch.__dict__.update(self.__dict__)
        branch.path, branch._position = f"{self.path}/{name}", 0
        branch.__dict__.pop("rng", None)
        return branch

    def _branch(self, position: int, index: int) -> Self:
        return self.branch(f"{position}:{index}")

    def _next(self) -> int:
        self._position += 1
        return self._position

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        self._next()
        record: JSON = orjson.loads(to_json(await fn()))
        return record

    async def generate(self, role: str, request: Request) -> list[Completion]:
        if role not in self.models:
            raise UsageError(f"This run has no {role} model.")
        self._next()
        return [separate_thought(answer) for answer in await self.models[role].generate(request)]

    async def recall_answers(
        self, folder: str, ask: Callable[[Prompt], Sequence[Request]]
    ) -> list[tuple[Prompt, dict[int, Completion]]]:
        raise UsageError(f"{folder}: a run in memory reads no journal of another run.")

    async def read_remaining(self) -> Budget:
        return self.limits

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        position = self._next()
        return [await fn(self._branch(position, i), item) for i, item in enumerate(items)]

    async def first(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> tuple[int, R]:
        return 0, await fn(self._branch(self._next(), 0), items[0])

    async def train(self, steps: int, body: Callable[[Run, int], Awaitable[None]], state: Trainable) -> None:
        position = self._next()
        for step in range(steps):
            await body(self._branch(position, step), step)

    async def keep(self, state: Trainable) -> str:
        self._next()
        blob = state.save()
        digest = hashlib.sha256(blob).hexdigest()
        self.kept[digest] = blob
        return digest

    def log(self, name: str, value: JSON) -> None:
        self.logged.append((name, value))

    def note_rounds(self, paid: int, wanted: int) -> None:
        return None
