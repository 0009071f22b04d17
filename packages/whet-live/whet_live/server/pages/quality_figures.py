"""The pictures of quality over time: a chart for each measure with its interval and the changes around it; sparklines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from whet.errors import show_size
from whet.reporting import Child, Html, details, el, join, number_format, svg, table
from whet_live.database import iso
from whet_live.quality import ChangeMark, MeasureSeries, QualityMeasure, QualityPoint

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 26, 30
SPARK_WIDTH, SPARK_HEIGHT = 132, 30
SERIES = 8
HOUR, DAY = 3_600_000_000, 86_400_000_000
_TICKS = (HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 182 * DAY)
_MOST_TICKS = 5
_APART = 16
"""Pixels between the numbers of two marks; nearer ones share theirs."""
_TALLEST = 3.0
"""The largest height at which an interval is drawn, as a multiple of the largest mean: a step with few answers would flatten
all others."""

Named = Sequence[tuple[str, MeasureSeries]]
Counted = tuple[str, str]
ANSWERS: Counted = ("answer", "user")
"""The counts behind the points of a chart: values, and clusters of them."""


def show_mean(value: float, measure: QualityMeasure) -> str:
    """A mean of a measure as people read it."""
    if not math.isfinite(value):
        return "unknown"
    if measure.kind == "share":
        return f"{value:.1%}"
    if measure.unit == "$":
        return f"${show_size(value, 3)}"
    return f"{show_size(value, 3)} {measure.unit if measure.unit in ('s', 'stars') else ''}".strip()


def show_interval_ends(point: QualityPoint, measure: QualityMeasure) -> str:
    """The ends of a 95% interval."""
    return f"{show_mean(point.low, measure)} to {show_mean(point.high, measure)}"


def chart(
    groups: Named,
    span: tuple[int, int],
    width: int,
    marks: Sequence[ChangeMark],
    name: str,
    counted: Counted = ANSWERS,
) -> Html:
    """One measure over a period, a line for each group: the mean of each step of `width` with its interval, and numbered lines
    where something changed. `name` is unique on the page. `counted` says in words what the points count."""
    measure = groups[0][1].measure
    x = svg.Scale(float(span[0]), float(span[1]), LEFT, WIDTH - RIGHT)
    y = svg.Scale(*_range(measure, groups), HEIGHT - BOTTOM, TOP)
    parts: list[Html] = [*_grid(y, measure), *_time_axis(x, span), *_mark_lines(x, y, marks)]
    for i, (_, series) in enumerate(groups):
        number = i % SERIES
        for run in _runs(series.points, width):
            places = [(x(point.at + width / 2), point) for point in run]
            ends = [(at, _inside(y, point.low)) for at, point in places]
            ends += [(at, _inside(y, point.high)) for at, point in reversed(places)]
            if len(run) > 1:
                parts.append(svg.area(ends, f"band band-{number}"))
                parts.append(
                    svg.path([(at, y(p.mean)) for at, p in places], f"curve series-{number} dash-{number}")
                )
            else:
                parts.append(svg.straight_line(ends[0], ends[1], f"whisker series-{number}"))
        if len(series.points) <= 62:
            parts += [
                svg.marker("circle", x(point.at + width / 2), y(point.mean), f"mark series-{number}", 2.5)
                for point in series.points
            ]
    whole = [f"{group or 'all answers'}: {describe_period(series, counted)}" for group, series in groups]
    title = f"{measure.title} over time"
    summary = f"From {_day(span[0])} to {_day(span[1])}. {'; '.join(whole)}."
    picture = svg.svg(WIDTH, HEIGHT, title, summary, *parts, name=name)
    return el(
        "figure",
        _caption(measure, groups, counted),
        picture,
        _numbers(measure, groups, counted),
        class_="over-time",
    )


def describe_period(series: MeasureSeries, counted: Counted = ANSWERS) -> str:
    """The whole period in words: the mean with its interval, and over how many answers of how many users."""
    whole, measure = series.whole, series.measure
    users = number_format.plural(whole.clusters, counted[1])
    values = f"{whole.n:,} {counted[0]}s"
    text = (
        f"{show_mean(whole.mean, measure)} (95%: {show_interval_ends(whole, measure)}), {values} of {users}"
    )
    for share, value, low, high in whole.quantiles:
        ends = f"{show_mean(low, measure)} to {show_mean(high, measure)}"
        text += f"; {share:.0%} of answers up to {show_mean(value, measure)} ({ends})"
    return text


def _caption(measure: QualityMeasure, groups: Named, counted: Counted) -> Html:
    if len(groups) == 1 and not groups[0][0]:
        return el("figcaption", measure.title, " ", el("small", describe_period(groups[0][1], counted)))
    keys = [
        (
            svg.straight_line((0, 8), (28, 8), f"curve series-{i % SERIES} dash-{i % SERIES}"),
            f"{name}: {describe_period(series, counted)}",
        )
        for i, (name, series) in enumerate(groups)
    ]
    return el("figcaption", measure.title, svg.legend(keys))


def _range(measure: QualityMeasure, groups: Named) -> tuple[float, float]:
    """The range of the vertical axis: a whole scale of stars, or from 0 to the largest useful interval."""
    points = [point for _, series in groups for point in series.points]
    if measure.kind == "bounded":
        return measure.low, measure.high
    top = max(point.mean for point in points)
    if measure.kind == "share":
        return 0.0, min(
            1.0, max(0.05, *(min(point.high, max(_TALLEST * top, 0.1)) for point in points)) * 1.05
        )
    low = min(0.0, *(max(point.low, -_TALLEST * abs(point.mean)) for point in points))
    high = max(min(point.high, _TALLEST * top) for point in points) if top > 0 else 0.0
    return low, high * 1.05 if high > low else low + 1.0


def _inside(y: svg.Scale, value: float) -> float:
    return y(min(max(value, y.low), y.high))


def _grid(y: svg.Scale, measure: QualityMeasure) -> Iterable[Html]:
    ticks, step = svg.ticks(y.low, y.high, 5)
    for tick in ticks:
        text = f"{100 * tick:.6g}%" if measure.kind == "share" else number_format.axis(tick, step)
        yield svg.straight_line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), "grid")
        yield svg.label(LEFT - 8, y(tick) + 4, f"${text}" if measure.unit == "$" else text, "end")


def _time_axis(x: svg.Scale, span: tuple[int, int]) -> Iterable[Html]:
    """A line below the chart with a few dates or hours, in UTC."""
    yield svg.straight_line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "axis")
    step = next((one for one in _TICKS if (span[1] - span[0]) / one <= _MOST_TICKS + 1), 2 * _TICKS[-1])
    tick = -(-span[0] // step) * step
    while tick <= span[1]:
        moment = datetime.fromtimestamp(tick / 1_000_000, UTC)
        text = f"{moment:%H:%M}" if step < DAY else f"{moment.day} {moment:%b}"
        yield svg.straight_line((x(tick), HEIGHT - BOTTOM), (x(tick), HEIGHT - BOTTOM + 5), "axis")
        yield svg.label(min(max(x(tick), LEFT), WIDTH - 24), HEIGHT - BOTTOM + 20, text, "middle")
        tick += step


def _mark_lines(x: svg.Scale, y: svg.Scale, marks: Sequence[ChangeMark]) -> Iterable[Html]:
    """A line at each change, with the number under which it is listed; neighbours share a label."""
    near: list[tuple[float, int, int]] = []
    for number, mark in enumerate(marks, 1):
        at = x(min(max(mark.at, x.low), x.high))
        yield svg.straight_line((at, TOP - 6), (at, y.start), f"change change-{mark.kind}")
        if near and at - near[-1][0] < _APART:
            near[-1] = (near[-1][0], near[-1][1], number)
        else:
            near.append((at, number, number))
    for at, first, last in near:
        yield svg.label(
            min(at, WIDTH - 14), TOP - 11, str(first) if first == last else f"{first}–{last}", "middle"
        )


def _runs(points: Sequence[QualityPoint], width: int) -> list[list[QualityPoint]]:
    """Points that follow each other without a gap."""
    runs: list[list[QualityPoint]] = []
    for point in points:
        if runs and point.at - runs[-1][-1].at <= width:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _numbers(measure: QualityMeasure, groups: Named, counted: Counted) -> Html:
    many = len(groups) > 1
    rows: list[list[Child]] = [
        [_day(point.at, hours=True), *([name] if many else []), show_mean(point.mean, measure),
         show_interval_ends(point, measure), f"{point.n:,}", f"{point.clusters:,}"]
        for name, series in groups for point in series.points
    ]  # fmt: skip
    head = [
        "From (UTC)",
        *(["Of"] if many else []),
        "Mean",
        "95% interval",
        *(f"{one.capitalize()}s" for one in counted),
    ]
    return details("The numbers of this picture", table(f"{measure.title}: {measure.of}", head, rows))


def _day(moment: int, *, hours: bool = False) -> str:
    text = iso(moment)
    return f"{text[:10]} {text[11:16]}" if hours and text[11:16] != "00:00" else text[:10]


def sparkline(
    series: MeasureSeries,
    span: tuple[int, int],
    width: int,
    name: str,
    *,
    words: tuple[str, str] | None = None,
) -> Html:
    """A measure in a line of text: its last steps, and a dot at the newest. `words` are title and description for those who do
    not see it (None: by day, with the mean of the whole period)."""
    measure = series.measure
    x = svg.Scale(float(span[0]), float(span[1]), 3, SPARK_WIDTH - 4)
    y = svg.Scale(*_range(measure, [("", series)]), SPARK_HEIGHT - 3, 3)
    parts: list[Html] = []
    for run in _runs(series.points, width):
        places = [(x(point.at + width / 2), y(point.mean)) for point in run]
        if len(places) > 1:
            parts.append(svg.path(places, "curve series-0"))
        else:
            parts.append(svg.marker("circle", *places[0], "mark series-0", 1.6))
    last = series.points[-1]
    parts.append(svg.marker("circle", x(last.at + width / 2), y(last.mean), "mark series-0", 3))
    own = f"{describe_period(series)}; on {_day(last.at)} {show_mean(last.mean, measure)}."
    title, summary = words or (f"{measure.title} by day", own)
    return svg.svg(SPARK_WIDTH, SPARK_HEIGHT, title, summary, join(parts), name=name, class_="spark")
