"""The plan of a run: said before anything is paid, alone with --dry-run, and the limit that holds without one."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from tests.cli.test_contract import whet as command
from tests.command_line import whet_here
from tests.crash.world import write_task
from tests.serving import server_thread
from whet.engine.plan_text import plan_lines
from whet.methods import METHODS, get_method
from whet.models.prices import Price
from whet.reporting import progress_display
from whet.task.spec import ModelSpec
from whet.types import Usage

OPRO = whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "ledger.jsonl"


@pytest.fixture(scope="module")
def server(ledger: Path) -> Iterator[str]:
    with server_thread("--function", "tests.crash.answers:answer", "--ledger", str(ledger)) as base_url:
        yield base_url


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "task", "--method", "opro"),
        ("compare", "task", "--methods", "opro,grips"),
        ("evaluate", "task"),
    ],
)
def test_a_dry_run_prints_the_plan_and_neither_pays_nor_writes(
    tmp_path: Path, server: str, ledger: Path, words: tuple[str, ...]
) -> None:
    write_task(tmp_path / "task")
    before = sorted(tmp_path.rglob("*"))
    done = command(tmp_path, *words, "--base-url", server, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    plan = result["runs"][0]["plan"] if words[0] == "compare" else result["plan"]
    assert result["status"] == "planned" and plan["calls"]["task"]["most"] > 0
    assert "plan: " in done.stderr and "task calls" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert not ledger.exists() or not ledger.read_text()


class _Unpriced(Counted):
    simulated = False


def test_without_a_limit_a_default_one_holds_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Counted()
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": model, "optimizer_lm": writer}
    result = whet.optimize(PROMPT, method="opro", settings={"steps": 200}, **words)
    plan = result["plan"]
    assert plan["default_limit"] and plan["limits"] == {"calls": 1055}
    assert model.calls <= 1055 and sum(result.usage.calls.values()) <= 1055
    assert plan["calls"]["task"]["expected"] <= plan["calls"]["task"]["most"] <= 1055
    assert plan["calls"]["optimizer"]["expected"] is None, "how often a method asks depends on what it meets"
    assert result["usage"]["calls"]["optimizer"] <= plan["calls"]["optimizer"]["most"]
    said = plan_lines(plan)
    assert said[0].endswith(f"; at most {plan['calls']['optimizer']['most']:,} optimizer calls")
    assert " tokens if it uses all its calls;" in said[1]
    own = whet.optimize(PROMPT, method=OPRO, budget=whet.Budget(calls=900), dry_run=True, **words)
    assert not own["plan"]["default_limit"] and own["plan"]["limits"] == {"calls": 900}


def test_prices_that_nobody_stated_are_unknown_and_not_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words: dict[str, Any] = {
        "data": rows(),
        "reward": right,
        "optimizer_lm": "none",
        "method": "random_search",
    }
    budget = whet.Budget(calls=300)
    plan = whet.optimize(PROMPT, lm=_Unpriced(), budget=budget, dry_run=True, **words)["plan"]
    assert plan["cost_usd"] == {"expected": None, "most": None} and list(plan["price_unknown"]) == ["task"]
    priced = {"address": _Unpriced(), "price": {"input": 1, "output": 2}}
    plan = whet.optimize(PROMPT, lm=priced, budget=budget, dry_run=True, **words)["plan"]
    assert 0 < plan["cost_usd"]["expected"] < plan["cost_usd"]["most"] and not plan["price_unknown"]
    done = whet.optimize(PROMPT, lm=_Unpriced(), budget=budget, **words)
    assert done["usage"]["price_unknown"] == ["task"]
    assert whet.runs()[0]["price_unknown"] == ["task"]
    report = (done.run / "report.html").read_text("utf-8")
    assert "price unknown" in report and "set prices in task.yaml" in report and "$0.00" not in report


def test_answers_without_a_limit_are_said_where_targets_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit is not derived: a model that thinks first would come to no answer."""
    monkeypatch.chdir(tmp_path)

    def limit_of(data: list[dict[str, Any]], **spec: Any) -> Any:
        lm = {"address": _Unpriced(), **spec}
        words: dict[str, Any] = {"optimizer_lm": "none", "method": "random_search", "dry_run": True}
        return whet.optimize(PROMPT, data=data, reward=right, lm=lm, budget=whet.Budget(calls=300), **words)[
            "plan"
        ]

    plan = limit_of([{**row, "target": "forty-two"} for row in rows()])
    assert plan["output_limit"] == {"longest_target": 9, "enough": 18}
    line = next(line for line in plan_lines(plan) if "answers have no length limit" in line)
    assert "models: {task: {max_tokens: 18}} in task.yaml" in line
    assert limit_of(rows(), max_tokens=50)["output_limit"] is None
    assert limit_of([{**row, "target": "a long answer " * 20} for row in rows()])["output_limit"] is None


def test_no_limit_is_derived_from_targets_where_an_answer_is_a_turn_or_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a tool, or a step of a program, may be longer than what is graded at the end."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(
        'def add(a: float, b: float) -> float:\n    """The sum."""\n    return a + b\n'
    )
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({**row, "target": "42"}) + "\n" for row in rows())
    )
    (tmp_path / "prompt.md").write_text("Help.")
    values = {"name": "t", "data": "rows.jsonl", "reward": "exact_match"}
    tools = {**values, "prompt": "prompt.md", "environment": {"tools": "tools.py", "turns": 3}}
    (tmp_path / "agent.py").write_text("print(42)")
    program = {**values, "prompts": {"p": "prompt.md"}, "program": {"command": ["python", "agent.py"]}}
    words: dict[str, Any] = {"optimizer_lm": "none", "method": "random_search", "dry_run": True}
    for task in (tools, program):
        (tmp_path / "task.yaml").write_text(json.dumps(task))
        plan = whet.optimize(tmp_path, lm=_Unpriced(), budget=whet.Budget(calls=900), **words)["plan"]
        assert plan["output_limit"] is None


def test_too_few_test_rows_for_any_promotion_are_said_before_anything_is_paid(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": rows(4), "reward": right, "optimizer_lm": writer, "method": OPRO}
    model = Counted()
    with pytest.warns(UserWarning, match="Nothing can be promoted.* n < 6"):
        planned = whet.optimize(PROMPT, lm=model, dry_run=True, root=tmp_path, progress=False, **words)
    promotion = planned["plan"]["promotion"]
    assert [promotion[name] for name in ("possible", "rows", "needed", "gain")] == [False, 5, 6, None]
    assert not model.calls


class _Tokens(Counted):
    """A priced model that says how many tokens it took."""

    simulated = False

    def __call__(self, messages: list[whet.Message]) -> Any:
        return whet.Completion(super().__call__(messages), usage=Usage(11, 3))


def test_what_is_expected_is_never_more_than_what_is_possible(tmp_path: Path) -> None:
    lm = {"address": _Tokens(), "price": {"input": 100, "output": 100}, "max_tokens": 20}
    words: dict[str, Any] = {
        "data": rows(),
        "reward": right,
        "lm": lm,
        "optimizer_lm": "none",
        "root": tmp_path,
    }
    words |= {"method": "random_search", "dry_run": True}
    for budget in (whet.Budget(cost_usd=3), whet.Budget(tokens=30_000), whet.Budget(calls=700, cost_usd=3)):
        plan = whet.optimize(PROMPT, budget=budget, **words)["plan"]
        for key in ("tokens", "cost_usd"):
            most = plan[key]["most"]
            assert most is None or plan[key]["expected"] <= most, (budget, key)
        assert budget.cost_usd is None or plan["cost_usd"]["expected"] <= plan["cost_usd"]["most"] <= 3


class _Writer(Counted):
    simulated = False

    def __call__(self, messages: list[whet.Message]) -> Any:
        return whet.Completion(writer(messages), usage=Usage(100, 50))


def test_a_limit_that_cannot_pay_the_optimizer_is_said_before_and_named_as_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until its calls are known, a call of the optimizer needs all that it may write: 1,024 tokens at $10 a million."""
    task = {"address": _Tokens(), "price": {"input": 1, "output": 1}, "max_tokens": 20}
    optimizer = {"address": _Writer(), "price": {"input": 0, "output": 10}}
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": task, "optimizer_lm": optimizer}
    words |= {"method": OPRO, "root": tmp_path, "fresh": True}
    poor = whet.optimize(PROMPT, budget=whet.Budget(cost_usd=0.01), **words)
    said = capsys.readouterr().err
    assert (
        "needs $0.0102 free, but --max-cost-usd leaves about $0.00" in said and "if it uses all" not in said
    )
    assert poor["plan"]["cost_usd"]["expected"] < 0.01 and not poor.usage.calls["optimizer"]
    (why,) = [text for text in poor.warnings if "was never called" in text]
    assert "the limit of cost ended the search first" in why and "fell short" not in why
    rich = whet.optimize(PROMPT, budget=whet.Budget(cost_usd=0.1), **words)
    assert (
        "The model may never be called" not in capsys.readouterr().err and rich.usage.calls["optimizer"] > 0
    )


def test_tokens_are_a_rough_bound_until_a_run_has_measured_them(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": _Tokens(), "root": tmp_path}
    rough = whet.evaluate(PROMPT, dry_run=True, **words)["plan"]
    assert not rough["tokens_measured"] and "a rough upper bound" in plan_lines(rough)[1]
    whet.evaluate(PROMPT, **words)
    known = whet.evaluate(PROMPT, split="train", dry_run=True, **words)["plan"]
    assert known["tokens_measured"] and known["tokens"]["expected"] == 14 * known["calls"]["task"]["expected"]
    assert "a rough upper bound" not in plan_lines(known)[1]


def test_fewer_validation_rows_are_said_with_the_reason(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": rows(40), "reward": right, "lm": Counted(), "optimizer_lm": "none"}
    words |= {"method": "random_search", "root": tmp_path}
    done = whet.optimize(PROMPT, budget=whet.Budget(calls=220), **words)
    used = done["plan"]["validation"]
    assert used["rows"] < used["of"] == 48 and used["rows"] == done.best.validation.n
    line, warning = [line for line in plan_lines(done["plan"]) if "validation rows" in line]
    assert "are too few to compare prompts: use at least 20" in warning
    assert f"on {used['rows']} of the 48 validation rows" in line and "the limits pay for no more" in line
    assert f"{used['rows']} of 48 validation rows" in (done.run / "report.html").read_text("utf-8")
    assert all(point.n == used["rows"] for point in done.history)


@pytest.mark.parametrize("limit", [{"tokens": 14 * 200}, {"cost_usd": 14e-6 * 200}])
def test_what_earlier_runs_measured_cuts_validation_in_the_plan(
    tmp_path: Path, limit: dict[str, float]
) -> None:
    """200 calls are payable: the sealed test of 48 rows takes 96, and a validation an eighth of the other 104."""
    lm = {"address": _Tokens(), "price": {"input": 1.0, "output": 1.0}}
    words: dict[str, Any] = {"data": rows(40), "reward": right, "lm": lm, "root": tmp_path}
    whet.evaluate(PROMPT, **words)
    words |= {"method": "random_search", "budget": whet.Budget(**limit), "dry_run": True}
    plan = whet.optimize(PROMPT, optimizer_lm="none", **words)["plan"]
    assert plan["validation"] == {"rows": 13, "of": 48, "least": 20}
    assert "are too few to compare prompts" in "\n".join(plan_lines(plan))


def test_reading_a_large_task_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_display, "PLAIN_SECONDS", (0.0, 0.01))
    monkeypatch.setattr(progress_display, "TICK_SECONDS", 0.01)
    said, last = "", time.monotonic() + 240
    with progress_display.display_progress(None, "big"):
        while "reading big" not in said and time.monotonic() < last:
            said += capsys.readouterr().err
    assert "reading big" in said


def test_the_plan_of_an_evaluation_names_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = [row | {"split": "validation"} for row in rows(1)[:1]]
    splits = {"train": rows(3)[4:], "validation": one, "test": rows(9)[20:]}
    plan = whet.evaluate(PROMPT, data=splits, reward=right, lm="scripted/echo", dry_run=True)["plan"]
    assert plan_lines(plan)[0] == "plan: scripted/echo: 1 task call"


def test_the_plan_writes_the_options_of_a_simulator_as_people_do(tmp_path: Path) -> None:
    write_task(tmp_path / "task")
    address = "scripted/labels?cues=positive:très bon,negative:bad"
    plan = whet.evaluate(tmp_path / "task", lm=address, dry_run=True, root=tmp_path)["plan"]
    assert plan_lines(plan)[0].startswith(f"plan: {address}: ")
    with pytest.raises(whet.UsageError, match=r"scripted/labels.tip=très bon: unknown option"):
        whet.evaluate(tmp_path / "task", lm="scripted/labels?tip=très bon", dry_run=True, root=tmp_path)


def test_a_price_that_is_another_models_is_said_once(
    tmp_path: Path, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path / "task")
    task = whet.Task.load(tmp_path / "task")
    price = {"task": ModelSpec(address="openai/big", price=Price(1.0, 2.0))}
    task = dataclasses.replace(task, models={**task.models, **price})
    words: dict[str, Any] = {
        "lm": "openai/small",
        "base_url": server,
        "root": tmp_path / "runs",
        "dry_run": True,
    }
    whet.optimize(task, method="opro", control="random_search", **words)
    whet.evaluate(task, **words, run=tmp_path / "one")
    said = "The price in the task is that of openai/big; costs of openai/small are counted with it."
    assert caplog.messages == [said, said], "once for each of the two commands"
    own = {"address": "openai/small", "price": {"input": 3, "output": 4}}
    whet.evaluate(task, **{**words, "lm": own})
    assert len(caplog.messages) == 2, "a price of its own is right"


def test_a_search_without_a_limit_says_its_steps_and_no_tokens_where_none_are_counted(tmp_path: Path) -> None:
    planned = whet.optimize(
        "examples/python-docs",
        method="bdpl",
        dry_run=True,
        root=tmp_path,
        settings={"steps": 3},
        progress=False,
    )
    lines = "\n".join(plan_lines(planned["plan"]))
    assert "the search takes 3 steps of 16 prompts, each scored on" in lines and "--max-task-calls" in lines
    assert "tokens" not in lines
    bounded = whet.optimize(
        "examples/python-docs",
        method="bdpl",
        dry_run=True,
        root=tmp_path,
        budget=whet.Budget(task_calls=9000),
        progress=False,
    )
    assert "search" not in bounded["plan"]


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (whet.methods.apohf.Config(pool=3, per_call=1, ask=lambda input, a, b: "a"), 6),
        (whet.methods.zopo.Config(pool=30, per_call=10, queries=2), 4),
        (whet.methods.pdo.Config(pool=4, duels=20, every=10), 88),
    ],
)
def test_a_pool_bounds_the_calls_of_the_optimizer(tmp_path: Path, config: Any, most: int) -> None:
    """Each question is asked twice at most: pdo writes 3 and 1 prompts, and asks twice in each of 20 duels."""
    plan = whet.optimize(
        PROMPT,
        data=rows(60),
        reward="exact_match",
        lm=lambda messages: "yes",
        optimizer_lm=lambda messages: "<PROMPT>Answer.</PROMPT>",
        method=config,
        budget=whet.Budget(calls=2000),
        dry_run=True,
        root=tmp_path,
        progress=False,
    )["plan"]
    assert plan["calls"]["optimizer"]["most"] == most


def test_only_methods_that_sample_prompts_in_each_step_say_how_many() -> None:
    """`k` of simba and mipro counts demonstrations."""
    configs = {name: get_method(name).config() for name in METHODS}
    said = {
        name: config.prompts_per_step
        for name, config in configs.items()
        if hasattr(config, "prompts_per_step")
    }
    assert said == {"bdpl": 16, "rlprompt": 16}


def test_a_plan_of_one_of_each_says_so_in_the_singular() -> None:
    one = {"expected": 1, "most": 1}
    plan: dict[str, Any] = {
        "runs": 1, "methods": ["opro"], "models": {"task": "m"}, "calls": {"task": one}, "all_calls": 1, "price_unknown": {},
        "default_limit": True, "limits": {"calls": 1}, "output_limit": {"longest_target": 1, "enough": 32},
        "promotion": {"possible": False, "rows": 1, "needed": 6, "opening": 1, "alpha": 0.04},
    }  # fmt: skip
    search = {"steps": 1, "prompts": 1, "rows": 1, "calls": 1}
    lines = [
        *plan_lines(plan),
        *plan_lines({**plan, "runs": 0, "search": search}),
        *plan_lines({"added": {"rows": 1}, **plan}),
    ]
    for noun in (
        "run",
        "call",
        "byte",
        "independent test row",
        "step",
        "prompt",
        "training row",
        "task call",
        "added row",
    ):
        assert any(f"1 {noun}" in line for line in lines), noun
        assert not any(f"1 {noun}s" in line for line in lines), noun


def test_a_policy_that_nobody_named_is_said_to_be_the_default(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    def said(**more: Any) -> str:
        planned = whet.optimize(
            PROMPT, data=rows(), reward=right, lm=Counted(), method="prewrite", dry_run=True, root=tmp_path, **more
        )  # fmt: skip
        return plan_lines(planned.plan)[0]

    assert "policy embedded/tiny, the default:" in said()
    assert "policy embedded/tiny:" in said(policy="embedded/tiny")


@pytest.mark.parametrize("words", [("optimize", "task", "--method", "opro"), ("evaluate", "task")])
def test_a_dry_run_without_a_key_plans_and_says_what_a_run_lacks(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    write_task(tmp_path / "task")
    done = whet_here(tmp_path, *words, "--lm", "openai/gpt-4o-mini", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "task calls" in done.stderr and done.stderr.count("Set OPENAI_API_KEY") == 1
    assert "a run cannot begin yet: openai/gpt-4o-mini at api.openai.com needs a key" in done.stderr
    assert "--base-url" in done.stderr and "\\x00" not in done.stderr and "U+0000" not in done.stderr
    assert whet_here(tmp_path, *words, "--lm", "openai/gpt-4o-mini").returncode == 2


def test_the_plan_says_that_nobody_named_the_model() -> None:
    data = [{"input": f"row {i}", "target": "ab"[i % 2]} for i in range(60)]
    task: dict[str, Any] = {"data": data, "reward": "exact_match", "labels": ["a", "b"], "dry_run": True}
    line = "plan: no --lm is given, so embedded/encoder, a small model in this process, answers; name your model with --lm"
    assert line in plan_lines(whet.optimize("Which? {{input}}", **task)["plan"])
    assert line not in plan_lines(whet.optimize("Which? {{input}}", lm="embedded/encoder", **task)["plan"])


def least_limit(words: dict[str, Any]) -> int:
    """The smallest limit on calls that is not refused."""
    with pytest.raises(whet.UsageError, match="Give at least ") as refused:
        whet.optimize(PROMPT, budget=whet.Budget(calls=5), **words)
    return int(str(refused.value).partition("Give at least ")[2].partition(".")[0])


def words_of(method: str, folder: Path, **settings: Any) -> dict[str, Any]:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": writer}
    return words | {"method": method, "settings": settings, "root": folder, "fresh": True}


@pytest.mark.parametrize(
    ("method", "settings"), [("opro", {"steps": 20}), ("capo", {}), ("gepa", {}), ("prompt_learning", {})]
)
def test_the_smallest_limit_pays_for_a_round(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Before, two validations were kept from the search that it never made, and such a run searched nothing."""
    words = words_of(method, tmp_path, **settings)
    made = whet.optimize(PROMPT, budget=whet.Budget(calls=least_limit(words)), **words)
    assert "first_round" not in made["plan"]
    if method in ("opro", "capo"):  # the others ask about answers that were wrong, if there are any
        assert made.usage.calls["optimizer"] > 0


@pytest.mark.parametrize("method", ["protegi", "spo", "mo_capo"])
def test_a_limit_that_pays_for_no_round_is_said_with_one_that_does(method: str, tmp_path: Path) -> None:
    """Before, such a run took all its calls for two tests of the start prompt, and said that no rollout fell short."""
    words = words_of(method, tmp_path)
    least = least_limit(words)
    poor = whet.optimize(PROMPT, budget=whet.Budget(calls=least), **words)
    enough = poor["plan"]["first_round"]
    assert f"--max-calls {least} pays for no round of the search" in "\n".join(plan_lines(poor["plan"]))
    assert not poor.usage.calls["optimizer"] and f"what --max-calls {least} pays for" in poor["ended_by"]
    assert [text for text in poor.warnings if "was never called" in text and "pays for" in text]
    for calls, pays in ((enough - 1, False), (enough, True)):
        made = whet.optimize(PROMPT, budget=whet.Budget(calls=calls), **words)
        assert ("first_round" not in made["plan"]) is pays
        if not pays:
            assert not made.usage.calls["optimizer"]
        elif method == "spo":  # protegi asks about answers that were wrong, if there are any
            assert made.usage.calls["optimizer"] > 0
