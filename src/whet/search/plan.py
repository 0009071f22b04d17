"""The size of a search: rounds, minibatches and validations that fit the limits of the run.

Limits on calls are planned for: from what the run is told at its start, and between rounds from what it says is left,
which it records, so that a resumed search is the same search. Limits on tokens, dollars and seconds are among them, as the
calls that they pay for where each takes what those so far took. Planned calls that were not needed, because a prompt came again
or was validated before, pay for further rounds and finalists. Any limit ends a search whenever it is reached; the incumbent is
then the result.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.rewards import TARGET_SCORE
from whet.run import Budget, Run
from whet.search.archive import Archive, Candidate
from whet.search.labels import right_answers
from whet.search.minibatch import minibatch

LEAST_EXAMPLES = 8
SMALLEST = 4
SMALLEST_VALIDATION = 5
LEAST_VALIDATION, ROWS_PER_ANSWER = 20, 3
VALIDATION_SHARE, SMALL_SHARE = 0.1, 0.125
LOST_SHARE, LOST_LEAST, LOST_MOST = 64, 3, 6
"""The part of a limit that searches leave for calls that a kill may lose: one in 64, but at least three and at most one in
six."""


@dataclass(frozen=True)
class SearchPlan:
    """The limits of a search. `fit` adds the sizes: `rounds` rounds of `width` new prompts."""

    env: Environment
    """The environment, with as many validation rows as can be paid."""
    rollouts: int | None
    """Rollouts that are left for training examples; None: no limit."""
    asks: int | None
    """Calls that are left of the optimizer model; None: no limit."""
    validations: int
    """Prompts that may be validated, the start included."""
    finalists: int
    """Prompts that are validated at the end."""
    rounds: int = 0
    width: int = 0
    """New prompts of a round."""
    examples: int = 0
    """Training examples that each new prompt is scored on."""
    wanted_rounds: int = 0
    """Rounds of the settings."""
    wanted_finalists: int = 0
    """Finalists of the settings."""
    asks_each: float = 0.0
    """Calls of the optimizer model for a new prompt."""
    least: int = 1
    """The fewest new prompts of a round."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit on rollouts or on calls of the optimizer model."""
        return self.rollouts is not None or self.asks is not None

    def payable(self, wanted: int, each: int) -> int:
        """Count the things, of the `wanted` ones, that can be paid for if each costs `each` rollouts (1 or more)."""
        return wanted if self.rollouts is None else min(wanted, self.rollouts // each)

    def payable_groups(self, each: int) -> int | None:
        """Count the things that can be paid for if each costs `each` rollouts (1 or more); None without a limit."""
        return None if self.rollouts is None else self.rollouts // each

    def without(self, rollouts: int) -> SearchPlan:
        """The plan after so many rollouts went into something else: with as many rounds as the rest pays for."""
        if self.rollouts is None or not rollouts:
            return self
        left, each = max(0, self.rollouts - rollouts), self.width * self.examples
        rounds = min(self.rounds, max(0, left - self.examples) // each) if each else self.rounds
        return replace(self, rollouts=left, rounds=rounds)


def payable_rollouts(run: Run, env: Environment, *, writes: bool) -> int | None:
    """Rollouts that the limits on calls allow, None when there is none.

    A rollout costs one task call, one more when the reward asks the task model for a score of the
    target, and as many judge calls as the reward makes (`judge_calls`). A method that `writes` leaves a fifth
    of all calls to the optimizer model.
    """
    limits = run.limits
    task, judge = _calls_each(env)
    bounds = []
    if limits.calls is not None:
        bounds.append((limits.calls - (limits.calls // 5 if writes else 0)) // (task + judge))
    if limits.task_calls is not None:
        bounds.append(limits.task_calls // task)
    if judge and limits.judge_calls is not None:
        bounds.append(limits.judge_calls // judge)
    return min(bounds) if bounds else None


def least_rows(env: Environment) -> int:
    """The fewest validation rows on which prompts can be told apart: 20, or 3 for each right answer where these are few."""
    return max(LEAST_VALIDATION, ROWS_PER_ANSWER * len(right_answers(env).complete))


def validation_rows(rollouts: float, env: Environment) -> int:
    """The number of validation rows of a prompt if so many rollouts can be paid for.

    One validation takes a tenth of them, or up to an eighth where a tenth is fewer than `least_rows`; 5 rows at least.
    """
    size = max(rollouts * VALIDATION_SHARE, min(least_rows(env), rollouts * SMALL_SHARE))
    return min(len(env.validation), max(SMALLEST_VALIDATION, int(size)))


def affordable_rows(env: Environment, rollouts: float, wanted: int = 0) -> int:
    """The validation rows of a search: all that the plan of its run leaves it. Where nobody planned, `least_rows`, but no more
    than a fifth of the rollouts; or more if more are `wanted`."""
    return min(len(env.validation), max(1, wanted, int(min(least_rows(env), rollouts / 5))))


@dataclass
class Purse:
    """The remaining limits of a search that plans as it goes: rollouts, calls of the optimizer model, and `calls` of all
    roles together if a rollout takes `each` of them. Infinite without a limit."""

    rollouts: float
    asks: float
    calls: float = math.inf
    each: int = 1

    def payable(self, asks: float = 0) -> float:
        """Rollouts that can be paid for beside so many calls of the optimizer model."""
        return max(0, min(self.rollouts, (self.calls - asks) / self.each))

    @property
    def questions(self) -> float:
        """Calls of the optimizer model that can be paid for."""
        return max(0, min(self.asks, self.calls))

    def pay(self, *, rollouts: int = 0, asks: int = 0) -> None:
        """Take what was spent."""
        self.rollouts, self.asks = self.rollouts - rollouts, self.asks - asks
        self.calls -= rollouts * self.each + asks


def open_purse(run: Run, env: Environment) -> Purse:
    """The purse of a run at its start."""
    return purse_of(run.limits, env)


async def count_purse(run: Run, env: Environment) -> Purse:
    """The purse of a run by what is left now, but for a few calls: those that a kill lost count against the limit, and the search
    that goes on is to find what it would have found."""
    return purse_of(without_lost(run.limits, await run.read_remaining()), env)


def without_lost(limits: Budget, left: Budget) -> Budget:
    """The rest of the limits, without the calls that a kill may lose."""
    names = "calls", "task_calls", "judge_calls"
    rest = {n: max(0, getattr(left, n) - may_be_lost(getattr(limits, n))) for n in names if getattr(left, n)}
    return replace(left, **rest)


def may_be_lost(limit: int) -> int:
    """Of a limit on calls, those that a search leaves over for a kill."""
    return min(limit // LOST_MOST, max(LOST_LEAST, limit // LOST_SHARE))


def purse_of(limits: Budget, env: Environment) -> Purse:
    """The number of rollouts and optimizer calls that limits pay for."""
    task, judge = _calls_each(env)
    bounds = [limits.task_calls // task] if limits.task_calls is not None else []
    bounds += [limits.judge_calls // judge] if judge and limits.judge_calls is not None else []
    asks, calls = (math.inf if limit is None else limit for limit in (limits.optimizer_calls, limits.calls))
    return Purse(min(bounds, default=math.inf), asks, calls, task + judge)


def share_out(run: Run, env: Environment, rounds: int, finalists: int, *, writes: bool = True) -> SearchPlan:
    """Split the budget: at most two fifths of the rollouts validate (start, leaders of rounds, finalists).

    A validation split that is larger than what the plan of a run leaves (`validation_rows`) is cut, by the run's generator, so
    that at least two or three prompts can be compared on it. A small budget is not held back for leaders of many rounds:
    one for 400 rollouts, at least two. The start costs nothing where its answers are recorded.
    """
    rollouts = payable_rollouts(run, env, writes=writes)
    asks = payable_asks(run, env, rollouts)
    if rollouts is None:
        most = 1 + rounds + finalists
        return SearchPlan(env, None, asks, most, finalists, wanted_finalists=finalists)
    for_validation = rollouts * 2 // 5
    size = affordable_rows(env, rollouts, for_validation // 3)
    env = cut_validation(run, env, size)
    most = 1 + min(rounds, max(2, rollouts // 400)) + finalists
    validations = min(most, max(2, for_validation // size))
    left = max(0, rollouts - validations * size + recorded_rows(env))
    few = min(finalists, max(1, (validations - 1) // 2))
    return SearchPlan(env, left, asks, validations, few, wanted_finalists=finalists)


def recorded_rows(env: Environment) -> int:
    """Rows on which the start prompt is validated without a call."""
    return min(env.start_answers, len(env.validation))


def cut_validation(run: Run, env: Environment, size: int) -> Environment:
    """The environment with `size` of its validation examples, drawn by the run's generator, those of several cases in turn;
    itself if it has no more."""
    if size >= len(env.validation):
        return env
    if any(row.case for row in env.validation):
        drawn = {row.id for row in minibatch(run.rng, env.validation, size)}
        return replace(env, validation=tuple(row for row in env.validation if row.id in drawn))
    kept = sorted(run.rng.sample(range(len(env.validation)), size))
    return replace(env, validation=tuple(env.validation[i] for i in kept))


def _calls_each(env: Environment) -> tuple[int, int]:
    task = int(getattr(env, "calls", 1))  # an episode of several turns makes several calls
    return task + (TARGET_SCORE in env.reward.needs), env.judge_calls


def payable_asks(run: Run, env: Environment, rollouts: int | None) -> int | None:
    """Calls of the optimizer model, a quarter kept back for replies that must be asked for again; one where one is left."""
    bounds = []
    if run.limits.optimizer_calls is not None:
        bounds.append(run.limits.optimizer_calls)
    if run.limits.calls is not None:
        bounds.append(run.limits.calls - (rollouts or 0) * sum(_calls_each(env)))
    return max(min(bounds) * 3 // 4, min(1, *bounds)) if bounds else None


def fit(
    run: Run,
    env: Environment,
    rounds: int,
    width: int,
    examples: int | None,
    *,
    finalists: int = 3,
    asks: float = 1.0,
    least: int = 1,
) -> SearchPlan:
    """A plan for a start and `rounds` x `width` new prompts, each scored on `examples` examples (None: all).

    Within a limit, the wanted sizes are cut in this order: examples (not below the square root of the
    rollouts nor below 8), rounds down to 2, width, and last of all the examples again. The width is not cut below
    `least`: where that cannot be paid for, there are no rounds. `asks` is the number of optimizer calls that one new
    prompt takes, 0 for a method that does not write.
    """
    plan, wanted = share_out(run, env, rounds, finalists, writes=asks > 0), rounds
    most = min(len(env.train), examples or len(env.train))
    size = most
    if plan.rollouts is not None:
        left = plan.rollouts
        size = min(most, max(math.isqrt(left), left // (1 + rounds * width), min(LEAST_EXAMPLES, most)))
        size = max(1, min(size, left // (1 + least)))
        paid = left // size - 1
        width = min(width, max(least, paid // min(rounds, 2))) if rounds else width
        rounds = min(rounds, max(0, paid // width))
    if plan.asks is not None and asks > 0:
        new = int(plan.asks / asks)
        width = min(width, max(least, new // min(rounds, 2))) if rounds else width
        rounds = min(rounds, new // width)
    if plan.rollouts is not None:
        size = max(size, min(most, plan.rollouts // (1 + rounds * width)))
    run.note_rounds(rounds, wanted)
    return replace(
        plan,
        rounds=rounds,
        width=width,
        examples=size,
        wanted_rounds=wanted,
        asks_each=asks,
        least=min(least, width),
    )


async def rounds_of(
    run: Run, plan: SearchPlan, archive: Archive, beside: int = 0
) -> AsyncIterator[tuple[int, int]]:
    """The rounds of a search with their numbers from 0 and widths: those of the plan, then as many more as its settings want and
    the limits pay for, the last one narrower. What validates the best of the archive stays free, and `beside` rollouts."""
    number = 0
    while number < (max(plan.rounds, plan.wanted_rounds) if plan.limited and plan.rounds else plan.rounds):
        width = plan.width
        if plan.limited:
            finalists = sum(c.id not in archive.validated for c in archive.top(plan.finalists))
            kept = max(1, finalists) * len(plan.env.validation)
            width = await payable_width(run, plan, kept + beside, first=not number)
        if width < max(1, plan.least):
            break
        if number >= plan.rounds:
            run.note_rounds(number + 1, plan.wanted_rounds)
        yield number, width
        number += 1


async def payable_width(run: Run, plan: SearchPlan, kept: int = 0, *, first: bool = False) -> int:
    """The number of new prompts, up to the width of the plan, that the remaining limits pay for beside so many `kept` rollouts.
    A quarter of their calls of the optimizer model may be replies that must be asked for again. In the `first` round the fewest
    that a round has may take the calls that are left over for a kill."""
    left = await run.read_remaining()
    pays = (
        (purse_of(without_lost(run.limits, left), plan.env), plan.width),
        (purse_of(left, plan.env), plan.least),
    )
    for purse, most in pays if first else pays[:1]:
        for width in range(most, 0, -1):
            asks = math.ceil(width * plan.asks_each * 4 / 3)
            if asks <= purse.questions and purse.payable(asks) >= width * plan.examples + kept:
                return width
    return 0


async def validate_leader(run: Run, plan: SearchPlan, archive: Archive, leader: Candidate) -> Candidate:
    """Validate the leader of a round unless the planned validations, finalists kept back, are used up."""
    if len(archive.validated) < plan.validations - plan.finalists:
        await archive.validate(run, plan.env, [leader])
    return leader


async def validate_finalists(
    run: Run, plan: SearchPlan, archive: Archive, ranked: list[Candidate]
) -> Candidate:
    """The incumbent after the best of the ranked candidates are validated, as many as the settings want and the limits still
    pay for; all but the first beside the calls that are left over for a kill."""
    new = [c for c in ranked if c.id not in archive.validated]
    most, left = plan.finalists, max(0, plan.validations - len(archive.validated))
    if plan.rollouts is not None and new:
        limits, size = await run.read_remaining(), len(plan.env.validation)
        payable = purse_of(limits, plan.env).payable()
        if payable < math.inf:
            sure = int(purse_of(without_lost(run.limits, limits), plan.env).payable()) // size
            most, left = max(most, plan.wanted_finalists), max(sure, min(1, int(payable) // size))
    return await archive.validate(run, plan.env, new[: min(left, most)])
