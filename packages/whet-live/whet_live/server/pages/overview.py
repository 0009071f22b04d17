"""The first page: what waits for the reader, how each prompt does, what runs, what was promoted, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from whet.reporting import Child, Html, el, note, number_format
from whet_live.quality import APPROVAL, PromptGlance
from whet_live.registry import Move, Summary
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import quality_figures, ui
from whet_live.server.pages.prompts import label_tag
from whet_live.server.pages.quality import alert_row
from whet_live.server.request_context import RequestContext
from whet_live.server.roles import Role

router = EndpointRouter()
DAYS = 14
LISTED = 20
FEW = 6
ABOVE = ("Overview", "/")


@router("GET", "/", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """The overview of an installation."""
    live, after = call.state.live, call.query_params.get("after") or None
    summaries = live.registry.prompts(after=after, limit=LISTED)
    glances = live.quality.glance([one.name for one in summaries.items], DAYS)
    alerts = [one for one in live.quality.alerts(limit=FEW).items if one.kind != APPROVAL]
    older = "/" if summaries.after is None else ui.path_to("", after=summaries.after)
    return ui.page(
        call,
        "Overview",
        "",
        _waiting(call, [one.name for one in summaries.items]),
        bool(alerts) and ui.section("Noticed", ui.stack_rows(map(alert_row, alerts)), id="noticed"),
        _prompts(call, summaries.items, glances),
        ui.pager(older, summaries.after, "More prompts"),
        _experiments(call),
        _promotions(live.registry.recent_moves(limit=FEW)),
        wide=True,
    )


def _waiting(call: RequestContext, names: Sequence[str]) -> Html:
    """The items that wait for a decision or for a reader: proposals; of the prompts `names`, comments that nobody has read or
    that are in quarantine, and demands that others contradict; and traffic that nobody has read."""
    live = call.state.live
    proposals = live.registry.proposals(state="open", limit=LISTED)
    rows: list[Child] = [
        ui.row(
            ui.name_link(one.message or f"A change of {one.name}", ui.path_to("review", one.id)),
            ui.tag(one.name),
            ui.by_line(one.author, one.created),
        )
        for one in proposals.items[:FEW]
    ]
    for name, count in live.learner.count_waiting(names).items():
        there = ui.path_to("learning", name)
        if count.unread:
            text = f"{number_format.plural(count.unread, 'comment')} on {name}: no model has read them"
            rows.append(ui.row(ui.name_link(text, there), ui.tag("learning")))
        if count.contested:
            text = f"{number_format.plural(count.contested, 'demand')} on {name}: others want the contrary"
            rows.append(ui.row(ui.name_link(text, there), ui.tag("contested", "bad")))
        if count.quarantined:
            text = f"{number_format.plural(count.quarantined, 'comment')} on {name} in quarantine"
            rows.append(ui.row(ui.name_link(text, there), ui.tag("learning", "bad")))
    _, unread = live.learner.cached_state("")
    if fault := live.learner.fault():
        rows.append(
            ui.row(
                ui.name_link("The reader does not answer", "/learning"), ui.tag("learning", "bad"), sub=fault
            )
        )
    if unread:
        text = f"{number_format.plural(unread, 'event')} of traffic not read yet"
        rows.append(ui.row(ui.name_link(text, "/learning"), ui.tag("learning")))
    more = len(proposals.items) > FEW and el(
        "p", ui.link("Every proposal that waits", "/review"), class_="after"
    )
    empty = note("Nothing waits for you.")
    return ui.section("Waiting", ui.stack_rows(rows, empty), more, id="waiting")


def _prompts(call: RequestContext, summaries: Sequence[Summary], glances: Mapping[str, PromptGlance]) -> Html:
    """Each prompt with its traffic, cost and the course of its quality."""
    new = call.may(Role.EDITOR) and ui.button_link("New prompt", "/new", key="n")
    if not summaries:
        how = "Make one here, or import files: ", el("code", "whet prompts import FOLDER")
        return ui.section(
            "Prompts", ui.nothing("There is no prompt yet.", *how), el("p", new, class_="after"), id="quality"
        )
    costs = [glance.cost for glance in glances.values() if glance.cost is not None]
    total = f" They cost {number_format.dollars(sum(costs))}." if costs else ""
    answers = number_format.plural(sum(glance.answers for glance in glances.values()), "answer")
    hint = note(
        f"The last {DAYS} days: {answers}.{total} A line shows a measure day by day, the dot its newest day."
    )
    rows = [_prompt_row(i, one, glances[one.name]) for i, one in enumerate(summaries)]
    return ui.section("Prompts", hint, ui.stack_rows(rows), id="quality")


def _prompt_row(i: int, summary: Summary, glance: PromptGlance) -> Html:
    there = ui.path_to("quality", summary.name)
    labels = [
        label_tag(label, f"v{version}")
        for label, version in sorted(summary.labels.items())
        if label != "latest"
    ]
    figure: Child = ui.aside("no answer yet" if not glance.answers else "no feedback yet")
    if glance.series is not None:
        measure, whole = glance.series.measure, glance.series.whole
        text = f"{measure.title} {quality_figures.show_mean(whole.mean, measure)}"
        figure = [
            quality_figures.sparkline(glance.series, glance.span, quality_figures.DAY, f"spark-{i}"),
            ui.link(text, there, aria_label=f"{summary.name}: {text}. Quality over time", class_="side"),
        ]
    traffic = number_format.plural(glance.answers, "answer")
    if glance.cost is not None:
        traffic += f", {number_format.dollars(glance.cost)}"
    return ui.row(
        ui.name_link(summary.name, ui.path_to("prompts", summary.name)),
        el("span", figure, class_="spark-cell"),
        ui.tags(labels),
        sub=traffic,
    )


def _experiments(call: RequestContext) -> Html:
    running = call.state.live.experiments.list(state="running", limit=FEW).items
    rows = [
        ui.row(
            ui.name_link(
                f"{one.definition.prompt}@{one.definition.label}", ui.path_to("experiments", one.id)
            ),
            ui.aside(" · ".join(f"v{version}" for version in one.definition.versions)),
            ui.aside(f"on {one.definition.goal.name}"),
            ui.by_line(one.author, one.created),
            sub=one.message or None,
        )
        for one in running
    ]
    return ui.section(
        "Running experiments", ui.stack_rows(rows, note("No experiment runs.")), id="experiments"
    )


def _promotions(moves: Sequence[Move]) -> Html:
    rows = [
        ui.row(
            ui.name_link(one.name, ui.path_to("prompts", one.name, version=one.new)),
            label_tag(one.label),
            ui.aside(_describe(one)),
            ui.by_line(one.actor, one.at),
            sub=one.reason or None,
        )
        for one in moves
    ]
    return ui.section(
        "Last moves of labels", ui.stack_rows(rows, note("No label was moved yet.")), id="moves"
    )


def _describe(move: Move) -> str:
    if move.new is None:
        return "removed"
    word = "rolled back to" if move.kind == "rollback" else "to"
    return f"{word} version {move.new}"
