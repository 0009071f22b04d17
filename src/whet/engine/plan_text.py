"""The plan of a run in sentences: what it will call and spend, the limits that apply, and whether a promotion is possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet._util.workers.sent_files import show_bytes
from whet.engine.budget import describe_cut, warn_of_few_rows
from whet.engine.plan_json import CountRangeJSON, DollarRangeJSON, LookJSON, PlanJSON
from whet.engine.sealed_power import power_lines, promotion_warning
from whet.engine.training_cost import describe_training
from whet.errors import quantity, show_share
from whet.models.scripted import readable_address
from whet.task.spec import MEAN, SPLITS


def plan_lines(plan: PlanJSON) -> list[str]:
    """The plan in sentences for people."""
    each = " in each run" if plan.get("runs") else ""
    calls = "; ".join(_role_calls(role, ends) for role, ends in plan["calls"].items())
    whole = f"; at most {quantity(most, 'call')} in all" if (most := plan.get("all_calls")) else ""
    lines = [f"plan: {_subject(plan)}{calls}{whole}"]
    lines += [f"plan: {text}" for text in (*_case_lines(plan), *_gap_lines(plan))]
    if (search := plan.get("search")) and not plan.get("runs"):
        lines.append(
            f"plan: the search takes {quantity(search['steps'], 'step')} of {quantity(search['prompts'], 'prompt')}, each scored "
            f"on {quantity(search['rows'], 'training row')}: at most about {quantity(search['calls'], 'task call')}, fewer where "
            "prompts repeat; --max-task-calls N sets a limit"
        )
    if "tokens" in plan and plan.get("tokens_counted", True):
        lines.append(f"plan: {_spending(plan)}")
    if unknown := plan["price_unknown"]:
        who = ", ".join(f"{readable_address(address)} ({role})" for role, address in unknown.items())
        lines.append(
            f"plan: price unknown: {who}: set prices in task.yaml (`models`), by --lm-option price.input=USD, or in Python with "
            "the model (`price`)"
        )
    if training := plan.get("training"):
        lines.append(f"plan: {describe_training(training)}")
    if batch := plan.get("batch"):
        lines.append(
            f"plan: {quantity(batch['calls'], 'call')} of baseline and test are sent in batches at "
            f"{show_share(batch['share'])} of the price; each batch may take hours (24 at most), and "
            "calls without an answer are sent again"
        )
    lines += [
        f"plan: {readable_address(address)}: each node of the Ray cluster that lacks its files gets {show_bytes(size)} from this "
        "machine, once"
        for address, size in plan.get("sent", {}).items()
    ]
    if plan.get("default_limit"):
        lines.append(
            f"plan: the default limit of {quantity(int(plan['limits']['calls']), 'call')} holds{each}; "
            "--max-calls N sets another limit"
        )
    if why := plan.get("no_labels"):
        lines.append(f"plan: no labels: {why}; `labels:` in task.yaml, or labels=[...] in Python, names them")
    validation = plan.get("validation")
    if validation and validation["rows"] < validation["of"]:
        lines.append(f"plan: {describe_cut(validation['rows'], validation['of'], each)}")
        warned = warn_of_few_rows(validation["rows"], validation.get("least", 0))
        lines += [f"plan: warning: {line}" for line in warned]
    lines += [*_kept_lines(plan), *_limit_warnings(plan)]
    openings = [
        *power_lines(plan.get("promotion", {}), plan.get("runs", 1)),
        *_look_lines(plan.get("look")),
    ]
    lines += [f"plan: {text}" for text in openings]
    if (warning := promotion_warning(plan)) is not None:
        lines.append(f"plan: warning: {warning}")
    return lines


def _kept_lines(plan: PlanJSON) -> list[str]:
    """The plan's reserves for the control and the ablation, and the margins that its rows cannot show."""
    lines: list[str] = []
    if control := plan.get("control"):
        shares = [f"{n:,} {name.replace('_', ' ')}" for name, n in control["kept"].items() if n is not None]
        lines.append(
            f"plan: control {control['method']}: "
            + (
                f"the limits hold for both runs; reserved for the control: {', '.join(shares)}"
                if shares
                else "a separate run of the same size"
            )
        )
    if "ablation" in plan:
        kept_calls = plan["ablation"]
        kept = (
            f"at most {kept_calls:,} task calls are kept"
            if kept_calls
            else "done if the search leaves enough calls"
        )
        lines.append(f"plan: to measure which region earned the gain: {kept}")
    for name, needed in plan.get("promotion", {}).get("margins", {}).items():
        lines.append(
            f"plan: {quantity(plan['promotion']['rows'], 'independent test row')} cannot show that {name} is within its margin, "
            f"unless it rises: even where it stays the same, that takes {needed:,}. Give more rows, or a wider margin."
        )
    return lines


def _limit_warnings(plan: PlanJSON) -> list[str]:
    """Answers without a limit of length, and limits that pay for no call of the optimizer or no round."""
    lines: list[str] = []
    if limit := plan.get("output_limit"):
        lines.append(
            "plan: answers have no length limit, so a model that does not stop writes until its "
            f"context is full. The longest target has {quantity(limit['longest_target'], 'byte')}: "
            f"models: {{task: {{max_tokens: {limit['enough']}}}}} in task.yaml limits them (set more if "
            "the model reasons before it answers)"
        )
    if first := plan.get("first_call"):
        dollars = first["limit"] == "cost_usd"
        left, takes = (
            f"${first[name]:,.4f}" if dollars else f"{first[name]:,.0f} tokens" for name in ("left", "takes")
        )
        option = "--max-cost-usd" if dollars else "--max-tokens"
        lines.append(
            f"plan: warning: the first call of the optimizer model needs {takes} free, but {option} "
            f"leaves about {left} beside baseline and sealed test. The model may never be called. "
            f"Give more, or limit its replies to less than {first['bound']:,} tokens (`max_tokens` of "
            "models.optimizer in task.yaml)."
        )
    if least := plan.get("first_round"):
        lines.append(
            f"plan: warning: --max-calls {plan['limits']['calls']:.0f} pays for no round of the "
            f"search, so no prompt would be tried. About {least:,} calls pay for one round."
        )
    return lines


def say_default_model(address: str) -> str:
    """Say which model answers if the user names none, and how to name one."""
    return (
        f"no --lm is given, so {address}, a small model in this process, answers; name your model with --lm"
    )


def _case_lines(plan: Mapping[str, Any]) -> list[str]:
    """The cases of a task made of several, with their models and rows, and what a prompt is worth of which each has a mean."""
    cases = plan.get("cases", ())
    if not cases:
        return []
    aim = "the mean over cases" if plan["aggregate"] == MEAN else "the worst case"
    lines = [f"{quantity(len(cases), 'case')}; a prompt is worth {aim}, each counts alike"]
    for case in cases:
        model = "" if case["model"] == case["name"] else f", asked of {readable_address(case['model'])}"
        rows = ", ".join(f"{case[split]:,} {split}" for split in SPLITS)
        lines.append(f"case {case['name']}{model}: {rows} rows")
    return lines


def _gap_lines(plan: Mapping[str, Any]) -> list[str]:
    """Lines about a default that the caller left open, and about keys without which a run cannot begin."""
    named = [say_default_model(address)] if (address := plan.get("default_model")) else []
    return [*named, *(f"a run cannot begin yet: {problem}" for problem in plan.get("missing_keys", ()))]


def _look_lines(look: LookJSON | None) -> list[str]:
    """Say which opening an evaluation will be, and the alpha that it leaves to a later run."""
    if look is None:
        return []
    return [
        "another prompt was already measured on these test rows, so this measurement is opening "
        f"{look['opening']:,} of them; a later run tests at alpha {look['alpha_after']:.2g} instead "
        f"of {look['alpha_without']:.2g}"
    ]


def _subject(plan: Mapping[str, Any]) -> str:
    """The planned runs, by method and model."""
    if added := plan.get("added"):
        rows = quantity(added["rows"], "added row") if added["rows"] else "missing answers to added rows"
        return f"{rows}, answered by both prompts: "
    if "model" in plan:
        return f"{readable_address(plan['model'])}: "
    if study := plan.get("study"):
        rows = quantity(study["rows"], f"{study['split']} row")
        return f"{quantity(study['prompts'], 'prompt')} on {rows}, answered by {readable_address(plan['models']['task'])}: "
    runs = [f"{quantity(plan['runs'], 'run')} together"] if "runs" in plan else []
    models = {role: readable_address(address) for role, address in (plan.get("models") or {}).items()}
    methods = ", ".join(plan.get("methods", ()))
    on = " on ".join(filter(None, (methods, models.pop("task", ""))))
    if plan.get("default_policy"):
        models["policy"] += ", the default"
    parts = [*runs, on, *(f"{role} {address}" for role, address in models.items())]
    return f"{', '.join(filter(None, parts))}: " if any(parts) else ""


def _spending(plan: PlanJSON) -> str:
    """Tokens and dollars, and what their numbers are worth."""
    tokens, known = plan["tokens"], not plan["price_unknown"]
    priced = known and any(plan["cost_usd"].values())
    money = f", {_ends(plan['cost_usd'], dollars=True)}" if priced else ""
    all_used = (
        " if it uses all its calls"
        if "optimizer" in plan["calls"] and tokens["expected"] is not None and "first_call" not in plan
        else ""
    )
    rough = ""
    if tokens["expected"] is not None and not plan.get("tokens_measured", True):
        rough = "; a rough upper bound: until a run has measured tokens, every byte counts as a token"
    if plan.get("tokens_by_characters"):
        rough += "; for a function that reports no tokens, a quarter of the characters counts as tokens"
    return f"{_ends(tokens)} tokens{money}{all_used}{rough}"


def _role_calls(role: str, ends: CountRangeJSON) -> str:
    """Say the number of calls of a role."""
    noun = "call" if ends["most"] == 1 or (ends["most"] is None and ends["expected"] == 1) else "calls"
    return f"{_ends(ends)} {role} {noun}"


def _ends(ends: CountRangeJSON | DollarRangeJSON, dollars: bool = False) -> str:
    """`about X, at most Y` of what is known."""
    expected, most = (
        None if v is None else f"${v:,.4f}" if dollars else f"{v:,}" for v in (ends["expected"], ends["most"])
    )
    if expected is None:
        return "no limit on" if most is None else f"at most {most}"
    if most == expected:
        return expected
    return f"about {expected}" if most is None else f"about {expected}, at most {most}"
