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
    experiments = call.house.live.experiments.list(
        before=call.query_params.get("before") or None, limit=LISTED
    )
    if not experiments.items:
        hint = "Start one from the page of a prompt that has two versions."
        return page(call, "Experiments", "experiments", nothing("There is no experiment yet.", hint))
    older = (
        link("Older →", path_to("experiments", before=experiments.after), rel="next")
        if experiments.after
        else None
    )
    rows = listed([_row(one) for one in experiments.items])
    return page(call, "Experiments", "experiments", rows, el("p", older) if older else None)


def _row(experiment: Experiment) -> Html:
    definition = experiment.definition
    versions = " · ".join(f"v{version}" for version in definition.versions)
    return join(
        el(
            "span",
            link(
                f"{definition.prompt}@{definition.label}",
                path_to("experiments", experiment.id),
                class_="name",
                data_row=True,
            ),
            el("small", experiment.reason or experiment.message, dir="auto"),
            class_="what",
        ),
        el("span", state_tag(experiment.state), tag("watch") if experiment.watches else None, class_="tags"),
        el("span", f"{versions} on {definition.goal.name}", class_="side"),
        el("span", experiment.author, " · ", moment(experiment.created), class_="side"),
    )


def state_tag(state: str) -> Html:
    """The state as a mark."""
    return tag(state.replace("_", " "), KINDS_OF_STATE.get(state, ""))


@book("GET", "/experiments/{id}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One experiment as it stands."""
    key = call.path("id")
    with looked_up():
        experiment = call.house.live.experiments.get(key)
    figures, counting = call.house.live.experiments.glance(key)
    return page(
        call,
        f"{experiment.definition.prompt}@{experiment.definition.label}",
        "experiments",
        _counting(experiment, figures is not None) if counting else None,
        _figures(call, experiment, figures["now"])
        if figures is not None
        else _verdict(call, experiment, experiment.verdict),
        _definition(experiment),
        _reward(experiment),
        _history(experiment),
        _stop(call, experiment) if experiment.state == "running" and call.may(Role.EDITOR) else None,
        wide=True,
        above=crumbs(("Experiments", "/experiments")),
    )


def _figures(call: RequestContext, experiment: Experiment, now: Mapping[str, Any]) -> list[Html | None]:
    """What was counted: the verdict, posteriors, shares, means, differences and guard-rails."""
    verdict: Mapping[str, Any] = now["verdict"]
    return [
        _verdict(call, experiment, verdict),
        _warnings(verdict),
        posteriors(now["posterior"], experiment.definition.versions, _known(experiment, now["arms"])),
        shares(now["arms"]),
        _arms(experiment, now["arms"]),
        differences(verdict["effects"], experiment.definition.control),
        guard_rails(verdict["guards"]),
    ]


def _counting(experiment: Experiment, before: bool) -> Html:
    """That the traffic is read at the moment, which takes seconds where it is much."""
    there = link("Look again", path_to("experiments", experiment.id))
    prefix = "These figures are those of the last look. " if before else ""
    return note(f"{prefix}Its traffic is being counted, which takes some seconds. ", there, ".")


def _move(call: RequestContext, experiment: Experiment) -> Html | None:
    """What became of the request to move the label to the winner; None where there is none."""
    if experiment.proposal is None:
        return None
    proposal = call.house.live.registry.proposal(experiment.proposal)
    there = path_to("review", experiment.proposal)
    if proposal.state == "open":
        return el("p", "The move of the label waits for ", link("an approval", there), ".")
    return el("p", "The move of the label was ", link(proposal.state, there), f" by {proposal.decider}.")


def _watch(call: RequestContext, experiment: Experiment) -> Html | None:
    """What watches over the winner, or what a watch follows; None where there is none."""
    watch = experiment.definition.watch
    if experiment.watches is not None and watch is not None:
        ends = join(" until ", moment(until(experiment))) if experiment.state == "running" else None
        still = "still get" if ends else "got"
        limit = f", or {watch.units:,} settled units" if watch.units is not None and ends else ""
        return el(
            "p",
            "Watches the guard-rails of the version that won ",
            link("the experiment before", path_to("experiments", experiment.watches)),
            ends,
            f"{limit}. {watch.holdout:.0%} of the units {still} version {experiment.definition.control}.",
        )
    if experiment.watch == WAITING:
        return el("p", "When the label has moved, its guard-rails are watched on.")
    if experiment.watch is None:
        return None
    state = call.house.live.experiments.get(experiment.watch).state
    return el(
        "p",
        "Its guard-rails are watched: ",
        link("the watch", path_to("experiments", experiment.watch)),
        " ",
        state_tag(state),
    )


def _watch_text(experiment: Experiment) -> str:
    """What follows a winner's move, in words."""
    watch = experiment.definition.watch
    if watch is None or not experiment.definition.guards:
        return "no watch"
    ends = number_format.duration(watch.seconds) + (
        f" or {watch.units:,} settled units" if watch.units else ""
    )
    return f"its guard-rails are watched for {ends}, {watch.holdout:.0%} held out"


def _verdict(call: RequestContext, experiment: Experiment, verdict: Mapping[str, Any] | None) -> Html:
    kind = {"winner": " good", "passed": " good", "rolled_back": " bad"}.get(experiment.state, "")
    reason = experiment.reason or ("" if verdict is None else str(verdict["reason"]))
    return el(
        "div",
        el(
            "h2",
            state_tag(experiment.state),
            " ",
            el("span", "since ", _since(experiment), class_="quiet"),
            class_="row-title",
        ),
        el("p", reason, class_="reason") if reason else None,
        _move(call, experiment),
        _watch(call, experiment),
        class_=f"card{kind}",
        role="status",
    )


def _known(experiment: Experiment, arms: list[Mapping[str, Any]]) -> bool:
    """Whether any outcome is settled."""
    return any(arm["metrics"][experiment.definition.goal.name]["with_outcome"] for arm in arms)


def _since(experiment: Experiment) -> Html:
    return moment(experiment.ended if experiment.ended is not None else experiment.created)


def _warnings(verdict: Mapping[str, Any]) -> Html | None:
    rows = [el("li", str(text)) for text in verdict["warnings"]]
    return el("div", el("h3", "Warnings"), el("ul", rows), class_="warnings") if rows else None


def _arms(experiment: Experiment, arms: list[Mapping[str, Any]]) -> Html:
    rows: list[list[Child]] = []
    for arm in arms:
        version = arm["version"]
        name = join(
            link(f"version {version}", path_to("prompts", experiment.definition.prompt, version=version)),
            el("small", "control") if arm["control"] else None,
        )
        for metric, stats in arm["metrics"].items():
            rows.append(
                [name, metric, *_metric(stats), f"{stats['settled']:,}", f"{stats['without_outcome']:,}"]
            )
            name = join("")
    head = ["Version", "Metric", "Mean", "95 % interval", "Settled units", "Without outcome"]
    return el("section", el("h2", "Figures"), table("By version and metric", head, rows, text=(1,)))


def _metric(stats: Mapping[str, Any]) -> tuple[str, str]:
    ends = stats["interval"]
    shown = (
        "–"
        if None in ends or not stats["with_outcome"]
        else " to ".join(number_format.reward(end, number_format.places(end)) for end in ends)
    )
    return number_format.reward(stats["mean"], number_format.places(stats["mean"])), shown


def _definition(experiment: Experiment) -> Html:
    definition = experiment.definition
    question = f"{definition.goal.name}, {'more' if definition.goal.direction == 'max' else 'less'} is better"
    decided: list[tuple[str, Child]] = [
        ("Chance of a wrong winner", f"at most {definition.alpha:.0%}, however often one looks"),
        ("Counts as equal", f"within {definition.margin:g}" if definition.margin else "never"),
        ("Winner", "needs an approval" if definition.approval else "is applied by itself"),
        ("After the winner's move", _watch_text(experiment)),
    ]
    pairs: list[tuple[str, Child]] = [
        ("Question", question if experiment.watches is None else "whether the winner breaks a guard-rail"),
        ("Sticky by", definition.unit),
        ("Shared by", definition.policy.kind.replace("_", " ")),
        *(decided if experiment.watches is None else []),
        ("Outcomes settle after", number_format.duration(definition.goal.window)),
        ("Started by", join(experiment.author, ", ", moment(experiment.created))),
    ]
    pairs += [("Guard-rail", _guard(guard, definition.control)) for guard in definition.guards]
    pairs += [("Why", experiment.message)] if experiment.message else []
    return el("section", el("h2", "What was asked"), facts(pairs))


def _reward(experiment: Experiment) -> Html | None:
    """The weights behind a metric that is made of what people do, and how far to trust them; None without one."""
    metric = experiment.definition.metrics.get(BEHAVIOUR)
    if metric is None or metric.reward is None:
        return None
    model = read_reward(metric.reward)
    rows: list[list[Child]] = [
        [one.feature, f"{one.weight.value:+.2f}", f"{one.weight.low:+.2f} to {one.weight.high:+.2f}"]
        for one in model.weights
    ]
    low, high = model.hidden
    text = (
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
        el("p", text),
        table("Weights of the signals", ["Signal", "Weight", "95 % interval"], rows),
        [el("p", warning, class_="warnings") for warning in model.warnings],
    )


def _guard(guard: Guard, control: int) -> str:
    metric = guard.metric
    if guard.against == "value":
        return f"{metric.name}: {'at least' if metric.direction == 'max' else 'at most'} {guard.limit:g}"
    return f"{metric.name}: at most {guard.limit:g} worse than version {control}"


def _history(experiment: Experiment) -> Html:
    versions = experiment.definition.versions
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
        for r in reversed(experiment.revisions[-LISTED:])
    ]
    return el("section", el("h2", "Shares so far"), listed(rows))


def _stop(call: RequestContext, experiment: Experiment) -> Html:
    entry = form(
        call,
        path_to("experiments", experiment.id),
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
