"""Adaptive concurrency and retry delays, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.engine.model_client import CAP_SECONDS, AdaptiveLimiter, delay


@dataclass
class Clock:
    """Sleeping moves the clock; nobody waits."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def limiter(most: int) -> tuple[AdaptiveLimiter, Clock]:
    clock = Clock()
    return AdaptiveLimiter(most, clock=clock, sleep=clock.sleep), clock


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_never_more_than_allowed_and_in_order() -> None:
    gate, _ = limiter(3)
    running, most, order = 0, 0, []

    async def call(i: int) -> None:
        nonlocal running, most
        async with gate:
            order.append(i)
            running += 1
            most = max(most, running)
            await turns(3)
            running -= 1

    await asyncio.gather(*map(call, range(20)))
    assert (most, order, gate.in_flight) == (3, list(range(20)), 0)


async def test_a_burst_of_429s_halves_once() -> None:
    gate, _ = limiter(64)

    async def call() -> None:
        async with gate:
            await asyncio.sleep(0)
            gate.note_throttling()

    await asyncio.gather(*(call() for _ in range(64)))
    assert gate.allowance == 32
    await asyncio.gather(*(call() for _ in range(32)))
    assert gate.allowance == 16


async def answers_until(gate: AdaptiveLimiter, allowance: int) -> int:
    calls = 0
    while gate.allowance < allowance:
        async with gate:
            pass
        gate.note_success()
        calls += 1
    return calls


async def test_after_a_burst_the_allowance_doubles_to_half_of_what_it_was_and_then_grows_slowly() -> None:
    gate, _ = limiter(40)
    for _ in range(20):
        async with gate:
            gate.note_throttling()
    assert gate.allowance == 1, "never below one"
    assert await answers_until(gate, 20) == 19, "one call more per answer, so twice as many per round trip"
    assert 250 < await answers_until(gate, 40) <= 300, "2 calls more per round trip: 20 + 22 + ... + 38"
    gate.note_success()
    assert gate.allowance == 40


async def test_an_endpoint_that_takes_few_calls_at_once_is_not_overrun_again() -> None:
    gate, _ = limiter(40)
    for allowed in (20, 10, 5):
        async with gate:
            gate.note_throttling()
        gate.note_success()
        assert gate.allowance == allowed
    assert await answers_until(gate, 9) > 10, (
        "an answer came between the cuts, so the last one says where to go slowly"
    )


async def test_success_of_calls_from_before_the_cut_proves_nothing() -> None:
    gate, _ = limiter(10)
    async with gate:
        async with gate:
            gate.note_throttling()
            gate.note_success()
        assert gate.allowance == 5
        gate.note_success()
        assert gate.allowance == 5
    for _ in range(6):
        gate.note_success()
    assert gate.allowance == 6, "one call more per round trip"


async def test_new_starts_wait_for_the_servers_wish() -> None:
    gate, clock = limiter(4)
    async with gate:
        gate.note_throttling(7.5)
        gate.note_throttling(2.0)
    async with gate:
        assert clock.now == 7.5
    async with gate:
        assert clock.slept == [7.5]


async def test_a_longer_wish_that_arrives_while_waiting_counts() -> None:
    gate, clock = limiter(4)
    gate.note_throttling(5.0)

    async def push(seconds: float) -> None:
        clock.slept.append(seconds)
        if len(clock.slept) == 1:
            gate.note_throttling(9.0)
        clock.now += seconds

    gate._sleep = push
    async with gate:
        assert clock.now == 9.0


async def test_cancelled_waiters_leave_no_trace() -> None:
    gate, _ = limiter(1)
    await gate.__aenter__()
    waiting = [asyncio.create_task(gate.__aenter__()) for _ in range(3)]
    await turns()
    waiting[0].cancel()
    await turns()
    await gate.__aexit__(None, None, None)
    waiting[1].cancel()
    await turns()
    assert waiting[2].done() and not waiting[2].cancelled()
    assert gate.in_flight == 1
    await gate.__aexit__(None, None, None)
    assert gate.in_flight == 0
    gate.note_throttling(50.0)
    gate._sleep = asyncio.sleep
    held = asyncio.create_task(gate.__aenter__())
    await turns()
    held.cancel()
    await turns()
    assert gate.in_flight == 0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.lists(st.sampled_from(["ok", "429", "wish", "cancel"]), max_size=60),
    st.integers(0, 99),
)
def test_any_history_keeps_the_promises(most: int, outcomes: list[str], seed: int) -> None:
    async def history() -> None:
        gate, _ = limiter(most)
        chance = random.Random(seed)

        async def call(outcome: str) -> None:
            async with gate:
                assert gate.in_flight <= most
                await turns(chance.randrange(4))
                if outcome == "ok":
                    gate.note_success()
                elif outcome != "cancel":
                    gate.note_throttling(3.0 if outcome == "wish" else None)
                assert 1 <= gate.allowance <= most

        tasks = [asyncio.create_task(call(outcome)) for outcome in outcomes]
        await turns(chance.randrange(6))
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome == "cancel":
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert gate.in_flight == 0

    asyncio.run(history())


def test_a_limiter_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        AdaptiveLimiter(0)


@given(st.integers(1, 2000), st.integers(0, 999))
def test_delays_grow_and_stay_bounded(attempt: int, seed: int) -> None:
    window = min(CAP_SECONDS, 0.5 * 2 ** min(attempt - 1, 20))
    assert 0 <= delay(attempt, None, random.Random(seed)) <= window


def test_the_servers_wish_is_the_delay() -> None:
    chance = random.Random(0)
    assert [delay(n, 12.5, chance) for n in (1, 6)] == [12.5, 12.5]
    assert delay(3, 0.0, chance) == 0
    assert delay(3, -4.0, chance) == 0
    with pytest.raises(ValueError, match="counts from 1"):
        delay(0, None, chance)
    mean = sum(delay(3, None, chance) for _ in range(4000)) / 4000
    assert mean == pytest.approx(1.0, abs=0.05), "full jitter: uniform over 0 to 2 s"
