"""DSPy modules through whet: better instructions, the verdict, feedback, and a resume after kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet

dspy = pytest.importorskip("dspy", reason="dspy makes the modules (pip install 'whet[dspy]')")

from whet.integrations.dspy import Whet  # noqa: E402

OPTIONS: dict[str, Any] = {"method": "gepa", "budget": whet.Budget(calls=900), "seed": 1}


class TaskEngine:
    """Finds a number when told to look for digits, and says it alone when told to."""

    calls = 0

    def complete(self, request: Any) -> Any:
        self.calls += 1
        system, text = str(request.system), request.messages[-1].text
        number = re.search(r"\d+", text)
        digits = number[0] if number else ""
        if "`clue`" in system.partition("objective")[0] and "[[ ## clue ## ]]" not in text.partition("Respond")[0]:
            return answer(request, clue=f"the digits {digits}" if "DIGITS" in system else "something")
        value = digits if "ONLY" in system else f"It is {digits}." if digits else "I do not know."
        return answer(request, answer=value)


class WriterEngine:
    """Writes what the critiques that it is shown demand."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def complete(self, request: Any) -> Any:
        text = "\n".join(m.text or "" for m in request.messages) + str(request.system or "")
        self.texts.append(text)
        better = "Look for DIGITS." if "look for digits" in text else "Say ONLY the number."
        return reply(request, f"<PROMPT>{better}</PROMPT>")


def answer(request: Any, **fields: str) -> Any:
    return reply(request, "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()))


def reply(request: Any, text: str) -> Any:
    from dspy import lm15

    message, usage = lm15.Message.assistant(text), lm15.Usage(input_tokens=7, output_tokens=3)
    return lm15.Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)


class TwoSteps(dspy.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.search = dspy.Predict(dspy.Signature("question -> clue", "Look at the question."))
        self.reader = dspy.Predict(dspy.Signature("question, clue -> answer", "Answer in words."))

    def forward(self, question: str) -> Any:
        clue = self.search(question=question).clue
        return self.reader(question="?", clue=clue)


def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
    digits = gold.answer in pred.answer
    score = 1.0 if gold.answer == pred.answer else 0.5 if digits else 0.0
    feedback = {"search": "" if digits else "look for digits", "reader": "" if score == 1 else "say the number only"}
    assert pred_name is None or all(step[0].signature.instructions for step in pred_trace)
    return dspy.Prediction(score=score, feedback=feedback.get(pred_name, ""))


def examples(first: int, n: int) -> list[Any]:
    rows = [{"question": f"Which is number {i}?", "answer": str(i)} for i in range(first, first + n)]
    return [dspy.Example(**row).with_inputs("question") for row in rows]


def run(folder: Path, task: Any, writer: Any, **more: Any) -> Any:
    lm, author = dspy.LM("made/task", engine=task), dspy.LM("made/writer", engine=writer)
    with dspy.context(lm=lm):
        optimizer = Whet(metric, optimizer_lm=author, run=folder, **{**OPTIONS, **more})
        return optimizer.compile(TwoSteps(), trainset=examples(100, 60), valset=examples(300, 20))


def test_two_predictors_get_better(tmp_path: Path) -> None:
    task, writer = TaskEngine(), WriterEngine()
    better = run(tmp_path / "run", task, writer)
    result = better.whet_result
    print(result, result["usage"], better.search.signature.instructions, better.reader.signature.instructions)
    assert result.promoted
    assert "DIGITS" in better.search.signature.instructions
    assert "ONLY" in better.reader.signature.instructions
