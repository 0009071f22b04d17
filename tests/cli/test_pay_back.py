"""`whet advise`: after how many months a run has paid back, and what is decided; every figure worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import whet
from tests.crash.world import write_task
from whet.api.pay_back import (
    Volume,
    decide_next_step,
    describe_pay_back,
    family_cost,
    pay_back_of,
    show_months,
)
from whet.cli.main import cli

TEST = {
    "possible": True,
    "rows": 60,
    "needed": 6,
    "minimum_effect": 0.0,
    "gain": {"none_worse": 0.1, "some_worse": 0.2},
}
REWARD = {"low": 0.0, "high": 1.0, "problem": None}
PRICED = {"price_unknown": {}, "cost_usd": {"expected": 100.0, "most": 400.0}, "method": "gepa"}


def gain(low: float, high: float, estimate: float | None = None) -> Any:
    return {"estimate": estimate, "low": low, "high": high, "basis": "start"}


def pay_back(volume: Volume, size: Any, **changes: Any) -> Any:
    reward: Any = {**REWARD, **changes.get("reward", {})}
    test: Any = {**TEST, **changes.get("test", {})}
    plan: Any = {**PRICED, **changes.get("plan", {})}
    return pay_back_of(volume, reward, test, plan, size)


def task_of(count: int = 60, **words: Any) -> whet.Task:
    data = [{"input": f"row {i}", "target": f"answer number {i}"} for i in range(count)]
    return whet.Task.of("Answer.", data=data, **{"reward": "exact_match", **words})


def test_months_are_the_cost_over_the_value_of_a_month() -> None:
    """10,000 answers at $0.05: a gain of 0.4 is worth $200 a month and pays $100 back in half of one; 0.1, the smallest gain that
    the test can show, $50 and 2 months. $100 in 12 months take 100 / (12 * 500) = 1/60."""
    values = pay_back(Volume(10_000, 0.05), gain(0.0, 0.4))
    assert values["months"] == {"estimate": None, "low": pytest.approx(0.5), "high": None}
    assert values["least_shown"] == {"gain": 0.1, "months": pytest.approx(2.0)}
    assert values["least_gain"] == pytest.approx(1 / 60)
    assert describe_pay_back(values) == (
        "0.5 months at best (a gain of 0.40, the largest gain over the start prompt); 2.0 months at "
        "0.10, the smallest gain that the test can show; a run at about $100.00, 10,000 answers a "
        "month, $0.05 for each additional right answer"
    )


def test_the_interval_of_the_months_is_that_of_the_gain_turned_round() -> None:
    """1,000 answers at $1: 0.05, 0.1 and 0.2 are worth $50, $100 and $200 a month."""
    values = pay_back(Volume(1_000, 1.0), gain(0.05, 0.2, estimate=0.1))
    assert values["months"] == {
        "estimate": pytest.approx(1.0),
        "low": pytest.approx(0.5),
        "high": pytest.approx(2.0),
    }
    assert "1.0 months [0.5 months, 2.0 months] at a gain of 0.10 [0.05, 0.20]" in describe_pay_back(values)
    assert pay_back(Volume(1_000, 1.0), gain(-0.1, 0.2, estimate=0.1))["months"]["high"] is None


def test_a_right_answer_is_the_whole_range_of_the_reward() -> None:
    """From 1 to 5 stars: a gain of 2 is half a right answer; 1,000 answers at $0.1 are worth $50 a month."""
    values = pay_back(Volume(1_000, 0.1), gain(0.0, 2.0), reward={"low": 1.0, "high": 5.0})
    assert values["months"]["low"] == pytest.approx(2.0)


def test_a_price_that_is_not_known_and_calls_that_cost_nothing() -> None:
    unknown = pay_back(Volume(1_000, 0.1), gain(0.0, 0.5), plan={"price_unknown": {"task": "openai/test"}})
    assert unknown["cost_usd"] is None and unknown["months"]["low"] is None and unknown["least_gain"] is None
    assert "unknown" in describe_pay_back(unknown)
    free = pay_back(Volume(1_000, 0.1), gain(0.0, 0.5), plan={"cost_usd": {"expected": None, "most": 0.0}})
    assert free["months"]["low"] == 0.0 and describe_pay_back(free).startswith("immediately")
    assert [show_months(n) for n in (0.02, 9.94, 41.2, None)] == [
        "less than 0.1 months",
        "9.9 months",
        "41 months",
        "never",
    ]


METHODS = [{"name": "prompt_learning", "why": "the default", "when": ""}]


def decision(start: float | None = None, values: Any = None, methods: Any = METHODS, **changes: Any) -> Any:
    reward: Any = {**REWARD, **changes.get("reward", {})}
    test: Any = {**TEST, **changes.get("test", {})}
    plan: Any = {**PRICED, "method": "prompt_learning", **changes.get("plan", {})}
    mean: Any = None if start is None else {"mean": start}
    return decide_next_step(test, reward, mean, plan, methods, values)


@pytest.mark.parametrize(
    ("words", "name", "reason"),
    [
        ({"reward": {"problem": "it fails: KeyError"}}, "mend", "it fails: KeyError"),
        (
            {"test": {"possible": False, "rows": 2}},
            "mend",
            "2 independent test rows cannot promote a prompt; 6 rows can",
        ),
        ({"start": 1.0}, "nothing", "at most 0.00 can be gained"),
        (
            {"start": 0.95},
            "mend",
            "at most 0.05 can be gained over the start prompt, and the test rows can show a gain of 0.10 or more",
        ),
        (
            {"plan": {"first_call": {"limit": "max_tokens", "left": 10, "takes": 400, "bound": 0}}},
            "write",
            "the limit max_tokens leaves 10, but the first call takes 400",
        ),
        ({"methods": []}, "write", "no method fits"),
        ({"start": 0.5}, "learn", "prompt_learning is the default"),
        ({"plan": {"method": "opro"}}, "search", "opro: the task names it"),
        ({"plan": {"method": "prewrite"}}, "train", "prewrite: the task names it"),
        ({"plan": {"method": "bdpl"}}, "train", "bdpl: the task names it"),
        ({"plan": {"method": "reanchor"}}, "search", "reanchor: the task names it"),
    ],
)
def test_each_decision_has_its_reason(words: dict[str, Any], name: str, reason: str) -> None:
    taken = decision(**words)
    assert taken["name"] == name and reason in "; ".join(taken["reasons"])


def test_a_run_that_takes_more_than_a_year_is_not_advised() -> None:
    """100 answers at $0.1 are $10 a month, a gain of 0.5 is worth $5, and $100 take 20 months; with 200 answers 10."""
    slow, quick = (pay_back(Volume(n, 0.1), gain(0.0, 0.5)) for n in (100, 200))
    assert decision(0.5, slow)["name"] == "nothing"
    assert decision(0.5, slow)["reasons"] == [
        "even a gain of 0.50 would repay a run only after 20 months, more than 12"
    ]
    assert decision(0.5, quick)["name"] == "learn"
    assert "a run pays back after 10 months at best" in decision(0.5, quick)["reasons"]


def test_advice_on_a_task_takes_the_cost_of_its_own_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    write_task(folder := tmp_path / "task")
    text = (folder / "task.yaml").read_text()
    priced = "models: {task: {address: openai/test, price: {input: 1, output: 2}, max_tokens: 50}}"
    (folder / "task.yaml").write_text(text.replace("models: {task: openai/test}", priced))
    lines = [json.dumps({"input": f"fresh {n}", "target": f"reply {n}"}) + "\n" for n in range(40)]
    (folder / "test.jsonl").write_text("".join(lines))
    options = ["advise", str(folder), "--answers-per-month", "1000", "--gain-value", "0.5"]
    values = json.loads(CliRunner().invoke(cli, [*options, "--json"]).stdout)
    cost = values["plan"]["cost_usd"]["expected"]
    assert cost > 0 and values["pay_back"]["cost_usd"] == cost
    assert values["pay_back"]["gain"] == {"estimate": None, "low": 0.0, "high": 1.0, "basis": "range"}
    assert values["pay_back"]["months"]["low"] == pytest.approx(cost / 500)
    screen = CliRunner().invoke(cli, options).stdout
    assert (
        "pay-back " in screen
        and "decision: prompt learning, because prompt_learning is the default" in screen
    )
    assert len(screen.splitlines()) <= 30
    rare = CliRunner().invoke(
        cli, ["advise", str(folder), "--answers-per-month", "1", "--gain-value", "0.001"]
    )
    assert (
        "decision: nothing" in rare.stdout
        and "A search will probably not pay: even a gain of 1.00" in rare.stdout
    )


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ({"answers_per_month": 100.0}, "gain_value"),
        ({"gain_value": 0.1}, "answers_per_month"),
        ({"answers_per_month": 0.0, "gain_value": 0.1}, "must be a number above 0"),
        ({"answers_per_month": float("nan"), "gain_value": 0.1}, "must be a number above 0"),
    ],
)
def test_a_volume_without_a_value_is_refused(words: dict[str, Any], part: str) -> None:
    with pytest.raises(whet.UsageError, match=part):
        whet.advise(task_of(), **words)


def test_what_a_start_prompt_leaves_bounds_the_gain_by_its_interval() -> None:
    """9 of 18 right: Wilson's interval is 0.290 to 0.710, so that 0.710 can be gained at most."""

    def half(messages: Any) -> str:
        number = int(messages[-1].content.removeprefix("row "))
        return f"answer number {number}" if number in right else "?"

    half.simulated = True  # type: ignore[attr-defined]
    task = task_of()
    right = {int(str(row.text).removeprefix("row ")) for row in list(task.validation)[:9]}
    advice = whet.advise(task, lm=half, optimizer_lm=half, answers_per_month=10.0, gain_value=1.0)
    assert advice["start"]["mean"] == 0.5 and advice["pay_back"]["gain"]["high"] == pytest.approx(
        0.710, abs=1e-3
    )
    assert advice["pay_back"]["gain"]["basis"] == "start"


def test_what_a_family_takes_is_summed_over_roles_and_bounded_by_the_limit() -> None:
    """800 task calls and an unknown number of the optimizer: 800 expected; 1,000 + 500 are at most 1,200, the limit."""
    plan: Any = {
        **PRICED,
        "calls": {"task": {"expected": 800, "most": 1000}, "optimizer": {"expected": None, "most": 500}},
        "tokens": {"expected": 90_000, "most": 400_000},
        "limits": {"calls": 1200},
    }
    cost = family_cost(plan)
    assert cost["family"] == "search" and cost["calls"] == {"expected": 800, "most": 1200}
    assert cost["summary"] == (
        "gepa 800 calls (at most 1,200), 90,000 tokens (at most 400,000), $100.00 (at most $400.00)"
    )
    open_ended: Any = {**plan, "limits": {}, "price_unknown": {"task": "openai/test"}}
    unlimited = family_cost(open_ended)
    assert unlimited["calls"]["most"] == 1500 and unlimited["cost_usd"] == {"expected": None, "most": None}
    assert "$" not in unlimited["summary"]


def test_the_interval_of_the_cost_is_that_of_what_a_call_of_the_pilot_cost() -> None:
    """800 task calls at $0.10 [0.08, 0.13] are between 16 less and 24 more than the expected $100."""
    plan: Any = {
        **PRICED,
        "calls": {"task": {"expected": 800, "most": 1000}, "optimizer": {"expected": None, "most": 500}},
        "tokens": {"expected": None, "most": None},
        "limits": {},
    }
    paid: Any = {"task": {"mean": 0.10, "low": 0.08, "high": 0.13}}
    cost = family_cost(plan, call_cost=paid)
    assert cost["cost_interval"] == pytest.approx({"mean": 100.0, "low": 84.0, "high": 124.0})
    assert "$100.00 [$84.00, $124.00] (at most $400.00)" in cost["summary"]
    for other in ({}, {"judge": paid["task"]}):
        assert family_cost(plan, call_cost=other)["cost_interval"] is None
    unknown: Any = {**plan, "price_unknown": {"task": "openai/test"}}
    assert family_cost(unknown, call_cost=paid)["cost_interval"] is None


def test_what_training_takes_is_said_and_what_is_not_known_names_the_command() -> None:
    """3 GiB; 30 s a step make 100 steps 50 minutes, at $2 an hour $1.67. Without an earlier run, the run's first step says it."""
    gib = 2**30
    known: Any = {
        "policy": "hf/small",
        "processes": 1,
        "memory": {"weights": gib, "learning": gib // 2, "passes": 3 * gib // 2, "total": 3 * gib},
        "steps": 100,
        "step_seconds": 30.0,
        "measured_in": "runs/t-prewrite-0",
        "gpu_hours": 3000 / 3600,
        "cost_usd": 2 * 3000 / 3600,
        "unknown": {},
    }
    plan: Any = {
        **PRICED,
        "method": "prewrite",
        "calls": {},
        "tokens": {"expected": None, "most": None},
        "limits": {},
        "training": known,
    }
    cost = family_cost(plan, "whet optimize t --method prewrite")
    assert cost["training"] == known and cost["training_summary"] == (
        "prewrite training hf/small: by a formula at most 3 GiB: 1 weights, 0.5 gradients and Adam, 1.5 the largest pass; "
        "50 min of work for 100 steps, $1.67, at the pace of runs/t-prewrite-0"
    )
    reasons = {"memory": "no configuration here", "gpu_hours": "no run"}
    plan["training"] = {**known, "memory": None, "step_seconds": None, "gpu_hours": None, "unknown": reasons}
    said = family_cost(plan, "whet optimize t --method prewrite")["training_summary"]
    assert "memory unknown (no configuration here); hours unknown (no run)" in said
    assert said.endswith("the run says them before its first step: whet optimize t --method prewrite")
    del plan["training"]
    plan["method"] = "rlprompt"
    other = family_cost(plan, "whet optimize t --method rlprompt")
    assert other["training"] is None
    assert other["training_summary"].endswith("whet optimize t --method rlprompt")
    plan["method"] = "gepa"
    assert family_cost(plan)["training_summary"] == ""


def test_each_family_is_planned_by_its_first_method_that_fits() -> None:
    advice = whet.advise(task_of(), lm=lambda messages: "?", answers_per_month=10.0, gain_value=1.0)
    families = advice["families"]
    assert [(one["family"], one["method"]) for one in families][:2] == [
        ("learn", "prompt_learning"),
        ("search", "gepa"),
    ]
    assert families[0]["calls"]["expected"] == sum(
        ends["expected"] or 0 for ends in advice["plan"]["calls"].values()
    )
