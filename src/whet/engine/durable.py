"""DurableRun: the Run protocol over a journal. Position in the program is the key of every effect."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import orjson

from whet._util.storable import to_json
from whet._util.user_code import under_way
from whet._util.workers import HERE, Executor
from whet.engine.blobs import Blobs
from whet.engine.budget import BudgetAccount
from whet.engine.cache import decode_completions
from whet.engine.calls import INTERRUPT_SECONDS, CallExecutor
from whet.engine.journal import NEW_EVENT, Journal, checksum, event_row, meta_row
from whet.engine.model_client import Reservation
from whet.engine.recorded_answers import read_matching
from whet.errors import (
    BudgetExceeded,
    ProviderError,
    ReplayDiverged,
    StorageError,
    UsageError,
    parameter,
    quantity,
)
from whet.prompt import Prompt
from whet.run import Budget, Run, Trainable, convert_record
from whet.types import JSON, Completion, Message, Request, Rollout, Usage, content_hash

T = TypeVar("T")
R = TypeVar("R")

SEGMENT_SECONDS = 3.0
UNFINISHED = "unfinished"
"""The key under which the journal of an evaluation says how often it ended with rows that have no answer."""
KEPT, TURN_END, REMAINING = "kept", "turn_end", "remaining"
_TRAINED = (KEPT, TURN_END, "checkpoint")
_FORGET_EFFECT, _FORGET_EVENT = "DELETE FROM effects WHERE key = ?", "DELETE FROM events WHERE key = ?"
_SEVERITY = (StorageError, UsageError, ProviderError, BudgetExceeded)


STOPPED, FORECAST = "training_stopped", "training_forecast"
"""Events: why a training was stopped; what its first step took (for people, not recorded)."""
TRAINED_SECONDS = "training"
"""The key under which the journal says how long the policy worked."""
TRAINING = "training"
"""The event of a step of training that begins (`step` of `steps`; `recorded`: whether its answers are), and, without a value, of
the end of the training. For people, not recorded."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One effect as the journal holds it; `value` is None when the completions lie in `results`."""

    name: str
    digest: str
    value: bytes | None


@dataclass
class RunState:
    """The state that all branches of a run share."""

    journal: Journal
    caller: CallExecutor
    budget: BudgetAccount
    blobs: Blobs
    seed: int
    effects: dict[str, Recorded]
    on_event: Callable[[str, object], None] = lambda name, value: None
    """Receives every logged event, also on replay."""
    segment_seconds: float = SEGMENT_SECONDS
    replayed: int = 0
    incumbent_system: str | None = None
    training_price: float = 0.0  # US dollars an hour
    training_seconds: float = 0.0
    longest_step: float = 0.0  # seconds
    alarm: Callable[[], str] | None = None
    """Says why the training must end, or ''. It is asked when something was validated since (`validations`)."""
    validations: int = 0
    steps: int = 0
    """Steps of the training that is under way; 0 before the first one."""
    rounds: tuple[int, int] = (0, 0)
    """Rounds of the search: paid for, and wanted."""
    known_events: set[str] = field(default_factory=set)
    executor: Executor = HERE
    _clocks: dict[int, float] = field(default_factory=dict)
    _logged: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loaded = len(self.effects)

    def note_steps(self, steps: int) -> None:
        """Note how many steps the training under way has."""
        self.steps = steps
        self._keep("steps", steps)

    def note_rounds(self, paid: int, wanted: int) -> None:
        """Note how many rounds of a search are paid for, and how many it wants."""
        self.rounds = paid, wanted
        self._keep("rounds", [paid, wanted])

    @property
    def incomplete_sessions(self) -> int:
        """The number of evaluations that asked for all their rows and did not get all answers."""
        return int(self.journal.meta(UNFINISHED) or 0)

    def note_unanswered(self, rollouts: Sequence[Rollout]) -> None:
        """Write down that rows of an evaluation have no answer: the next session asks them again, once."""
        if not all(rollout.answered for rollout in rollouts):
            self.journal.append([meta_row(UNFINISHED, str(self.incomplete_sessions + 1))])

    def _keep(self, name: str, extent: int | list[int]) -> None:
        """Write down how far a search goes: a later session, which replays it, says at its end why it ended."""
        text = orjson.dumps(extent).decode()
        self.journal.append([meta_row(name, text)])

    def read_record(self, key: str, name: str, digest: str) -> Recorded | None:
        """The record of the journal at a position. Raises ReplayDiverged if it is another one than expected."""
        record = self.effects.get(key)
        if record is None:
            return None
        if (record.name, record.digest) != (name, digest):
            raise ReplayDiverged(
                f"{self.journal.path}: position {key} holds {record.name} {record.digest[:12]}, the "
                f"program now asks for {name} {digest[:12]}. The code, the task or the models changed "
                f"after this run began. Start a new run with another {parameter('run')} (add "
                f"{parameter('fork')} to reuse its answers)."
            )
        self.replayed += 1
        return record

    def record(
        self, key: str, name: str, digest: str, value: bytes | None, role: str | None = None, calls: int = 0
    ) -> None:
        """Append an effect."""
        self.effects[key] = Recorded(name, digest, value)
        self.journal.append(
            [
                (
                    "INSERT INTO effects(key, name, digest, value, role, calls, sum) VALUES (?,?,?,?,?,?,?)",
                    (key, name, digest, value, role, calls, checksum(key, name, digest, value)),
                )
            ]
        )

    @asynccontextmanager
    async def draining(self) -> AsyncIterator[None]:
        """Calls in flight are recorded at the end; what a silent endpoint lost is taken back where it ends the run."""
        try:
            yield
        except asyncio.CancelledError:
            await self.caller.drain(INTERRUPT_SECONDS)
            raise
        except ProviderError:
            await self.caller.drain()
            await self.drop_unanswered()
            raise
        finally:
            await self.caller.drain()

    async def within_seconds(self, work: Awaitable[T], kept: float) -> T:
        """Await `work` and return its result. Raises BudgetExceeded when only `kept` seconds of the limit are left, and ends
        the calls in flight, except those that are answered at once. Raises ProviderError if the model does not answer any
        more."""
        limit, doing = self.budget.whole_seconds, asyncio.ensure_future(work)
        try:
            left = None if limit is None else max(0.0, limit - kept - self.budget.seconds)
            await asyncio.wait({doing}, timeout=left)
            name, sent = under_way()[0], self.caller.count_sent()
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        if limit is None or not doing.cancelled():
            return doing.result()
        await self.caller.rest(INTERRUPT_SECONDS)
        words = [f"{name} was given up"] if name else []
        if sent:
            words.append(f"{quantity(sent, 'call')} in flight: what was not answered at once counts as spent")
        reached = f"The limit of {limit:g} seconds is reached"
        raise BudgetExceeded("seconds", f"{'; '.join([reached, *words])}.")

    async def drop_unanswered(self) -> None:
        """Take back everything since the first request that a silent endpoint lost: the journal is then that of a run which was
        killed at that moment, and the next session goes on from there. What was trained since cannot be taken back: it stays.
        """
        forgotten = self.caller.drop_unanswered()
        new = list(self.effects)[self._loaded :]
        first = next((i for i, key in enumerate(new) if self.effects[key].digest in forgotten), len(new))
        dropped = new[first:]
        if not any(self.effects[key].name in _TRAINED for key in dropped):
            events = [key for key, before in self._logged.items() if before > self._loaded + first]
            self.journal.append([(_FORGET_EFFECT, (key,)) for key in dropped])
            self.journal.append([(_FORGET_EVENT, (key,)) for key in events])
            for key in dropped:
                del self.effects[key]
        await self.journal.commit()

    def count_training(self, state: Trainable) -> None:
        """Add what the state's own clock (`seconds`, where it has one) says since the last time, and its price."""
        clock = sum(getattr(state, "seconds", {}).values())
        spent = max(0.0, clock - self._clocks.get(id(state), 0.0))
        self._clocks[id(state)] = clock
        self.training_seconds += spent
        self.budget.spent.cost += spent / 3600 * self.training_price
        self.journal.append([meta_row(TRAINED_SECONDS, f"{self.training_seconds:.3f}")])

    async def reason_to_stop(self, seen: int) -> str:
        """Why the training must end: what `alarm` says, where something was validated since there were `seen` validations."""
        if self.alarm is None or self.validations == seen:
            return ""
        await self.journal.commit()
        return self.alarm()

    def afford_step(self) -> None:
        """Raise BudgetExceeded when another step of training, as long as the longest so far, might pass the limit on cost."""
        if self.training_price:
            self.budget.refuse_cost(self.longest_step / 3600 * self.training_price)


class DurableRun:
    """See `whet.run.Run`. `limits` is what the search may spend, fixed when the run began.

    `roles`: who answers in place of a role, for this run and all that branches from it; `shift`: what is added to the number of
    each sample that is asked for.
    """

    def __init__(
        self,
        core: RunState,
        path: str,
        limits: Budget,
        roles: Mapping[str, str] = MappingProxyType({}),
        shift: int = 0,
    ) -> None:
        self._core, self.path, self.limits, self._roles, self._shift = core, path, limits, roles, shift
        self.seed = core.seed
        self._rng: random.Random | None = None
        self._position = 0
        self._busy: str | None = None

    @property
    def rng(self) -> random.Random:
        """The branch's own generator, seeded when it is first used."""
        if self._rng is None:
            self._rng = random.Random(f"{self.seed}|{self.path}")
        return self._rng

    @property
    def executor(self) -> Executor:
        """The caller of the user's functions."""
        return self._core.executor

    @property
    def budget(self) -> BudgetAccount:
        """The account of the whole run."""
        return self._core.budget

    async def within_seconds(self, work: Awaitable[T], kept: float) -> T:
        """See `RunState.within_seconds`; what is held from the search is kept too."""
        return await self._core.within_seconds(work, (self.budget.held.seconds or 0.0) + kept)

    def branch(self, name: str) -> DurableRun:
        """A run of its own path and generator."""
        return self._child(f"{self.path}/{name}")

    def with_roles(self, roles: Mapping[str, str]) -> DurableRun:
        """The same place in the program, with other models in the place of some roles."""
        return DurableRun(self._core, self.path, self.limits, roles, self._shift)

    def sampling_anew(self, shift: int = 1_000_000) -> DurableRun:
        """The same place in the program, where every request is another sample than it is elsewhere."""
        return DurableRun(self._core, self.path, self.limits, self._roles, shift)

    def _begin(self, name: str) -> str:
        """Go on to the next position of the branch, and its key. The branch is busy until `_busy` is None again."""
        if self._busy is not None:
            raise RuntimeError(
                f"{self.path}: {name} began while {self._busy} was going on. Use run.map for concurrent work."
            )
        self._busy = name
        self._position += 1
        return f"{self.path}/{self._position}"

    @contextmanager
    def _step(self, name: str) -> Iterator[str]:
        key = self._begin(name)
        try:
            yield key
        finally:
            self._busy = None

    async def effect(
        self,
        name: str,
        fn: Callable[[], Awaitable[object]],
        args: JSON = None,
        *,
        role: str | None = None,
        calls: int = 0,
    ) -> JSON:
        with self._step(name) as key:
            digest = content_hash(args)
            record = self._core.read_record(key, name, digest)
            if record is not None:
                return _loads(record.value)
            reservation = None
            if role is not None:
                reservation = Reservation(role, calls)
                await self._core.budget.reserve(reservation)
            try:
                value = to_json(await fn())
            finally:
                if reservation is not None:
                    self._core.budget.settle(reservation, Usage(), 0.0)
            self._core.record(key, name, digest, value, role, calls)
            return _loads(value)

    async def generate(self, role: str, request: Request) -> list[Completion]:
        role = self._roles.get(role, role)
        if self._shift:
            request = replace(request, sample=request.sample + self._shift)
        core, key = self._core, self._begin(role)
        try:
            request, digest = core.caller.prepare(role, request)
            record = core.read_record(key, role, digest)
            if record is not None:
                return decode_completions(
                    core.caller.results[digest] if record.value is None else record.value
                )
            value = await core.caller.ask(role, request, digest)
            core.record(key, role, digest, None if digest in core.caller.results else value)
            return decode_completions(value)
        finally:
            self._busy = None

    async def recall_answers(
        self, folder: str, ask: Callable[[Prompt], Sequence[Request]]
    ) -> list[tuple[Prompt, dict[int, Completion]]]:
        caller = self._core.caller

        async def read() -> JSON:
            return read_matching(
                Path(folder), ask, lambda request, seed: caller.prepare("task", request, seed)[1]
            )

        recorded: Any = await self.effect("recall", read, folder)
        return [
            (
                Prompt(tuple(Message(*message) for message in messages)),
                {int(place): decode_completions(value.encode())[0] for place, value in known.items()},
            )
            for messages, known in recorded
        ]

    async def read_remaining(self) -> Budget:
        async def compute() -> object:
            return self._core.budget.plannable().as_json()

        recorded = await self.effect(REMAINING, compute)
        return Budget.from_json(convert_record(recorded, dict[str, int | float | None]))

    async def map(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        with self._step("map") as key:
            return await gather_in_order(
                [fn(self._child(f"{key}:{i}"), item) for i, item in enumerate(items)]
            )

    def _child(self, path: str) -> DurableRun:
        return DurableRun(self._core, path, self.limits, self._roles, self._shift)

    async def first(self, fn: Callable[[Run, T], Awaitable[R]], items: Sequence[T]) -> tuple[int, R]:
        if not items:
            raise ValueError("first() needs at least one item")
        with self._step("first") as key:
            digest = content_hash(len(items))
            record = self._core.read_record(key, "first", digest)
            if record is not None:
                winner = int(orjson.loads(record.value or b"0"))
                return winner, await fn(self._child(f"{key}:{winner}"), items[winner])
            tasks = [
                asyncio.ensure_future(fn(self._child(f"{key}:{i}"), item)) for i, item in enumerate(items)
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                done = [i for i, task in enumerate(tasks) if task.done()]
                await _cancel(tasks)
            result = tasks[done[0]].result()
            self._core.record(key, "first", digest, orjson.dumps(done[0]))
            return done[0], result

    async def train(self, steps: int, body: Callable[[Run, int], Awaitable[None]], state: Trainable) -> None:
        with self._step("train") as key:
            core = self._core
            core.note_steps(steps)
            start, saved_at, foretold = self._restore(key, state), time.monotonic(), False
            try:
                for step in range(start, steps):
                    core.afford_step()
                    recorded = self._is_recorded(f"{key}:{step}/")
                    core.on_event(TRAINING, {"step": step, "steps": steps, "recorded": recorded})
                    before, began, seen = core.training_seconds, time.monotonic(), core.validations
                    await body(self._child(f"{key}:{step}"), step)
                    core.count_training(state)
                    core.longest_step = max(core.longest_step, core.training_seconds - before)
                    if not recorded and not foretold and step + 1 < steps:
                        foretold = True
                        core.on_event(
                            FORECAST, _forecast(core, steps, step, before, time.monotonic() - began)
                        )
                    why = await core.reason_to_stop(seen)
                    if why:
                        self._child(f"{key}:{STOPPED}").log(STOPPED, why)
                    last = step + 1 == steps or bool(why)
                    if last or time.monotonic() - saved_at >= core.segment_seconds:
                        await self._checkpoint(key, steps if last else step + 1, state)
                        saved_at = time.monotonic()
                    if last:
                        break
            finally:
                core.on_event(TRAINING, None)

    def _is_recorded(self, prefix: str) -> bool:
        """Whether answers below a key are recorded, so that going through it again takes less time than it took."""
        return any(key.startswith(prefix) for key in self._core.effects)

    def _restore(self, key: str, state: Trainable) -> int:
        """Load the newest checkpoint of this training; its step, or 0."""
        prefix = f"{key}@"
        steps = [int(k[len(prefix) :]) for k in self._core.effects if k.startswith(prefix)]
        if not steps:
            return 0
        newest = max(steps)
        state.load(self._core.blobs.read(str(_loads(self._core.effects[f"{prefix}{newest}"].value))))
        return newest

    async def _checkpoint(self, key: str, step: int, state: Trainable) -> None:
        blob = self._core.blobs.write(state.save())
        self._core.record(f"{key}@{step}", "checkpoint", "", orjson.dumps(blob))
        self._core.count_training(state)
        await self._core.journal.commit()
        self._core.blobs.keep_only(self._needed_blobs())

    async def keep(self, state: Trainable) -> str:
        async def write() -> JSON:
            return self.store(state)

        return str(await self.effect(KEPT, write))

    def store(self, state: Trainable) -> str:
        """Write what `state` is now; the digest."""
        return self._core.blobs.write(state.save())

    def _needed_blobs(self) -> set[str]:
        """The newest checkpoint of each training of this run, the incumbent's system and what was kept last."""
        newest: dict[str, tuple[int, str]] = {}
        kept = [str(_loads(r.value)) for r in self._core.effects.values() if r.name == KEPT][-1:]
        ends: list[Any] = [_loads(r.value) for r in self._core.effects.values() if r.name == TURN_END]
        kept += [str(end["policy"]) for end in ends[-1:] if end["policy"]]
        for key, recorded in self._core.effects.items():
            training, mark, step = key.rpartition("@")
            if mark and recorded.name == "checkpoint":
                newest[training] = max(
                    newest.get(training, (0, "")), (int(step), str(_loads(recorded.value)))
                )
        system = self._core.incumbent_system
        return {blob for _, blob in newest.values()} | set(kept) | ({system} if system else set())

    def note_rounds(self, paid: int, wanted: int) -> None:
        self._core.note_rounds(paid, wanted)

    def log(self, name: str, value: JSON) -> None:
        self._position += 1
        key = f"{self.path}/{self._position}"
        core = self._core
        core.on_event(name, value)
        core.validations += name == "validated"
        if name == "validated" and isinstance(value, dict) and value.get("incumbent"):
            core.incumbent_system = value.get("system")  # type: ignore[assignment]
        if key in core.known_events:
            return
        core.known_events.add(key)
        core._logged[key] = len(core.effects)
        row = event_row(key, name, to_json(value), core.budget.spent.total_calls)
        core.journal.append([(NEW_EVENT, row)])


def _forecast(core: RunState, steps: int, step: int, before: float, seconds: float) -> dict[str, float]:
    """The figures for a forecast of the training, after the first step of a session."""
    trained = core.training_seconds - before
    return {
        "steps": steps,
        "left": steps - step - 1,
        "step": seconds,
        "trained": trained,
        "price": core.training_price,
    }


def rows_used(core: RunState, path: str) -> list[tuple[float, float, int]]:
    """Tokens and dollars of each row that was evaluated at a path, answers that were recorded before included, and how many calls
    the task model answered for it; empty where nothing was generated."""
    rows: dict[str, tuple[float, float, int]] = {}
    for key, effect in core.effects.items():
        if not key.startswith(f"{path}/") or effect.name not in core.caller.clients:
            continue
        value = core.caller.results.get(effect.digest) if effect.value is None else effect.value
        usage = sum((c.usage for c in decode_completions(value or b"[]")), Usage())
        row = key.removeprefix(f"{path}/").partition("/")[0]
        tokens, dollars, calls = rows.get(row, (0.0, 0.0, 0))
        cost = core.caller.clients[effect.name].cost(usage)
        tokens += usage.input_tokens + usage.output_tokens
        rows[row] = tokens, dollars + cost, calls + (effect.name == "task")
    return list(rows.values())


def _loads(value: bytes | None) -> JSON:
    loaded: JSON = orjson.loads(value or b"null")
    return loaded


async def gather_in_order(coroutines: Sequence[Awaitable[R]]) -> list[R]:
    """Run all; on the first failure cancel and await the others, then raise the gravest error."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(c) if asyncio.iscoroutine(c) else asyncio.ensure_future(c) for c in coroutines]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        await _cancel(tasks)
        raise
    errors = [e for t in tasks if t.done() and not t.cancelled() and (e := t.exception()) is not None]
    if any(not t.done() for t in tasks) or errors or any(t.cancelled() for t in tasks):
        await _cancel(tasks)
        errors = [e for t in tasks if not t.cancelled() and (e := t.exception()) is not None]
        if not errors:
            raise asyncio.CancelledError
        raise min(
            errors, key=lambda e: next((i for i, kind in enumerate(_SEVERITY, 1) if isinstance(e, kind)), 0)
        )
    return [t.result() for t in tasks]


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
