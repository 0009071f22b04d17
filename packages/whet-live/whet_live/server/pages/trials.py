"""The form that starts an experiment between two versions, with guard-rails and the way to share the traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from whet.errors import UsageError
from whet.reporting import Html, el, note, table
from whet_live.experiments import BEHAVIOUR, DAYS, MetricTraffic, TrafficForecast
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import or_404, see_other
from whet_live.server.roles import Role

router = EndpointRouter()

GOALS = ("rating", "thumb", "copy", "regenerate", "abandon", "edit_distance", "external_check", BEHAVIOUR)
UNITS = ("user", "session", "episode")
SCORE = "score "
"""The prefix of a score's choice."""
SIZES, SHARES, LONG_DAYS = (0.05, 0.1), (0.2, 0.5), 365
"""Differences, as parts of a metric's range, and shares of the traffic for which the form says how long it takes."""
POLICIES = {
    "fixed": "fixed: the share above to the end",
    "ramp": "ramp: 5, 20, then 50 per cent",
    "thompson": "thompson: more to what does well",
    "top_two": "top two: soon a decision, most to the best two",
    "track_and_stop": "track and stop: the soonest decision",
}
CEILINGS = {"cost": (20.0, 4.0), "latency": (20.0, 4.0)}
"""The bounds of cost and latency: a value counts up to so many times the limit of its guard-rail, and so many times the
control's value so far, whichever is more."""

GUARDS = {
    "error": ("Per cent of answers that may fail more often than now", 100.0),
    "latency": ("Seconds that an answer may take longer than now", 1.0),
    "cost": ("Dollars that an answer may cost more than now", 1.0),
    "rating": ("Points that the rating may be worse than now", 1.0),
}
"""Guard-rails of the form: what is asked for, and how much of it is one unit of the metric."""


@router("GET", "/new-experiment/{name:path}", Role.EDITOR)
def new(call: RequestContext) -> Response:
    """The form of an experiment between two versions; the HTTP interface takes whole definitions."""
    name = call.path("name")
    labels = or_404(call.state.live.registry.labels, name)
    now = labels.get("production", labels["latest"])
    other = next((labels[one] for one in ("staging", "latest") if labels.get(one, now) != now), "")
    experiments = call.state.live.experiments
    unit = experiments.units(name).fitting
    seen = experiments.forecast(name, unit)
    number: dict[str, Any] = {"required": True, "inputmode": "numeric"}
    text = ui.text_input
    words = {BEHAVIOUR: "behaviour: all that people do, weighted by ratings"}
    goals = [(goal, words.get(goal, goal.replace("_", " "))) for goal in GOALS]
    goals += [(one, one) for one in seen.metrics if one.startswith(SCORE)]
    usual = next((goal for goal in GOALS if goal in seen.metrics), GOALS[0])
    entry = ui.form(
        call,
        ui.path_to("new-experiment", name),
        text("label", "Label that the winner gets", "production", required=True, maxlength=36),
        text("control", "Version that is there now", str(now), **number),
        text("challenger", "Version to try", str(other), **number),
        ui.select("metric", "Better on", goals, usual),
        text("hours", "Hours until an outcome counts as settled", "24", **number),
        text("share", "Share of the traffic that tries it, in per cent", "20", **number),
        ui.select("policy", "Share of the traffic from then on", POLICIES.items(), "fixed"),
        ui.tiles(
            "Everything stays the same for one",
            [ui.tile("unit", one, one, checked=one == unit) for one in UNITS],
        ),
        _guards(),
        ui.button("Start", "main", disabled=not call.may(Role.APPROVER)),
    )
    hint = (
        "Starting sends real people to the new version, so it needs the role approver. A winner waits for an approval, "
        "and its guard-rails are watched for a day after its move, with 10 per cent held out. Moving the label ends the "
        "experiment."
    )
    above = [(name, ui.path_to("prompts", name))]
    return ui.page(call, "New experiment", "experiments", note(hint), entry, _expect(seen), above=above)


def _expect(seen: TrafficForecast) -> Html:
    """Show the expected length of an experiment, by metric, and the metrics on which it would never end."""
    title, unit = "How long it takes", seen.unit
    if not seen.answers:
        text = f"No answer came in the last {DAYS} days, so nobody knows how long an experiment takes."
        return ui.section(title, note(text), id="expect")
    if not seen.units_a_day:
        text = f"Answers of the last {DAYS} days name no user, session or episode. An experiment counts them: log one with each."
        return ui.section(title, note(text), id="expect")
    absent = [goal.replace("_", " ") for goal in GOALS if goal not in seen.metrics and goal != BEHAVIOUR]
    never = absent and note(
        f"Nobody sent these, so an experiment on them would not end: {', '.join(absent)}."
    )
    if not seen.metrics:
        return ui.section(title, never, id="expect")
    hint = (
        f"Of the last {DAYS} days: {_round(seen.units_a_day)} {unit}s a day. If the new version makes that difference, half of "
        f"the experiments have found it after these days. Whole weeks count, and {BEHAVIOUR} is not in the table."
    )
    heads = ["Better on", "now", f"{unit}s a day", "difference", *(f"{share:.0%} try it" for share in SHARES)]
    rows = [
        [name.replace("_", " "), f"{one.mean:.3g}", _round(one.a_day), f"{size:.3g}", *_by_share(one, size)]
        for name, one in seen.metrics.items()
        for size in (part * (one.high - one.low) for part in SIZES)
    ]
    return ui.section(
        title, note(hint), table("Days until an experiment decides", heads, rows), never, id="expect"
    )


def _by_share(metric: MetricTraffic, difference: float) -> list[str]:
    days = [metric.days(difference, share) for share in SHARES]
    return [
        "unknown" if one is None else f"about {one} days" if one <= LONG_DAYS else "more than a year"
        for one in days
    ]


def _round(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _guards() -> Html:
    fields = [
        ui.text_input(f"guard-{metric}", label, "5" if metric == "error" else "", inputmode="decimal")
        for metric, (label, _) in GUARDS.items()
    ]
    hint = "A version that does more harm gets nobody any more. A guard-rail that is left empty is not set."
    return el("fieldset", el("legend", "Guard-rails"), note(hint), fields)


@router("POST", "/new-experiment/{name:path}", Role.APPROVER, form=new)
def start(call: RequestContext) -> Response:
    """Start an experiment between two versions."""
    definition = definition_from(call.path("name"), call.form)
    counts = call.state.live.traffic.counts([definition["prompt"]], definition["control"])
    usual = {one.kind: one.mean for one in counts}
    for guard in definition["guards"]:
        if guard["metric"] in CEILINGS:
            limits, times = CEILINGS[guard["metric"]]
            guard["high"] = max(limits * guard["limit"], times * usual.get(guard["metric"], 0.0))
    made = call.state.live.experiments.create(definition, author=call.name)
    return see_other(ui.path_to("experiments", made.id))


def definition_from(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The definition that the fields of the form mean, but for the range of what answers cost and take. Raises UsageError
    naming the field."""
    metric, policy = fields.get("metric", ""), fields.get("policy", "fixed")
    score = metric.removeprefix(SCORE) if metric.startswith(SCORE) else ""
    if metric not in GOALS and not score:
        raise UsageError("Choose what the versions are compared on.")
    if policy not in POLICIES:
        raise UsageError("Choose how the traffic is shared.")
    share = ui.whole_number(fields.get("share", ""), "The share")
    if not 1 <= share <= 99:
        raise UsageError("The share lies between 1 and 99 per cent.")
    control, challenger = (ui.whole_number(fields.get(k, ""), "A version") for k in ("control", "challenger"))
    goal = {
        "name": score or metric,
        "window": ui.whole_number(fields.get("hours", ""), "The number of hours") * 3600.0,
    }
    limits = {one: _limit(fields.get(f"guard-{one}", ""), one) for one in GUARDS}
    return {
        "prompt": name,
        "label": fields.get("label", "").strip(),
        "arms": [{"version": control, "weight": 100 - share}, {"version": challenger, "weight": share}],
        "control": control,
        "unit": fields.get("unit", "session"),
        "goal": goal,
        "guards": [_guard(one, limit, goal) for one, limit in limits.items() if limit is not None],
        "policy": {"kind": policy},
    }


def _limit(text: str, metric: str) -> float | None:
    """The limit of a guard-rail in units of its metric; None for an empty field."""
    label, scale = GUARDS[metric]
    if not text.strip():
        return None
    try:
        limit = float(text.strip()) / scale
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf or (limit == 0 and metric in CEILINGS):
        raise UsageError(f'"{label}" is "{text[:40]}"; write a number above 0, or leave it empty.')
    return limit


def _guard(metric: str, limit: float, goal: Mapping[str, object]) -> dict[str, object]:
    guard = {"metric": metric, "limit": limit}
    return {**guard, "window": goal["window"]} if metric == "rating" else guard
