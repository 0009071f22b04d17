"""A procedural painter: from a description in English to an SVG picture. A stand-in for a text-to-image model; simulated.

It knows six shapes, eleven colours and five places, obeys clear descriptions, and misreads vague ones as such models do. The law,
with `chance` of what the picture holds (and of the sample above temperature 0), never of its wording:

1. Statements end at a full stop, a semicolon or the end of a line. Of each, the painter reads numbers, colours, shapes, and the
   places between two shapes (`left of`, `right of`, `above`, `below`, `inside`). `the` before a shape names one that is there.
2. A number in digits is painted exactly. Of one in words (two to ten), the painter paints another number with the chance
   `miscount`. For `some`, `a few`, `several` and `many`, it takes a number between 1 and 5.
3. Two shapes of different colours in one statement exchange their colours with the chance `bleed`.
4. A place in a statement that also brings in a shape is turned round with the chance `misplace`. A place between shapes that
   stand in earlier statements is obeyed.
5. Words in the options `counting`, `colouring` and `placing`, anywhere in what is read, leave 1 - `care` of these chances.
6. It reads the first `span` words.
7. Each different word of the option `ornament` adds one more of the first shape, which nobody wants.
8. Where it reads no shape, it paints a grey ellipse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

SHAPES = {
    "circle": "circle",
    "square": "rect",
    "rectangle": "rect",
    "triangle": "polygon",
    "ellipse": "ellipse",
    "line": "line",
}
COLOURS = (
    "red",
    "blue",
    "green",
    "yellow",
    "purple",
    "orange",
    "pink",
    "brown",
    "black",
    "gray",
    "teal",
)
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
VAGUE = ("some", "few", "several", "many")
PLACES = ("left", "right", "above", "below", "inside")
MOST = 12
"""Shapes of one kind at most."""
CELL = 40.0
_OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
_TOKEN = re.compile(r"[a-z]+|\d+|[.;\n]")
_PLURALS = {f"{name}s": name for name in SHAPES}
Luck = Callable[..., float]
"""A number in [0, 1) that depends on its arguments only."""


@dataclass(frozen=True)
class PainterHabits:
    """The rate at which the painter misreads, and the words that make the painter careful or careless."""

    miscount: float = 0.6
    bleed: float = 0.5
    misplace: float = 0.5
    care: float = 0.8
    span: int = 60
    counting: Collection[str] = ("exactly",)
    colouring: Collection[str] = ("own",)
    placing: Collection[str] = ("layout",)
    ornament: Collection[str] = ("beautiful", "detailed", "ornate", "artistic")


@dataclass(frozen=True)
class NamedShape:
    """A shape as a statement names it. `count` None: no number; `exact`: in digits; `known`: `the` stands before it."""

    element: str
    colour: str | None
    count: int | None
    exact: bool = False
    vague: bool = False
    known: bool = False

    @property
    def name(self) -> str:
        """Colour and shape."""
        return f"{self.colour} {self.element}"


@dataclass
class Picture:
    """A picture before it is painted: shapes with their colours and counts, and the relations of their places, by index."""

    things: list[NamedShape] = field(default_factory=list)
    places: list[tuple[int, str, int]] = field(default_factory=list)


def paint(text: str, luck: Luck, habits: PainterHabits) -> str:
    """The picture of a description as SVG; `luck` decides what is misread."""
    tokens = _TOKEN.findall(text.lower())
    words = [token for token in tokens if token.isalpha()]
    end = habits.span
    kept: list[str] = []
    for token in tokens:
        end -= token.isalnum()
        if end < 0:
            break
        kept.append(token)
    seen = set(words[: habits.span])
    statements = [mentions_of(part) for part in _split(kept)]
    scene = " ".join(sorted({m.name for mentions, _ in statements for m in mentions}))

    def fails(kind: str, chance: float, care: Collection[str], what: str) -> bool:
        left = chance * (1 - habits.care if seen & set(care) else 1)
        return luck(kind, scene, what) < left

    picture = Picture()
    for mentions, places in statements:
        _take_in(picture, mentions, places, fails, luck, habits)
    if picture.things:
        more = (picture.things[0].count or 1) + len(seen & set(habits.ornament))
        picture.things[0] = replace(picture.things[0], count=min(MOST, more))
    return draw(picture, luck)


def _split(tokens: Sequence[str]) -> list[list[str]]:
    statements: list[list[str]] = [[]]
    for token in tokens:
        if token in ".;\n":
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def mentions_of(statement: Sequence[str]) -> tuple[list[NamedShape], list[tuple[int, str, int]]]:
    """The shapes of a statement in order, and the places between neighbours by their indices.

    >>> mentions_of("3 red circles above the square".split())[1]
    [(0, 'above', 1)]
    """
    mentions: list[NamedShape] = []
    places: list[tuple[int, str, int]] = []
    blank = NamedShape("", None, None)
    pending, place = blank, ""
    for word in statement:
        name = _PLURALS.get(word, word)
        if name in SHAPES:
            mentions.append(replace(pending, element=SHAPES[name]))
            if place and len(mentions) > 1:
                places.append((len(mentions) - 2, place, len(mentions) - 1))
            pending, place = blank, ""
        elif word.isdigit():
            pending = replace(pending, count=min(MOST, int(word[:3])), exact=True)
        elif word in NUMBERS:
            pending = replace(pending, count=NUMBERS.index(word) + 1)
        elif word in VAGUE:
            pending = replace(pending, vague=True)
        elif word == "the":
            pending = replace(pending, known=True)
        elif word in COLOURS:
            pending = replace(pending, colour=word)
        elif word in PLACES:
            place = word
    return mentions, places


def _take_in(
    picture: Picture,
    mentions: Sequence[NamedShape],
    places: Sequence[tuple[int, str, int]],
    fails: Callable[[str, float, Collection[str], str], bool],
    luck: Luck,
    habits: PainterHabits,
) -> None:
    """Add a statement to the picture, misread as the law has it."""
    names = "+".join(sorted(m.name for m in mentions))
    indices, new = [], list[int]()
    for mention in mentions:
        there = [i for i, thing in enumerate(picture.things) if _names(mention, thing)]
        if mention.known and there:
            indices.append(there[-1])
            continue
        count = mention.count or 1
        if mention.vague:
            count = 1 + int(5 * luck("vague", names, mention.name))
        elif (
            count > 1 and not mention.exact and fails("count", habits.miscount, habits.counting, mention.name)
        ):
            count = 1 + (count + int(4 * luck("other", names, mention.name))) % 5
        new.append(len(picture.things))
        indices.append(len(picture.things))
        picture.things.append(replace(mention, count=count))
    colours = [picture.things[i].colour for i in new]
    if len(set(colours)) > 1 and fails("bleed", habits.bleed, habits.colouring, names):
        for i, colour in zip(new, [*colours[1:], colours[0]], strict=True):
            picture.things[i] = replace(picture.things[i], colour=colour)
    for one, place, other in places:
        turned = bool(new) and fails("place", habits.misplace, habits.placing, names + place)
        if place == "inside":
            if not turned:
                picture.places.append((indices[one], place, indices[other]))
        else:
            picture.places.append((indices[one], _OPPOSITE[place] if turned else place, indices[other]))


def _names(mention: NamedShape, thing: NamedShape) -> bool:
    return mention.element == thing.element and mention.colour in (None, thing.colour)


def draw(picture: Picture, luck: Luck) -> str:
    """The SVG of a picture. Each kind of shape has a cell of its own in a grid of rows and columns."""
    things, n = picture.things, max(1, len(picture.things))
    columns = _ranks(n, [p for p in picture.places if p[1] in ("left", "right")], "left", luck)
    rows = _ranks(n, [p for p in picture.places if p[1] in ("above", "below")], "above", luck)
    inside = {one: other for one, place, other in picture.places if place == "inside"}
    holders = set(inside.values()) - set(inside)
    order = [*sorted(holders), *[i for i in range(len(things)) if i not in holders]]
    elements = []
    for i in order:
        at = inside.get(i, i)
        corner = columns[at] * CELL, rows[at] * CELL
        size = CELL if i in holders else CELL / 4
        centres = [(18.0, 18.0)] * MOST if i in holders else _grid(i, inside)
        for x, y in centres[: things[i].count or 1]:
            elements.append(_shape(things[i], corner[0] + x, corner[1] + y, size * 0.45))
    if not things:
        elements.append('<ellipse cx="20" cy="20" rx="16" ry="9" fill="lightgray"/>')
    side = n * CELL
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side:g} {side:g}" width="240" height="240">'
    )
    return "\n".join([head, *elements, "</svg>"])


def _grid(i: int, inside: Mapping[int, int]) -> list[tuple[float, float]]:
    """Centres of up to `MOST` small shapes within a cell; nearer to its middle for shapes inside of another."""
    step, first = (4.0, 12.0) if i in inside else (9.0, 5.0)
    return [(first + step * (k % 4), first + step * (k // 4)) for k in range(MOST)]


def _ranks(n: int, places: Sequence[tuple[int, str, int]], before: str, luck: Luck) -> list[int]:
    """Columns, or rows, of n things so that the places hold where they can; of a thing without one by luck."""
    pairs = [(a, b) if place == before else (b, a) for a, place, b in places]
    bound = {i for pair in pairs for i in pair}
    ranks = [0 if i in bound else int(n * luck("rank", before, i)) for i in range(n)]
    for _ in range(n):
        for a, b in pairs:
            ranks[b] = min(n - 1, max(ranks[b], ranks[a] + 1))
    return ranks


def _shape(thing: NamedShape, x: float, y: float, size: float) -> str:
    fill = thing.colour or "black"
    if thing.element == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" fill="{fill}"/>'
    if thing.element == "ellipse":
        return f'<ellipse cx="{x:g}" cy="{y:g}" rx="{size:g}" ry="{size * 0.6:g}" fill="{fill}"/>'
    if thing.element == "rect":
        return f'<rect x="{x - size:g}" y="{y - size:g}" width="{2 * size:g}" height="{2 * size:g}" fill="{fill}"/>'
    if thing.element == "line":
        return f'<line x1="{x - size:g}" y1="{y:g}" x2="{x + size:g}" y2="{y:g}" stroke="{fill}" stroke-width="2"/>'
    points = f"{x:g},{y - size:g} {x - size:g},{y + size:g} {x + size:g},{y + size:g}"
    return f'<polygon points="{points}" fill="{fill}"/>'
