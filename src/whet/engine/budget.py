"""Limits are kept by reservations: for the sealed test from the start, for each call before it is made."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from whet.engine.model_client import ModelClient, Reservation
from whet.engine.observed import KNOWN_AFTER, SealedReserve
from whet.environments.environment import Environment
from whet.errors import BudgetExceeded, UsageError, parameter, quantity
from whet.rewards import TARGET_SCORE
from whet.rewards.reward import judge_calls_of
from whet.run import Budget
from whet.search.plan import SMALL_SHARE, SMALLEST_VALIDATION, VALIDATION_SHARE, validation_rows
from whet.task import Task
from whet.task.spec import SECOND
from whet.types import ROLES, Example, Request, Usage

RETRY_SLACK = 1.1
"""Reserved calls for one test row where a call can fail."""
ABLATION_SHARE = 0.1
"""The largest part of a search's limits that is reserved to measure which region earned the gain."""
TEST_ROOM = 1.1
"""A limit on tokens or dollars must hold so many times what the sealed test takes, so that the rest pays for a search."""
GROWTH_TOKENS = 256
"""Tokens by which a prompt may grow until the sealed test."""
CONTROL_TOO = ", and the control run as much"
LAST_CALL = 0.01
"""Part of a limit that must be free beside what the last calls of the sealed test are likely to take."""
BYTES_PER_TOKEN = 4
"""Assumed bytes of a token, before a model has answered."""
DEFAULT_CALLS = 1000
"""Calls of a run that nobody limited, beside its sealed test."""


@dataclass
class Spent:
    """The usage of a run."""

    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Attempts that an endpoint worked on and answers from the cache, by role."""
    cached: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Those of `calls` that the cache answered, by role."""
    excused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Attempts of earlier sessions that an endpoint left unanswered before it ended the session; they count against no limit."""
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Attempts that an endpoint turned away, by role; they are no calls."""
    given_up: dict[str, set[str]] = field(default_factory=lambda: {role: set() for role in ROLES})
    """Requests by role that an endpoint turned away in every attempt. They are no calls, but each counts as one against the
    limits until it is answered, so that no search goes on forever."""
    input_tokens: int = 0
    named: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Calls whose cost the provider stated, by role."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0
    lost: dict[str, float] = field(default_factory=dict)
    """By limit, how much was spent on answers that were lost when a run was killed."""
    cached_oldest: float | None = None
    """The time at which the oldest answer from the cache was made, in seconds since 1970."""
    estimated: dict[str, int] = field(default_factory=dict)
    """Calls whose tokens the provider did not state, by role."""
    gateway_cached: dict[str, int] = field(default_factory=dict)
    """Calls that the cache of a gateway answered, by role."""
    gateway_drawn: dict[str, int] = field(default_factory=dict)
    """Those of `gateway_cached` that asked for a new sample, by role."""
    served: dict[str, list[str]] = field(default_factory=dict)
    """The models that answers named, by address."""
    provider_tools: dict[str, int] = field(default_factory=dict)
    """Calls of the provider's own tools, in calls whose cost it did not state, by role."""

    @property
    def total_calls(self) -> int:
        """Calls of all roles."""
        return sum(self.calls.values())


class BudgetAccount:
    """The parts of a run's limits that are spent and reserved. The sum never exceeds a limit.

    Four amounts are reserved. `held`, and `test` in tokens and dollars as far as they are known, are for the sealed final
    evaluation; `release` makes them available. `kept` is for what follows the run, which never gets it. Each call in flight
    has a reservation of the most that it is known to take, which is settled when it ends.

    A call that does not fit waits while others are in flight, because they may take less than is reserved, or may be turned
    away. The budget is exhausted when nothing is in flight and the call still does not fit. A model may suddenly think beyond
    its bound, so the nearer a limit is, the fewer calls are in flight (`_is_crowded`). `whole_seconds` is the limit on time,
    also after `release`.
    """

    def __init__(self, limits: Budget, spent: Spent, held: Budget) -> None:
        self.whole_seconds = limits.seconds
        self.limits, self.spent, self.held, self.kept = limits, spent, held, Budget()
        self.test: SealedReserve | None = None
        self._released = False
        self._started = time.monotonic()
        self._earlier_seconds = spent.seconds
        self._open_tokens = 0
        self._open_cost = 0.0
        self._in_flight = 0
        self._open_beyond = 0.0, 0.0
        self._in_flight_by_role: Counter[str] = Counter()
        self._first_paid_call: tuple[float, int] | None = None
        self._changed = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Wall time of the run over all its sessions."""
        return self._earlier_seconds + time.monotonic() - self._started

    def release(self) -> None:
        """Make what was held for the final evaluation available; time is no longer checked."""
        self.held, self.test, self._released = self.kept, None, True
        self.limits = replace(self.limits, seconds=None)

    @contextmanager
    def keep_test(self, held: Budget, test: SealedReserve | None) -> Iterator[None]:
        """Reserve for the sealed test again until the block ends: `held` and `test` as they were before the release."""
        released = self.held, self.test
        self.held, self.test = held, test
        try:
            yield
        finally:
            self.held, self.test = released

    def searchable(self) -> Budget:
        """The limits that the search may plan with in all: without the reserved and spent parts. Calls whose answers were lost
        in a kill are not deducted, so that a search that was killed early makes the same plan. It may end earlier by that
        number of calls."""
        left: dict[str, Any] = {}
        for name, limit in asdict(self.limits).items():
            held = self._reserve_of(name)
            left[name] = (
                None
                if limit is None
                else max(0, limit - held - self._usage_of(name) + self.spent.lost.get(name, 0))
            )
        return Budget(**left)

    def plannable(self) -> Budget:
        """`searchable`, with the limit on calls lowered to what the tokens, dollars and seconds pay for, if a call takes as
        much as the calls so far. A search plans its rounds by calls. Seconds count from the first call of this session."""
        left, spent, paid = self.searchable(), self.spent, self._paid
        taken = (left.tokens, spent.input_tokens + spent.output_tokens), (left.cost_usd, spent.cost)
        bounds = [int(rest * paid / amount) for rest, amount in taken if rest is not None and amount > 0]
        if left.seconds is not None and self._first_paid_call is not None and paid > self._first_paid_call[1]:
            began, before = self._first_paid_call
            bounds.append(int(left.seconds * (paid - before) / max(1e-3, time.monotonic() - began)))
        return replace(left, calls=min(bounds if left.calls is None else [left.calls, *bounds], default=None))

    @property
    def _paid(self) -> int:
        """Calls that no cache answered."""
        return self.spent.total_calls - sum(self.spent.cached.values())

    def _reserve_of(self, name: str) -> float:
        held: float = getattr(self.held, name) or 0
        if self.test is not None and name in ("tokens", "cost_usd"):
            held += self.test.tokens if name == "tokens" else self.test.cost
        return held

    def _usage_of(self, name: str) -> float:
        spent = self.spent
        if name == "calls":
            return sum([self._calls_of(role) for role in spent.calls])
        if name == "tokens":
            return spent.input_tokens + spent.output_tokens + self._open_tokens
        if name == "cost_usd":
            return spent.cost + self._open_cost
        return self.seconds if name == "seconds" else self._calls_of(name.removesuffix("_calls"))

    def _calls_of(self, role: str) -> int:
        """The calls that count against the limit on the calls of a role."""
        spent = self.spent
        return spent.calls[role] - spent.excused[role] + len(spent.given_up[role])

    async def reserve(
        self, reservation: Reservation, renew: Callable[[], Reservation] | None = None
    ) -> Reservation:
        """Reserve what the attempt may take, and return the reservation. Its calls count at once. After a wait, `renew` makes a
        new reservation, because the answers in between may have been longer than all before. Raises BudgetExceeded, which names
        the limit."""
        while not self._fits(reservation):
            await self._wait_for_room(reservation)
            if renew is None or (known := renew()) == reservation:
                break
            reservation = known
        self.take(reservation)
        return reservation

    def has_room(self, reservation: Reservation) -> bool:
        """Whether an attempt fits now, without a wait."""
        return self._find_exceeded_limit(reservation) is None and not self._is_crowded(reservation)

    def hold(self, reservation: Reservation) -> None:
        """Reserve what an attempt of an earlier session may take, whether it fits or not. The attempt is not in flight."""
        self.spent.calls[reservation.role] += reservation.calls
        self._open_tokens += reservation.tokens
        self._open_cost += reservation.cost

    def drop(self, reservation: Reservation) -> None:
        """Give back what `hold` reserved."""
        self.spent.calls[reservation.role] -= reservation.calls
        self._open_tokens -= reservation.tokens
        self._open_cost -= reservation.cost

    def take(self, reservation: Reservation) -> None:
        """Reserve what an attempt may take, whether it fits or not. The attempt is in flight from now on."""
        self._first_paid_call = self._first_paid_call or (time.monotonic(), self._paid)
        self.hold(reservation)
        self._in_flight += 1
        self._add_beyond(reservation, 1)
        self._in_flight_by_role[reservation.role] += 1

    def _fits(self, reservation: Reservation) -> bool:
        """Whether an attempt may begin now."""
        return self.has_room(reservation) and not self._must_wait(reservation)

    async def _wait_for_room(self, reservation: Reservation) -> None:
        """Wait until an attempt fits. Raises BudgetExceeded if it never will."""
        while not self._fits(reservation):
            limit = self._find_exceeded_limit(reservation)
            if limit is not None and (limit == "seconds" or self._in_flight == 0):
                name = limit.removesuffix("_usd")
                raise BudgetExceeded(name, self._describe_limit(limit, reservation))
            self._changed.clear()
            await self._changed.wait()

    def _describe_limit(self, name: str, reservation: Reservation) -> str:
        """A message: the limit leaves no room for an attempt, and what has taken the room."""
        unit = name.removesuffix("_usd").replace("_", " ")
        words = f"The limit of {getattr(self.limits, name)} {unit} is reached"
        if name not in ("tokens", "cost_usd"):
            return f"{words}."
        dollars = name == "cost_usd"
        kept, next_call = self._reserve_of(name), reservation.cost if dollars else reservation.tokens
        amounts = [
            (self._usage_of(name), "used"),
            (kept, "kept for what follows the search"),
            (next_call, "for the next call at most"),
        ]
        shown = [f"${n:.4f} {what}" if dollars else f"{math.ceil(n):,} {what}" for n, what in amounts if n]
        return f"{words}: {', '.join(shown)}."

    def _must_wait(self, reservation: Reservation) -> bool:
        limited = self.limits.tokens is not None or self.limits.cost_usd is not None
        return limited and reservation.alone and self._in_flight_by_role[reservation.role] > 0

    def _beyond(self, reservation: Reservation) -> tuple[float, float]:
        """Tokens and dollars that a call may take beyond what is reserved for it. In the search, whose new prompts may make a
        model think, the reservation says how many. In the sealed test, it is what a call is likely to take, because the model
        has answered these prompts before."""
        if self._released:
            return reservation.likely_tokens, reservation.likely_cost
        return reservation.beyond_tokens, reservation.beyond_cost

    def _add_beyond(self, reservation: Reservation, sign: int) -> None:
        """Add what a call that begins may take beyond its reservation, or take away that of one that has ended."""
        tokens, cost = self._beyond(reservation)
        open_tokens, open_cost = self._open_beyond
        sums = open_tokens + sign * tokens, open_cost + sign * cost
        self._open_beyond = sums if self._in_flight else (0.0, 0.0)

    def _is_crowded(self, r: Reservation) -> bool:
        """Whether the calls in flight and this one would pass a limit if each took more than is reserved for it. The reserve of
        the sealed test counts as room here: it would be lost, but the limit would hold."""
        if not self._in_flight or (self.limits.tokens is None and self.limits.cost_usd is None):
            return False
        names, most = ("tokens", "cost_usd"), (r.tokens, r.cost)
        for name, own, beyond, there in zip(names, most, self._beyond(r), self._open_beyond, strict=True):
            limit = getattr(self.limits, name)
            room = math.inf if limit is None else limit - (getattr(self.kept, name) or 0)
            if self._usage_of(name) + own + there + beyond > room:
                return True
        return False

    def refuse_cost(self, cost: float) -> None:
        """Raise BudgetExceeded if so many further dollars, spent on something else than a call, would pass the limit."""
        limit = self.limits.cost_usd
        if limit is not None and self._usage_of("cost_usd") + cost > limit - self._reserve_of("cost_usd"):
            raise BudgetExceeded("cost", f"The limit of ${limit:g} is reached.")

    def _find_exceeded_limit(self, r: Reservation) -> str | None:
        most: float
        likely: float
        for name in ("calls", f"{r.role}_calls", "tokens", "cost_usd", "seconds"):
            limit = getattr(self.limits, name)
            if limit is None:
                continue
            if name in ("tokens", "cost_usd"):
                dollars = name == "cost_usd"
                most, likely = (r.cost, r.likely_cost) if dollars else (r.tokens, r.likely_tokens)
                if not most:
                    continue
            else:
                most = likely = 0.0 if name == "seconds" else r.calls
            if self._released and not self._in_flight:  # the sealed test is finished one call at a time
                most = likely + min(most - likely, LAST_CALL * limit)
            if self._usage_of(name) + most > limit - self._reserve_of(name) + 1e-12:
                return name
        return None

    def settle(self, reservation: Reservation, usage: Usage, cost: float, made: bool = True) -> None:
        """Replace the reservation by what was billed. A call that was not `made` does not count."""
        spent = self.spent
        if not made:
            spent.calls[reservation.role] -= reservation.calls
        self._open_tokens -= reservation.tokens
        self._open_cost -= reservation.cost
        self._in_flight -= 1
        self._add_beyond(reservation, -1)
        self._in_flight_by_role[reservation.role] -= 1
        spent.input_tokens += usage.input_tokens
        spent.output_tokens += usage.output_tokens
        spent.cached_input_tokens += usage.cached_input_tokens
        spent.reasoning_tokens += usage.reasoning_tokens
        spent.named[reservation.role] += usage.cost_usd is not None or usage.free
        spent.cost += cost
        self._changed.set()


@dataclass(frozen=True)
class BudgetPlan:
    """The validation rows of a run and what is reserved."""

    validation: tuple[Example, ...]
    """The validation rows that are used."""
    held: Budget
    """The part of the limits that the search may not use."""
    kept: Budget = field(default_factory=Budget)
    """The part of `held` that is reserved from the sealed test too."""
    ablation: int = 0
    """Calls reserved to measure which region earned the gain; 0: that is not measured."""
    runs: int = 1
    """2 if a control run follows that may use as much, else 1."""


def with_default_limit(
    task: Task,
    limits: Budget,
    env: Environment,
    config: object,
    clients: Mapping[str, ModelClient],
    other: ModelClient | None = None,
) -> Budget:
    """The limits, with a limit on calls if an endpoint or a function would be asked without any limit."""
    bounds = (limits.calls, limits.task_calls, limits.tokens, limits.cost_usd, limits.seconds)
    if any(bound is not None for bound in bounds) or all(c.model.local for c in clients.values()):
        return limits
    calls = row_calls(env, answer_calls(env, config))["calls"]
    kept = 0 if other is None else test_set_budget(task, env, config, other).calls or 0
    test = (
        _test_rows(2 * len(task.test), *task_clients(clients)) * calls + _second_calls(task, clients)["calls"]
    )
    return replace(limits, calls=test + kept + DEFAULT_CALLS * calls)


def control_share(limits: Budget, optimizes: bool) -> Budget:
    """The part of each limit that is reserved for a control run: half; of the optimizer's calls only if the control run
    `optimizes`."""
    halves = {
        name: None if limit is None else limit / 2 if name in ("cost_usd", "seconds") else (limit + 1) // 2
        for name, limit in asdict(limits).items()
    }
    return Budget(**halves | ({} if optimizes else {"optimizer_calls": None}))


def plan_budget(
    task: Task,
    limits: Budget,
    env: Environment,
    config: object,
    clients: Mapping[str, ModelClient],
    other: ModelClient | None = None,
    control: Budget | None = None,
    whole: Budget | None = None,
    measured: Mapping[str, Usage] = MappingProxyType({}),
) -> BudgetPlan:
    """Reserve the sealed test of baseline and best, and choose how many validation rows a tight budget allows.

    A validation costs what `whet.search.plan.validation_rows` says of what the test leaves, by whichever limit is the tightest.
    `other`: a model that the best prompt is tried with afterwards, for which as much is kept as its answers to the test may
    take. `control`: what is kept for a control run (`control_share`), and `whole` what it has in common with this run.
    `measured`: tokens of a call by role, as earlier runs took them; without, tokens and dollars are held back as far as no task
    takes fewer, and `fit` holds more when some calls were answered. Raises UsageError naming the smallest workable number when
    a limit is too small.
    """
    runs = 1 if whole is None else 2
    if control is not None:
        return _plan_beside(task, limits, env, config, clients, other, control, measured)
    turns = answer_calls(env, config)
    each = row_calls(env, turns)
    rows = _test_rows(2 * len(task.test), *task_clients(clients))
    kept = Budget(0, 0, 0, 0, 0, 0.0) if other is None else test_set_budget(task, env, config, other)
    again = _second_calls(task, clients)
    smallest = min(SMALLEST_VALIDATION, len(task.validation))
    extra = {"calls": 1 + int("optimizer" in clients), "task_calls": 1, "judge_calls": 0}
    for name, calls in each.items():
        limit = getattr(limits, name)
        needed = (rows + 2 * smallest) * calls + extra[name] + getattr(kept, name) + again[name]
        if limit is not None and limit < needed:
            raise UsageError(
                f"{parameter(f'budget.{name}', getattr(whole or limits, name))} is too small: the sealed test of baseline "
                f"and best ({quantity(len(task.test), 'example')} each){', its second opinion' if again[name] else ''}"
                f"{' and of transfer' if other else ''} and a first validation need "
                f"{needed}{CONTROL_TOO * (runs > 1)}. Give at least {needed * runs}. Fewer test rows (`splits`) need fewer."
            )
    bounded = [(getattr(limits, n), c, again[n]) for n, c in each.items() if c]
    room = [(limit - used) / c - rows for limit, c, used in bounded if limit is not None]
    count = len(task.validation)
    if room:
        count = min(count, max(smallest, validation_rows(min(room), env)))
    row, first = (
        _expected_row(task, env, clients, measured, turns),
        _first_call(task, env, task_clients(clients)),
    )
    sealed = 2 * len(task.test)
    for name, index in (("tokens", 0), ("cost_usd", 1)):
        over = float(getattr(kept, name) or 0)
        least = (
            max(TEST_ROOM * sealed * row[index] + smallest * row[index], sealed * row[index] + first[index])
            + over
        )
        shown = getattr(whole or limits, name)
        limit = getattr(limits, name)
        _refuse_small(name, shown, limit, least, least * runs, CONTROL_TOO * (runs > 1))
        if limit is not None and row[index]:
            count = min(count, validation_rows((limit - over) / row[index] - sealed, env))
    tokens = math.ceil(sealed * row[0]) + (kept.tokens or 0)
    cost = sealed * row[1] + (kept.cost_usd or 0.0)
    held = {n: (rows + count) * calls + getattr(kept, n) + again[n] for n, calls in each.items()}
    ablation = (1 + len(task.prompt.regions)) * count * each["calls"] if len(task.prompt.regions) > 1 else 0
    if any(
        getattr(limits, n) is not None and ablation > ABLATION_SHARE * (getattr(limits, n) - held[n])
        for n in each
        if each[n]
    ):
        ablation = 0
    held_back = Budget(**held, tokens=tokens, cost_usd=cost)
    return BudgetPlan(tuple(task.validation[:count]), held_back, kept, ablation, runs)


def fit_plan(
    task: Task, limits: Budget, env: Environment, plan: BudgetPlan, rows: Sequence[tuple[float, float]]
) -> BudgetPlan:
    """The plan with the tokens and dollars that some `rows` really took: these are reserved for the sealed test, and validation
    rows are chosen as in `plan_budget`. Raises UsageError, which names the smallest workable limit."""
    count, held = len(plan.validation), plan.held
    for name, values in zip(("tokens", "cost_usd"), zip(*rows, strict=True), strict=True):
        each, kept, limit = sum(values) / len(values), getattr(plan.kept, name) or 0, getattr(limits, name)
        test = 2 * len(task.test) * each
        smallest = min(SMALLEST_VALIDATION, count)
        if limit is not None:
            need = TEST_ROOM * test + smallest * each
            least = need + kept if plan.runs == 1 else need * plan.runs
            _refuse_small(name, limit, limit - kept, need, least, CONTROL_TOO * (plan.runs > 1))
        if limit is not None and each:
            count = min(count, validation_rows((limit - kept - test) / each, env))
        held = replace(held, **{name: math.ceil(test) + kept if name == "tokens" else test + kept})
    return replace(plan, validation=plan.validation[:count], held=held)


def held_from_search(
    held: Budget, plan: BudgetPlan, env: Environment, config: object, deploys: bool
) -> Budget:
    """The part of `held` that the search cannot spend: all except one validation of the result, which is free if the search has
    validated the result. That validation is reserved too if answers are not recorded by their content, and for a method whose
    result `deploys` trained weights."""
    if deploys or not env.recorded_by_content:
        return held
    rows, each = len(plan.validation), row_calls(env, answer_calls(env, config))
    return replace(held, **{name: getattr(held, name) - rows * calls for name, calls in each.items()})


def describe_cut(rows: int, whole: int, beside: str = "") -> str:
    """Say how many of the validation rows are used, and that the limits pay for no more."""
    return (
        f"prompts are validated on {rows:,} of the {whole:,} validation rows{beside}: the limits pay "
        f"for no more (a validation may take {VALIDATION_SHARE:.0%} of what the sealed test leaves, "
        f"or up to {SMALL_SHARE:.1%} if little is left)"
    )


def warn_of_few_rows(rows: int, least: int) -> list[str]:
    """The warning where a limit leaves fewer validation rows than `least`; none where it leaves enough."""
    if rows >= least:
        return []
    return [
        f"{rows:,} validation rows are too few to compare prompts: use at least {least:,} (20 rows, "
        "or 3 for each right answer if that is more). Raise the limit, or give the test fewer rows "
        "(`splits`)."
    ]


def _plan_beside(
    task: Task,
    limits: Budget,
    env: Environment,
    config: object,
    clients: Mapping[str, ModelClient],
    other: ModelClient | None,
    control: Budget,
    measured: Mapping[str, Usage],
) -> BudgetPlan:
    """The plan of a run in what a control leaves of its limits, with the share of the control kept and held."""
    own, shares = asdict(limits), asdict(control)
    rest = {name: limit if shares[name] is None else limit - shares[name] for name, limit in own.items()}
    plan = plan_budget(task, Budget(**rest), env, config, clients, other, whole=limits, measured=measured)
    held, kept = (
        Budget(
            **{
                n: amount if shares[n] is None else (amount or 0) + shares[n]
                for n, amount in asdict(b).items()
            }
        )
        for b in (plan.held, plan.kept)
    )
    return replace(plan, held=held, kept=kept)


def _second_calls(task: Task, clients: Mapping[str, ModelClient]) -> dict[str, int]:
    """Calls by limit that the second opinion on the sealed test of baseline and best may take."""
    second = task.second_opinion
    each = 0 if second is None else judge_calls_of(second, targets=task.has_targets)
    calls = each * _test_rows(2 * len(task.test), clients[SECOND]) if SECOND in clients else 0
    return {"calls": calls, "task_calls": 0, "judge_calls": calls}


def test_set_budget(task: Task, env: Environment, config: object, client: ModelClient) -> Budget:
    """The most that one prompt's answers to the sealed test may take with the model of `client`: calls, tokens, US dollars."""
    turns = answer_calls(env, config)
    rows = _test_rows(len(task.test), client)
    tokens, cost = _worst_test(task, env, client, rows, turns)
    calls = {name: rows * each for name, each in row_calls(env, turns).items()}
    return Budget(**calls, optimizer_calls=0, tokens=tokens, cost_usd=cost)


def row_calls(env: Environment, turns: int) -> dict[str, int]:
    """Calls by limit that one row costs at most."""
    judges = env.judge_calls
    per_row = turns + int(TARGET_SCORE in env.reward.needs)
    return {"calls": per_row + judges, "task_calls": per_row, "judge_calls": judges}


def task_clients(clients: Mapping[str, ModelClient]) -> list[ModelClient]:
    """The clients of the task models: one, or those of the cases of a task made of several."""
    return [client for role, client in clients.items() if role == "task" or client.same_answers]


def task_cost(clients: Mapping[str, ModelClient], role: str, usage: Usage, *, at_most: bool = False) -> float:
    """US dollars of a call of a role, or the most that it may cost; of the task models on average."""
    own = task_clients(clients) if role == "task" else [clients[role]]
    costs = [client.cost_at_most(usage) if at_most else client.cost(usage) for client in own]
    return sum(costs) / len(own)


def _test_rows(rows: int, *clients: ModelClient) -> int:
    """Rows to reserve for, with what retries may take where a call can fail."""
    local = all(client.model.local for client in clients)
    return math.ceil(rows * (1.0 if local else RETRY_SLACK)) + (0 if local else 2)


def answer_calls(env: Environment, config: object) -> int:
    """Task calls of one rollout at most: turns of the task's world or program, or what the method's system asks
    for an answer.

    A method whose system asks more than once says so in `Config.calls_per_answer`: a number, or a function of the environment.
    """
    each = getattr(config, "calls_per_answer", 1)
    return int(getattr(env, "calls", 1)) * int(each(env) if callable(each) else each)


def _worst_test(
    task: Task, env: Environment, client: ModelClient, rows: int, turns: int
) -> tuple[int, float]:
    """Tokens and dollars of `rows` test rollouts at their worst, for a prompt that may grow by 256 tokens.

    Each of the `turns` calls of a rollout reads the question and all earlier messages.
    """
    if client.model.local:
        return 0, 0.0
    worst = [
        client.worst_case(
            "task", Request(env.messages(task.prompt, e), max_tokens=env.generation.max_tokens)
        )[1]
        for e in task.test
    ]
    total = sum(worst, Usage())
    share = rows / len(worst)
    written = math.ceil(total.output_tokens * share)
    read = math.ceil(total.input_tokens * share) + GROWTH_TOKENS * rows
    before = turns * (turns - 1) // 2
    usage = Usage(read * turns + (written + GROWTH_TOKENS * rows) * before, written * turns)
    return usage.input_tokens + usage.output_tokens, client.cost_at_most(usage)


def _expected_row(
    task: Task,
    env: Environment,
    clients: Mapping[str, ModelClient],
    measured: Mapping[str, Usage],
    turns: int,
) -> tuple[float, float]:
    """Tokens and dollars of one test row: by what was `measured`, else the least that is to be expected."""
    numbers = row_calls(env, turns)
    total = [0.0, 0.0]
    for role in ("task", "judge"):
        client, calls = clients.get(role), numbers[f"{role}_calls"]
        if client is None or client.model.local:
            continue
        usage = measured.get(role)
        if usage is None:
            sizes = [
                sum(len(m.content.encode("utf-8", "replace")) for m in env.messages(task.prompt, e))
                for e in task.test
            ]
            usage = Usage(math.ceil(sum(sizes) / len(sizes) / BYTES_PER_TOKEN), 1)
        total[0] += calls * (usage.input_tokens + usage.output_tokens)
        total[1] += calls * task_cost(clients, role, usage)
    return total[0], total[1]


def _first_call(task: Task, env: Environment, clients: Sequence[ModelClient]) -> tuple[float, float]:
    """Tokens and dollars that must be free for the first call, of which nothing is known."""
    clients = [client for client in clients if not client.model.local]
    requests = [
        Request(env.messages(task.prompt, e), max_tokens=env.generation.max_tokens)
        for e in task.validation[:KNOWN_AFTER]
    ]
    most = [client.worst_case("task", request)[0] for request in requests for client in clients]
    return max((float(m.tokens) for m in most), default=0.0), max((m.cost for m in most), default=0.0)


def _refuse_small(
    name: str, limit: float | None, room: float | None, need: float, least: float, beside: str
) -> None:
    """Raise UsageError, naming the `least` that works, where `room`, what a limit leaves, is less than needed."""
    if room is None or room >= need:
        return
    number = f"{math.ceil(least)}" if name == "tokens" else f"{math.ceil(least * 1e4) / 1e4:.4f}"
    unit = "tokens" if name == "tokens" else "dollars"
    raise UsageError(
        f"{parameter(f'budget.{name}', limit)} is too small. Judging by the calls so far, too few "
        f"{unit} are left for a first validation and the sealed test of baseline and best{beside}. "
        f"Give at least {number}, or lower models.task.max_tokens in task.yaml."
    )
