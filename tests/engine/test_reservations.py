"""Limits on tokens and dollars: they hold to the last call, and what is reserved is what calls really take."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import warnings
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.observed import KNOWN_AFTER, ObservedUsage, SealedReserve
from whet.errors import UsageError
from whet.types import Usage

PROMPT = "Say which colour the word has."
COLOURS = "red", "green", "blue"


def rows(count: int) -> list[dict[str, str]]:
    return [
        {"input": f"thing number {i} is {COLOURS[i % 3]}", "target": COLOURS[i % 3]} for i in range(count)
    ]


class Thinking:
    """Right on every row whose hash is even, on all of them once it is told to look closely; writes thoughts of many tokens
    beside a short answer, `close` of them where it looks closely. `calls` and `most_at_once` are its own count."""

    simulated = False
    name = "thinking"

    def __init__(
        self, thought: int, differs: int = 0, named: float | None = None, close: int | None = None
    ) -> None:
        self.thought, self.differs, self.named = thought, differs, named
        self.close = thought if close is None else close
        self.calls: list[int] = []
        self.open = self.most_at_once = 0
        self.first: list[int] = []

    async def __call__(self, messages: list[Any]) -> Any:
        self.open += 1
        self.most_at_once = max(self.most_at_once, self.open)
        if len(self.first) < KNOWN_AFTER:
            self.first.append(self.open)
        await asyncio.sleep(0)
        self.open -= 1
        text = " ".join(m.content for m in messages)
        number = hashlib.sha256(messages[-1].content.encode()).digest()
        word = next(colour for colour in COLOURS if messages[-1].content.endswith(colour))
        right = "closely" in text or number[0] % 2 == 0
        written = (self.close if "closely" in text else self.thought) + number[1] % (self.differs + 1)
        self.calls.append(50 + written)
        return whet.Completion(
            word if right else "no idea", usage=Usage(50, written, 0, written - 2, self.named)
        )


class Writer:
    """An optimizer that writes another text each time; `calls` are its own count of tokens."""

    simulated = False
    name = "writer"

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, messages: list[Any]) -> Any:
        self.calls.append(400)
        text = f"<INSTRUCTION>Look closely and say which colour word {len(self.calls)} has.</INSTRUCTION>"
        return whet.Completion(text, usage=Usage(350, 50))


def run(
    tmp_path: Path,
    task: Thinking,
    optimizer: Writer,
    control: str | None = None,
    show: bool = False,
    max_tokens: int = 16,
    examples: int = 4,
    **budget: Any,
) -> whet.RunResult:
    """Without prices where a control is named."""
    price = {} if control else {"price": {"input": 1.0, "output": 10.0}}
    method = whet.methods.opro.Config(steps=400, samples=2, examples=examples, finalists=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return whet.optimize(
            PROMPT,
            data=rows(120),
            reward="exact_match",
            lm={"address": task, "max_tokens": max_tokens, **price},
            optimizer_lm={"address": optimizer, **price},
            method=method,
            control=control,
            budget=whet.Budget(**budget),
            root=tmp_path,
            progress=show,
            concurrency=32,
        )


@pytest.mark.parametrize("differs", [0, 300])
@pytest.mark.parametrize("tokens", [90_000, 250_000])
def test_a_limit_on_tokens_holds_and_is_used(tmp_path: Path, tokens: int, differs: int) -> None:
    task, optimizer = Thinking(500 - differs // 2, differs), Writer()
    done = run(tmp_path, task, optimizer, tokens=tokens)
    billed = sum(task.calls) + sum(optimizer.calls)
    assert billed == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
    assert done["improvement"]["promoted"], done["improvement"]["reason"]
    assert 0.85 * tokens < billed <= tokens, (
        "what validates the best of the last round stays over where it is validated already"
    )
    assert task.first == [1] * KNOWN_AFTER, "the first calls go out one after the other"
    assert task.most_at_once > 1


@pytest.mark.parametrize("named", [None, 0.0])
def test_a_limit_on_dollars_holds_and_is_used(tmp_path: Path, named: float | None) -> None:
    """Also where the provider names a cost of 0, as a router does that bills elsewhere."""
    task, optimizer = Thinking(400, 200, named), Writer()
    done = run(tmp_path, task, optimizer, cost_usd=1.0)
    due = sum(50e-6 + (tokens - 50) * 10e-6 for tokens in task.calls) + len(optimizer.calls) * 850e-6
    assert done["usage"]["cost_usd"] == pytest.approx(due)
    assert 0.9 < due <= 1.0


@pytest.mark.parametrize("budget", [{"tokens": 25_000}, {"cost_usd": 0.2}])
def test_no_limit_is_passed_where_the_prompts_of_the_search_are_answered_at_full_length(
    tmp_path: Path, budget: dict[str, float]
) -> None:
    """The start prompt gets answers of 5 tokens, the written ones the 600 that `max_tokens` allows, 32 at a time."""
    task, optimizer = Thinking(5, close=600), Writer()
    run(tmp_path, task, optimizer, max_tokens=600, examples=40, **budget)
    assert max(task.calls) == 650 and task.most_at_once > 1
    due = sum(50e-6 + (tokens - 50) * 10e-6 for tokens in task.calls) + len(optimizer.calls) * 850e-6
    billed = sum(task.calls) + sum(optimizer.calls)
    ((name, limit),) = budget.items()
    assert (billed if name == "tokens" else due) <= limit


@pytest.mark.parametrize("budget", [{"tokens": 90_000}, {"cost_usd": 0.82}])
def test_tokens_and_dollars_cut_validation_by_the_rule_of_calls_and_warn_where_few_rows_are_left(
    tmp_path: Path, budget: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    """A call takes 500 tokens or 0.00455 dollars, so 180 are payable: 108 beside the 72 of the sealed test. One validation takes
    an eighth of them, as a tenth is fewer than 20 rows. The first run learns what a call takes from its first calls."""
    done = run(tmp_path, Thinking(450), Writer(), show=True, **budget)
    assert done.best.validation.n == done.baseline.validation.n == 13
    assert "13 validation rows are too few to compare prompts: use at least 20" in capsys.readouterr().err


@pytest.mark.parametrize("budget", [{"tokens": 90_000}, {"cost_usd": 0.82}])
def test_rounds_are_planned_under_limits_on_tokens_and_dollars(
    tmp_path: Path, budget: dict[str, float]
) -> None:
    """About 100 calls are payable. The start and a round of two prompts on 40 rows each take more: nothing was validated."""
    done = run(tmp_path, Thinking(450), Writer(), examples=40, **budget)
    assert done["improvement"]["promoted"], done["improvement"]["reason"]
    assert f"rounds that --max-{'tokens' if 'tokens' in budget else 'cost-usd'}" in done["ended_by"]


class Clock(Thinking):
    """A model whose calls take a tenth of a second of a clock of its own."""

    now = 0.0

    async def __call__(self, messages: list[Any]) -> Any:
        self.now += 0.1
        return await super().__call__(messages)

    def monotonic(self) -> float:
        return self.now


def test_rounds_are_planned_under_a_limit_on_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start and a round of two prompts on 40 rows each took the 12 seconds: nothing was validated."""
    task = Clock(20)
    monkeypatch.setattr("whet.engine.budget.time", task)
    done = run(tmp_path, task, Writer(), examples=40, seconds=12.0)
    assert done["improvement"]["promoted"], done["improvement"]["reason"]


@pytest.mark.parametrize("budget", [{"tokens": 20_000}, {"cost_usd": 0.1}])
def test_what_is_too_small_is_refused_with_a_number_that_works(
    tmp_path: Path, budget: dict[str, float]
) -> None:
    task = Thinking(500)
    with pytest.raises(UsageError, match="too small") as refused:
        run(tmp_path, task, Writer(), **budget)
    assert len(task.calls) <= KNOWN_AFTER
    ((name, limit),) = budget.items()
    number = str(refused.value).partition("Give at least ")[2].partition(",")[0]
    least = int(number) if name == "tokens" else float(number)
    done = run(tmp_path, again := Thinking(500), Writer(), **{name: least})
    spent = sum(again.calls) if name == "tokens" else done["usage"]["cost_usd"]
    assert limit < spent <= least
    assert done["best"]["test"]["mean"] is not None


def test_a_limit_below_one_call_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    task = Thinking(500)
    with pytest.raises(UsageError, match="too small"):
        run(tmp_path, task, Writer(), tokens=40)
    assert not task.calls


def test_the_first_answers_tell_what_is_reserved() -> None:
    seen = ObservedUsage()
    assert (seen.read_at_most(400), seen.written_at_most(1024, 1)) == (400, 1024)
    for _ in range(KNOWN_AFTER):
        seen.note(400, 1, Usage(100, 200), 0.0, 0.0)
    assert (seen.read_at_most(400), seen.written_at_most(1024, 2)) == (125, 2 * (250 + 32))
    seen.note(400, 1, Usage(100, 4000), 0.0, 0.0)
    assert seen.written_at_most(1024, 1) == 5000, "a thought beyond the bound is reserved from then on"


def test_dearer_prompts_are_kept_for_while_they_are_asked_and_when_they_are_the_best() -> None:
    seen = ObservedUsage()
    reserve = SealedReserve(10, [(100.0, 0.1)] * 5, (100.0, 0.1), seen)
    same = reserve.tokens
    assert 2000 < same <= 2200
    for _ in range(20):
        seen.note(100, 1, Usage(100, 200), 0.3, 0.0)
    assert 4000 < reserve.tokens <= 4500, "one prompt as before, the other three times as dear"
    reserve.note_best()
    for _ in range(20):
        seen.note(100, 1, Usage(50, 50), 0.1, 0.0)
    assert 4000 < reserve.tokens <= 4500 and reserve.cost == pytest.approx(reserve.tokens / 1000, rel=1e-3)


def test_a_limit_holds_for_a_run_and_its_control_also_where_no_price_is_known(tmp_path: Path) -> None:
    task, optimizer = Thinking(500), Writer()
    done = run(tmp_path, task, optimizer, control="random_search", tokens=200_000)
    billed = sum(task.calls) + sum(optimizer.calls)
    assert billed <= 200_000 and done["usage"]["cost_usd"] is None
    assert billed == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
    assert done["improvement"]["promoted"]


class Sudden(Thinking):
    """Answers of 5 tokens, and from the call `after` on thoughts of 2,000, whatever `max_tokens` says."""

    def __init__(self, after: int) -> None:
        super().__init__(5)
        self.after = after

    async def __call__(self, messages: list[Any]) -> Any:
        if len(self.calls) + self.open >= self.after:
            self.thought = self.close = 2_000
        return await super().__call__(messages)


@pytest.mark.parametrize("after", [8, 60, 150])
@pytest.mark.parametrize("budget", [{"tokens": 60_000}, {"cost_usd": 0.5}])
def test_no_limit_is_passed_by_a_model_that_begins_to_think_beyond_its_bound(
    tmp_path: Path, after: int, budget: dict[str, float]
) -> None:
    """32 at a time may be in flight: 80,340 tokens were billed under a limit of 60,000."""
    task, optimizer = Sudden(after), Writer()
    with contextlib.suppress(UsageError):
        run(tmp_path, task, optimizer, examples=40, **budget)
    assert max(task.calls) == 2_050 and task.most_at_once > 1
    due = sum(50e-6 + (tokens - 50) * 10e-6 for tokens in task.calls) + len(optimizer.calls) * 850e-6
    billed = sum(task.calls) + sum(optimizer.calls)
    ((name, limit),) = budget.items()
    assert (billed if name == "tokens" else due) <= limit
