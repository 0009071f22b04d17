"""The page of a prompt's failure patterns, which the reader named: counts, trend and examples."""

from __future__ import annotations

from collections.abc import Sequence

from whet.reporting import Child, Html, clip, details, el, note, number_format, table
from whet_live.database import iso
from whet_live.learner import LONGEST_DESCRIPTION, LONGEST_PATTERN_NAME, FailurePattern, PatternReport
from whet_live.quality import MeasureSeries, QualityMeasure, QualityPoint
from whet_live.server.pages import quality_figures, ui
from whet_live.server.request_context import RequestContext
from whet_live.server.roles import Role

MOST = 12
LONGEST = 400
WEEK = 7 * 86_400_000_000
_MEASURE = QualityMeasure("pattern", "Users who met it", "share", -1, of="users with an answer")


def patterns_section(call: RequestContext, name: str) -> Html:
    """The patterns of a prompt, those that most users met lately first."""
    report = call.state.live.learner.patterns(name)
    hint = (
        "A model reads critiques (comments, corrections, ratings with words, low grades of evaluators), puts each into one "
        "pattern and names the patterns; whet counts. A line shows week by week which share of the users with an answer met it "
        "and said so."
    )
    edits = call.may(Role.EDITOR)
    rows = [
        _row(i, one, report, edits and _edits(call, name, one, report))
        for i, one in enumerate(report.patterns[:MOST])
    ]
    empty = note("No critique is in a pattern yet.")
    more = len(report.patterns) - MOST
    rest = more > 0 and note(
        f"{number_format.plural(more, 'more pattern')}: ", el("code", f"whet feedback patterns {name}")
    )
    return ui.section(
        "How answers fail", note(hint), ui.stack_rows(rows, empty), rest, _rest(report), id="patterns"
    )


def _row(i: int, one: FailurePattern, report: PatternReport, edits: Child) -> Html:
    critiques, users = (
        number_format.plural(one.critiques, "critique"),
        number_format.plural(one.users, "user"),
    )
    spark = _spark(i, one, report.weeks)
    return ui.row(
        el("b", one.name, dir="auto"),
        spark and el("span", spark, class_="spark-cell"),
        ui.aside(f"{critiques}, {users}"),
        ui.aside("last ", ui.moment(one.last)),
        details(f"Weeks and examples of {one.id}", _weeks(one), _examples(one.examples)),
        edits,
        sub=clip(one.description, LONGEST) or None,
    )


def _edits(call: RequestContext, name: str, one: FailurePattern, report: PatternReport) -> Html:
    """The forms that give a pattern another name, and that make it a part of another one."""
    rename = ui.form(
        call,
        ui.path_to("patterns", name),
        ui.hidden_fields(key=one.id),
        _box("name", f"Name of {one.id}", one.name, LONGEST_PATTERN_NAME),
        _box("description", f"Description of {one.id}", one.description, LONGEST_DESCRIPTION),
        _box("reason", f"Reason for the new name of {one.id}", "", 4_000),
        ui.button("Rename"),
        class_="inline",
        label=f"Rename {one.id}",
    )
    choices = [(other.id, f"{other.id}: {other.name}") for other in report.patterns if other.id != one.id]
    if not choices:
        return details(f"Rename {one.id}", rename)
    others = ui.select_choices([("", "Choose the pattern"), *choices], "")
    into = el(
        "select", others, name="into", required=True, aria_label=f"Pattern of which {one.id} becomes a part"
    )
    merge = ui.form(
        call,
        ui.path_to("pattern-merges", name),
        ui.hidden_fields(key=one.id),
        into,
        _box("reason", f"Reason for the merge of {one.id}", "", 4_000),
        ui.button("Merge", "danger"),
        class_="inline",
        label=f"Merge {one.id}",
    )
    return details(f"Rename or merge {one.id}", rename, merge)


def _box(name: str, label: str, value: str, longest: int) -> Html:
    """A line of text. Every pattern has its own, so that no id can be that of the name."""
    return el(
        "input",
        type="text",
        name=name,
        value=value,
        maxlength=longest,
        required=name == "name",
        placeholder=label,
        aria_label=label,
    )


def _spark(i: int, one: FailurePattern, weeks: Sequence[int]) -> Html | None:
    points = tuple(
        QualityPoint(week.at, week.active, week.active, week.share, week.low, week.high, "Wilson")
        for week in one.weeks
        if week.active and week.share is not None and week.low is not None and week.high is not None
    )
    if not points:
        return None
    last = points[-1]
    share = quality_figures.show_mean(last.mean, _MEASURE)
    summary = (
        f"In the week of {iso(last.at)[:10]} {share} of {number_format.plural(last.n, 'user')} "
        f"(95%: {quality_figures.show_interval_ends(last, _MEASURE)})."
    )
    series = MeasureSeries(_MEASURE, points, last)
    words = f"{_MEASURE.title} by week", summary
    return quality_figures.sparkline(series, (weeks[0], weeks[-1] + WEEK), WEEK, f"pattern-{i}", words=words)


def _weeks(one: FailurePattern) -> Html:
    rows: list[list[Child]] = []
    for week in reversed(one.weeks):
        share, ends = "–", "–"
        if week.share is not None and week.low is not None and week.high is not None:
            share, ends = f"{week.share:.1%}", f"{week.low:.1%} to {week.high:.1%}"
        active = "not counted" if week.active is None else f"{week.active:,}"
        rows.append([iso(week.at)[:10], f"{week.critiques:,}", f"{week.users:,}", active, share, ends])
    head = ["Week of", "Critiques", "Users", "Of users", "Share", "95% interval"]
    return table("By the time of the answers, in UTC", head, rows)


def _examples(answers: Sequence[str]) -> Html:
    links = [
        [" · " if n else "", ui.link(clip(answer, 60), ui.path_to("feedback", answer))]
        for n, answer in enumerate(answers)
    ]
    return el("p", "Newest answers: ", links)


def _rest(report: PatternReport) -> Html:
    """The handling of critiques that are in no pattern."""
    counted = (
        (report.in_patterns, "in a pattern"),
        (report.no_failure, "without a failure"),
        (report.withheld, "that look like attacks, not read"),
        (report.unreadable, "that could not be read"),
        (report.waiting, "waiting for the reader"),
    )
    shown = ", ".join(f"{number:,} {words}" for number, words in counted if number)
    calls = ""
    if report.day:
        calls = (
            f" The reader was last asked on {report.day}, in {number_format.plural(report.calls, 'call')}."
        )
    return note(f"Critiques: {shown or 'none'}.{calls}")
