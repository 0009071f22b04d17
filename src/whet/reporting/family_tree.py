"""The tree of a search as a picture: which prompt came from which, and what each was worth."""

from __future__ import annotations

from itertools import pairwise

import whet.reporting.number_format as number_format
from whet.reporting.curves import NARROW, WIDE
from whet.reporting.markup import Html, el, join
from whet.reporting.record import Record, ReportedCandidate
from whet.reporting.svg import XY, Frame, Scale, label, legend, marker, pad_range, straight_line, svg

LEAST_EDGES = 3


def family_tree(record: Record, way: list[ReportedCandidate]) -> Html | None:
    """Every scored candidate with a line to each of its scored parents; `way`, from the start to the best, is drawn thicker.

    None where fewer than three lines could be drawn.
    """
    scored = {c.id: value for c in record.candidates.values() if (value := _worth(c)) is not None}
    edges = [(parent, c) for c in record.candidates.values() if c.id in scored for parent in c.parents]
    edges = [(parent, child) for parent, child in edges if parent in scored]
    if len(edges) < LEAST_EDGES:
        return None
    caption = (
        f"{number_format.plural(len(scored), 'candidate')} by the model calls made before each, and their mean reward on "
        f"{record.search_split}, or on training rows if they were not measured there; a line leads to each parent."
    )
    pictures = [
        svg(
            *size,
            "Tree of the search",
            caption,
            _draw_tree(record, way, scored, edges, *size),
            name=f"tree-{name}",
            class_=name,
        )
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    entries = [
        (marker("circle", 14, 8, "mark best"), "from the start to the best prompt"),
        (marker("diamond", 14, 8, "candidate-mark"), "another candidate"),
    ]
    return join(
        el("h3", "Tree of the search"), el("figure", el("figcaption", caption, legend(entries)), pictures)
    )


def _worth(candidate: ReportedCandidate) -> float | None:
    return candidate.train if candidate.validation is None else candidate.validation


def _draw_tree(
    record: Record,
    way: list[ReportedCandidate],
    scored: dict[str, float],
    edges: list[tuple[str, ReportedCandidate]],
    width: int,
    height: int,
) -> Html:
    right = max(1, *(c.calls for c in record.candidates.values()))
    frame = Frame(
        width, height, Scale(0, right, 52, width - 16), Scale(*pad_range(scored.values()), height - 52, 28)
    )

    def place(name: str) -> XY:
        return frame.x(record.candidates[name].calls), frame.y(scored[name])

    chosen = {c.id for c in way}
    steps = {(before.id, after.id) for before, after in pairwise(way)}
    rest = [(parent, child.id) for parent, child in edges if (parent, child.id) not in steps]
    drawn = [pair for pair in steps if {*pair} <= scored.keys()]
    return join(
        frame.axes("model calls", width // 110, 6),
        label(0, 12, "mean reward", "start", "axis-label"),
        [straight_line(place(a), place(b), "raw-line") for a, b in rest],
        [marker("diamond", *place(name), "candidate-mark", 3.5) for name in scored if name not in chosen],
        [straight_line(place(a), place(b), "incumbent-line") for a, b in sorted(drawn)],
        [marker("circle", *place(name), "mark best") for name in scored if name in chosen],
    )
