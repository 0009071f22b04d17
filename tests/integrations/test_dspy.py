"""DSPy modules through whet: better instructions, the verdict, feedback, and a resume after kill -9."""

from __future__ import annotations

import asyncio
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
from whet.testing.faults import Faults
from whet.testing.server import serving

dspy = pytest.importorskip("dspy", reason="dspy makes the modules (pip install 'whet[dspy]')")

from whet.integrations.dspy import Whet, _splits, _StudentRows  # noqa: E402

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).parents[2]
OPTIONS: dict[str, Any] = {"method": "gepa", "budget": whet.Budget(calls=900), "seed": 1}


class TaskEngine:
    """Says a number when told to look for digits, and it alone when told to."""

    calls = 0

    def complete(self, request: Any) -> Any:
        self.calls += 1
        return reply(request, answered(str(request.system), request.messages[-1].text))


def answered(system: str, text: str) -> str:
    number = re.search(r"\d+", text)
    digits = number[0] if number else ""
    searching = (
        "`clue`" in system.partition("objective")[0]
        and "[[ ## clue ## ]]" not in text.partition("Respond")[0]
    )
    if searching:
        return fields(clue=f"the digits {digits}" if "DIGITS" in system else "something")
    return fields(answer=digits if "ONLY" in system else f"It is {digits}." if digits else "I do not know.")


class WriterEngine:
    """Writes what the critiques that it is shown demand."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def complete(self, request: Any) -> Any:
        text = "\n".join(m.text or "" for m in request.messages) + str(request.system or "")
        self.texts.append(text)
        better = "Look for DIGITS." if "look for digits" in text else "Say ONLY the number."
        return reply(request, f"<PROMPT>{better}</PROMPT>")


def fields(**values: str) -> str:
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items())


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
    feedback = {
        "search": "" if digits else "look for digits",
        "reader": "" if score == 1 else "say the number only",
    }
    assert pred_name is None or all(step[0].signature.instructions for step in pred_trace)
    return dspy.Prediction(score=score, feedback=feedback.get(pred_name, ""))


def examples(first: int, n: int) -> list[Any]:
    rows = [{"question": f"Which is number {i}?", "answer": str(i)} for i in range(first, first + n)]
    return [dspy.Example(**row).with_inputs("question") for row in rows]


def run(folder: Path, task: Any, writer: Any, student: Any = None, **more: Any) -> Any:
    lm, author = dspy.LM("made/task", engine=task), dspy.LM("made/writer", engine=writer)
    with dspy.context(lm=lm):
        optimizer = Whet(metric, optimizer_lm=author, run=folder, **{**OPTIONS, **more})
        return optimizer.compile(student or TwoSteps(), trainset=examples(100, 60), valset=examples(300, 20))


def instructions(module: Any) -> dict[str, str]:
    return {name: predictor.signature.instructions for name, predictor in module.named_predictors()}


def test_two_predictors_get_better_by_the_feedback_on_each(tmp_path: Path) -> None:
    task, writer, student = TaskEngine(), WriterEngine(), TwoSteps()
    better = run(tmp_path / "run", task, writer, student=student)
    result = better.whet_result
    assert result.promoted and (result.baseline.test.mean, result.best.test.mean) == (0.0, 1.0)
    assert instructions(better) == {"search": "Look for DIGITS.", "reader": "Say ONLY the number."}
    assert instructions(student) == instructions(TwoSteps())
    assert result.usage.calls["task"] == task.calls
    assert result.usage.input_tokens == 7 * (task.calls + len(writer.texts))
    assert any("look for digits" in text for text in writer.texts)
    assert any("say the number only" in text for text in writer.texts)
    with dspy.context(lm=dspy.LM("made/task", engine=task)):
        assert better(question="Which is number 999?").answer == "999"


def test_the_same_call_again_returns_the_result_without_a_call(tmp_path: Path) -> None:
    first = run(tmp_path / "run", TaskEngine(), WriterEngine())
    task = TaskEngine()
    again = run(tmp_path / "run", task, WriterEngine())
    assert task.calls == 0 and instructions(again) == instructions(first)


def test_the_student_comes_back_unchanged_where_nothing_is_promoted(tmp_path: Path) -> None:
    class Useless(WriterEngine):
        def complete(self, request: Any) -> Any:
            return reply(request, "<PROMPT>Be polite.</PROMPT>")

    same = run(tmp_path / "run", TaskEngine(), Useless())
    assert not same.whet_result.promoted
    assert instructions(same) == instructions(TwoSteps())


def test_a_plan_changes_nothing_and_asks_nothing(tmp_path: Path) -> None:
    task = TaskEngine()
    planned = run(tmp_path / "run", task, WriterEngine(), dry_run=True)
    assert planned.whet_result.status == "planned" and task.calls == 0
    assert instructions(planned) == instructions(TwoSteps())


DRIVER = """
import os, signal, sys
from pathlib import Path
from tests.integrations import test_dspy as t

class Deadly(t.TaskEngine):
    def complete(self, request):
        with open(sys.argv[2], "a") as file:
            file.write("x")
        if os.path.getsize(sys.argv[2]) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().complete(request)

better = t.run(Path(sys.argv[1]), Deadly(), t.WriterEngine(), concurrency=1)
print(t.instructions(better))
"""


def test_kill_9_and_resume_pay_nothing_recorded_again(tmp_path: Path) -> None:
    def drive(name: str, kill_at: int) -> tuple[int, str, int]:
        paid = tmp_path / f"{name}.calls"
        command = [sys.executable, "-c", DRIVER, str(tmp_path / name), str(paid), str(kill_at)]
        state = {**os.environ, "WHET_STATE": str(tmp_path / f"state-{name}")}
        done = subprocess.run(command, cwd=ROOT, env=state, capture_output=True, text=True)
        return done.returncode, done.stdout, paid.stat().st_size

    code, printed, calls = drive("whole", 0)
    assert code == 0 and "DIGITS" in printed
    for kill_at in (5, 30, calls - 2):
        assert drive(f"killed-{kill_at}", kill_at)[0] == -signal.SIGKILL
        assert drive(f"killed-{kill_at}", 0) == (0, printed, calls + 1)  # the call in flight is made again


class OneStep(dspy.Module):  # type: ignore[misc]
    """Awaited, and with a reason beside the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = [dspy.ChainOfThought(dspy.Signature("question -> answer", "Answer in words."))]

    async def aforward(self, question: str) -> Any:
        return await self.steps[0].acall(question=question)


class ReasonEngine:
    """Knows the number where it is told to say it alone, or has examples to go by."""

    def complete(self, request: Any) -> Any:
        system, text = str(request.system), request.messages[-1].text
        digits = re.findall(r"number (\d+)", text)[-1]
        value = digits if "ONLY" in system or "Examples:" in system or int(digits) % 3 == 0 else "some number"
        return reply(request, fields(reasoning="It says so.", answer=value))


def exact(gold: Any, pred: Any, trace: Any = None) -> bool:
    return bool(gold.answer == pred.answer)


@pytest.mark.parametrize("method", ["protegi", "bootstrap"])
def test_an_awaited_module_and_a_metric_without_feedback(tmp_path: Path, method: str) -> None:
    lm, writer = dspy.LM("made/task", engine=ReasonEngine()), dspy.LM("made/writer", engine=WriterEngine())
    own = {"lm": lm, "optimizer_lm": writer, "run": tmp_path / "run", "budget": whet.Budget(calls=900)}
    better = Whet(exact, method=method, **own).compile(OneStep(), trainset=examples(100, 90))
    assert better.whet_result.promoted
    (written,) = instructions(better).values()
    assert ("ONLY" if method == "protegi" else "Examples:") in written


def test_what_cannot_be_used_is_refused_before_a_call(tmp_path: Path) -> None:
    student, rows = TwoSteps(), examples(100, 40)
    lm, other = dspy.LM("made/task", engine=TaskEngine()), dspy.LM("made/other", engine=TaskEngine())
    with pytest.raises(whet.UsageError, match="DSPy has no LM"):
        Whet(metric, run=tmp_path / "run").compile(student, trainset=rows)
    with pytest.raises(whet.UsageError, match=r"trainset, example 1: .*with_inputs"):
        Whet(metric, lm=lm, run=tmp_path / "run").compile(student, trainset=[dspy.Example(question="Why?")])
    with pytest.raises(whet.UsageError, match=r'no option "budgets".*budget'):
        Whet(metric, lm=lm, budgets=3).compile(student, trainset=rows)
    with pytest.raises(whet.UsageError, match="reward= comes from"):
        Whet(metric, lm=lm, reward="f1")
    with pytest.raises(whet.UsageError, match="no predictors"):
        Whet(metric, lm=lm).compile(dspy.Module(), trainset=rows)
    student.search.lm = other
    with pytest.raises(whet.UsageError, match="2 different LMs"), dspy.context(lm=lm):
        Whet(metric, run=tmp_path / "run").compile(student, trainset=rows)
    assert not (tmp_path / "run").exists()


def test_an_answer_that_dspy_cannot_read_is_a_failed_rollout(tmp_path: Path) -> None:
    class Mumbling(TaskEngine):
        def complete(self, request: Any) -> Any:
            return (
                reply(request, "hm")
                if "number 11" in request.messages[-1].text
                else super().complete(request)
            )

    better = run(tmp_path / "run", Mumbling(), WriterEngine())
    assert better.whet_result.status == "completed"
    assert 0 < better.whet_result.best.test.mean < 1


def test_a_rate_limit_is_tried_again_and_a_dead_lm_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    from dspy import lm15

    class Limited(TaskEngine):
        def complete(self, request: Any) -> Any:
            if self.calls == 4:
                self.calls += 1
                raise lm15.RateLimitError("slow down", retry_after=0.01)
            return super().complete(request)

    class Dead(TaskEngine):
        def complete(self, request: Any) -> Any:
            raise lm15.AuthError("this key is wrong")

    task = Limited()
    usage = run(tmp_path / "limited", task, WriterEngine()).whet_result.usage
    assert usage.calls["task"] == task.calls  # the attempt that failed is counted
    with pytest.raises(whet.ProviderError, match="this key is wrong"):
        run(tmp_path / "dead", Dead(), WriterEngine())


async def test_one_predictor_on_a_dummy_in_a_running_loop(tmp_path: Path) -> None:
    rows = examples(100, 60)
    lm = dspy.utils.DummyLM({row.question: {"answer": row.answer} for row in rows})
    optimizer = Whet(
        exact, lm=lm, optimizer_lm=lambda messages: "<PROMPT>Be brief.</PROMPT>", method="opro", calls=2
    )
    optimizer.options = {"run": tmp_path / "run", "budget": whet.Budget(calls=300)}
    same = optimizer.compile(dspy.Predict("question -> answer"), trainset=rows)
    assert same.whet_result.baseline.test.mean == 1.0 and not same.whet_result.promoted


def test_each_call_stands_in_the_trace_under_its_predictor(tmp_path: Path) -> None:
    run(tmp_path / "run", TaskEngine(), WriterEngine())
    report = (tmp_path / "run" / "report.html").read_text()
    steps = re.findall(r"<b>([^<]+)</b><small> \(task", report)
    assert steps[:4] == ["search", "reader"] * 2 and {*steps} == {"search", "reader"}


def test_what_was_not_handed_over_is_cut_from_the_training_rows() -> None:
    rows = [example for i in range(100, 140) for example in examples(i, 1) * 2]
    sealed = _splits(_StudentRows(), rows, examples(300, 10), None)
    assert [len(sealed[name]) for name in ("train", "validation", "test")] == [28, 10, 12]
    ids = {name: {row["id"] for row in part} for name, part in sealed.items()}
    assert not ids["train"] & ids["test"]
    more = _splits(_StudentRows(), rows[::-1], None, examples(300, 10))
    assert [len(more[name]) for name in ("train", "test")] == [40, 10] and "validation" not in more
    assert len(_splits(_StudentRows(), rows, None, None)) == 40


async def test_an_endpoint_that_fails_now_and_then(tmp_path: Path) -> None:
    def endpoint(request: Any) -> str:
        return answered(request.messages[0].content, request.messages[-1].content)

    author = dspy.LM("made/writer", engine=WriterEngine())
    async with serving(endpoint, ledger=tmp_path / "ledger", faults=Faults(error_500=0.05)) as server:
        lm = dspy.LM("openai/tiny", api_base=server.base_url, api_key="the-key")
        optimizer = Whet(metric, lm=lm, optimizer_lm=author, run=tmp_path / "run", **OPTIONS)
        rows = {"trainset": examples(100, 60), "valset": examples(300, 20)}
        better = await asyncio.to_thread(optimizer.compile, TwoSteps(), **rows)
        lm.close()
        arrived = [json.loads(line)["status"] for line in (tmp_path / "ledger").read_text().splitlines()]
    assert better.whet_result.promoted
    assert better.whet_result.usage.calls["task"] == len(arrived) > arrived.count(200) > 60
    assert better.whet_result.usage.input_tokens > 50 * len(arrived)
    assert b"the-key" not in b"".join(p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file())
