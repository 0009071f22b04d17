"""Experiments: the list, one with posteriors, differences and guard-rails, and stopping it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from whet.live.experiments import Experiment
from whet.live.experiments.behaviour import BEHAVIOUR, read_reward
from whet.live.experiments.definition import Guard
from whet.live.experiments.experiment_store import WAITING
from whet.live.experiments.rollout_monitor import until
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    button,
    crumbs,
    form,
    link,
    listed,
    moment,
    nothing,
    path_to,
    tag,
    text_input,
)
from whet.live.server.pages.posteriors import differences, guard_rails, posteriors, shares
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import see_other
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import looked_up
from whet.reporting import number_format
from whet.reporting.layout import facts, note, table
from whet.reporting.markup import Child, Html, el, join

book = EndpointRouter()
LISTED = 40
KINDS_OF_STATE = {"running": "live", "winner": "good", "passed": "good", "rolled_back": "bad"}


@book("GET", "/experiments", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Experiments, the newest first."""
    found = call.house.live.experiments.list(before=call.asked.get("before") or None, limit=LISTED)
    if not found.items:
        told = "Start one from the page of a prompt that has two versions."
        return page(call, "Experiments", "experiments", nothing("There is no experiment yet.", told))
    older = link("Older →", path_to("experiments", before=found.after), rel="next") if found.after else None
    rows = listed([_row(one) for one in found.items])
    return page(call, "Experiments", "experiments", rows, el("p", older) if older else None)


def _row(found: Experiment) -> Html:
    asked = found.definition
    versions = " · ".join(f"v{version}" for version in asked.versions)
    return join(
        el(
            "span",
            link(
                f"{asked.prompt}@{asked.label}",
                path_to("experiments", found.id),
                class_="name",
                data_row=True,
            ),
            el("small", found.reason or found.message, dir="auto"),
            class_="what",
        ),
        el("span", state_tag(found.state), tag("watch") if found.watches else None, class_="tags"),
        el("span", f"{versions} on {asked.goal.name}", class_="side"),
        el("span", found.author, " · ", moment(found.created), class_="side"),
    )


def state_tag(state: str) -> Html:
    """The state as a mark."""
    return tag(state.replace("_", " "), KINDS_OF_STATE.get(state, ""))


@book("GET", "/experiments/{id}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One experiment as it stands."""
    key = call.path("id")
    with looked_up():
        found = call.house.live.experiments.get(key)
    told, counting = call.house.live.experiments.glance(key)
    return page(
        call,
        f"{found.definition.prompt}@{found.definition.label}",
        "experiments",
        _counting(found, told is not None) if counting else None,
        _figures(call, found, told["now"]) if told is not None else _verdict(call, found, found.verdict),
        _definition(found),
        _reward(found),
        _history(found),
        _stop(call, found) if found.state == "running" and call.may(Role.EDITOR) else None,
        wide=True,
        above=crumbs(("Experiments", "/experiments")),
    )


def _figures(call: RequestContext, found: Experiment, now: Mapping[str, Any]) -> list[Html | None]:
    """What was counted: the verdict, posteriors, shares, means, differences and guard-rails."""
    verdict: Mapping[str, Any] = now["verdict"]
    return [
        _verdict(call, found, verdict),
        _warnings(verdict),
        posteriors(now["posterior"], found.definition.versions, _known(found, now["arms"])),
        shares(now["arms"]),
        _arms(found, now["arms"]),
        differences(verdict["effects"], found.definition.control),
        guard_rails(verdict["guards"]),
    ]


def _counting(found: Experiment, before: bool) -> Html:
    """That the traffic is read at the moment, which takes seconds where it is much."""
    there = link("Look again", path_to("experiments", found.id))
    told = "These figures are those of the last look. " if before else ""
    return note(f"{told}Its traffic is being counted, which takes some seconds. ", there, ".")


def _move(call: RequestContext, found: Experiment) -> Html | None:
    """What became of the request to move the label to the winner; None where there is none."""
    if found.proposal is None:
        return None
    asked = call.house.live.registry.proposal(found.proposal)
    there = path_to("review", found.proposal)
    if asked.state == "open":
        return el("p", "The move of the label waits for ", link("an approval", there), ".")
    return el("p", "The move of the label was ", link(asked.state, there), f" by {asked.decider}.")


def _watch(call: RequestContext, found: Experiment) -> Html | None:
    """What watches over the winner, or what a watch follows; None where there is none."""
    asked = found.definition.watch
    if found.watches is not None and asked is not None:
        ends = join(" until ", moment(until(found))) if found.state == "running" else None
        still = "still get" if ends else "got"
        limit = f", or {asked.units:,} settled units" if asked.units is not None and ends else ""
        return el(
            "p",
            "Watches the guard-rails of the version that won ",
            link("the experiment before", path_to("experiments", found.watches)),
            ends,
            f"{limit}. {asked.holdout:.0%} of the units {still} version {found.definition.control}.",
        )
    if found.watch == WAITING:
        return el("p", "When the label has moved, its guard-rails are watched on.")
    if found.watch is None:
        return None
    state = call.house.live.experiments.get(found.watch).state
    return el(
        "p",
        "Its guard-rails are watched: ",
        link("the watch", path_to("experiments", found.watch)),
        " ",
        state_tag(state),
    )


def _watch_asked(found: Experiment) -> str:
    """What follows a winner's move, in words."""
    asked = found.definition.watch
    if asked is None or not found.definition.guards:
        return "no watch"
    ends = number_format.duration(asked.seconds) + (
        f" or {asked.units:,} settled units" if asked.units else ""
    )
    return f"its guard-rails are watched for {ends}, {asked.holdout:.0%} held out"


def _verdict(call: RequestContext, found: Experiment, verdict: Mapping[str, Any] | None) -> Html:
    kind = {"winner": " good", "passed": " good", "rolled_back": " bad"}.get(found.state, "")
    reason = found.reason or ("" if verdict is None else str(verdict["reason"]))
    return el(
        "div",
        el(
            "h2",
            state_tag(found.state),
            " ",
            el("span", "since ", _since(found), class_="quiet"),
            class_="row-title",
        ),
        el("p", reason, class_="reason") if reason else None,
        _move(call, found),
        _watch(call, found),
        class_=f"card{kind}",
        role="status",
    )


def _known(found: Experiment, arms: list[Mapping[str, Any]]) -> bool:
    """Whether any outcome is settled."""
    return any(arm["metrics"][found.definition.goal.name]["with_outcome"] for arm in arms)


def _since(found: Experiment) -> Html:
    return moment(found.ended if found.ended is not None else found.created)


def _warnings(verdict: Mapping[str, Any]) -> Html | None:
    rows = [el("li", str(text)) for text in verdict["warnings"]]
    return el("div", el("h3", "Warnings"), el("ul", rows), class_="warnings") if rows else None


def _arms(found: Experiment, arms: list[Mapping[str, Any]]) -> Html:
    rows: list[list[Child]] = []
    for arm in arms:
        version = arm["version"]
        name = join(
            link(f"version {version}", path_to("prompts", found.definition.prompt, version=version)),
            el("small", "control") if arm["control"] else None,
        )
        for metric, told in arm["metrics"].items():
            rows.append(
                [name, metric, *_metric(told), f"{told['settled']:,}", f"{told['without_outcome']:,}"]
            )
            name = join("")
    head = ["Version", "Metric", "Mean", "95 % interval", "Settled units", "Without outcome"]
    return el("section", el("h2", "Figures"), table("By version and metric", head, rows, text=(1,)))


def _metric(told: Mapping[str, Any]) -> tuple[str, str]:
    ends = told["interval"]
    shown = (
        "–"
        if None in ends or not told["with_outcome"]
        else " to ".join(number_format.reward(end, number_format.places(end)) for end in ends)
    )
    return number_format.reward(told["mean"], number_format.places(told["mean"])), shown


def _definition(found: Experiment) -> Html:
    asked = found.definition
    question = f"{asked.goal.name}, {'more' if asked.goal.direction == 'max' else 'less'} is better"
    decided: list[tuple[str, Child]] = [
        ("Chance of a wrong winner", f"at most {asked.alpha:.0%}, however often one looks"),
        ("Counts as equal", f"within {asked.margin:g}" if asked.margin else "never"),
        ("Winner", "needs an approval" if asked.approval else "is applied by itself"),
        ("After the winner's move", _watch_asked(found)),
    ]
    pairs: list[tuple[str, Child]] = [
        ("Question", question if found.watches is None else "whether the winner breaks a guard-rail"),
        ("Sticky by", asked.unit),
        ("Shared by", asked.policy.kind.replace("_", " ")),
        *(decided if found.watches is None else []),
        ("Outcomes settle after", number_format.duration(asked.goal.window)),
        ("Started by", join(found.author, ", ", moment(found.created))),
    ]
    pairs += [("Guard-rail", _guard(guard, asked.control)) for guard in asked.guards]
    pairs += [("Why", found.message)] if found.message else []
    return el("section", el("h2", "What was asked"), facts(pairs))


def _reward(found: Experiment) -> Html | None:
    """The weights behind a metric that is made of what people do, and how far to trust them; None without one."""
    metric = found.definition.metrics.get(BEHAVIOUR)
    if metric is None or metric.reward is None:
        return None
    model = read_reward(metric.reward)
    rows: list[list[Child]] = [
        [one.feature, f"{one.weight.value:+.2f}", f"{one.weight.low:+.2f} to {one.weight.high:+.2f}"]
        for one in model.weights
    ]
    low, high = model.hidden
    told = (
        f"Fitted to {model.rated:,} ratings by {model.sources:,} people among {model.answers:,} answers when the "
        "experiment began, and not changed since. A weight is the change of the log-odds of a good rating for one "
        f"standard deviation of the signal. The signals explain {max(model.explained, 0.0):.0%} of the ratings' variance. "
        f"The mean over all answers is {model.corrected.value:.2f} ({model.corrected.low:.2f} to "
        f"{model.corrected.high:.2f}), corrected for who rates; it lies between {low:.2f} and {high:.2f} if the odds of a "
        "good rating among those who do not rate are up to twice as high, or half as high, as their signals say."
    )
    return el(
        "section",
        el("h2", "The reward from behaviour"),
        el("p", told),
        table("Weights of the signals", ["Signal", "Weight", "95 % interval"], rows),
        [el("p", warning, class_="warnings") for warning in model.warnings],
    )


def _guard(guard: Guard, control: int) -> str:
    metric = guard.metric
    if guard.against == "value":
        return f"{metric.name}: {'at least' if metric.direction == 'max' else 'at most'} {guard.limit:g}"
    return f"{metric.name}: at most {guard.limit:g} worse than version {control}"


def _history(found: Experiment) -> Html:
    versions = found.definition.versions
    rows = [
        join(
            el(
                "span",
                " · ".join(f"v{v} {w:.0%}" for v, w in zip(versions, r.weights, strict=True)),
                class_="what",
            ),
            el("span", r.reason, class_="quiet"),
            el("span", moment(r.at), class_="side"),
        )
        for r in reversed(found.revisions[-LISTED:])
    ]
    return el("section", el("h2", "Shares so far"), listed(rows))


def _stop(call: RequestContext, found: Experiment) -> Html:
    entry = form(
        call,
        path_to("experiments", found.id),
        text_input("reason", "Why", maxlength=4000),
        button("Stop without a decision", "danger"),
        class_="inline",
    )
    return el("section", el("h2", "Stop"), entry)


@book("POST", "/experiments/{id}", Role.EDITOR)
def stop(call: RequestContext) -> Response:
    """End an experiment without a decision."""
    key = call.path("id")
    with looked_up():
        call.house.live.experiments.get(key)
    call.house.live.experiments.stop(key, actor=call.name, reason=call.form.get("reason", "").strip())
    return see_other(path_to("experiments", key))
