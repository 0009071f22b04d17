"""The pictures of an experiment: posteriors, chances and shares, differences, guard-rails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.errors import show_size
from whet.reporting import (
    Child,
    Html,
    IntervalRow,
    el,
    interval_plot,
    join,
    note,
    number_format,
    svg,
    table,
)
from whet_live.server.pages import ui

WIDE, NARROW = (880, 300), (360, 260)
BAR_WIDTH, BAR_ROW = 400, 46
ARMS = 5


def posteriors(posterior: Mapping[str, Any], versions: Sequence[int], known: bool) -> Html:
    """The posterior of each version's mean: one curve a version, on one scale. `known`: there are outcomes."""
    if not known:
        return ui.section(
            "Posteriors", note("No outcome is settled yet, so nothing is known of any version.")
        )
    grid = [float(x) for x in posterior["grid"]]
    curves = {version: [float(y) for y in posterior["arms"][str(version)]] for version in versions}
    peaks = {version: grid[max(range(len(ys)), key=ys.__getitem__)] for version, ys in curves.items()}
    tops = ", ".join(f"version {version} near {peak:.3g}" for version, peak in peaks.items())
    title = f"Posterior of {posterior['metric']}"
    pictures = [
        svg.svg(*size, title, tops, _curves(grid, curves, *size), name=f"post-{name}", class_=name)
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    caption = el(
        "figcaption",
        f"Where the mean of {posterior['metric']} lies, by version",
        svg.legend(
            [(svg.straight_line((0, 8), (28, 8), _stroke(i)), f"version {v}") for i, v in enumerate(versions)]
        ),
    )
    hint = "Beta posteriors with a uniform prior: they describe. The decision rests on evidence that allows looking at any time."
    return ui.section("Posteriors", el("figure", caption, pictures), note(hint))


def _stroke(i: int) -> str:
    return f"posterior-line arm-{i % ARMS} dash-{i % ARMS}"


def _curves(grid: Sequence[float], curves: Mapping[int, Sequence[float]], width: int, height: int) -> Html:
    top = max((max(ys) for ys in curves.values()), default=1.0) or 1.0
    x = svg.Scale(min(grid), max(grid), 12, width - 12)
    y = svg.Scale(0.0, top * 1.08, height - 46, 14)
    parts = [svg.horizontal_axis(x, y.start, width // 110)]
    for i, (version, densities) in enumerate(curves.items()):
        points = [(x(a), y(b)) for a, b in zip(grid, densities, strict=True)]
        ends = [(points[0][0], y.start), *points, (points[-1][0], y.start)]
        parts += [svg.area(ends, f"posterior-fill fill-{i % ARMS}"), svg.path(points, _stroke(i))]
        left, upper = min(points, key=lambda point: point[1])
        place = min(max(left, 30), width - 30), max(upper - 5, 11)
        parts.append(svg.label(*place, f"v{version}", "middle", "row-name"))
    return join(parts)


def share_bars(arms: Sequence[Mapping[str, Any]]) -> Html:
    """Each version's chance of being best and its share of the traffic, as bars with their numbers."""
    groups = (("best_chance", "Chance of being the best"), ("weight", "Share of new units"))
    figures = [_bars(caption, f"bars-{key}", [(a["version"], float(a[key] or 0)) for a in arms])
               for key, caption in groups]  # fmt: skip
    units = ", ".join(f"version {arm['version']}: {arm['assigned']:,}" for arm in arms)
    pair = el("div", figures, class_="pair")
    return ui.section("Chances and shares", pair, note(f"Units so far: {units}."))


def _bars(caption: str, name: str, rows: Sequence[tuple[int, float]]) -> Html:
    parts: list[Html] = []
    for i, (version, share) in enumerate(rows):
        top = BAR_ROW * i
        parts.append(svg.label(0, top + 16, f"version {version}", "start", "row-name"))
        parts.append(svg.label(BAR_WIDTH, top + 16, f"{share:.1%}", "end", "row-value"))
        wide = svg.px(max(2.0, share * BAR_WIDTH))
        for width, class_ in ((BAR_WIDTH, "bar-track"), (wide, f"fill-{i % ARMS}")):
            if share > 0 or class_ == "bar-track":
                parts.append(el("rect", x=0, y=top + 23, width=width, height=10, rx=3, class_=class_))
    description = ", ".join(f"version {version} {share:.1%}" for version, share in rows)
    picture = svg.svg(BAR_WIDTH, BAR_ROW * len(rows) + 4, caption, description, *parts, name=name)
    return el("figure", el("figcaption", caption), picture)


def differences(effects: Sequence[Mapping[str, Any]], control: int) -> Html | None:
    """Every version against the control, with a confidence sequence: it holds at every look."""
    rows = [e for e in effects if e["against"] == control and e["version"] != control]
    if not rows:
        return None
    cells: list[list[Child]] = [
        [f"version {e['version']}", _amount(e["estimate"], number_format.difference), _ends(e, number_format.difference),
         _evidence(e), f"{e['n']:,}"]
        for e in rows
    ]  # fmt: skip
    head = ["Version", "Difference", f"95% {_method(rows[0])}", "Evidence of what decides", "Units"]
    known = [_interval(e, "estimate") for e in rows if _is_known(e, "estimate")]
    return ui.section(
        "Differences",
        bool(known) and interval_plot("Difference to the control", known, "diff", 0.0),
        table("Against the control", head, cells),
        [_show_extreme(e) for e in effects if e.get("reached")],
    )


def guard_rails(guards: Sequence[Mapping[str, object]]) -> Html | None:
    """The guard-rails: the harm so far beside its limit."""
    if not guards:
        return None
    return ui.section("Guard-rails", el("div", map(_guard_rail, range(len(guards)), guards), class_="pair"))


def _guard_rail(i: int, guard: Mapping[str, Any]) -> Html:
    broken = bool(guard["broken"])
    mark = ui.tag("broken", "bad") if broken else ui.tag("holds", "good")
    what = "harm against the control" if guard["against"] == "control" else "mean"
    harm = f"{what} {_amount(guard['harm'])}, {_method(guard)} {_ends(guard)}"
    text = f"version {guard['version']}: {harm}; limit {guard['limit']:g}"
    picture = el("p", text)
    if _is_known(guard, "harm"):
        picture = interval_plot(text, [_interval(guard, "harm")], f"guard-{i}", float(guard["limit"]))
    evidence = (
        f"Evidence that it is broken: {_evidence(guard)}, over {number_format.plural(guard['n'], 'unit')}."
    )
    return el(
        "div",
        el("h3", str(guard["metric"]), " ", mark),
        picture,
        el("p", evidence, class_="quiet"),
        _broke(guard),
        class_="card bad" if broken else "card",
    )


def _broke(guard: Mapping[str, Any]) -> Html | None:
    """The state of a broken guard-rail when the evidence was largest."""
    then = guard.get("reached")
    if then is None:
        return None
    harm = f"{_amount(then['estimate'])}, {_method(guard)} {_ends(then)}"
    return el(
        "p", f"When it was largest, after {number_format.plural(then['n'], 'unit')}: {harm}.", class_="quiet"
    )


def _show_extreme(row: Mapping[str, Any]) -> Html:
    """The state of a difference when the evidence was largest; later units may have blurred it."""
    then, change = row["reached"], number_format.difference
    return note(
        f"When the evidence was largest, after {number_format.plural(then['n'], 'unit')}: version {row['version']} against "
        f"version {row['against']} {_amount(then['estimate'], change)}, {_method(row)} {_ends(then, change)}."
    )


def _amount(value: float | None, say: Callable[[object, int], str] = number_format.reward_text) -> str:
    """A value of any size."""
    return say(value, number_format.places(value))


def _method(row: Mapping[str, object]) -> str:
    """The method of an interval; a verdict that was stored before there were names of methods has none."""
    return str(row.get("method", "interval"))


def _ends(row: Mapping[str, Any], say: Callable[[Any, int], str] = number_format.reward_text) -> str:
    if None in (row["low"], row["high"]) or not row["n"]:
        return "–"
    return f"{_amount(row['low'], say)} to {_amount(row['high'], say)}"


def _is_known(row: Mapping[str, Any], middle: str) -> bool:
    return bool(row["n"]) and None not in (row[middle], row["low"], row["high"])


def _interval(row: Mapping[str, Any], middle: str) -> IntervalRow:
    mean, low, high = (float(row[key]) for key in (middle, "low", "high"))
    text = f"{show_size(mean, 3)}  [{show_size(low, 3)} to {show_size(high, 3)}]"
    return IntervalRow(f"version {row['version']}", mean, low, high, text)


def _evidence(row: Mapping[str, Any]) -> str:
    value = row["evidence"]
    if value is None:
        return "–"
    shown = f"{value:.3g}" if value < 1000 else f"{value:,.0f}" if value < 1e6 else "more than 1,000,000"
    return f"{shown} of {float(row['needed']):.3g}"
