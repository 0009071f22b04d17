"""A limit that ends a search before a new prompt was validated leaves what its training rows say is best."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import whet

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


def test_a_prompt_that_is_no_better_on_training_rows_is_not(tmp_path: Path) -> None:
    done = optimize(tmp_path, "Answer.", cost_usd=0.8)
    assert "Say the word." in done.best.prompt.text
    assert not any("before a new prompt was validated" in warning for warning in done.warnings)


def test_a_search_that_validates_needs_no_such_word(tmp_path: Path) -> None:
    done = optimize(tmp_path, "Answer CAREFULLY.", "protegi", calls=400)
    assert done.improvement.promoted
    assert not any("before a new prompt was validated" in warning for warning in done.warnings)
