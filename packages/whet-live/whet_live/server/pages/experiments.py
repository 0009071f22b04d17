"""Experiments: the list, one with posteriors, differences and guard-rails, and stopping it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from whet.errors import show_reward, show_share
from whet.reporting import Child, Html, el, facts, join, note, number_format, table
from whet_live.experiments import BEHAVIOUR, WAITING, Experiment, Guard, read_reward, until
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.experiment_figures import differences, guard_rails, posteriors, share_bars
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import or_404, see_other
from whet_live.server.roles import Role

router = EndpointRouter()
LISTED = 40
KINDS_OF_STATE = {"running": "live", "winner": "good", "passed": "good", "rolled_back": "bad"}


@router("GET", "/experiments", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Experiments, the newest first."""
    before = call.query_params.get("before") or None
    experiments = call.state.live.experiments.list(before=before, limit=LISTED)
    hint = "Start one from the page of a prompt that has two versions."
    rows = ui.stack_rows(map(_row, experiments.items), ui.nothing("There is no experiment yet.", hint))
    older = ui.pager(ui.path_to("experiments", before=experiments.after), experiments.after)
    return ui.page(call, "Experiments", "experiments", rows, older)


def _row(experiment: Experiment) -> Html:
    definition = experiment.definition
    versions = " · ".join(f"v{version}" for version in definition.versions)
    return ui.row(
        ui.name_link(f"{definition.prompt}@{definition.label}", _path(experiment.id)),
        ui.tags(state_tag(experiment.state), bool(experiment.watches) and ui.tag("watch")),
        ui.aside(f"{versions} on {definition.goal.name}"),
        ui.by_line(experiment.author, experiment.created),
        sub=experiment.reason or experiment.message or None,
    )


def _path(key: str) -> str:
    return ui.path_to("experiments", key)


def state_tag(state: str) -> Html:
    """The state as a mark."""
    return ui.tag(state.replace("_", " "), KINDS_OF_STATE.get(state, ""))


@router("GET", "/experiments/{id}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One experiment as it stands."""
    key, experiments = call.path("id"), call.state.live.experiments
    experiment = or_404(experiments.get, key)
    figures, counting = experiments.cached_state(key)
    if figures is None:
        warning = experiments.unit_warning(experiment)
        shown: Child = [
            _verdict(call, experiment, experiment.verdict),
            warning and _warnings({"warnings": [warning]}),
        ]
    else:
        shown = _figures(call, experiment, figures["now"])
    return ui.page(
        call,
        f"{experiment.definition.prompt}@{experiment.definition.label}",
        "experiments",
        counting and _counting(experiment, figures is not None),
        shown,
        _definition(experiment),
        _reward(experiment),
        _history(experiment),
        experiment.state == "running" and call.may(Role.EDITOR) and _stop(call, experiment),
        wide=True,
        above=[("Experiments", "/experiments")],
    )


def _figures(call: RequestContext, experiment: Experiment, now: Mapping[str, Any]) -> list[Html | None]:
    """The counted results: the verdict, posteriors, shares, means, differences and guard-rails."""
    verdict, definition = now["verdict"], experiment.definition
    known = any(arm["metrics"][definition.goal.name]["with_outcome"] for arm in now["arms"])
    return [
        _verdict(call, experiment, verdict),
        _warnings(verdict),
        posteriors(now["posterior"], definition.versions, known),
        share_bars(now["arms"]),
        _arms(experiment, now["arms"]),
        differences(verdict["effects"], definition.control),
        guard_rails(verdict["guards"]),
    ]


def _counting(experiment: Experiment, before: bool) -> Html:
    """A sentence that the traffic is being read, which takes seconds if there is much of it."""
    prefix = "These figures are those of the last look. " if before else ""
    there = ui.link("Look again", _path(experiment.id))
    return note(f"{prefix}Its traffic is being counted, which takes some seconds. ", there, ".")


def _move(call: RequestContext, experiment: Experiment) -> Html | None:
    """The state of the request to move the label to the winner; None where there is none."""
    if experiment.proposal is None:
        return None
    proposal = call.state.live.registry.proposal(experiment.proposal)
    there = ui.path_to("review", experiment.proposal)
    if proposal.state == "open":
        return el("p", "The move of the label waits for ", ui.link("an approval", there), ".")
    return el("p", "The move of the label was ", ui.link(proposal.state, there), f" by {proposal.decider}.")


def _watch(call: RequestContext, experiment: Experiment) -> Html | None:
    """The watch over the winner, or the experiment that a watch follows; None where there is none."""
    watch = experiment.definition.watch
    if experiment.watches is not None and watch is not None:
        runs = experiment.state == "running"
        limit = f", or {watch.units:,} settled units" if watch.units is not None and runs else ""
        still, control = "still get" if runs else "got", experiment.definition.control
        return el(
            "p",
            "Watches the guard-rails of the version that won ",
            ui.link("the experiment before", _path(experiment.watches)),
            runs and [" until ", ui.moment(until(experiment))],
            f"{limit}. {watch.holdout:.0%} of the units {still} version {control}.",
        )
    if experiment.watch == WAITING:
        return el("p", "When the label has moved, its guard-rails are watched on.")
    if experiment.watch is None:
        return None
    state = state_tag(call.state.live.experiments.get(experiment.watch).state)
    return el("p", "Its guard-rails are watched: ", ui.link("the watch", _path(experiment.watch)), " ", state)


def _watch_text(experiment: Experiment) -> str:
    """The reaction to a winner, in words."""
    watch = experiment.definition.watch
    if watch is None or not experiment.definition.guards:
        return "no watch"
    units = f" or {watch.units:,} settled units" if watch.units else ""
    ends = number_format.duration(watch.seconds) + units
    return f"its guard-rails are watched for {ends}, {watch.holdout:.0%} held out"


def _verdict(call: RequestContext, experiment: Experiment, verdict: Mapping[str, Any] | None) -> Html:
    kind = KINDS_OF_STATE.get(experiment.state, "").replace("live", "")
    reason = experiment.reason or ("" if verdict is None else str(verdict["reason"]))
    since = ui.moment(experiment.created if experiment.ended is None else experiment.ended)
    state = state_tag(experiment.state), " ", el("span", "since ", since, class_="quiet")
    return el(
        "div",
        el("h2", *state, class_="row-title"),
        reason and el("p", reason, class_="reason"),
        _move(call, experiment),
        _watch(call, experiment),
        class_=f"card {kind}".strip(),
        role="status",
    )


def _warnings(verdict: Mapping[str, Any]) -> Html | None:
    rows = [el("li", str(text)) for text in verdict["warnings"]]
    return el("div", el("h3", "Warnings"), el("ul", rows), class_="warnings") if rows else None


def _arms(experiment: Experiment, arms: list[Mapping[str, Any]]) -> Html:
    rows: list[list[Child]] = []
    for arm in arms:
        version = arm["version"]
        there = ui.path_to("prompts", experiment.definition.prompt, version=version)
        name: Child = [ui.link(f"version {version}", there), arm["control"] and el("small", "control")]
        for metric, stats in arm["metrics"].items():
            counts = f"{stats['settled']:,}", f"{stats['without_outcome']:,}"
            rows.append([name, metric, *_metric(stats), *counts])
            name = ""
    method = next(iter(arms[0]["metrics"].values()))["method"]
    head = ["Version", "Metric", "Mean", f"95% {method}", "Settled units", "Without outcome"]
    return ui.section("Figures", table("By version and metric", head, rows, text=(1,)))


def _metric(stats: Mapping[str, Any]) -> tuple[str, str]:
    mean, *ends = (
        number_format.reward_text(value, number_format.places(value))
        for value in (stats["mean"], *stats["interval"])
    )
    known = stats["with_outcome"] and None not in stats["interval"]
    return mean, " to ".join(ends) if known else "–"


def _definition(experiment: Experiment) -> Html:
    definition, watches = experiment.definition, experiment.watches is not None
    question = f"{definition.goal.name}, {'more' if definition.goal.direction == 'max' else 'less'} is better"
    decided: list[tuple[str, Child]] = [
        ("Chance of a wrong winner", f"at most {definition.alpha:.0%}, however often one looks"),
        ("Counts as equal", f"within {definition.margin:g}" if definition.margin else "never"),
        ("Winner", "needs an approval" if definition.approval else "is applied by itself"),
        ("After the winner's move", _watch_text(experiment)),
    ]
    pairs: list[tuple[str, Child]] = [
        ("Question", "whether the winner breaks a guard-rail" if watches else question),
        ("Sticky by", definition.unit),
        ("Shared by", definition.policy.kind.replace("_", " ")),
        *([] if watches else decided),
        ("Outcomes settle after", number_format.duration(definition.goal.window)),
        ("Started by", join(experiment.author, ", ", ui.moment(experiment.created))),
        *(("Guard-rail", _guard(guard, definition.control)) for guard in definition.guards),
        *([("Why", experiment.message)] if experiment.message else []),
    ]
    return ui.section("What is tested", facts(pairs))


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
        f"Fitted to {model.rated:,} ratings by {model.sources:,} people among {model.answers:,} "
        "answers when the experiment began, and not changed since. A weight is the change in the "
        "log-odds of a good rating per standard deviation of the signal. The signals explain "
        f"{show_share(max(model.explained, 0.0))} of the ratings' variance. The mean over all answers "
        f"is {show_reward(model.corrected.value, 2)} ({show_reward(model.corrected.low, 2)} to "
        f"{show_reward(model.corrected.high, 2)}, {model.corrected.method}), corrected for who rates; "
        f"it lies between {show_reward(low, 2)} and {show_reward(high, 2)} if the odds of a good "
        "rating among those who do not rate are up to twice as high, or half as high, as their "
        "signals say."
    )
    weights = table(
        "Weights of the signals", ["Signal", "Weight", f"95% interval ({model.corrected.method})"], rows
    )
    warnings = [el("p", warning, class_="warnings") for warning in model.warnings]
    return ui.section("The reward from behaviour", el("p", text), weights, warnings)


def _guard(guard: Guard, control: int) -> str:
    metric = guard.metric
    if guard.against == "value":
        return f"{metric.name}: {'at least' if metric.direction == 'max' else 'at most'} {guard.limit:g}"
    return f"{metric.name}: at most {guard.limit:g} worse than version {control}"


def _history(experiment: Experiment) -> Html:
    rows = []
    for revision in reversed(experiment.revisions[-LISTED:]):
        weights = zip(experiment.definition.versions, revision.weights, strict=True)
        what = " · ".join(f"v{version} {weight:.0%}" for version, weight in weights)
        rows.append(
            ui.row(what, el("span", revision.reason, class_="quiet"), ui.aside(ui.moment(revision.at)))
        )
    return ui.section("Shares so far", ui.stack_rows(rows))


def _stop(call: RequestContext, experiment: Experiment) -> Html:
    field, button = (
        ui.text_input("reason", "Why", maxlength=4000),
        ui.button("Stop without a decision", "danger"),
    )
    return ui.section("Stop", ui.form(call, _path(experiment.id), field, button, class_="inline"))


@router("POST", "/experiments/{id}", Role.EDITOR, form=show)
def stop(call: RequestContext) -> Response:
    """End an experiment without a decision."""
    key, experiments = call.path("id"), call.state.live.experiments
    or_404(experiments.get, key)
    experiments.stop(key, actor=call.name, reason=call.form.get("reason", "").strip())
    return see_other(_path(key))
