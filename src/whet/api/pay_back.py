"""The return of a run, from the user's own volume and value, and the decision that follows from it and from the task.

The value of a gain is `answers a month x gain / width of the reward x value of one right answer more`; a run pays back after its
cost over that value, in months. The longer prompt that a search may find costs more with each answer; that is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.engine.comparison_json import (
    AdvisedPlanJSON,
    AdvisedRewardJSON,
    AdvisedStartJSON,
    AdvisedTestJSON,
    CallCostJSON,
    DecisionJSON,
    DecisionName,
    FamilyCostJSON,
    GainIntervalJSON,
    PayBackJSON,
    PilotJSON,
)
from whet.engine.plan_json import CountRangeJSON, DollarRangeJSON
from whet.engine.training_cost import describe_training
from whet.errors import UsageError, parameter, quantity, show_reward
from whet.methods import METHODS

NO_WEIGHTS = "nothing"
"""The beginning of the entry of a method that trains no weights."""
_ENDS: tuple[Literal["low"], Literal["high"]] = ("low", "high")
LONGEST = 12.0
"""Months within which a run must pay back."""
_ACTIONS: dict[DecisionName, str] = {
    "mend": "repair the data or the reward first",
    "write": "write the prompt by hand",
    "learn": "prompt learning",
    "search": "search",
    "train": "train a policy",
    "nothing": "nothing",
}


@dataclass(frozen=True)
class Volume:
    """Answers a month, and the dollars that one right answer more is worth: one whose reward goes from the lowest to the
    highest."""

    answers_per_month: float
    gain_value: float


def volume_of(answers_per_month: float | None, gain_value: float | None) -> Volume | None:
    """The volume of a caller; None where none is stated. Raises UsageError for one without the other, and for a number that is
    not above 0."""
    for name, value in (("answers_per_month", answers_per_month), ("gain_value", gain_value)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{parameter(name, value)} must be a number above 0.")
    if answers_per_month is None and gain_value is None:
        return None
    if answers_per_month is None or gain_value is None:
        raise UsageError(
            f"A pay-back needs both {parameter('answers_per_month')} and {parameter('gain_value')}, "
            "the value of one more right answer in dollars. Give both options or neither."
        )
    return Volume(answers_per_month, gain_value)


def possible_gain(reward: AdvisedRewardJSON, start: AdvisedStartJSON | None) -> GainIntervalJSON:
    """The gain of a prompt, in units of the reward: from none to all that lies above the start prompt, by the lower end of its
    interval; without a mean of it, the whole range of the reward."""
    if start is None or start["low"] is None:
        return {"estimate": None, "low": 0.0, "high": reward["high"] - reward["low"], "basis": "range"}
    return {"estimate": None, "low": 0.0, "high": reward["high"] - start["low"], "basis": "start"}


def pay_back_of(
    volume: Volume,
    reward: AdvisedRewardJSON,
    test: AdvisedTestJSON,
    plan: AdvisedPlanJSON | None,
    gain: GainIntervalJSON,
    most: float | None = None,
) -> PayBackJSON:
    """After how many months a run pays back: at the gain's estimate, at its two ends (the shortest time belongs to the largest
    gain), at the smallest gain that the test shows, and at the largest that there can be (`most`, default: the upper end). None:
    never, or not known because the price is not."""
    width = reward["high"] - reward["low"]
    cost = _cost(plan)

    def months(size: float | None) -> float | None:
        if cost is None or size is None or size <= 0:
            return None
        return cost / (volume.answers_per_month * size / width * volume.gain_value)

    least, most = test["gain"]["none_worse"], gain["high"] if most is None else most
    worth = volume.answers_per_month * volume.gain_value / width
    pay_back: PayBackJSON = {
        "answers_per_month": volume.answers_per_month,
        "gain_value": volume.gain_value,
        "cost_usd": cost,
        "gain": gain,
        "months": {
            "estimate": months(gain["estimate"]),
            "low": months(gain["high"]),
            "high": months(gain["low"]),
        },
        "most": {"gain": most, "months": months(most)},
        "least_shown": None if least is None or least > width else {"gain": least, "months": months(least)},
        "least_gain": None if cost is None else cost / (worth * LONGEST),
        "summary": "",
    }
    return {**pay_back, "summary": describe_pay_back(pay_back)}


def _cost(plan: AdvisedPlanJSON | None) -> float | None:
    """Dollars of a run that uses its calls; None where a price or the number of calls is not known."""
    if plan is None or plan["price_unknown"]:
        return None
    dollars = plan["cost_usd"]
    return dollars["most"] if dollars["expected"] is None else dollars["expected"]


def is_too_slow(pay_back: PayBackJSON | None) -> bool:
    """Whether not even the largest gain pays a run back in time."""
    if pay_back is None or pay_back["cost_usd"] is None:
        return False
    shortest = pay_back["most"]["months"]
    return shortest is None or shortest > LONGEST


def show_months(months: float | None) -> str:
    """A time until a run has paid back.

    >>> show_months(0.02), show_months(1.0), show_months(2.36), show_months(41.2), show_months(None)
    ('less than 0.1 months', '1.0 months', '2.4 months', '41 months', 'never')
    """
    if months is None:
        return "never"
    if months < 0.1:
        return "less than 0.1 months"
    return f"{months:.1f} months" if months < 10 else f"{months:,.0f} months"


def describe_pay_back(pay_back: PayBackJSON) -> str:
    """The pay-back in one line."""
    basis = (
        f"{pay_back['answers_per_month']:,g} answers a month, ${pay_back['gain_value']:,g} for "
        "each additional right answer"
    )
    cost = pay_back["cost_usd"]
    if cost is None:
        return f"unknown, because the cost of a run is unknown ({basis})"
    if cost == 0:
        return f"immediately, because the calls of a run cost nothing ({basis})"
    gain, months, least = pay_back["gain"], pay_back["months"], pay_back["least_shown"]
    parts = []
    if gain["estimate"] is None:
        where = (
            "the whole range of the reward"
            if gain["basis"] == "range"
            else "the largest gain over the start prompt"
        )
        parts.append(
            f"{show_months(months['low'])} at best (a gain of {show_reward(gain['high'], 2)}, {where})"
        )
    else:
        parts.append(
            f"{show_months(months['estimate'])} [{show_months(months['low'])}, {show_months(months['high'])}] at a gain of "
            f"{_show_gain(gain)}"
        )
    if least is not None and least["gain"] <= pay_back["most"]["gain"]:
        parts.append(
            f"{show_months(least['months'])} at {show_reward(least['gain'], 2)}, the smallest gain "
            "that the test can show"
        )
    return f"{'; '.join(parts)}; a run at about ${cost:,.2f}, {basis}"


def family_of(method: str) -> DecisionName:
    """Whether a method learns from critiques as instructions, searches, or trains a policy: weights that a package of an extra
    updates. A search's other figures (clusters, a weight for each label) are not a policy."""
    entry = METHODS[method]
    if entry.extra and not entry.trains.startswith(NO_WEIGHTS):
        return "train"
    return "learn" if method == "prompt_learning" else "search"


def family_cost(
    plan: AdvisedPlanJSON, command: str = "", call_cost: Mapping[str, CallCostJSON] | None = None
) -> FamilyCostJSON:
    """Calls of all roles, tokens and dollars of a run, expected and at most. The expected calls of a role that has none stated
    (how often a model writes depends on what a search meets) are left out of the sum. `command` begins the run, `call_cost` is
    that of a pilot."""
    roles = plan["calls"].values()
    known = [end["expected"] for end in roles if end["expected"] is not None]
    bounds = [end["most"] for end in roles if end["most"] is not None]
    calls: CountRangeJSON = {
        "expected": sum(known) if known else None,
        "most": sum(bounds) if len(bounds) == len(roles) else None,
    }
    limit = plan["limits"].get("calls")
    if limit is not None:
        calls["most"] = int(limit) if calls["most"] is None else min(int(limit), calls["most"])
    dollars: DollarRangeJSON = {"expected": None, "most": None} if plan["price_unknown"] else plan["cost_usd"]
    interval = _cost_interval(plan, dollars["expected"], call_cost or {})
    parts = [_show_range(calls, "calls"), _show_range(plan["tokens"], "tokens")]
    if dollars["expected"] is not None:
        most = "" if dollars["most"] is None else f" (at most ${dollars['most']:,.2f})"
        ends = "" if interval is None else f" [${interval['low']:,.2f}, ${interval['high']:,.2f}]"
        parts.append(f"${dollars['expected']:,.2f}{ends}{most}")
    summary = f"{plan['method']} {', '.join(filter(None, parts))}"
    return {
        "family": family_of(plan["method"]),
        "method": plan["method"],
        "calls": calls,
        "tokens": plan["tokens"],
        "cost_usd": dollars,
        "cost_interval": interval,
        "training": plan.get("training"),
        "training_summary": _describe_training(plan, command),
        "summary": summary,
    }


def _cost_interval(
    plan: AdvisedPlanJSON, expected: float | None, call_cost: Mapping[str, CallCostJSON]
) -> CallCostJSON | None:
    """The interval of the expected dollars by what the calls of a pilot cost; other roles are taken as expected. None where the
    pilot paid for no role of the run."""
    measured = [
        (calls, call_cost[role])
        for role, ends in plan["calls"].items()
        if role in call_cost and (calls := ends["expected"])
    ]
    if expected is None or not measured:
        return None
    below, above = (sum(calls * abs(cost[end] - cost["mean"]) for calls, cost in measured) for end in _ENDS)
    return {"mean": expected, "low": max(0.0, expected - below), "high": expected + above}


def _describe_training(plan: AdvisedPlanJSON, command: str) -> str:
    """The resources of the training; empty for a family that trains nothing."""
    if family_of(plan["method"]) != "train":
        return ""
    if (training := plan.get("training")) is not None:
        return f"{plan['method']} {describe_training(training, command)}"
    return (
        f"{plan['method']} training: memory and hours unknown (no formula for what this method trains); the run says its time "
        f"after its first step: {command}"
    )


def _show_range(ends: CountRangeJSON, noun: str) -> str:
    if ends["expected"] is None:
        return "" if ends["most"] is None else f"at most {ends['most']:,} {noun}"
    most = "" if ends["most"] is None else f" (at most {ends['most']:,})"
    return f"{ends['expected']:,} {noun}{most}"


def decide_next_step(
    test: AdvisedTestJSON,
    reward: AdvisedRewardJSON,
    start: AdvisedStartJSON | None,
    plan: AdvisedPlanJSON | None,
    methods: Sequence[dict[str, str]],
    pay_back: PayBackJSON | None,
    pilot: PilotJSON | None = None,
) -> DecisionJSON:
    """The recommendation with its reasons: the first that applies of mend, nothing, write by hand, and the family of the chosen
    method. A prompt of the pilot that is surely better on fresh rows, and leaves less than the test shows, is to be taken by
    hand."""
    if reward["problem"] is not None:
        return _decision("mend", [f"the reward cannot guide a search: {reward['problem']}"])
    if not test["possible"]:
        rows = quantity(test["rows"], "independent test row")
        return _decision("mend", [f"{rows} cannot promote a prompt; {test['needed']} rows can"])
    mean = None if start is None else start["mean"]
    room = None if mean is None else reward["high"] - mean
    if room is not None and room <= test["minimum_effect"]:
        return _decision("nothing", [(f"at most {show_reward(room, 2)} can be gained over the start prompt")])
    if pay_back is not None and is_too_slow(pay_back):
        return _decision("nothing", [say_too_slow(pay_back)])
    least = test["gain"]["none_worse"]
    if pilot is not None and (better := _say_better(pilot)):
        left = reward["high"] - pilot["best_mean"]
        if least is not None and left < least:
            return _decision(
                "write", [better, f"that leaves {show_reward(left, 2)}, less than the test rows can show"]
            )
    if room is not None and least is not None and room < least:
        reasons = [
            (
                f"at most {show_reward(room, 2)} can be gained over the start prompt, and the test rows "
                f"can show a gain of {show_reward(least, 2)} or more"
            )
        ]
        return _decision("mend", reasons)
    if plan is not None and "first_call" in plan:
        first = plan["first_call"]
        limit = (
            f"the limit {first['limit']} leaves {first['left']:g}, but the first call takes "
            f"{first['takes']:g}"
        )
        return _decision("write", [limit])
    if not methods:
        return _decision("write", ["no method fits the task"])
    method = plan["method"] if plan is not None else methods[0]["name"]
    why = methods[0]["why"] if method == methods[0]["name"] else "the task names it"
    reasons = [f"{method} is {why}" if why.startswith("the default") else f"{method}: {why}"]
    if room is not None:
        reasons.append(f"at most {show_reward(room, 2)} can be gained over the start prompt")
    if pilot is not None and (better := _say_better(pilot)):
        reasons.append(f"wording matters: {better}")
    if pay_back is not None and pay_back["cost_usd"]:
        reasons.append(f"a run pays back after {show_months(pay_back['most']['months'])} at best")
    return _decision(family_of(method), reasons)


def _say_better(pilot: PilotJSON) -> str:
    """The sentence that a prompt of the pilot is better on fresh rows; empty if that is not shown."""
    if pilot["status"] != "completed" or pilot["gain"]["low"] <= 0:
        return ""
    return f"the part `{pilot['best']}` gains {_show_gain(pilot['gain'])} on fresh rows"


def _show_gain(gain: GainIntervalJSON) -> str:
    estimate, *ends = (show_reward(end or 0.0, 2) for end in (gain["estimate"], gain["low"], gain["high"]))
    return f"{estimate} [{', '.join(ends)}]"


def describe_pilot(pilot: PilotJSON) -> str:
    """The pilot in one line: spread, noise, and what the best prompt gains on rows that it was not picked on."""
    if pilot["status"] != "completed":
        calls = ", ".join(f"{ends['most']:,} {role}" for role, ends in pilot["plan"]["calls"].items())
        return f"planned: at most {calls} calls"
    usage = pilot["usage"]
    dollars = f", ${usage['cost_usd']:.4f}" if usage["cost_usd"] else ""
    paid = f"{quantity(sum(usage['calls'].values()), 'call')}{dollars}"
    return (
        f"standard deviation between {len(pilot['prompts'])} prompts {show_reward(pilot['spread'], 2)}, between answers to one "
        f"prompt {show_reward(pilot['noise'], 2)}; `{pilot['best']}`, best on {pilot['picked_on']} rows, gains "
        f"{_show_gain(pilot['gain'])} on {pilot['measured_on']} fresh ones ({paid})"
    )


def _decision(name: DecisionName, reasons: list[str]) -> DecisionJSON:
    return {"name": name, "action": _ACTIONS[name], "reasons": reasons}


def say_too_slow(pay_back: PayBackJSON) -> str:
    """The sentence that not even the largest gain pays a run back in time."""
    most, after = show_reward(pay_back["most"]["gain"], 2), pay_back["most"]["months"]
    return (
        f"even a gain of {most} would never repay a run"
        if after is None
        else (
            f"even a gain of {most} would repay a run only after {show_months(after)}, more than {LONGEST:g}"
        )
    )
