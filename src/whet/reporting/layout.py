"""Sections and tables of the page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from whet.reporting.markup import Child, Html, el


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its anchor and heading."""

    anchor: str
    title: str
    body: Html

    def html(self) -> Html:
        """The section as markup."""
        heading = el("h2", self.title, id=f"{self.anchor}-title")
        return el(
            "section",
            heading,
            self.body,
            id=self.anchor,
            aria_labelledby=f"{self.anchor}-title",
        )


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    text: Collection[int] = (),
    foot: Sequence[Child] | None = None,
    wide: bool = False,
) -> Html:
    """A table that scrolls inside its own box. The first column names the row; the columns in `text` hold
    prose, all others numbers. `wide`: it may be as wide as the page."""

    def cells(row: Sequence[Child], first: str) -> list[Html]:
        name = el(first, row[0], scope="row" if first == "th" else None)
        return [name, *(el("td", cell, class_=kind(i)) for i, cell in enumerate(row[1:], 1))]

    def kind(i: int) -> str | None:
        return None if i == 0 or i in text else "number"

    headings = [el("th", name, scope="col", class_=kind(i)) for i, name in enumerate(head)]
    inner = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", headings)),
        el("tbody", [el("tr", cells(row, "th")) for row in rows]),
        foot is not None and el("tfoot", el("tr", cells(foot, "td"))),
    )
    class_ = "scroll prose" if text else "scroll wide" if wide else "scroll"
    return region("div", inner, label=caption, class_=class_)


def region(tag: str, *children: Child, label: str, class_: str | None = None) -> Html:
    """A box that scrolls by itself, reachable by keyboard under its name. A text in it has the direction of its letters."""
    direction = "auto" if tag == "pre" else None
    return el(tag, *children, tabindex=0, role="region", aria_label=label, dir=direction, class_=class_)


def details(summary: Child, *body: Child, class_: str | None = None) -> Html:
    """Something that opens."""
    return el("details", el("summary", summary), *body, class_=class_)


def prose(*children: Child, class_: str | None = None) -> Html:
    """A paragraph that somebody wrote, in the direction of its letters."""
    return el("p", *children, dir="auto", class_=class_)


def note(*children: Child) -> Html:
    """A quiet paragraph."""
    return el("p", *children, class_="note")


def facts(pairs: Sequence[tuple[str, Child]], class_: str = "facts") -> Html:
    """Names with their values."""
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in pairs], class_=class_)
