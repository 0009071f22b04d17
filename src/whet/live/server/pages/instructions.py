"""An instruction as the page shows it: its text, what it rests on, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from whet.live.server.pages.parts import link, path_to, tag
from whet.prompt.events import Effect
from whet.prompt.instructions import Instruction
from whet.reporting import number_format
from whet.reporting.markup import Child, Html, clipped, el, prompt_text
from whet.reporting.svg import Scale, line, marker, padded, svg

WIDTH, HEIGHT = 144, 24
MOST_QUOTES = 50
LONGEST_QUOTE = 2_000


def instruction(item: Instruction, name: str, *more: Child, kind: str = "") -> Html:
    """One instruction as a list item. `name` makes its pictures' ids unique on the page."""
    return el(
        "li",
        el("p", prompt_text(item.text), class_="text", dir="auto"),
        facts_line(item, name),
        support(item),
        *more,
        class_=f"instruction {kind}".strip(),
    )


def facts_line(item: Instruction, name: str) -> Html:
    """Id, sources, cost and effect in one line."""
    facts: list[Child] = [
        el("span", el("b", item.id), f" · by {item.author or 'nobody named'}"),
        el("span", number_format.plural(item.sources, "independent source")) if item.sources else None,
        el("span", number_format.plural(len(item.evidence), "row") + " of evidence")
        if item.evidence
        else el("span", "no evidence recorded"),
        el("span", f"{item.tokens} tokens in every call") if item.tokens else None,
        effect(item.effect, name),
    ]
    return el("div", facts, class_="facts-line")


def effect(estimate: Effect | None, name: str) -> Html:
    """By how much the instruction made violations rarer, with its interval, in words and as a picture."""
    if estimate is None:
        return el("span", "effect not measured")
    before, after = (share(*rate) for rate in (estimate.before, estimate.after))
    ends = f"{number_format.change(estimate.low, 2)} to {number_format.change(estimate.high, 2)}"
    text = f"violations {before} → {after}; rarer by {number_format.change(estimate.difference, 2)} [{ends}]"
    low, high = padded([estimate.low, estimate.high, 0.0], 0.12)
    x = Scale(low, high, 4, WIDTH - 4)
    middle = HEIGHT / 2
    picture = svg(
        WIDTH,
        HEIGHT,
        "Measured effect",
        f"{text}; 95 % interval",
        line((x(0), 2), (x(0), HEIGHT - 2), "effect-zero"),
        line((x(estimate.low), middle), (x(estimate.high), middle), "effect-line"),
        marker("circle", x(estimate.difference), middle, "effect-mark", 4.5),
        name=name,
    )
    sure = (
        tag("measured", "good")
        if estimate.low > 0
        else tag("not sure", "")
        if estimate.high >= 0
        else tag("harmful", "bad")
    )
    return el("span", picture, text, sure, class_="effect")


def share(count: int, of: int) -> str:
    """A rate as its fraction and per cent."""
    return f"{count}/{of}" if not of else f"{count}/{of} ({count / of:.0%})"


def support(item: Instruction) -> Html | None:
    """The critiques behind an instruction, quoted, with their sources."""
    if not item.critiques and not item.evidence:
        return None
    quotes = [el("li", clipped(text, LONGEST_QUOTE), dir="auto") for text in item.critiques[:MOST_QUOTES]]
    places = _places(item.evidence)
    what = [
        number_format.plural(len(item.critiques), "complaint") if item.critiques else None,
        number_format.plural(len(item.evidence), "row") if item.evidence else None,
    ]
    return el(
        "details",
        el("summary", "Rests on " + " from ".join(part for part in what if part)),
        el("ul", quotes, class_="quotes") if quotes else None,
        el("p", "Rows: ", places, class_="quiet") if places else None,
    )


def _places(evidence: Sequence[str]) -> list[Child]:
    links: list[Child] = []
    for i, key in enumerate(evidence[:MOST_QUOTES]):
        links += [", " if i else "", link(key, path_to("about", key))]
    left = len(evidence) - MOST_QUOTES
    return [*links, f" and {left} more"] if left > 0 else links
