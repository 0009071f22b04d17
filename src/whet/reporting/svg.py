"""Small pieces of a chart: scales, ticks, axes, paths. Colours come from the style sheet's classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import whet.reporting.number_format as number_format
from whet.reporting.markup import Html, el, join

XY = tuple[float, float]
INTERVAL_WIDTH, INTERVAL_ROW, METHOD_ROW, NAME_ROW = 400, 54, 16, 18
LONGEST_LINE = 42
"""Letters of a name and its figures that fit one line of an interval plot."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values [low, high] to pixels [start, stop]."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def pad_range(values: Iterable[float], share: float = 0.07) -> tuple[float, float]:
    """The range of values with a margin on both sides; never empty.

    >>> pad_range([2.0, 2.0])
    (1.5, 2.5)
    """
    known = list(values)
    low, high = min(known), max(known)
    if high - low < 1e-9 * max(1.0, abs(low)):
        half = 0.5 if low == 0 else abs(low) / 4
        return low - half, high + half
    margin = share * (high - low)
    return low - margin, high + margin


def ticks(low: float, high: float, most: int) -> tuple[list[float], float]:
    """At most `most` round values within [low, high] and their distance (1, 2 or 5 times a power of ten).

    >>> ticks(0.02, 0.34, 5)
    ([0.1, 0.2, 0.3], 0.1)
    """
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)], step


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's size in pixels, its two scales and the height of its lower edge."""

    width: int
    height: int
    x: Scale
    y: Scale

    def axes(self, x_label: str, x_ticks: int, y_ticks: int) -> Html:
        """Horizontal grid lines with their values, ticks below with theirs, and the label of the x axis."""
        parts: list[Html] = []
        marks, step = ticks(self.y.low, self.y.high, y_ticks)
        for mark in marks:
            y = self.y(mark)
            parts.append(straight_line((self.x.start, y), (self.x.stop, y), "grid"))
            parts.append(label(self.x.start - 8, y + 4, number_format.axis(mark, step), "end"))
        x_axis = horizontal_axis(self.x, self.y.start, x_ticks)
        middle = (self.x.start + self.x.stop) / 2
        return join(parts, x_axis, label(middle, self.y.start + 40, x_label, "middle", "axis-label"))


def horizontal_axis(x: Scale, y: float, most: int) -> Html:
    """A line below a chart with at most `most` ticks and their values."""
    marks, step = ticks(x.low, x.high, most)
    parts = [straight_line((x.start, y), (x.stop, y), "axis")]
    for mark in marks:
        parts.append(straight_line((x(mark), y), (x(mark), y + 5), "axis"))
        parts.append(label(x(mark), y + 20, number_format.axis(mark, step), "middle"))
    return join(parts)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row of an interval plot: a mean between the ends of its interval, their text, how it is drawn, and (where that is
    said) how the interval was made."""

    name: str
    mean: float
    low: float
    high: float
    text: str
    shape: str = "circle"
    class_: str = "best"
    method: str = ""


def interval_plot(
    caption: str, rows: Sequence[IntervalRow], name: str, reference: float | None = None
) -> Html:
    """Intervals under each other on one scale, with a line at the reference."""
    ends = [v for row in rows for v in (row.low, row.high)] + ([] if reference is None else [reference])
    x = Scale(*pad_range(ends, 0.05), 12, INTERVAL_WIDTH - 12)
    below = NAME_ROW if any(len(row.name) + len(row.text) > LONGEST_LINE for row in rows) else 0
    each = INTERVAL_ROW + below + (METHOD_ROW if any(row.method for row in rows) else 0)
    bottom = each * len(rows) + 8
    parts: list[Html] = []
    for i, row in enumerate(rows):
        top, whisker = 20 + each * i, f"whisker {row.class_}"
        y = top + below + 18
        if reference is not None:  # beside the interval only, so that it crosses no text
            parts.append(straight_line((x(reference), y - 11), (x(reference), y + 11), "zero"))
        parts.append(label(0, top, row.name, "start", "row-name"))
        parts.append(label(INTERVAL_WIDTH, top + below, row.text, "end", "row-value"))
        if row.method:
            parts.append(label(INTERVAL_WIDTH, y + 22, row.method, "end"))
        parts.append(straight_line((x(row.low), y), (x(row.high), y), whisker))
        parts += [straight_line((x(end), y - 6), (x(end), y + 6), whisker) for end in (row.low, row.high)]
        parts.append(marker(row.shape, x(row.mean), y, f"mark {row.class_}", 6))
    summary = "; ".join(f"{row.name} {row.text} {row.method}".strip() for row in rows)
    if reference is not None:
        summary += f"; the line stands at {reference:g}"
    axis = horizontal_axis(x, bottom, 5)
    picture = svg(INTERVAL_WIDTH, bottom + 30, caption, summary, axis, *parts, name=name)
    return el("figure", el("figcaption", caption), picture)


def svg(
    width: int, height: int, title: str, description: str, *children: Html, name: str, class_: str = ""
) -> Html:
    """A picture with a title and a description for those who do not see it. `name` is unique on the page."""
    return el(
        "svg",
        el("title", title, id=f"{name}-title"),
        el("desc", description, id=f"{name}-desc"),
        *children,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=class_ or None,
    )


def straight_line(start: XY, stop: XY, class_: str) -> Html:
    """A straight line."""
    return el("line", x1=px(start[0]), y1=px(start[1]), x2=px(stop[0]), y2=px(stop[1]), class_=class_)


def label(x: float, y: float, text: str, anchor: str = "start", class_: str | None = None) -> Html:
    """Text at a place; `anchor` is start, middle or end."""
    return el("text", text, x=px(x), y=px(y), text_anchor=anchor, class_=class_)


def path(points: Sequence[XY], class_: str) -> Html:
    """A line through points."""
    return el("path", d="M" + "L".join(f"{px(x)} {px(y)}" for x, y in points), class_=class_)


def area(points: Sequence[XY], class_: str) -> Html:
    """The area inside a line through points."""
    return el("path", d="M" + "L".join(f"{px(x)} {px(y)}" for x, y in points) + "Z", class_=class_)


def legend(entries: Iterable[tuple[Html, str]]) -> Html:
    """The legend of a chart: the meaning of its lines and marks."""
    items = [
        el("li", el("svg", icon, viewBox="0 0 28 16", aria_hidden="true"), text) for icon, text in entries
    ]
    return el("ul", items, class_="legend")


def stairs(points: Sequence[XY], stop: float) -> list[XY]:
    """Corners of a step line that keeps each value until the next one, and the last one until `stop`."""
    corners: list[XY] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return [*corners, (stop, corners[-1][1])] if corners else []


def dots(points: Iterable[XY], class_: str) -> Html:
    """Many small dots as one path; dots of the same pixel are drawn once."""
    places = sorted({(round(x), round(y)) for x, y in points})
    return el("path", d="".join(f"M{x} {y}h0" for x, y in places), class_=class_)


def marker(kind: str, x: float, y: float, class_: str, size: float = 5.0) -> Html:
    """A circle, diamond or square, `size` pixels from centre to edge."""
    if kind == "circle":
        return el("circle", cx=px(x), cy=px(y), r=px(size), class_=class_)
    if kind == "square":
        return el(
            "rect", x=px(x - size), y=px(y - size), width=px(2 * size), height=px(2 * size), class_=class_
        )
    corners = ((x, y - size), (x + size, y), (x, y + size), (x - size, y))
    return area(corners, class_)


def envelope(points: Sequence[XY], columns: int) -> list[XY]:
    """At most two points per column, its lowest and its highest, so that a long series keeps its spikes."""
    if len(points) <= 2 * columns:
        return list(points)
    size = -(-len(points) // columns)
    kept: list[XY] = []
    for i in range(0, len(points), size):
        part = points[i : i + size]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def running_mean(points: Sequence[XY], window: int) -> list[XY]:
    """Mean of each `window` neighbouring values, placed at the middle one."""
    means, total = [], 0.0
    for i, (_, y) in enumerate(points):
        total += y - (points[i - window][1] if i >= window else 0.0)
        if i >= window - 1:
            means.append((points[i - window // 2][0], total / window))
    return means


def px(value: float) -> str:
    """A pixel coordinate with one decimal at most."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")
