"""An instruction as the page shows it: its text, what it rests on, and what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from whet.live.server.pages import ui
from whet.prompt import Effect, Instruction
from whet.reporting import Child, Html, clipped, details, el, number_format, prompt_text, prose, svg

WIDTH, HEIGHT = 144, 24
MOST_QUOTES = 50
LONGEST_QUOTE = 2_000


def instruction(item: Instruction, name: str, *more: Child) -> Html:
    """One instruction as a list item. `name` makes its pictures' ids unique on the page."""
    text = prose(prompt_text(item.text), class_="text")
    return el("li", text, facts_line(item, name), support(item), *more, class_="instruction")


def facts_line(item: Instruction, name: str) -> Html:
    """Id, sources, cost and effect in one line."""
    evidence = (
        number_format.plural(len(item.evidence), "row") + " of evidence"
        if item.evidence
        else "no evidence recorded"
    )
    return el(
        "div",
        el("span", el("b", item.id), f" · by {item.author or 'nobody named'}"),
        item.sources > 0 and el("span", number_format.plural(item.sources, "independent source")),
        el("span", evidence),
        item.tokens > 0 and el("span", f"{item.tokens} tokens in every call"),
        effect(item.effect, name),
        class_="facts-line",
    )


def effect(estimate: Effect | None, name: str) -> Html:
    """By how much the instruction made violations rarer, with its interval, in words and as a picture."""
    if estimate is None:
        return el("span", "effect not measured")
    before, after = (_share(*rate) for rate in (estimate.before, estimate.after))
    difference, low, high = (
        number_format.change(v, 2) for v in (estimate.difference, estimate.low, estimate.high)
    )
    text = f"violations {before} → {after}; rarer by {difference} [{low} to {high}]"
    x = svg.Scale(*svg.padded([estimate.low, estimate.high, 0.0], 0.12), 4, WIDTH - 4)
    middle = HEIGHT / 2
    picture = svg.svg(
        WIDTH,
        HEIGHT,
        "Measured effect",
        f"{text}; 95 % interval (Newcombe)",
        svg.line((x(0), 2), (x(0), HEIGHT - 2), "effect-zero"),
        svg.line((x(estimate.low), middle), (x(estimate.high), middle), "effect-line"),
        svg.marker("circle", x(estimate.difference), middle, "effect-mark", 4.5),
        name=name,
    )
    sure = ui.tag("measured", "good") if estimate.low > 0 else ui.tag("not sure")
    if estimate.high < 0:
        sure = ui.tag("harmful", "bad")
    return el("span", picture, text, sure, class_="effect")


def _share(count: int, of: int) -> str:
    return f"{count}/{of}" if not of else f"{count}/{of} ({count / of:.0%})"


def support(item: Instruction) -> Html | None:
    """The critiques behind an instruction, quoted, with their sources."""
    if not item.critiques and not item.evidence:
        return None
    counts = (len(item.critiques), "complaint"), (len(item.evidence), "row")
    quotes = ui.quotes(clipped(text, LONGEST_QUOTE) for text in item.critiques[:MOST_QUOTES])
    return details(
        "Rests on " + " from ".join(number_format.plural(n, word) for n, word in counts if n),
        bool(item.critiques) and quotes,
        bool(item.evidence) and rows_line(item.evidence),
    )


def rows_line(keys: Iterable[str], most: int = MOST_QUOTES) -> Html:
    """Links to rows of feedback."""
    keys = list(keys)
    left = len(keys) - most
    links = ui.joined(ui.link(key, ui.path_to("about", key)) for key in keys[:most])
    return el("p", "Rows: ", links, left > 0 and f" and {left} more", class_="quiet")
