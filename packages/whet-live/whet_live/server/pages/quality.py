"""The quality of a prompt over time: a chart for each measure, the changes, and the alerts."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from whet.reporting import Child, Html, el, note, number_format
from whet_live.database import microseconds
from whet_live.experiments import VersionReward, rewards_over_time
from whet_live.quality import (
    APPROVAL,
    ChangeMark,
    MeasureSeries,
    QualityAlert,
    QualityMeasure,
    QualityOptions,
    QualityPoint,
    QualityReport,
    begin_of,
)
from whet_live.server import shared_reports
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import quality_figures, ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import or_404
from whet_live.server.roles import Role

router = EndpointRouter()
FIELDS = ("days", "step", "version", "label", "model", "by", "key", "since", "until")
PERIODS = [("1", "one day"), ("7", "a week"), ("30", "30 days"), ("90", "90 days"), ("365", "a year")]
STEPS = [("", "fitting"), ("hour", "hours"), ("day", "days"), ("week", "weeks")]
PARTS = [
    ("", "all together"),
    ("version", "versions"),
    ("label", "labels"),
    ("model", "models"),
    ("key", "metadata key"),
]
MOST_MARKS = 60
JOINED = QualityMeasure("joined", "Joined reward", "bounded", 1, "", "answers of a version")
"""Ratings and signals in one estimate."""
TONES = {None: "", True: "bad", False: "good"}
KINDS = {"version": "version", "label": "label", "model": "model", "drift": "drift"}


@router("GET", "/quality/{name:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """The charts of one prompt; the form chooses the period, the answers, and the groups into which they are split."""
    name, quality = call.path("name"), call.state.live.quality
    or_404(quality.check_prompt, name)
    fields = {field: call.query_params.get(field, "").strip() for field in FIELDS}
    report = call.state.measure_quality(name, _options(fields))
    alerts = quality.alerts(name, limit=10).items
    empty = ui.nothing(
        "No answer was logged in this period.",
        "Programs send answers to ",
        el("code", "POST /v1/inferences"),
        ".",
    )
    worth, notes = _worth(call, report, fields) if report.answers else (None, None)
    charts = _charts(report, worth) if report.answers else empty
    return ui.page(
        call,
        f"Quality of {name}",
        "prompts",
        _form(name, fields),
        _sum_up(report, to_now=not fields["until"]),
        charts,
        notes,
        _marks(report.marks[:MOST_MARKS]),
        alerts_section(alerts),
        above=[("Prompts", "/prompts"), (name, ui.path_to("prompts", name))],
        wide=True,
    )


def _options(fields: dict[str, str]) -> QualityOptions:
    """The request of the form. Raises UsageError for an invalid number or time."""
    by, key = fields["by"], fields["key"]
    if by == "key":
        by = f"metadata.{key}" if key else ""
    return {
        "days": ui.whole_number(fields["days"], "The number of days") if fields["days"] else 30,
        "since": microseconds(fields["since"]) if fields["since"] else None,
        "until": microseconds(fields["until"]) if fields["until"] else None,
        "version": ui.whole_number(fields["version"], "The version", 0) if fields["version"] else None,
        "label": fields["label"] or None,
        "model": fields["model"] or None,
        "by": by,
        "step": fields["step"],
    }


def _form(name: str, fields: dict[str, str]) -> Html:
    known = [value for value, _ in PERIODS]
    days = fields["days"] or "30"
    periods = PERIODS if days in known else [*PERIODS, (days, f"{days} days")]
    return ui.search_form(
        ui.path_to("quality", name),
        ui.select("days", "Period", periods, days),
        ui.select("step", "In steps of", STEPS, fields["step"]),
        ui.text_input("version", "Version", fields["version"], inputmode="numeric"),
        ui.text_input("label", "Label", fields["label"], placeholder="production"),
        ui.text_input("model", "Model", fields["model"]),
        ui.select("by", "Split into", PARTS, fields["by"]),
        ui.text_input("key", "Key of the metadata", fields["key"], placeholder="country"),
        label="Quality",
        word="Show",
    )


def _sum_up(report: QualityReport, to_now: bool) -> Html:
    """Say the number of answers and the way in which they were read; of a period that has not ended, also the second until
    which they were read."""
    words: list[Child] = [number_format.plural(report.answers, "answer")]
    if to_now:
        words += [" until ", ui.moment(report.until, seconds=True)]
    if to_now and report.answers >= shared_reports.LARGE:
        words.append(f"; this page is kept for {shared_reports.KEPT_SECONDS:.0f} seconds")
    words.append(".")
    if report.every > 1:
        words.append(f" One answer of {report.every} was read.")
    return note(
        *words,
        " Bands are 95% intervals; answers of one user count as one piece of evidence. Times are in UTC; feedback counts for the "
        "time of its answer, so that the newest steps still fill up.",
    )


def _charts(report: QualityReport, worth: Html | None) -> Html:
    names: list[str] = []
    for group in report.groups:
        names += [one.measure.name for one in group.series if one.measure.name not in names]
    span = report.since, report.until
    charts = []
    for i, name in enumerate(names):
        lines = [(group.name, series) for group in report.groups if (series := group.of(name)) is not None]
        charts.append(quality_figures.chart(lines, span, report.width, report.marks[:MOST_MARKS], f"q{i}"))
    return el("div", worth, charts, class_="panels")


def _worth(
    call: RequestContext, report: QualityReport, fields: dict[str, str]
) -> tuple[Html | None, Html | None]:
    """The chart of what the answers of each version are worth, ratings and signals joined, with what limits it; or why there is
    none. There is none for one label or model: the estimate is of all answers."""
    if fields["label"] or fields["model"]:
        return None, note(
            "The joined reward is estimated over all labels and models; it is not drawn for one of them."
        )
    since, span = begin_of(report.since, report.width), (report.since, report.until)
    begins = range(since, report.until, report.width)
    rewards = call.state.reports.get(
        ("worth", report.prompt, *span, report.width),
        lambda: rewards_over_time(call.state.live.database, report.prompt, begins, span),
        lambda one: one.answers,
    )
    wanted = [
        (whole, points) for whole, points in rewards.versions if fields["version"] in ("", str(whole.version))
    ]
    groups = [
        (
            f"version {whole.version}",
            MeasureSeries(JOINED, tuple(_to_point(at, one) for at, one in points), _to_point(since, whole)),
        )
        for whole, points in wanted
        if points
    ]
    if not groups:
        why = rewards.reason or "no version has 20 ratings by 10 users in one step; choose longer steps"
        return None, note("Joined reward: ", why.rstrip("."), ".")
    marks = report.marks[:MOST_MARKS]
    picture = quality_figures.chart(groups, span, report.width, marks, "joined", ("rated answer", "rater"))
    limits = [
        f" Version {whole.version}: {one}." for whole, points in wanted if points for one in whole.notes
    ]
    read = f"the newest {rewards.answers:,} answers" if rewards.newest else "all answers without an error"
    words = (
        "The joined reward is that of ", el("code", f"whet feedback rewards {report.prompt}"),
        f", step by step, from {read}: ratings where there are some, signals weighted by ratings elsewhere, corrected for who "
        "rates and for the draw of versions. A step without 20 ratings of a version by 10 users has no point.",
    )  # fmt: skip
    return picture, note(*words, *limits)


def _to_point(at: int, one: VersionReward) -> QualityPoint:
    value = one.value
    assert value is not None
    return QualityPoint(at, one.rated, one.people, value.value, value.low, value.high, value.method)


def _marks(marks: Sequence[ChangeMark]) -> Html:
    rows = [
        ui.row([el("b", str(number)), " ", ui.tag(KINDS[mark.kind], TONES[mark.worse]), " ", mark.text],
               ui.aside(ui.moment(mark.at)))
        for number, mark in enumerate(marks, 1)
    ]  # fmt: skip
    empty = note("No version, label or model changed in this period, and no drift was noticed.")
    return ui.section("What changed", ui.stack_rows(rows, empty), id="changes")


def alerts_section(alerts: Sequence[QualityAlert]) -> Html | None:
    """The observations about a prompt, with the delivery of each message."""
    if not alerts:
        return None
    return ui.section("Noticed", ui.stack_rows(map(alert_row, alerts)), id="noticed")


def alert_row(alert: QualityAlert) -> Html:
    """One alert in a list."""
    kinds = [channel.partition("-")[0] for channel in alert.deliveries]
    names = kinds if len(set(kinds)) == len(kinds) else alert.deliveries
    states = [f"{name}: {state}" for name, state in zip(names, alert.deliveries.values(), strict=True)]
    return ui.row(
        ui.name_link(alert.text, alert.place),
        ui.tag(alert.kind, "" if alert.kind == APPROVAL else "bad" if alert.worse else "good"),
        states and ui.aside(", ".join(states)),
        ui.aside(ui.moment(alert.at)),
    )
