"""Wrong values of Python: each is refused in one line, before anything is paid or written."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

import whet
from whet.errors import UsageError
from whet.methods import METHODS, get_method, opro
from whet.task import ModelSpec
from whet.testing import ConstantReward

ROWS = [{"input": f"q{n}", "target": str(n % 2)} for n in range(12)]
PROMPT = "Answer.\n{{input}}"
FEEDBACK = [{"id": "f1", "comment": "Be short.", "instruction": "Be short."}]
BEYOND, HUGE, HALF = 2**70, 10**400, "a\ud800"
CALLS: list[Any] = []


def model(messages: list[whet.Message]) -> str:
    CALLS.append(messages)
    return "1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.md").write_text("Answer.\n\n{{input}}\n")
    CALLS.clear()
    return tmp_path


def right(example: dict[str, Any], output: str) -> float:
    return float(output == example["target"])


def optimize(task: Any = PROMPT, **wrong: Any) -> Callable[[], Any]:
    words = {"data": ROWS, "reward": right, "lm": model, "method": "random_search"}
    return lambda: whet.optimize(task, **{**words, **wrong})


def evaluate(**wrong: Any) -> Callable[[], Any]:
    return lambda: whet.evaluate(PROMPT, **{"data": ROWS, "reward": right, "lm": model, **wrong})


def compare(methods: Any, **wrong: Any) -> Callable[[], Any]:
    return lambda: whet.compare(PROMPT, methods, **{"data": ROWS, "reward": right, "lm": model, **wrong})


def learn(prompt: Any = "p.md", feedback: Any = FEEDBACK, **wrong: Any) -> Callable[[], Any]:
    return lambda: whet.learn(prompt, feedback, **wrong)


def made(**words: Any) -> whet.Task:
    return whet.Task.of(PROMPT, **{"data": ROWS, "reward": "exact_match", **words})


def model_of(**settings: Any) -> dict[str, Any]:
    return {"address": model, **settings}


def budget(**limits: Any) -> Callable[[], Any]:
    return optimize(budget=whet.Budget(**limits))


def ranged(low: Any, high: Any) -> Callable[[], Any]:
    return optimize(reward={"program": {"function": right, "low": low, "high": high}})


def of_frame() -> Any:
    frame = pandas.DataFrame([["q", "x", "1"]] * 12, columns=["input", "note", "note"])
    return whet.Task.of(PROMPT, data=frame, reward="exact_match")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "calls beyond 64 bits": (budget(calls=BEYOND), "budget.calls must be above 0, a whole number below 2^63"),
    "calls without end": (budget(calls=HUGE), "budget.calls must be"),
    "calls a fraction": (budget(calls=60.5), "60.5"),
    "calls a text": (budget(calls="60"), "'60'"),
    "calls True": (budget(calls=True), "True"),
    "seconds without end": (budget(seconds=HUGE), "budget.seconds must be above 0 and finite"),
    "seed beyond 64 bits": (optimize(seed=BEYOND), "seed must be a whole number"),
    "seed True": (optimize(seed=True), "this is True"),
    "setting beyond 64 bits": (optimize(settings={"n": BEYOND}), "n must be below 2^63"),
    "setting without end": (optimize(settings={"n": HUGE}), "n must be below 2^63"),
    "settings a list": (optimize(settings=[("n", 2)]), "settings must be a dict; this is [('n', 2)]"),
    "concurrency a text": (optimize(concurrency="4"), "concurrency must be a whole number"),
    "processes 0": (optimize(processes=0), "processes must be 1 or more"),
    "splits without end": (optimize(splits={"train": HUGE, "validation": 1, "test": 1}), "splits: train"),
    "seed of the splits": (
        optimize(splits={"train": 0.4, "validation": 0.3, "test": 0.3, "seed": BEYOND}),
        "below 2^63",
    ),
    "timeout without end": (optimize(lm=model_of(timeout=HUGE)), "timeout must be a number"),
    "tokens beyond 64 bits": (optimize(lm=model_of(max_tokens=BEYOND)), "below 2^63"),
    "range without end": (ranged(-HUGE, HUGE), "finite numbers"),
    "range of nan": (ranged(math.nan, 1), "finite numbers"),
    "run a number": (optimize(run=5), "run must be a text or a path; this is 5"),
    "run with NUL": (optimize(run="a\0b"), "run must name a file or folder"),
    "run too long": (optimize(run="x" * 300), "too long"),
    "run empty": (optimize(run=""), "run must name a file or folder; this is '': it is empty"),
    "run with half a pair": (optimize(run=HALF), "run must name"),
    "root empty": (optimize(root=""), "root must name"),
    "fork with NUL": (optimize(fork="\0"), "fork must name"),
    "control a number": (optimize(control=5), "control must be a text; this is 5"),
    "progress a number": (optimize(progress=5), "progress must be a whet.Progress"),
    "dry_run a text": (optimize(dry_run="no"), "dry_run must be True or False; this is 'no'"),
    "labels a text": (optimize(labels="01"), "labels must be a list"),
    "labels with a list": (optimize(labels=[[0], "1"]), "a label must be text; this is a list of 1"),
    "name with half a pair": (optimize(name=HALF), "half of a surrogate pair"),
    "description with half a pair": (optimize(description=HALF), "half of a surrogate pair"),
    "data with NUL": (optimize(data="a\0.jsonl"), "cannot be read"),
    "data too long": (optimize(data="x" * 3000 + ".jsonl"), "cannot be read"),
    "reward file with NUL": (optimize(reward="a\0.py"), "a\0.py"),
    "reward file with half a pair": (optimize(reward=f"{HALF}.py"), "half of a surrogate pair"),
    "columns twice": (of_frame, 'the column "note" appears twice'),
    "prompt a number": (optimize(5), "5 is no task"),
    "prompt with half a pair": (optimize("\ud800 {{input}}"), "half of a surrogate pair"),
    "prompt with NUL": (optimize("a\0 {{input}}"), "a NUL character"),
    "prompts empty": (optimize({}), "there is none"),
    "prompts of numbers": (optimize({"a": 5}), "a prompt is a text; this is 5"),
    "prompts without names": (optimize({None: "x"}), "this is None"),
    "parsed a number": (lambda: whet.Prompt.parse(5), "this is 5"),  # type: ignore[arg-type]
    "evaluated prompt a dict": (evaluate(prompt={"a": "x"}), "has different prompts from"),
    "evaluated prompt a number": (evaluate(prompt=5), "prompt must be"),
    "evaluated prompt too long": (evaluate(prompt="x" * 900 + ".md"), "cannot be read"),
    "split a list": (evaluate(split=["test"]), "split must be a text"),
    "split unknown": (evaluate(split="tests"), '"test"'),
    "methods none": (compare([]), "methods must name each method to compare"),
    "methods None": (compare(None), "methods must be a list; this is None"),
    "methods a number": (compare(5), "methods must be a list"),
    "methods a text": (compare("opro"), "methods must be a list; this is 'opro'"),
    "methods twice": (compare(["opro", "random_search", "opro"]), 'it names "opro" twice'),
    "seeds 0": (compare(["random_search"], seeds=0), "seeds must be 1 or more; this is 0"),
    "seeds a text": (compare(["random_search"], seeds="a"), "seeds must be a whole number"),
    "learn None": (learn(None), "prompt must be a text, a path or a whet.Prompt; this is None"),
    "learn a number": (learn(5), "this is 5"),
    "learn with NUL": (learn("a\0.md"), "the prompt must name"),
    "learn from a text": (learn(feedback="p.md"), "p.md: feedback files end in .jsonl"),
    "learn from None": (learn(feedback=[None]), "one is None"),
    "learn a rating": (learn(feedback=[{"comment": "a", "rating": HUGE}]), "rating"),
    "learn by nobody": (
        learn(feedback=[{"comment": "a"}], write=lambda group: 5),
        "write must return a text",
    ),
    "learn nowhere": (learn(out="nodir/x.md"), "there is no folder nodir"),
    "learn into nothing": (learn(out=""), "out must name"),
    "learn into the system": (learn(out="/proc/x.md"), "/proc cannot be written"),
    "learn with 0 calls": (learn(most_calls=0), "most_calls must be 1 or more"),
    "learn with many calls": (learn(most_calls=BEYOND), "64 bits"),
    "load None": (lambda: whet.Task.load(None), "folder must be"),  # type: ignore[arg-type]
    "load with NUL": (lambda: whet.Task.load("a\0b"), "the task folder must name"),
    "of None": (lambda: whet.Task.of(None), "prompt must be"),  # type: ignore[arg-type]
    "save into the system": (lambda: made().save("/proc/z"), "/proc/z cannot be made"),
    "save nowhere": (lambda: made().save(""), "the folder must name"),
    "load too long": (lambda: whet.Task.load("x" * 300), "the task folder must name"),
    "setting a fraction": (optimize(settings={"n": 2.5}), "n must be a whole number; this is 2.5"),
    "setting True": (optimize(settings={"n": True}), "n must be a whole number; this is True"),
    "learn half a pair": (learn("Answer \ud800 {{input}}"), "half of a surrogate pair"),
    "undo of nothing": (learn("", [], undo=True), "Give the path of the file"),
    "report too long": (lambda: whet.report("x" * 300), "the run must name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_value_is_refused_in_one_line(name: str, folder: Path) -> None:
    call, says = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        call()
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not CALLS and [path.name for path in folder.iterdir()] == ["p.md"]


FIELDS: dict[str, tuple[Callable[[], Any], str]] = {
    "a config": (lambda: opro.Config(step=5), 'Config has no field "step". Did you mean "steps"?'),  # type: ignore[call-arg]
    "a model's spec": (
        lambda: ModelSpec(adress="x"),
        'ModelSpec has no field "adress". Did you mean "address"?',
    ),  # type: ignore[call-arg]
    "a task": (lambda: whet.Task(promt="x"), 'Task has no field "promt". Did you mean "prompt"?'),  # type: ignore[call-arg]
    "a reward for tests": (
        lambda: ConstantReward(val=1.0),  # type: ignore[call-arg]
        'ConstantReward has no field "val". Did you mean "value"?',
    ),
    "a completion": (lambda: whet.Completion(txt="x"), 'Completion has no field "txt". Did you mean "text"?'),  # type: ignore[call-arg]
    "no text": (lambda: whet.Completion(), r"missing 1 required positional argument: 'text'"),  # type: ignore[call-arg]
    "max_calls": (lambda: whet.Budget(max_calls=5), 'Budget has no field "max_calls". Did you mean "calls"?'),  # type: ignore[call-arg]
    "max_cost": (lambda: whet.Budget(max_cost=5), 'Did you mean "cost_usd"?'),  # type: ignore[call-arg]
    "max_judge_calls": (lambda: whet.Budget(max_judge_calls=5), 'Did you mean "judge_calls"?'),  # type: ignore[call-arg]
    "message": (
        lambda: whet.Message(rol="user", content=""),
        'Message has no field "rol". Did you mean "role"?',
    ),  # type: ignore[call-arg]
    "reward": (lambda: whet.Reward(values=1.0), 'Did you mean "value"?'),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", FIELDS)
def test_an_unknown_field_of_a_public_value_is_a_type_error_with_the_nearest_one(name: str) -> None:
    call, says = FIELDS[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert says in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_setting_of_any_method_is_told_by_its_name(method: str) -> None:
    with pytest.raises(TypeError, match='Config has no field "finalist"'):
        get_method(method).config(finalist=1)


def test_a_missing_field_stays_the_type_error_of_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'content'"):
        whet.Message("user")  # type: ignore[call-arg]


@pytest.mark.parametrize("limit", ["calls", "cost", "max_calls", "max_cost", "max_judge_calls"])
def test_a_limit_beside_the_budget_is_told_where_it_belongs(limit: str) -> None:
    with pytest.raises(UsageError, match=rf'no option "{limit}".*"budget".*whet.Budget\(calls=500\)'):
        optimize(**{limit: 5})()


def test_none_is_as_good_as_left_out() -> None:
    assert whet.evaluate(PROMPT, data=ROWS, reward=right, lm=model, split=None).split == "validation"


OWN = {"best.md": "mine", "report.html": "mine", "result.json": "{}"}


@pytest.mark.parametrize("name", OWN)
def test_files_of_the_caller_in_the_place_of_a_run_stay(name: str, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / name).write_text(OWN[name])
    with pytest.raises(UsageError, match=f"mine/{name} belongs to no run .* would be overwritten"):
        optimize(run="mine")()
    assert [path.name for path in (folder / "mine").iterdir()] == [name] and not CALLS


def test_a_comparison_does_not_go_into_the_folder_of_a_run(folder: Path) -> None:
    evaluate(run="there")()
    CALLS.clear()
    with pytest.raises(UsageError, match="there is the folder of a run"):
        compare(["random_search"], run="there")()
    assert not CALLS


@pytest.mark.parametrize("name", ["rows.jsonl", "reward.py", "prompt.md", "feedback.jsonl"])
def test_a_pipe_is_refused_and_not_waited_for(name: str, folder: Path) -> None:
    os.mkfifo(folder / name)
    calls = {
        "rows.jsonl": optimize(data=name),
        "reward.py": optimize(reward=name),
        "prompt.md": evaluate(prompt=name),
        "feedback.jsonl": learn(feedback=[name]),
    }
    with pytest.raises(UsageError, match=f"{name}.*a pipe or a device"):
        calls[name]()


def test_feedback_with_half_a_pair_is_written_as_the_sign_for_no_character(folder: Path) -> None:
    learn(feedback=[{"id": HALF, "comment": "Be short.", "instruction": "Be short.", "user": HALF}])()
    assert "Be short." in (folder / "p.md").read_text()
    assert "a\ufffd" in (folder / "p.md.ledger.jsonl").read_text()


def test_a_module_that_changes_folder_and_path_changes_them_for_nobody_else(folder: Path) -> None:
    source = "import os, sys\nsys.path.clear()\nos.chdir('/')\ndef reward(example, output): return 1.0\n"
    (folder / "reward.py").write_text(source)
    before = set(sys.path)
    whet.Task.of(PROMPT, data=ROWS, reward="reward.py")
    assert set(sys.path) == before and Path.cwd() == folder


SLOTS = {
    "Answer {{ 1 }} {{input}}": "{{ 1 }}",
    "Answer {{}} {{input}}": "{{}}",
    "Answer {{input": "{{input",
    "Answer {{input} now": "{{input",
    "Answer {input}} now": "{input}}",
}


@pytest.mark.parametrize("prompt", SLOTS)
def test_what_is_nearly_a_slot_is_warned_of_with_the_fields(prompt: str) -> None:
    task = whet.Task.of(prompt, data=ROWS, reward="exact_match")
    assert any(SLOTS[prompt] in warning and "have: input" in warning for warning in task.warnings)


@pytest.mark.parametrize("prompt", ["{{ input }}", "{{7*7}} {{input}}", '{"a": {"b": 1}} {{input}}'])
def test_other_braces_are_ordinary_text(prompt: str) -> None:
    assert whet.Task.of(prompt, data=ROWS, reward="exact_match").warnings == made().warnings


def test_one_line_of_words_is_a_prompt_and_no_path(folder: Path) -> None:
    learned = whet.learn("You are kind.", FEEDBACK)
    assert "You are kind." in learned.prompt.text and "Be short." in learned.prompt.text
    with pytest.raises(UsageError, match=r"there is no file my prompt.md"):
        whet.learn("my prompt.md", FEEDBACK)
