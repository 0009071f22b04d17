"""Replay, positions, branches, training segments: what a rerun repeats and what it does not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.world import Model, ask, close, open_core, run_of
from whet.engine.durable import DurableRun
from whet.engine.journal import read_events
from whet.errors import BudgetExceeded, ProviderError, ReplayDiverged
from whet.run import Budget


async def program(run: Any) -> list[Any]:
    """Branches that use chance, calls, effects and logs; one branch asks again what another asked."""

    async def branch(run: Any, item: int) -> Any:
        number = run.rng.randrange(1000)
        answer = await run.generate("task", ask(f"{item % 5}-{number % 2}"))
        run.log("answer", item)

        async def chance() -> Any:
            return [item, number, answer[0].text]

        return await run.effect("note", chance, item)

    first = await run.map(branch, list(range(12)))
    return [first, run.rng.random(), await run.map(branch, [3, 4])]


async def test_rerun_replays_without_a_call(tmp_path: Path) -> None:
    model = Model()
    core = open_core(tmp_path, model)
    expected = await program(run_of(core))
    await close(core)
    calls = model.calls
    assert 0 < calls <= 10
    core = open_core(tmp_path, model)
    assert await program(run_of(core)) == expected
    assert model.calls == calls
    assert core.replayed > 0
    await close(core)


async def test_same_content_is_paid_once_but_samples_are_samples(tmp_path: Path) -> None:
    model = Model()
    core = open_core(tmp_path, model)
    run = run_of(core)
    await run.map(lambda run, i: run.generate("task", ask("same")), range(6))
    assert model.calls == 1
    await run.map(lambda run, i: run.generate("task", ask("same", sample=i)), range(1, 4))
    assert model.calls == 4
    await close(core)


async def test_order_of_completion_changes_nothing(tmp_path: Path) -> None:
    """Other latencies, other concurrency: the same journal content."""

    class Shuffled(Model):
        async def generate(self, request: Any) -> Any:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            return await super().generate(request)

    seen = set()
    for seed in range(25):
        chance = random.Random(seed)
        core = open_core(tmp_path / str(seed), Shuffled(), concurrency=chance.choice([1, 2, 7]))
        await program(run_of(core))
        await core.journal.commit()
        rows = core.journal.rows("SELECT key, name, digest, value FROM effects ORDER BY key")
        seen.add(repr(rows))
        await close(core)
    assert len(seen) == 1


async def test_other_arguments_at_a_position_are_refused(tmp_path: Path) -> None:
    core = open_core(tmp_path, Model())
    await run_of(core).generate("task", ask("one"))
    await close(core)
    core = open_core(tmp_path, Model())
    with pytest.raises(ReplayDiverged, match="position /1 holds task"):
        await run_of(core).generate("task", ask("two"))
    await close(core)


async def test_concurrent_use_of_one_branch_is_a_loud_error(tmp_path: Path) -> None:
    core = open_core(tmp_path, Model())
    run = run_of(core)
    results = await asyncio.gather(
        run.generate("task", ask("a")), run.generate("task", ask("b")), return_exceptions=True
    )
    assert any(isinstance(r, RuntimeError) and "run.map" in str(r) for r in results)
    await close(core)


async def test_first_records_the_winner(tmp_path: Path) -> None:
    async def race(run: Any, item: int) -> int:
        for _ in range(0 if item == winner else 50):
            await asyncio.sleep(0)
        return item * 10

    winner = 2
    core = open_core(tmp_path, Model())
    assert await run_of(core).first(race, [0, 1, 2, 3]) == (2, 20)
    await close(core)
    winner = 0
    core = open_core(tmp_path, Model())
    assert await run_of(core).first(race, [0, 1, 2, 3]) == (2, 20)
    await close(core)


class Counter:
    """A trainable number: `value` is changed by every step."""

    def __init__(self) -> None:
        self.value = 0
        self.loads = 0

    def save(self) -> bytes:
        return str(self.value).encode()

    def load(self, blob: bytes) -> None:
        self.value = int(blob)
        self.loads += 1


async def _train(run: DurableRun, steps: int, state: Counter, stop_at: int | None = None) -> int:
    ran = 0

    async def body(run: Any, step: int) -> None:
        nonlocal ran
        if step == stop_at:
            raise BudgetExceeded("calls", "stop here")
        answer = await run.generate("task", ask(f"step {step}"))
        state.value = state.value * 31 % 1009 + len(answer[0].text) + step
        ran += 1

    await run.train(steps, body, state)
    return ran


async def test_training_resumes_from_the_newest_checkpoint(tmp_path: Path) -> None:
    whole = Counter()
    core = open_core(tmp_path / "whole", Model())
    await _train(run_of(core), 20, whole)
    await close(core)

    model = Model()
    core = open_core(tmp_path / "cut", model)
    core.segment_seconds = 0.0
    with pytest.raises(BudgetExceeded):
        await _train(run_of(core), 20, Counter(), stop_at=13)
    await close(core)
    assert len(list((tmp_path / "cut" / "blobs").iterdir())) == 1
    resumed = Counter()
    core = open_core(tmp_path / "cut", model)
    assert await _train(run_of(core), 20, resumed) == 7
    assert resumed.loads == 1
    assert resumed.value == whole.value
    assert model.calls == 20
    await close(core)


async def test_each_step_of_a_training_is_said_before_it_begins_and_whether_its_answers_are_recorded(
    tmp_path: Path,
) -> None:
    said: list[Any] = []

    def follow(core: Any) -> None:
        core.on_event = lambda name, value: (
            said.append((name, value)) if name.startswith("training") else None
        )

    core = open_core(tmp_path, Model())
    follow(core)
    with pytest.raises(BudgetExceeded):
        await _train(run_of(core), 4, Counter(), stop_at=2)
    await close(core)
    first = [value for name, value in said if name == "training"]
    assert first == [*({"step": n, "steps": 4, "recorded": False} for n in range(3)), None]
    assert [name for name, _ in said].count("training_forecast") == 1
    said.clear()
    core = open_core(tmp_path, Model())
    follow(core)
    assert await _train(run_of(core), 4, Counter()) == 4
    assert [value["recorded"] for name, value in said if name == "training" and value] == [
        True,
        True,
        False,
        False,
    ]
    [forecast] = [value for name, value in said if name == "training_forecast"]
    assert forecast["left"] == 1, "by a step whose answers were asked for"
    await close(core)


async def test_an_alarm_ends_the_training_for_good(tmp_path: Path) -> None:
    """Asked only when something was validated since; a resumed run trains no further, and later effects are at their places."""
    asked: list[int] = []

    async def session(core: Any, state: Counter) -> int:
        run, ran = run_of(core), 0

        def alarm() -> str:
            asked.append(ran)
            return "exploited" if len(asked) == 2 else ""

        async def body(run: Any, step: int) -> None:
            nonlocal ran
            ran, state.value = ran + 1, state.value + 1
            if step % 3 == 2:
                run.log("validated", {"validation": 0.5, "n": 4})

        core.alarm = alarm
        await run.train(20, body, state)
        await run.generate("task", ask("after"))
        return ran

    model, state, resumed = Model(), Counter(), Counter()
    core = open_core(tmp_path, model)
    assert await session(core, state) == 6 and asked == [3, 6]
    assert [event.value for event in read_events(core.journal.path, ["training_stopped"])] == ["exploited"]
    await close(core)
    core = open_core(tmp_path, model)
    assert await session(core, resumed) == 0 and resumed.value == state.value == 6
    assert model.calls == 1
    await close(core)


async def test_a_second_training_keeps_the_checkpoint_of_the_first(tmp_path: Path) -> None:
    async def twice(core: Any) -> list[int]:
        run = run_of(core)
        states = [Counter(), Counter()]
        states[1].value = 5
        for state in states:
            await _train(run, 4, state)
        return [state.value for state in states]

    model = Model()
    core = open_core(tmp_path, model)
    core.segment_seconds = 0.0
    expected = await twice(core)
    await close(core)
    assert len(list((tmp_path / "blobs").iterdir())) == 2
    calls = model.calls
    core = open_core(tmp_path, model)
    assert await twice(core) == expected
    assert model.calls == calls
    await close(core)


@pytest.mark.parametrize("damage", ["change", "remove"])
async def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: str) -> None:
    core = open_core(tmp_path, Model())
    await _train(run_of(core), 3, Counter())
    await close(core)
    blob = next((tmp_path / "blobs").iterdir())
    if damage == "change":
        blob.write_bytes(blob.read_bytes() + b"1")
    else:
        blob.unlink()
    core = open_core(tmp_path, Model())
    with pytest.raises(ReplayDiverged, match="hash" if damage == "change" else "missing"):
        await _train(run_of(core), 3, Counter())
    await close(core)


async def test_a_call_in_flight_is_recorded_though_its_branch_was_abandoned(tmp_path: Path) -> None:
    release, asked = asyncio.Event(), asyncio.Event()

    class Slow(Model):
        async def generate(self, request: Any) -> Any:
            if request.messages[0].content == "slow":
                asked.set()
                await release.wait()
            return await super().generate(request)

    async def branch(run: Any, text: str) -> Any:
        if text == "fail":
            await asked.wait()
            raise ProviderError("no more", fatal=True)
        return await run.generate("task", ask(text))

    model = Slow()
    core = open_core(tmp_path, model)
    with pytest.raises(ProviderError):
        await run_of(core).map(branch, ["slow", "fail"])
    release.set()
    await close(core)
    core = open_core(tmp_path, model)
    assert (await run_of(core).generate("task", ask("slow")))[0].text == "echo: slow"
    assert model.calls == 1
    await close(core)


async def test_generators_differ_by_branch_and_repeat_by_position(tmp_path: Path) -> None:
    async def draw(run: Any, item: int) -> float:
        return float(run.rng.random())

    draws = []
    for folder in ("a", "b"):
        core = open_core(tmp_path / folder, Model())
        draws.append(await run_of(core).map(draw, range(5)))
        await close(core)
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 5


async def test_limits_reach_branches(tmp_path: Path) -> None:
    limits = Budget(calls=9)
    core = open_core(tmp_path, Model(), limits)

    async def see(run: Any, item: int) -> Budget:
        found: Budget = run.limits
        return found

    assert await run_of(core).map(see, [1]) == [limits]
    await close(core)


class Costly(Counter):
    """A number of steps, each of which took a minute."""

    @property
    def seconds(self) -> dict[str, float]:
        return {"update": 60.0 * self.value}


async def test_training_ends_before_its_price_passes_the_limit(tmp_path: Path) -> None:
    core = open_core(tmp_path, Model(), Budget(cost_usd=3.5), held=Budget(cost_usd=0.4))
    core.training_price, state = 60.0, Costly()

    async def body(run: Any, step: int) -> None:
        state.value += 1

    with pytest.raises(BudgetExceeded) as raised:
        await run_of(core).train(10, body, state)
    assert raised.value.limit == "cost"
    assert state.value == 3 and core.budget.spent.cost == pytest.approx(3.0)
    await close(core)


async def test_a_call_that_costs_nothing_is_made_when_training_has_passed_the_limit(tmp_path: Path) -> None:
    core = open_core(tmp_path, Model(), Budget(cost_usd=1.0))
    core.budget.spent.cost = 1.2
    assert (await run_of(core).generate("task", ask("x")))[0].text == "echo: x"
    await close(core)
