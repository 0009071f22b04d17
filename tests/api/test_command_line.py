"""The command line is a thin layer: every option is a keyword of the function of that name, and the other way round."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import whet
from whet.cli.main import cli, main
from whet.engine.options import Options
from whet.errors import UsageError, parameter
from whet.task import TaskKeywords

BUDGET = {f"max_{name}": "budget" for name in inspect.signature(whet.Budget).parameters}
RUN = {"out": "run", **BUDGET}
OTHERWISE: dict[str, dict[str, str]] = {
    "optimize": RUN,
    "evaluate": {"out": "run"},
    "compare": RUN,
    "learn": {"max_optimizer_calls": "most_calls"},
    "report": {},
    "runs": {},
}
"""Options whose keyword has another name."""

IN_MEMORY = dict.fromkeys(
    [
        "data",
        "reward",
        "labels",
        "verbalizer",
        "description",
        "splits",
        "tasks",
        "environment",
        "second_opinion",
        "name",
        "group",
        "reward_timeout",
        "program",
        "region",
        "objectives",
        "longest",
    ],
    "a task in memory; a command reads them from task.yaml",
)
ROLES = dict.fromkeys(
    [
        "task_options",
        "optimizer_options",
        "judge_options",
        "optimizer_base_url",
        "judge_base_url",
        "trust_host",
    ],
    "a key of the mapping that lm=, optimizer_lm= or judge_lm= takes; what a program names is trusted",
)
MOVED = dict.fromkeys(["transfer_options", "transfer_base_url"], "a key of the mapping that transfer= takes")
OPTIONS_ONLY: dict[str, dict[str, str]] = {
    "optimize": {"as_json": "prints to_dict()", **ROLES},
    "compare": {"as_json": "prints to_dict()", **ROLES, **MOVED},
    "evaluate": {"as_json": "prints to_dict()", **{k: v for k, v in ROLES.items() if "optimizer" not in k}},
    "report": {"as_json": "prints to_dict()"},
    "runs": {"as_json": "prints to_dict()"},
}
OPTIONS_ONLY["learn"] = {
    "as_json": "prints to_dict()",
    **{name: ROLES[name] for name in ("optimizer_options", "optimizer_base_url", "trust_host")},
    "yes": "confirm=, the answer of a person",
    "watch": "the live learner, which is a service",
}
KEYWORDS_ONLY: dict[str, dict[str, str]] = {
    "optimize": {**IN_MEMORY, "progress": "the live line", "root": "commands write below runs/"},
    "evaluate": {
        **{k: v for k, v in IN_MEMORY.items() if k != "longest"},
        "seed": "decides the seeds of sampled answers only",
        "progress": "the live line",
        "root": "commands write below runs/",
    },
    "compare": {
        **IN_MEMORY,
        "on_run": "the live line",
        "progress": "the live line",
        "root": "commands write below runs/",
    },
    "learn": {
        "confirm": "the terminal is asked",
        "write": "the terminal is asked",
        "progress": "the live line",
        "root": "commands write below runs/",
    },
    "report": {"root": "a run is named by its folder, or by its name below runs/"},
    "runs": {},
}


@pytest.mark.parametrize("command", sorted(OTHERWISE))
def test_options_and_keywords_are_the_same(command: str) -> None:
    options = {str(p.name) for p in cli.commands[command].params}
    keywords = set(inspect.signature(getattr(whet, command)).parameters)
    for name, why in OPTIONS_ONLY[command].items():
        assert name in options and name not in keywords and why, f"{command}: {name}"
    for name, why in KEYWORDS_ONLY[command].items():
        assert name in keywords and name not in options and why, f"{command}: {name}"
    named = {OTHERWISE[command].get(name, name) for name in options - OPTIONS_ONLY[command].keys()}
    assert named == keywords - KEYWORDS_ONLY[command].keys()


@pytest.mark.parametrize("name", ["optimize", "evaluate", "compare", "learn"])
def test_the_twins_have_one_signature_and_one_text(name: str) -> None:
    waits, coroutine = getattr(whet, name), getattr(whet, f"a{name}")
    assert inspect.signature(waits) == inspect.signature(coroutine) and waits.__doc__ == coroutine.__doc__
    assert waits.__name__ == name and inspect.iscoroutinefunction(coroutine)
    annotated = inspect.signature(coroutine).parameters.values()
    assert all(p.annotation is not p.empty for p in annotated)
    documented = inspect.getdoc(whet.aoptimize) or ""
    if name == "optimize":
        assert not [p.name for p in annotated if p.name not in documented]


@pytest.mark.parametrize(
    ("name", "value", "python", "option"),
    [
        ("seed", None, "seed", "--seed"),
        ("lm", "openai/NAME", "lm=openai/NAME", "--lm openai/NAME"),
        ("budget.calls", 3, "budget.calls=3", "--max-calls 3"),
        ("budget.cost_usd", None, "budget.cost_usd", "--max-cost-usd"),
        ("run", None, "run", "--out"),
    ],
)
def test_an_error_names_a_parameter_as_its_reader_writes_it(
    name: str,
    value: object,
    python: str,
    option: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = UsageError(f"{parameter(name, value)} cannot be used.")
    assert str(error) == f"{python} cannot be used."

    def refuse(**options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", refuse)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"whet: {option} cannot be used.\n"


OWN = {
    "aoptimize": {"task", "progress"},
    "aevaluate": {"task", "prompt", "split", "progress"},
    "acompare": {"task", "methods", "seeds", "transfer", "reader", "on_run", "shard", "jobs", "progress"},
}
"""What a function does itself with its arguments."""


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_keyword_is_one_of_the_task_or_of_the_run(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(Options)} | set(TaskKeywords.__annotations__)
    assert set(inspect.signature(getattr(whet, name)).parameters) - fields == OWN[name]


def test_every_keyword_of_a_session_and_of_a_task_is_one_of_the_task_or_of_the_run() -> None:
    fields = {field.name for field in dataclasses.fields(Options)} | set(TaskKeywords.__annotations__)
    assert set(inspect.signature(whet.Session).parameters) - fields == {
        "task",
        "low",
        "high",
        "model",
        "progress",
    }
    assert set(inspect.signature(whet.Task.of).parameters) - fields == {"prompt"}
