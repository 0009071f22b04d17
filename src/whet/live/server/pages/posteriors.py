"""The pictures of an experiment: posteriors, chances and shares, differences, guard-rails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.reporting import number_format
from whet.reporting.layout import note, table
from whet.reporting.markup import Child, Html, el, join
from whet.reporting.svg import XY, Frame, Scale, label, line, marker, padded, path, px, svg, ticks

WIDE, NARROW = (880, 300), (360, 260)
BAR_WIDTH, BAR_ROW = 400, 46
ROW, ROW_WIDTH = 54, 400
ARMS = 5


def posteriors(posterior: Mapping[str, Any], versions: Sequence[int], known: bool) -> Html:
    """What is believed about each version's mean: one curve a version, on one scale. `known`: there are outcomes."""
    if not known:
        return el(
            "section",
            el("h2", "Posteriors"),
            note("No outcome is settled yet, so nothing is known of any version."),
        )
    grid = [float(x) for x in posterior["grid"]]
    curves = [(version, [float(y) for y in posterior["arms"][str(version)]]) for version in versions]
    tops = ", ".join(
        f"version {v} near {grid[max(range(len(ys)), key=ys.__getitem__)]:.3g}" for v, ys in curves
    )
    pictures = [
        svg(
            *size,
            f"Posterior of {posterior['metric']}",
            tops,
            _curves(grid, curves, *size),
            name=f"post-{name}",
            class_=name,
        )
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    items = [
        el(
            "li",
            el(
                "svg",
                line((0, 8), (28, 8), f"posterior-line arm-{i % ARMS} dash-{i % ARMS}"),
                viewBox="0 0 28 16",
                aria_hidden="true",
            ),
            f"version {version}",
        )
        for i, (version, _) in enumerate(curves)
    ]
    caption = el(
        "figcaption",
        f"Where the mean of {posterior['metric']} lies, by version",
        el("ul", items, class_="legend"),
    )
    hint = note(
        "Beta posteriors with a uniform prior: they describe. The decision rests on evidence that allows looking at any time."
    )
    return el("section", el("h2", "Posteriors"), el("figure", caption, pictures), hint)


def _curves(
    grid: Sequence[float], curves: Sequence[tuple[int, Sequence[float]]], width: int, height: int
) -> Html:
    top = max((max(ys) for _, ys in curves), default=1.0) or 1.0
    low, high = min(grid), max(grid)
    frame = Frame(width, height, Scale(low, high, 12, width - 12), Scale(0.0, top * 1.08, height - 46, 14))
    base = frame.y.start
    parts: list[Html] = [line((frame.x.start, base), (frame.x.stop, base), "axis")]
    marks, step = ticks(low, high, width // 110)
    for mark in marks:
        parts += [
            line((frame.x(mark), base), (frame.x(mark), base + 5), "axis"),
            label(frame.x(mark), base + 20, number_format.axis(mark, step), "middle"),
        ]
    for i, (version, ys) in enumerate(curves):
        points: list[XY] = [(frame.x(x), frame.y(y)) for x, y in zip(grid, ys, strict=True)]
        shape = (
            "M"
            + "L".join(f"{px(x)} {px(y)}" for x, y in [(points[0][0], base), *points, (points[-1][0], base)])
            + "Z"
        )
        parts.append(el("path", d=shape, class_=f"posterior-fill fill-{i % ARMS}"))
        parts.append(path(points, f"posterior-line arm-{i % ARMS} dash-{i % ARMS}"))
        peak = min(points, key=lambda p: p[1])
        parts.append(
            label(
                min(max(peak[0], 30), width - 30), max(peak[1] - 5, 11), f"v{version}", "middle", "row-name"
            )
        )
    return join(parts)


def shares(arms: Sequence[Mapping[str, Any]]) -> Html:
    """Each version's chance of being best and its share of the traffic, as bars with their numbers."""
    height = BAR_ROW * len(arms) + 4
    groups = (("best_chance", "Chance of being the best"), ("weight", "Share of new units"))
    figures = []
    for key, caption in groups:
        parts: list[Html] = []
        for i, arm in enumerate(arms):
            value, top = float(arm[key] or 0.0), BAR_ROW * i
            parts.append(label(0, top + 16, f"version {arm['version']}", "start", "row-name"))
            parts.append(label(BAR_WIDTH, top + 16, f"{value:.1%}", "end", "row-value"))
            parts.append(el("rect", x=0, y=top + 23, width=BAR_WIDTH, height=10, rx=3, class_="bar-track"))
            if value > 0:
                wide = px(max(2.0, value * BAR_WIDTH))
                parts.append(
                    el("rect", x=0, y=top + 23, width=wide, height=10, rx=3, class_=f"fill-{i % ARMS}")
                )
        description = ", ".join(f"version {arm['version']} {float(arm[key] or 0.0):.1%}" for arm in arms)
        figures.append(
            el(
                "figure",
                el("figcaption", caption),
                svg(BAR_WIDTH, height, caption, description, *parts, name=f"bars-{key}"),
            )
        )
    units = ", ".join(f"version {arm['version']}: {arm['assigned']:,}" for arm in arms)
    return el(
        "section",
        el("h2", "Chances and shares"),
        el("div", figures, class_="pair"),
        note(f"Units so far: {units}."),
    )


def differences(effects: Sequence[Mapping[str, Any]], control: int) -> Html | None:
    """Every version against the control, with a confidence sequence: it holds at every look."""
    rows = [e for e in effects if e["against"] == control and e["version"] != control]
    known = [e for e in rows if e["n"] and None not in (e["estimate"], e["low"], e["high"])]
    if not rows:
        return None
    table_rows: list[list[Child]] = [
        [
            f"version {e['version']}",
            number_format.change(e["estimate"], number_format.places(e["estimate"])),
            _ends(e, number_format.change),
            _evidence(e),
            f"{e['n']:,}",
        ]
        for e in rows
    ]
    head = ["Version", "Difference", "95 % confidence sequence", "Evidence of what decides", "Units"]
    body = table("Against the control", head, table_rows)
    picture = _ranges("diff", "Difference to the control", known, "estimate", 0.0) if known else None
    return el(
        "section", el("h2", "Differences"), picture, body, [_reached(e) for e in effects if e.get("reached")]
    )


def guard_rails(guards: Sequence[Mapping[str, Any]]) -> Html | None:
    """What no version may do: the harm so far beside its limit."""
    if not guards:
        return None
    items = []
    for i, guard in enumerate(guards):
        broken = bool(guard["broken"])
        what = "harm against the control" if guard["against"] == "control" else "mean"
        shown = number_format.reward(guard["harm"], number_format.places(guard["harm"]))
        harm = f"{what} {shown}, {_ends(guard, number_format.reward)}"
        description = f"version {guard['version']}: {harm}; limit {guard['limit']:g}"
        known = guard["n"] and None not in (guard["harm"], guard["low"], guard["high"])
        items.append(
            el(
                "div",
                el("h3", str(guard["metric"]), " ", tag_of(broken)),
                _ranges(f"guard-{i}", description, [guard], "harm", float(guard["limit"]))
                if known
                else el("p", description),
                el(
                    "p",
                    f"Evidence that it is broken: {_evidence(guard)}, over {guard['n']:,} units.",
                    class_="quiet",
                ),
                _broke(guard),
                class_="card bad" if broken else "card",
            )
        )
    return el("section", el("h2", "Guard-rails"), el("div", items, class_="pair"))


def _broke(guard: Mapping[str, Any]) -> Html | None:
    """What was known of a guard-rail that broke when the evidence was largest."""
    then = guard.get("reached")
    if then is None:
        return None
    harm = number_format.reward(then["estimate"], number_format.places(then["estimate"]))
    text = f"When it was largest, after {then['n']:,} units: {harm}, {_ends(then, number_format.reward)}."
    return el("p", text, class_="quiet")


def tag_of(broken: bool) -> Html:
    """The status of a guard-rail as a tag."""
    return el("span", "broken" if broken else "holds", class_="tag bad" if broken else "tag good")


def _ends(row: Mapping[str, Any], say: Any) -> str:
    return (
        "–"
        if None in (row["low"], row["high"]) or not row["n"]
        else " to ".join(say(row[end], number_format.places(row[end])) for end in ("low", "high"))
    )


def _reached(row: Mapping[str, Any]) -> Html:
    """What was known of a difference when the evidence was largest; later units may have blurred it."""
    then = row["reached"]
    middle = number_format.change(then["estimate"], number_format.places(then["estimate"]))
    return note(
        f"When the evidence was largest, after {then['n']:,} units: version {row['version']} against version "
        f"{row['against']} {middle}, {_ends(then, number_format.change)}."
    )


def _evidence(row: Mapping[str, Any]) -> str:
    value = row["evidence"]
    if value is None:
        return "–"
    shown = f"{value:.3g}" if value < 1000 else f"{value:,.0f}" if value < 1e6 else "more than 1,000,000"
    return f"{shown} of {float(row['needed']):.3g}"


def _ranges(
    name: str, caption: str, rows: Sequence[Mapping[str, Any]], middle: str, reference: float
) -> Html:
    """Intervals under each other with a line at a reference."""
    ends = [float(v) for row in rows for v in (row["low"], row["high"], row[middle])] + [reference]
    low, high = padded(ends, 0.06)
    x = Scale(low, high, 30, ROW_WIDTH - 30)
    bottom = ROW * len(rows) + 4
    parts: list[Html] = []
    marks, step = ticks(low, high, 5)
    for mark in marks:
        parts += [
            line((x(mark), bottom), (x(mark), bottom + 5), "axis"),
            label(x(mark), bottom + 19, number_format.axis(mark, step), "middle"),
        ]
    parts.append(line((x.start, bottom), (x.stop, bottom), "axis"))
    for i, row in enumerate(rows):
        y = ROW * i + 34
        parts.append(label(0, y - 16, f"version {row['version']}", "start", "row-name"))
        parts.append(line((x(reference), y - 11), (x(reference), y + ROW - 30), "limit-line"))
        parts.append(line((x(float(row["low"])), y), (x(float(row["high"])), y), "whisker best"))
        parts += [
            line((x(float(row[end])), y - 6), (x(float(row[end])), y + 6), "whisker best")
            for end in ("low", "high")
        ]
        parts.append(marker("circle", x(float(row[middle])), y, "mark best", 6))
    description = "; ".join(
        f"version {r['version']} {r[middle]:.3g} from {r['low']:.3g} to {r['high']:.3g}" for r in rows
    )
    picture = svg(
        ROW_WIDTH, bottom + 28, caption, f"{description}; the line stands at {reference:g}", *parts, name=name
    )
    return el("figure", el("figcaption", el("small", caption)), picture)
