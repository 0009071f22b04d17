"""A run spends what its limits allow: never more, the sealed test always whole, and of the rest all but the price of one step and
a few calls that a kill may lose."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whet
from tests.api.world import PROMPT, WORDS, Counted, right, rows
from whet.errors import ProviderError, named_fields
from whet.models.scripted import chance

EXAMPLES = 6


class ByChance(Counted):
    """Right or wrong by chance under every prompt, so that no search ends because a prompt is perfect."""

    def __call__(self, messages: list[whet.Message]) -> str:
        self.calls += 1
        text = "".join(m.content for m in messages)
        label = next(t for word, t in WORDS.items() if word in messages[-1].content)
        return label if chance("answer", text) < 0.5 else "unclear"


def new_text(messages: list[whet.Message], request: Any) -> str:
    return f"<INSTRUCTION>Sort it {request.sample} {chance('text', messages[-1].content)}.</INSTRUCTION>"


def optimize(folder: Path, sizes: tuple[int, int, int], model: Any = None, **more: Any) -> whet.RunResult:
    train, validation, _ = sizes
    every = rows(-(-sum(sizes) // len(WORDS)))
    data = {
        "train": every[:train],
        "validation": every[train : train + validation],
        "test": every[train + validation : sum(sizes)],
    }
    known = {"data": data, "reward": right, "lm": model or ByChance(), "optimizer_lm": new_text}
    return whet.optimize(PROMPT, **{**known, "run": folder / "run", "progress": False, **more})


def reserve(test: int) -> int:
    """Calls that the sealed test of both prompts may take, retries included."""
    return math.ceil(2 * test * 1.1) + 2


METHODS: dict[str, Any] = {
    "random_search": whet.methods.random_search.Config(n=10_000, examples=EXAMPLES, batch=5),
    "opro": whet.methods.opro.Config(steps=1000, samples=3, examples=EXAMPLES),
    "gepa": whet.methods.gepa.Config(),
}


@settings(max_examples=12, deadline=None)
@given(
    method=st.sampled_from(sorted(METHODS)),
    sizes=st.tuples(st.integers(40, 60), st.integers(5, 20), st.integers(6, 12)),
    more=st.integers(40, 200),
)
def test_no_limit_is_passed_and_what_stays_is_less_than_one_step(
    method: str, sizes: tuple[int, int, int], more: int
) -> None:
    model, (_, validation, test) = ByChance(), sizes
    limit = reserve(test) + more
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STATE", f"{folder}/state")  # no example knows what others opened
        result = optimize(
            Path(folder), sizes, model, method=METHODS[method], budget=whet.Budget(task_calls=limit)
        )
    tested = test * (1 if result.best.id == result.baseline.id else 2)
    unspent = limit - reserve(test) - (model.calls - tested)
    assert model.calls <= limit
    assert 0 <= unspent < EXAMPLES + validation + max(3, more // 64)
    assert result.best.test is not None and result.best.test.n == test
    assert result.best.validation is not None and result.best.validation.n == result.baseline.validation.n


@pytest.mark.parametrize("limit", ["calls", "task_calls"])
def test_the_start_is_paid_once_and_nothing_is_kept_to_validate_the_result_again(
    tmp_path: Path, limit: str
) -> None:
    """Two validations of 20 rows were planned for and never made. Beside the test 236 calls are left for the search, of which it
    leaves over three for a kill."""
    model = ByChance()
    result = optimize(tmp_path, (60, 20, 10), model, method="gepa", budget=whet.Budget(**{limit: 260}))
    spent = sum(result.usage.calls.values()) if limit == "calls" else model.calls
    tested = 10 * (1 if result.best.id == result.baseline.id else 2)
    assert 260 - reserve(10) - (spent - tested) <= 2 + 3


def test_a_resumed_search_spends_and_finds_the_same(tmp_path: Path) -> None:
    class Killed(ByChance):
        def __call__(self, messages: list[whet.Message]) -> str:
            if self.calls == 90:
                raise ProviderError("The model is gone.", fatal=True)
            return super().__call__(messages)

    words: dict[str, Any] = {"method": METHODS["opro"], "budget": whet.Budget(task_calls=200)}
    model = Killed()
    model.calls = 1000
    whole = optimize(tmp_path / "whole", (50, 12, 8), model, **words)
    model.calls = 0
    with pytest.raises(ProviderError):
        optimize(tmp_path / "killed", (50, 12, 8), model, **words)
    model.calls += 1
    resumed = optimize(tmp_path / "killed", (50, 12, 8), model, **words)
    assert resumed.best.id == whole.best.id
    assert model.calls - 1 <= 200


@named_fields
@dataclass(frozen=True)
class Unproved:
    """No settings."""


@pytest.fixture
def unproved() -> Iterator[Unproved]:
    """A method that spends all but seven calls and validates nothing."""

    @whet.methods.register(title="Spends")
    async def spends(
        run: whet.Run, env: whet.Environment, policy: object, start: whet.Prompt, config: Unproved
    ) -> whet.Candidate:
        for number in range((run.limits.task_calls or 0) - 7):
            await env.evaluate(run, start.edit(f"Sort it {number}.") or start, env.train[:1])
        return whet.Candidate(start.edit("Sort it well.") or start)

    yield Unproved()
    del whet.methods._REGISTERED["spends"]  # type: ignore[attr-defined]


def test_a_result_that_the_search_did_not_validate_is_validated_as_far_as_the_limit_goes(
    tmp_path: Path, unproved: Unproved
) -> None:
    model = ByChance()
    result = optimize(tmp_path, (50, 12, 8), model, method=unproved, budget=whet.Budget(task_calls=120))
    assert result.best.validation is not None and result.best.validation.n == 7
    assert result.best.test is not None and result.best.test.n == 8
    assert model.calls == 120 - reserve(8) + 16
