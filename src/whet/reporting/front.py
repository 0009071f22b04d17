"""Several objectives: the verdict on each, the front on validation as a picture, and what the gate says of each of its points."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from whet.errors import show_size
from whet.reporting.layout import Section, details, note, table
from whet.reporting.markup import Html, clip, el, join, prompt_text
from whet.reporting.record import Record, finite_number, side
from whet.reporting.svg import Frame, Scale, dots, label, legend, marker, pad_range, svg

SIZE = (400, 300)
MOST_PANELS = 4
_BETTER = {"max": "more is better", "min": "less is better"}
_GATE = {
    "baseline": "the start prompt",
    "promoted": "promoted: the sealed test shows it",
    "not promoted": "not promoted by the sealed test",
    "not tested": "not tested on the sealed rows",
}
_MARKS = {
    "baseline": ("square", "mark baseline"),
    "promoted": ("circle", "mark best"),
    "not promoted": ("circle", "mark best"),
}
_OPEN = ("diamond", "candidate-mark")


def objectives(record: Record) -> Section | None:
    """Objectives of the run: None where its task has none."""
    points = [point for point in record.result.get("front") or () if isinstance(point, Mapping)]
    if not points:
        return None
    names = list(side(points[0], "validation"))
    words = note(
        "Prompts of the front, measured on the validation rows: no other prompt is shown to be "
        "better in one objective without being worse in another. Only the prompt that the method "
        f"returned is tested on the sealed rows. whet show {shlex.quote(record.place)} --choose NAME "
        "writes the best prompt for an objective."
    )
    body = join(
        _verdicts(record),
        el("h3", "The front"),
        words,
        _pictures(record, points, names),
        _table(points, names),
    )
    return Section("objectives", "Objectives", body)


def _verdicts(record: Record) -> Html | None:
    """The sealed test of each objective."""
    verdicts = side(record.result, "objectives")
    rows = [
        [
            join(name, " ", el("small", _BETTER.get(str(one.get("goal")), ""))),
            *(_figure(one.get(key)) for key in ("baseline", "best")),
            join(
                _change(one.get("difference")),
                el("small", f"{_figure(one.get('low'))} to {_figure(one.get('high'))}"),
            ),
            str(one.get("bound")),
            str(one.get("verdict")),
        ]
        for name, one in verdicts.items()
    ]
    head = ["Objective", "Baseline", "Best", "Difference", "Demanded of its mean", "Verdict"]
    return table("On the sealed test", head, rows, text=(4, 5)) if rows else None


def _table(points: Sequence[Mapping[str, object]], names: Sequence[str]) -> Html:
    rows = []
    for at, point in enumerate(points, 1):
        shown = side(point, "validation")
        means = [_point_mean(side(shown, name), point.get("gate") == "baseline") for name in names]
        broken = [name for name in names if side(shown, name).get("holds") is False]
        kept = "yes" if point.get("holds") else f"no: {', '.join(broken)}" if broken else "no"
        text = details(
            clip(str(point.get("id")), 40), el("pre", prompt_text(str(point.get("prompt"))), dir="auto")
        )
        rows.append([f"{at}", *means, kept, _gate(point), text])
    caption = "Means on validation; below them the interval of the difference to the baseline"
    last = len(names) + 1
    head = ["No.", *names, "Demands met", "Gate", "Prompt"]
    return table(caption, head, rows, text=(last, last + 1, last + 2))


def _point_mean(one: Mapping[str, object], start: bool) -> Html:
    """A mean, and unless it is that of the start the interval of the difference to the start."""
    interval = f"{_change(one.get('low'))} to {_change(one.get('high'))}"
    return join(_figure(one.get("mean")), None if start else el("small", interval))


def _gate(point: Mapping[str, object]) -> str:
    return _GATE.get(str(point.get("gate")), str(point.get("gate")))


def _pictures(record: Record, points: Sequence[Mapping[str, object]], names: Sequence[str]) -> Html | None:
    """The first objective against each of the others."""
    start = side(record.result, "baseline").get("id")
    dominated = [prompt for prompt in record.result.get("dominated") or () if isinstance(prompt, Mapping)]
    others = [{**prompt, "gate": "baseline" if prompt.get("id") == start else ""} for prompt in dominated]
    panels = [
        _panel(points, others, other, names[0], i) for i, other in enumerate(names[1 : MOST_PANELS + 1])
    ]
    if not panels:
        return None
    entries = [
        (marker(shape, 14, 8, class_), text) for (shape, class_), text in _kinds([*points, *others]).items()
    ]
    if any(not other["gate"] for other in others):
        entries.append((dots([(14, 8)], "dots"), "validated, but another prompt dominates it"))
    return join(el("figure", el("figcaption", legend(entries))), el("div", panels, class_="panels"))


def _kinds(points: Sequence[Mapping[str, object]]) -> dict[tuple[str, str], str]:
    return {_MARKS.get(str(point["gate"]), _OPEN): _gate(point) for point in points if point.get("gate")}


def _panel(
    points: Sequence[Mapping[str, object]],
    others: Sequence[Mapping[str, object]],
    x_name: str,
    y_name: str,
    number_of: int,
) -> Html:
    """One objective against another."""
    width, height = SIZE
    placed = [(_mean(point, x_name), _mean(point, y_name)) for point in points]
    behind = [(_mean(other, x_name), _mean(other, y_name)) for other in others]
    everything = placed + behind
    x_scale = Scale(*pad_range(x for x, _ in everything), 62, width - 14)
    frame = Frame(width, height, x_scale, Scale(*pad_range(y for _, y in everything), height - 50, 26))
    parts = [
        frame.axes(x_name, 4, 5),
        label(0, 12, y_name, "start", "axis-label"),
        dots(
            [(frame.x(x), frame.y(y)) for (x, y), one in zip(behind, others, strict=True) if not one["gate"]],
            "dots",
        ),
    ]
    for (x, y), one in zip(behind, others, strict=True):
        if one["gate"]:
            parts.append(marker(_MARKS["baseline"][0], frame.x(x), frame.y(y), _MARKS["baseline"][1]))
    for at, (point, (x, y)) in enumerate(zip(points, placed, strict=True), 1):
        shape, class_ = _MARKS.get(str(point.get("gate")), _OPEN)
        parts += [
            marker(shape, frame.x(x), frame.y(y), class_),
            label(frame.x(x) + 9, frame.y(y) - 6, str(at)),
        ]
    title = f"{y_name} against {x_name}"
    summary = "; ".join(
        f"{at}: {x_name} {show_size(x)}, {y_name} {show_size(y)}" for at, (x, y) in enumerate(placed, 1)
    )
    picture = svg(width, height, title, summary, *parts, name=f"front-{number_of}")
    return el(
        "figure",
        el("figcaption", title, el("small", "means on validation; numbers as in the table")),
        picture,
    )


def _mean(point: Mapping[str, object], name: str) -> float:
    return finite_number(side(side(point, "validation"), name).get("mean")) or 0.0


def _figure(value: object) -> str:
    known = finite_number(value)
    return "–" if known is None else show_size(known)


def _change(value: object) -> str:
    known = finite_number(value)
    return "–" if known is None else show_size(known, sign=True)
