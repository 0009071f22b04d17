"""A limit that ends a search before a new prompt was validated leaves what its training rows say is best."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine.unvalidated import PartialRewards
from whet.prompt import Prompt
from whet.types import Rollout

PRICE = {"input": 1.0, "output": 10.0}


def completion(text: str, written: int = 10) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": written}
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}


def answer(messages: Any) -> dict[str, Any]:
    """Right on even numbers; on all, at twenty times the cost, when it is asked for care."""
    text = messages[-1]["content"]
    careful, number = "CAREFULLY" in text, int(text.split()[-1])
    return completion(f"word {number}" if careful or number % 2 == 0 else "no", 200 if careful else 10)


def rewriter(text: str) -> Any:
    numbers = count()

    def rewrite(messages: Any) -> dict[str, Any]:
        wording = f"{text} v{next(numbers)}"
        tags = ("REASON", "INSTRUCTION", "START", "END", "PROMPT")
        return completion("\n".join(f"<{tag}>{wording}</{tag}>" for tag in tags))

    return rewrite


def optimize(root: Path, text: str, method: str = "zopo", **limits: Any) -> Any:
    rows = [{"input": str(i), "target": f"word {i}"} for i in range(120)]
    return whet.optimize(
        "Say the word.\n{{input}}",
        data=rows,
        reward="exact_match",
        lm={"address": answer, "price": PRICE, "max_tokens": 400},
        optimizer_lm={"address": rewriter(text), "price": PRICE, "max_tokens": 400},
        method=method,
        root=root,
        progress=False,
        budget=whet.Budget(**limits),
    )


def test_the_best_prompt_by_training_rows_is_tested(tmp_path: Path) -> None:
    done = optimize(tmp_path, "Answer CAREFULLY.", cost_usd=0.8)
    assert "CAREFULLY" in done.best.prompt.text
    assert done.improvement.promoted and done.ended_by == "the limit of cost"
    assert any("before a new prompt was validated" in warning for warning in done.warnings)


@pytest.mark.parametrize("method", ["pmpo", "ipo", "opro"])
def test_the_best_prompt_by_the_rows_that_it_answered_is_tested(tmp_path: Path, method: str) -> None:
    """No prompt was measured on all its rows, and nothing but the start prompt is on the list of candidates."""
    done = optimize(tmp_path, "Answer CAREFULLY.", method, cost_usd=0.6)
    assert "CAREFULLY" in done.best.prompt.text
    assert done.improvement.promoted and done.ended_by == "the limit of cost"
    assert done.usage.cost_usd is not None and done.usage.cost_usd <= 0.6
    (warning,) = [one for one in done.warnings if "before any new prompt was measured on all its rows" in one]
    assert "gain over the start prompt" in warning


def test_more_rows_with_a_gain_count_for_more_and_a_draw_keeps_the_start() -> None:
    start, lucky, good = (
        Prompt.parse(text) for text in ("Start. {{input}}", "Lucky. {{input}}", "Good. {{input}}")
    )
    own = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0}
    known = PartialRewards.of([Rollout(start.id, row, "", reward) for row, reward in own.items()])
    assert known.best(start.id) is None
    known.add(lucky, Rollout(lucky.id, "c", "", 1.0))
    assert known.best(start.id) is None
    known.add(lucky, Rollout(lucky.id, "a", "", 1.0))
    for row in "abc":
        known.add(good, Rollout(good.id, row, "", 1.0))
    known.add(good, Rollout(good.id, "d", "", 0.0, error="provider: refused"))
    best = known.best(start.id)
    assert best is not None
    assert (best[0], best[1]) == (good, 3)
    assert best[2] == pytest.approx(2 / 3)


def test_a_prompt_that_is_no_better_on_training_rows_is_not(tmp_path: Path) -> None:
    done = optimize(tmp_path, "Answer.", cost_usd=0.8)
    assert "Say the word." in done.best.prompt.text
    assert not any("before a new prompt was validated" in warning for warning in done.warnings)


def test_a_search_that_validates_needs_no_such_word(tmp_path: Path) -> None:
    done = optimize(tmp_path, "Answer CAREFULLY.", "protegi", calls=400)
    assert done.improvement.promoted
    assert not any("before a new prompt was validated" in warning for warning in done.warnings)
