"""Adapters of gepa as programs: better components by the feedback on each, the verdict, and a resume after kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import whet

pytest.importorskip("gepa", reason="gepa makes the adapters (pip install gepa)")

from gepa.adapters.default_adapter.default_adapter import DefaultAdapter
from gepa.core.adapter import EvaluationBatch

from whet.integrations.gepa import optimize

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).parents[2]
SEED = {"search": "Look at the question.", "the reader": "Answer in words."}
BETTER = {"search": "Look for DIGITS.", "the reader": "Say ONLY the number."}


class TwoSteps:
    """An adapter of two components. `rows` is what it was asked to evaluate; it would notice a second caller."""

    propose_new_texts = None

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.batches: list[int] = []
        self.version = "1"
        self.busy = threading.Lock()

    def evaluate(self, batch: Any, candidate: Any, capture_traces: bool = False) -> Any:
        assert self.busy.acquire(blocking=False), "gepa evaluates one batch at a time"
        try:
            self.batches.append(len(batch))
            outputs = [self.answer(row, candidate) for row in batch]
            scores = [
                1.0 if o == r["answer"] else 0.5 * (r["answer"] in o)
                for o, r in zip(outputs, batch, strict=True)
            ]
            traces = [{"output": o, "row": r} for o, r in zip(outputs, batch, strict=True)]
            parts = [{"short": float(len(o) < 6)} for o in outputs]
            return EvaluationBatch(outputs, scores, traces if capture_traces else None, parts)
        finally:
            self.busy.release()

    def answer(self, row: Mapping[str, str], candidate: Mapping[str, str]) -> str:
        self.rows.append(row["question"])
        if "DIGITS" not in candidate["search"]:
            return "I do not know."
        return row["answer"] if "ONLY" in candidate["the reader"] else f"It is {row['answer']}."

    def make_reflective_dataset(self, candidate: Any, batch: Any, components: Sequence[str]) -> Any:
        (component,) = components
        (trace,) = batch.trajectories
        if trace["output"] == trace["row"]["answer"]:
            raise RuntimeError("No valid predictions found for any module.")  # as adapters of gepa do
        unknown = trace["row"]["answer"] not in trace["output"]
        text = {
            "search": "look for digits" if unknown else "",
            "the reader": "" if unknown else "say the number only",
        }
        return {component: [{"Inputs": trace["row"]["question"], "Feedback": text[component]}]}


def writer(messages: Any) -> str:
    text = "\n".join(m.content for m in messages)
    return f"<PROMPT>{BETTER['search' if 'look for digits' in text else 'the reader']}</PROMPT>"


def rows(first: int, n: int) -> list[dict[str, str]]:
    return [{"question": f"Which is number {i}?", "answer": str(i)} for i in range(first, first + n)]


def run(folder: Path, adapter: Any, **more: Any) -> Any:
    own = {"optimizer_lm": writer, "budget": whet.Budget(calls=900), "seed": 1, **more}
    return optimize(SEED, rows(100, 60), rows(300, 20), adapter=adapter, run=folder, **own)


def test_two_components_get_better_by_the_feedback_on_each(tmp_path: Path) -> None:
    adapter = TwoSteps()
    better = run(tmp_path / "run", adapter)
    assert better.run.promoted and better.best_candidate == BETTER
    assert (better.run.baseline.test.mean, better.run.best.test.mean) == (0.0, 1.0)
    assert better.run.usage.calls["task"] == len(adapter.rows), "a row under a candidate is a call"
    assert max(adapter.batches) > 1, "rows that wait for the same candidate are one batch"
    again = TwoSteps()
    assert run(tmp_path / "run", again).best_candidate == BETTER and not again.rows


DRIVER = """
import os, signal, sys
from pathlib import Path
from tests.integrations import test_gepa as t

class Deadly(t.TwoSteps):
    def answer(self, row, candidate):
        with open(sys.argv[2], "a") as file:
            file.write("x")
        if os.path.getsize(sys.argv[2]) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().answer(row, candidate)

print(t.run(Path(sys.argv[1]), Deadly(), concurrency=1).best_candidate)
"""


def test_kill_9_and_resume_evaluate_nothing_recorded_again(tmp_path: Path) -> None:
    def drive(name: str, kill_at: int) -> tuple[int, str, int]:
        paid = tmp_path / f"{name}.calls"
        command = [sys.executable, "-c", DRIVER, str(tmp_path / name), str(paid), str(kill_at)]
        state = {**os.environ, "WHET_STATE": str(tmp_path / f"state-{name}")}
        done = subprocess.run(command, cwd=ROOT, env=state, capture_output=True, text=True)
        return done.returncode, done.stdout, paid.stat().st_size

    code, printed, calls = drive("whole", 0)
    assert code == 0 and "DIGITS" in printed
    assert drive("killed", calls // 2)[0] == -signal.SIGKILL
    assert drive("killed", 0) == (0, printed, calls + 1)  # the evaluation in flight is made again


def test_the_adapter_that_gepa_ships(tmp_path: Path) -> None:
    def model(messages: Any) -> str:
        number = re.findall(r"\d+", messages[-1]["content"])[0]
        return number if "ONLY" in messages[0]["content"] else "Some number."

    shown: list[str] = []

    def author(messages: Any) -> str:
        shown.append("\n".join(m.content for m in messages))
        return "<PROMPT>Say ONLY the number.</PROMPT>"

    data = [
        {"input": row["question"], "additional_context": {}, "answer": row["answer"]} for row in rows(100, 80)
    ]
    own = {"optimizer_lm": author, "budget": whet.Budget(calls=600), "run": tmp_path / "run"}
    better = optimize({"system_prompt": "Answer."}, data, adapter=DefaultAdapter(model=model), **own)
    assert better.best_candidate == {"system_prompt": "Say ONLY the number."}
    assert any("The generated response is incorrect" in text for text in shown)


def test_another_model_in_the_adapter_is_another_run(tmp_path: Path) -> None:
    class Named(TwoSteps):
        def __init__(self, model: str) -> None:
            super().__init__()
            self.model, self.api_key = model, os.urandom(4).hex()

    run(tmp_path / "run", Named("a"), method="random_search")
    assert run(tmp_path / "run", Named("a"), method="random_search").run.status == "completed"
    with pytest.raises(whet.UsageError, match="another"):
        run(tmp_path / "run", Named("b"), method="random_search")


def test_what_cannot_be_used_is_refused_before_an_evaluation(tmp_path: Path) -> None:
    adapter = TwoSteps()
    with pytest.raises(whet.UsageError, match="no `evaluate`"):
        optimize(SEED, rows(0, 9), adapter=object())
    with pytest.raises(whet.UsageError, match="lm= comes from"):
        run(tmp_path / "run", adapter, lm="openai/x")
    with pytest.raises(whet.UsageError, match="no candidate"):
        optimize({}, rows(0, 9), adapter=adapter)
    assert not adapter.rows and not (tmp_path / "run").exists()


def test_an_adapter_that_breaks_its_contract_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    class Short(TwoSteps):
        def evaluate(self, batch: Any, candidate: Any, capture_traces: bool = False) -> Any:
            return EvaluationBatch([], [], [])

    with pytest.raises(whet.ProviderError, match=r"0 outputs, 0 scores"):
        run(tmp_path / "run", Short())
