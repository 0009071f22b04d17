"""Retries, faults and budgets: what a call costs, what a failure becomes, and that no limit is ever passed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.world import Model, ask, close, open_core, run_of
from whet.engine import calls as calls_module
from whet.engine.cache import decode_completions
from whet.engine.model_client import ROOM, STARVED
from whet.errors import BudgetExceeded, ProviderError
from whet.models.prices import Price
from whet.run import Budget
from whet.types import Completion, Request, Usage


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, float | None]]]:
    """Record what the back-off was asked for, and do not wait."""
    asked: list[tuple[int, float | None]] = []

    def delay(attempt: int, retry_after: float | None, rng: Any) -> float:
        asked.append((attempt, retry_after))
        return 0.0

    monkeypatch.setattr(calls_module, "delay", delay)
    yield asked


def failing(times: int, **error: Any) -> Any:
    def behave(number: int, request: Request) -> str:
        if number <= times:
            raise ProviderError("try later", **error)
        return "fine"

    return behave


async def test_at_every_commit_no_more_calls_are_open_than_there_are_slots(tmp_path: Path) -> None:
    """An answer does not wait for the disk, and is in the file before the intent that takes its slot."""
    opened: list[int] = []

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            found = super().execute(sql, *parameters)
            if sql == "COMMIT":
                opened.append(*super().execute("SELECT count(*) FROM calls WHERE state = 'open'").fetchone())
            return found

    def connect(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Watched)

    core = open_core(tmp_path, Model(), concurrency=4, open_db=connect)
    await run_of(core).map(lambda run, n: run.generate("task", ask(f"row {n}")), range(60))
    await close(core)
    assert 0 < max(opened) <= 4 + 4 // 2
    assert opened[-1] == 0
    assert len(opened) < 2 * 60  # intents and answers share their commits


async def test_a_retryable_failure_is_retried_and_what_was_billed_is_counted(
    tmp_path: Path, no_waiting: list[tuple[int, float | None]]
) -> None:
    model = Model(failing(2, retryable=True, status=200))
    core = open_core(tmp_path, model)
    answer = await run_of(core).generate("task", ask("x"))
    assert answer[0].text == "fine"
    assert no_waiting == [(1, None), (2, None)]
    assert core.budget.spent.calls["task"] == model.calls == 3
    await close(core)


@pytest.mark.parametrize(
    "error",
    [
        {"status": 429, "retry_after": 0.01},
        {"status": 529},
        {"status": 500},
        {"status": None, "refused": True},
    ],
)
async def test_a_call_that_is_turned_away_is_no_call(error: dict[str, Any], tmp_path: Path) -> None:
    model = Model(failing(2, retryable=True, **error))
    core = open_core(tmp_path, model, Budget(calls=1))
    run = run_of(core)
    answer = await run.generate("task", ask("x"))
    assert answer[0].text == "fine" and model.calls == 3
    assert core.budget.spent.calls["task"] == 1 and core.budget.spent.refused["task"] == 2
    with pytest.raises(BudgetExceeded):
        await run.generate("task", ask("y"))
    await close(core)


async def test_a_request_that_alone_is_turned_away_is_given_up_and_limits_count_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.engine.pace.Pace.note_refusal", lambda self, began, overloaded: None)

    def behave(number: int, request: Request) -> str:
        if request.messages[0].content == "large":
            raise ProviderError("too large", retryable=True, status=429)
        return "fine"

    core = open_core(tmp_path, Model(behave), Budget(calls=41), concurrency=1)
    texts = ["large", *(f"q{n}" for n in range(40))]
    found = await run_of(core).map(lambda run, text: run.generate("task", ask(text)), texts)
    assert [c[0].error for c in found] == ["provider: too large", *[None] * 40]
    assert core.budget.spent.calls["task"] == 40 and core.budget.spent.refused["task"] == STARVED + 1
    with pytest.raises(BudgetExceeded, match="limit of 41 calls"):
        await run_of(core).branch("more").generate("task", ask("q40"))
    await close(core)


@pytest.mark.parametrize("retry_after", [7200.0, 0.02])
async def test_an_endpoint_that_turns_every_call_away_ends_the_run_after_the_longest_wait(
    retry_after: float, tmp_path: Path
) -> None:
    model = Model(failing(10**6, retryable=True, status=429, retry_after=retry_after))
    core = open_core(tmp_path, model)
    client = replace(core.caller.client("task"), max_wait=0.3)
    core.caller.clients = {"task": client}
    with pytest.raises(
        ProviderError, match=r"asks to wait .* s at most.*try later\. Everything learned so far is kept"
    ) as caught:
        await run_of(core).generate("task", ask("x"))
    assert caught.value.fatal and core.budget.spent.calls["task"] == 0
    await close(core)


@pytest.mark.parametrize("named", [None, 0.02])
async def test_refusals_that_name_no_long_wait_end_the_run_before_the_longest_wait(
    named: float | None, tmp_path: Path
) -> None:
    model = Model(failing(10**6, retryable=True, status=429, retry_after=named))
    core = open_core(tmp_path, model)
    client = replace(core.caller.client("task"), unnamed_wait=0.2)
    assert client.max_wait == 3600
    core.caller.clients = {"task": client}
    ends = r"has answered nothing for \d+ s; whet waits 0\.2\d* s at most \(.*words: try later.*Run the same command again"
    with pytest.raises(ProviderError, match=ends) as caught:
        await run_of(core).generate("task", ask("x"))
    assert caught.value.fatal and core.budget.spent.calls["task"] == 0
    await close(core)


async def test_a_request_that_fails_for_good_is_data_while_others_succeed(tmp_path: Path) -> None:
    def behave(number: int, request: Request) -> str:
        if request.messages[0].content == "bad":
            raise ProviderError("malformed", retryable=True, status=200)
        return "fine"

    model = Model(behave)
    core = open_core(tmp_path, model)

    async def one(run: Any, text: str) -> Any:
        return (await run.generate("task", ask(text)))[0]

    found = await run_of(core).map(one, ["ok", "bad", "ok2", "ok3"])
    assert [c.error is None for c in found] == [True, False, True, True]
    assert found[1].error.startswith("provider: malformed")
    await close(core)
    before = model.calls
    assert before <= 3 + 3, "an answer that cannot be read three times in the same way is not bought again"
    core = open_core(tmp_path, model)
    again = await run_of(core).map(one, ["ok", "bad", "ok2", "ok3"])
    assert [c.text for c in again] == [c.text for c in found]
    assert model.calls == before
    await close(core)


async def test_a_refused_request_is_not_retried_by_a_model_that_answers(tmp_path: Path) -> None:
    def behave(number: int, request: Request) -> str:
        if number > 1:
            raise ProviderError("too long", status=400)
        return "fine"

    model = Model(behave)
    core = open_core(tmp_path, model)
    run = run_of(core)
    await run.generate("task", ask("first"))
    answer = await run.generate("task", ask("x"))
    assert answer[0].error == "provider: too long"
    assert model.calls == 2
    await close(core)


@pytest.mark.parametrize("concurrency", [1, 32])
@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_model_that_refuses_every_call_alike_ends_the_run(
    tmp_path: Path, concurrency: int, status: int
) -> None:
    model = Model(failing(10**6, status=status))
    core = open_core(tmp_path, model, concurrency=concurrency)
    run = run_of(core)
    questions = [f"q{n}" for n in range(200)]
    with pytest.raises(
        ProviderError,
        match=r"refused all of \d+ calls; the last error: try later\. Solve this problem.*text of the prompt",
    ):
        await run.map(lambda branch, text: branch.generate("task", ask(text)), questions)
    await close(core)
    assert 6 <= model.calls <= 6 + 3 * concurrency
    core = open_core(tmp_path, Model(lambda number, request: "fine"), concurrency=concurrency)
    answers = await run_of(core).map(lambda branch, text: branch.generate("task", ask(text)), questions)
    assert all(a[0].error is None for a in answers), "no refusal was recorded as an answer"
    await close(core)


async def test_a_refused_body_is_sent_again_once_while_nothing_was_answered(tmp_path: Path) -> None:
    model = Model(failing(5, status=400))
    core = open_core(tmp_path, model, concurrency=1)
    answer = await run_of(core).generate("task", ask("x"))
    assert answer[0].error == "provider: try later" and model.calls == 2
    await close(core)


async def test_bad_rows_before_the_first_answer_are_data(tmp_path: Path) -> None:
    def behave(number: int, request: Request) -> str:
        if request.messages[0].content.startswith("bad"):
            raise ProviderError("too long", status=400)
        return "fine"

    core = open_core(tmp_path, Model(behave), concurrency=4)
    questions = [*(f"bad {n}" for n in range(5)), "good"]
    answers = await run_of(core).map(lambda branch, text: branch.generate("task", ask(text)), questions)
    assert [a[0].error is None for a in answers] == [False] * 5 + [True]
    await close(core)


async def test_a_dead_endpoint_ends_the_run_and_is_asked_again_on_resume(tmp_path: Path) -> None:
    model = Model(failing(6, retryable=True, status=None))
    core = open_core(tmp_path, model)
    with pytest.raises(
        ProviderError, match=r"has not answered 6 attempts in a row; .*try later\. Everything learned"
    ):
        await run_of(core).generate("task", ask("x"))
    await close(core)
    core = open_core(tmp_path, model)
    assert (await run_of(core).generate("task", ask("x")))[0].text == "fine"
    await close(core)


async def test_a_wrong_key_ends_the_run_at_once(tmp_path: Path) -> None:
    model = Model(failing(1, fatal=True, status=401))
    core = open_core(tmp_path, model)
    with pytest.raises(ProviderError):
        await run_of(core).generate("task", ask("x"))
    assert model.calls == 1
    await close(core)


async def test_the_cache_serves_other_runs_and_still_counts_against_their_limit(tmp_path: Path) -> None:
    model, cache = Model(), tmp_path / "cache.sqlite"
    core = open_core(tmp_path / "a", model, cache=cache)
    await run_of(core).map(lambda run, i: run.generate("task", ask(str(i))), range(4))
    await close(core)
    core = open_core(tmp_path / "b", model, Budget(calls=3), cache=cache)
    with pytest.raises(BudgetExceeded):
        await run_of(core).map(lambda run, i: run.generate("task", ask(str(i))), range(4))
    assert model.calls == 4
    assert core.budget.spent.cached["task"] == 3
    await close(core)


@settings(max_examples=30, deadline=None)
@given(
    limit=st.integers(1, 25),
    concurrency=st.integers(1, 12),
    fails=st.sets(st.integers(1, 40)),
    sessions=st.integers(1, 3),
    items=st.integers(1, 30),
)
def test_calls_never_pass_the_limit(
    tmp_path_factory: pytest.TempPathFactory,
    limit: int,
    concurrency: int,
    fails: set[int],
    sessions: int,
    items: int,
) -> None:
    """Over failures, concurrency and restarts, the model's own count stays within the limit."""

    def behave(number: int, request: Request) -> str:
        if number in fails:
            raise ProviderError("later", retryable=True, status=200)
        return "fine"

    async def main() -> None:
        for _ in range(sessions):
            core = open_core(folder, model, Budget(calls=limit), concurrency=concurrency)
            try:
                await run_of(core).map(lambda run, i: run.generate("task", ask(str(i))), range(items))
            except (BudgetExceeded, ProviderError):
                pass
            finally:
                await close(core)

    folder = tmp_path_factory.mktemp("run")
    model = Model(behave)
    asyncio.run(main())
    assert model.calls <= limit


@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(20, 400), concurrency=st.integers(1, 12), items=st.integers(1, 40))
def test_tokens_and_cost_never_pass_the_limit(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, concurrency: int, items: int
) -> None:
    """Worst-case reservations hold: 12 tokens are billed per call, up to 29 are reserved."""

    async def main() -> float:
        core = open_core(
            tmp_path_factory.mktemp("run"),
            model,
            Budget(tokens=tokens, cost_usd=tokens * 2e-6),
            concurrency=concurrency,
            price=Price(1.0, 2.0),
        )
        try:
            await run_of(core).map(lambda run, i: run.generate("task", ask(str(i))), range(items))
        except BudgetExceeded as error:
            assert error.limit in ("tokens", "cost")
        else:
            assert model.calls == items
        finally:
            await close(core)
        return core.budget.spent.cost

    model = Model()
    cost = asyncio.run(main())
    assert 12 * model.calls <= tokens
    assert cost == pytest.approx(model.calls * (7 * 1e-6 + 5 * 2e-6))
    assert cost <= tokens * 2e-6


async def test_an_open_intent_of_a_killed_session_counts_as_spent(tmp_path: Path) -> None:
    core = open_core(tmp_path, Model())
    await run_of(core).generate("task", ask("x"))
    await core.journal.commit([("INSERT INTO calls VALUES (99,'task','d',1,'open',10,10,0.5,NULL)", ())])
    await close(core)
    core = open_core(tmp_path, Model(), Budget(calls=3))
    with pytest.raises(BudgetExceeded):
        await run_of(core).map(lambda run, i: run.generate("task", ask(str(i))), range(2))
    await close(core)


@pytest.mark.parametrize("concurrency", [1, 2, 5])
async def test_after_a_key_is_refused_nothing_that_waits_is_sent(tmp_path: Path, concurrency: int) -> None:
    def refused(number: int, request: Request) -> str:
        raise ProviderError("HTTP 401", fatal=True, status=401)

    model = Model(refused)
    core = open_core(tmp_path, model, concurrency=concurrency)
    run = run_of(core)
    with pytest.raises(ProviderError, match="401"):
        await run.map(lambda branch, text: branch.generate("task", ask(text)), [f"q{n}" for n in range(30)])
    await close(core)
    assert 1 <= model.calls <= concurrency and core.budget.spent.refused["task"] == model.calls


class Thinker(Model):
    """Thinks for `needs` tokens before it says anything."""

    def __init__(self, needs: int, tag: str = "") -> None:
        super().__init__()
        self.needs, self.tag, self.bounds = needs, tag, list[int]()

    async def generate(self, request: Request) -> list[Completion]:
        bound = request.max_tokens or 0
        self.bounds.append(bound)
        if bound < self.needs:
            return [
                Completion(
                    self.tag and f"<{self.tag}>hm",
                    "length",
                    Usage(7, bound),
                    None if self.tag else "model: empty answer",
                )
            ]
        return [Completion("yes", usage=Usage(7, self.needs))]


@pytest.mark.parametrize("tag", ["", "think"])
async def test_a_model_that_thinks_past_its_bound_gets_more_room_and_the_thought_is_paid(
    tag: str, tmp_path: Path
) -> None:
    model = Thinker(5000, tag)
    core = open_core(tmp_path / "run", model)
    client = replace(core.caller.client("task"), writes=True)
    core.caller.clients = {"task": client}
    for text in ("one", "two"):
        request, digest = core.caller.prepare("task", ask(text))
        (completion,) = decode_completions(await core.caller.ask("task", request, digest))
        assert completion.text == "yes" and completion.error is None
    assert model.bounds == [10, 10 + ROOM[0], 10 + ROOM[0]]
    assert core.budget.spent.calls["task"] == 3
    assert core.budget.spent.output_tokens == 10 + 2 * 5000


async def test_room_has_an_end_and_neither_task_models_nor_bounds_of_the_user_get_any(tmp_path: Path) -> None:
    for name, how, bounds in (
        ("endless", {"writes": True}, [10, 10 + ROOM[0], 10 + ROOM[1]]),
        ("task", {}, [10]),
        ("bound", {"writes": True, "bound": 77}, [77]),
    ):
        model = Thinker(10**9)
        core = open_core(tmp_path / name, model)
        core.caller.clients = {"task": replace(core.caller.client("task"), **how)}
        request, digest = core.caller.prepare("task", ask("one"))
        (completion,) = decode_completions(await core.caller.ask("task", request, digest))
        assert model.bounds == bounds and completion.finish == "length"
