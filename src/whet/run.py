"""Run: the only object that a method may use besides its environment and its policy.

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
    """The largest amounts that a run may spend; None means no limit. Retries and the sealed test count."""

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
        """The limits in the form of a journal."""
        return {name.removesuffix("_usd"): getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Budget:
        """Read the limits that `as_json` wrote."""
        return cls(**{"cost_usd" if name == "cost" else name: limit for name, limit in value.items()})


def less_calls(limits: Budget, spent: Mapping[str, int]) -> Budget:
    """The limits minus the calls of each role; no limit becomes negative."""
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
    def seed(self) -> int:
        """The seed of the run."""
        ...

    @property
    def rng(self) -> random.Random:
        """The random generator of this position in the program; a branch has its own."""
        ...

    @property
    def limits(self) -> Budget:
        """The limits of the method at the start, without the calls that the sealed test needs."""
        ...

    @property
    def executor(self) -> Executor:
        """The executor that calls the user's functions, in this process or in others."""
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
        """Run `fn` once during the life of the run, and return its recorded JSON value from then on (typed by
        `convert_record`).

        The position in the program is the key; `args` are compared with the recorded arguments. `calls` model calls of `role`
        are charged. Raises BudgetExceeded and ReplayDiverged.
        """
        ...

    async def generate(self, role: str, request: Request) -> list[Completion]:
        """Call a model; the call is retried, limited, budgeted and recorded. A request that fails permanently gives a
        Completion with `error`. Only a failure that concerns every request raises ProviderError."""
        ...

    async def recall_answers(
        self, folder: str, ask: Callable[[Prompt], Sequence[Request]]
    ) -> list[tuple[Prompt, dict[int, Completion]]]:
        """The prompts that the run in another folder measured, each with the task model's recorded answers. `ask` makes the
        requests of a prompt, and the keys are their positions. No call is made. Raises UsageError for a folder without a
        run."""
        ...

    async def read_remaining(self) -> Budget:
        """The remaining part of `limits`, recorded at this position of the program, so that a resumed run makes the same plan.
        Recorded answers that were requested again cost nothing."""
        ...

    def branch(self, name: str) -> Run:
        """A branch with its name as the position in the program, for work in an unknown order. A name is used once."""
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
        """Store the current `state` permanently and return its digest, the `system` of a candidate that needs this state.

        Only the newest state and that of the incumbent stay on the disk.
        """
        ...

    def log(self, name: str, value: JSON) -> None:
        """Log a value for the progress display and the report. A method never reads it back."""
        ...

    def note_rounds(self, paid: int, wanted: int) -> None:
        """Report how many of the `wanted` rounds of the settings the limits pay for."""
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
        """The random generator of this branch. It is made on first use, because most branches draw nothing."""
        return random.Random(f"{self.seed}|{self.path}")

    def branch(self, name: str) -> Self:
        """A run that shares everything with this run except its position in the program. A simulation makes millions of
        them."""
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
