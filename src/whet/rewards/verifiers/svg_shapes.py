"""The visible shapes of an SVG picture: what they are, how they are filled, and where they lie.

A parser of its own bounds: no document type, no entities, nothing loaded. Only what a browser would paint counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from colorsys import hls_to_rgb
from dataclasses import dataclass, field
from xml.parsers import expat

MOST_ELEMENTS, MOST_DEPTH = 5_000, 100
SHAPES = ("rect", "circle", "ellipse", "line", "polygon", "polyline", "path", "text")
_UNPAINTED = frozenset(
    (
        "defs",
        "clipPath",
        "mask",
        "symbol",
        "marker",
        "pattern",
        "metadata",
        "title",
        "desc",
        "style",
        "script",
    )
)
_INHERITED = ("fill", "stroke", "visibility", "fill-opacity")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_COMMAND = re.compile(r"([MmLlHhVvCcSsQqTtAaZz])|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)")
_TRANSFORM = re.compile(r"(matrix|translate|scale|rotate|skewX|skewY)\s{0,20}\(([^()]{0,300})\)")
_RULE = re.compile(r"([^{}]{1,500})\{([^{}]{0,5000})\}")
_REMARK = re.compile(r"/\*[^*]{0,5000}\*/")
_SELECTOR = re.compile(r"\*|[.#]?[A-Za-z][\w-]{0,60}")
_STRENGTH = {"*": 0, ".": 2, "#": 3}
_ALONG = {
    **dict.fromkeys(("x", "width", "cx", "rx", "x1", "x2"), "x"),
    **dict.fromkeys(("y", "height", "cy", "ry", "y1", "y2"), "y"),
    "r": "r",
}
"""Along which side of the picture a percentage is taken."""
_ARGUMENTS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "A": 7, "Z": 0}
_IDENTITY = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
Matrix = tuple[float, float, float, float, float, float]
Box = tuple[float, float, float, float]


class NoPicture(ValueError):
    """The answer should be an SVG picture, and is not. The text is a sentence without its end."""


@dataclass(frozen=True)
class Shape:
    """A painted shape: its element, its colour (`#rrggbb`; that of its line where it is not filled; empty for a gradient or a
    pattern), and its box in the units of the picture: left, top, right, bottom."""

    element: str
    colour: str
    box: Box

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of its box."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2

    def inside(self, other: Shape) -> bool:
        """Whether its box lies within the box of another."""
        return all(a >= b for a, b in zip(self.box[:2], other.box[:2], strict=True)) and all(
            a <= b for a, b in zip(self.box[2:], other.box[2:], strict=True)
        )


def read_shapes(text: str) -> list[Shape]:
    """The visible shapes of a picture in the order in which they are painted. Raises NoPicture.

    >>> [(s.element, s.colour) for s in read_shapes('<svg><g fill="red"><circle cx="5" cy="5" r="2"/></g></svg>')]
    [('circle', '#ff0000')]
    """
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise NoPicture(f"it is no XML: {expat.ErrorString(error.code)} in line {error.lineno}") from None
    if reader.root is None or reader.root.name != "svg":
        raise NoPicture("its first element is not svg")
    painter = _Painter(reader)
    painter.paint(reader.root, {}, _IDENTITY, 0)
    return painter.shapes


@dataclass
class _Element:
    """An element with what stands in it."""

    name: str
    attributes: Mapping[str, str]
    inside: list[_Element] = field(default_factory=list)


class _Reader:
    """The elements that the parser meets, and the rules of style sheets: a selector, the declarations."""

    def __init__(self) -> None:
        self.root: _Element | None = None
        self.by_id: dict[str, _Element] = {}
        self.rules: list[tuple[str, dict[str, str]]] = []
        self._count = 0
        self._stack: list[_Element] = []
        self._sheet: list[str] = []

    def refuse(self, *_: object) -> None:
        raise NoPicture("a document type or an entity stands in it")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS or len(self._stack) > MOST_DEPTH:
            raise _too_large()
        element = _Element(name.rpartition(" ")[2], {k.rpartition(" ")[2]: v for k, v in attributes.items()})
        if self._stack:
            self._stack[-1].inside.append(element)
        else:
            self.root = element
        self._stack.append(element)
        if key := attributes.get("id"):
            self.by_id.setdefault(key, element)

    def text(self, text: str) -> None:
        if self._stack[-1].name == "style":
            self._sheet.append(text)

    def end(self, name: str) -> None:
        if self._stack.pop().name == "style":
            self.rules += _read_sheet("".join(self._sheet))
            self._sheet.clear()


def _too_large() -> NoPicture:
    return NoPicture(f"it has more than {MOST_ELEMENTS:,} elements, or {MOST_DEPTH} inside of each other")


def _read_sheet(text: str) -> list[tuple[str, dict[str, str]]]:
    """The rules of a style sheet by simple selectors. Raises NoPicture for any other selector."""
    rules = []
    for selectors, body in _RULE.findall(_REMARK.sub(" ", text)):
        for selector in selectors.split(","):
            if not _SELECTOR.fullmatch(selector.strip()):
                raise NoPicture(
                    f"the style sheet has the selector {selector.strip()[:40]!r}; an element, .class, #id and * are read"
                )
            rules.append((selector.strip(), _declarations(body)))
    return sorted(rules, key=lambda rule: _STRENGTH.get(rule[0][0], 1))


class _Painter:
    """Paints elements into shapes, as far as the picture's view shows them."""

    def __init__(self, reader: _Reader) -> None:
        self.shapes: list[Shape] = []
        self._reader, self._count = reader, 0
        assert reader.root is not None
        self._view = _view(reader.root.attributes)

    def paint(self, element: _Element, above: Mapping[str, str], matrix: Matrix, depth: int) -> None:
        """Add the visible shapes of an element in the style of those around it."""
        self._count += 1
        if self._count > MOST_ELEMENTS or depth > MOST_DEPTH:
            raise _too_large()
        attributes = element.attributes
        own = self._style(element)
        style = {**above, **{key: own[key] for key in _INHERITED if key in own}}
        if own.get("display") == "none" or _zero(own.get("opacity")):
            return
        matrix = _times(matrix, _matrix(attributes.get("transform", "")))
        if element.name == "use":
            used = self._reader.by_id.get(attributes.get("href", "").removeprefix("#"))
            if used is not None:
                shift = (1.0, 0.0, 0.0, 1.0, _length(attributes.get("x")), _length(attributes.get("y")))
                inside = used.inside if used.name == "symbol" else [used]
                for one in inside:
                    self.paint(one, style, _times(matrix, shift), depth + 1)
        elif element.name in SHAPES:
            if style.get("visibility") not in ("hidden", "collapse"):
                self._add(element.name, attributes, style, matrix)
        elif element.name not in _UNPAINTED:
            for one in element.inside:
                self.paint(one, style, matrix, depth + 1)

    def _style(self, element: _Element) -> dict[str, str]:
        """The values of an element's attributes, style sheets and attribute `style`; later ones override earlier ones."""
        style = dict(element.attributes)
        classes = style.get("class", "").split()
        names = {"*", element.name, "#" + style.get("id", ""), *("." + one for one in classes)}
        for selector, declarations in self._reader.rules:
            if selector in names:
                style |= declarations
        return style | _declarations(element.attributes.get("style", ""))

    def _add(
        self, element: str, attributes: Mapping[str, str], style: Mapping[str, str], matrix: Matrix
    ) -> None:
        points = _points(element, attributes, self._view)
        fill, stroke = style.get("fill", "black"), style.get("stroke", "none")
        unfilled = fill in ("none", "transparent") or element == "line" or _zero(style.get("fill-opacity"))
        paint = stroke if unfilled else fill
        colour = "" if paint.startswith("url(") else colour_of(paint)
        if not points or colour is None:
            return
        a, b, c, d, e, f = matrix
        xs = [a * x + c * y + e for x, y in points]
        ys = [b * x + d * y + f for x, y in points]
        box = (min(xs), min(ys), max(xs), max(ys))
        if all(map(math.isfinite, box)) and _meets(box, self._view):
            self.shapes.append(Shape(element, colour, box))


def _view(attributes: Mapping[str, str]) -> Box | None:
    """The part of the plane that a picture shows; None where it does not say so in numbers."""
    numbers = [float(one) for one in _NUMBER.findall(attributes.get("viewBox", ""))]
    if len(numbers) == 4:
        left, top, width, height = numbers
    else:
        sides = attributes.get("width", ""), attributes.get("height", "")
        if any("%" in side for side in sides):
            return None
        left, top, (width, height) = 0.0, 0.0, (_length(side) for side in sides)
    return (left, top, left + width, top + height) if width > 0 and height > 0 else None


def _meets(box: Box, view: Box | None) -> bool:
    return view is None or (
        box[0] <= view[2] and box[2] >= view[0] and box[1] <= view[3] and box[3] >= view[1]
    )


def _declarations(text: str) -> dict[str, str]:
    """The declarations of a style."""
    pairs = (part.partition(":") for part in text.split(";"))
    return {
        name.strip(): value.replace("!important", "").strip() for name, _, value in pairs if value.strip()
    }


def _zero(text: str | None) -> bool:
    return text is not None and _length(text, 1.0) == 0.0


def _length(text: str | None, default: float = 0.0) -> float:
    match = _NUMBER.match(text.strip()) if text else None
    return default if match is None else float(match[0])


def _points(element: str, attributes: Mapping[str, str], view: Box | None) -> list[tuple[float, float]]:
    """Points whose box is that of the shape; none for a shape without extent. A percentage is one of the picture's view."""
    left, top, right, bottom = view or (0.0, 0.0, 100.0, 100.0)
    sides = {"x": right - left, "y": bottom - top, "r": math.hypot(right - left, bottom - top) / math.sqrt(2)}

    def number(name: str) -> float:
        text = attributes.get(name, "")
        side = sides[_ALONG[name]] / 100 if text.strip().endswith("%") else 1.0
        return _length(text) * side

    if element == "rect":
        x, y, width, height = (number(name) for name in ("x", "y", "width", "height"))
        corners = [(x, y), (x + width, y), (x, y + height), (x + width, y + height)]
        return corners if width > 0 and height > 0 else []
    if element in ("circle", "ellipse"):
        x, y = number("cx"), number("cy")
        rx, ry = (number("r"), number("r")) if element == "circle" else (number("rx"), number("ry"))
        return (
            [(x - rx, y - ry), (x + rx, y - ry), (x - rx, y + ry), (x + rx, y + ry)]
            if rx > 0 and ry > 0
            else []
        )
    if element == "line":
        return [(number("x1"), number("y1")), (number("x2"), number("y2"))]
    if element == "text":
        return [(number("x"), number("y"))]
    if element == "path":
        return _path_points(attributes.get("d", ""))
    numbers = [float(one) for one in _NUMBER.findall(attributes.get("points", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=False))


def _path_points(text: str) -> list[tuple[float, float]]:
    """The points that a path names, those of its curves' handles too; of an arc, its ends."""
    points, x, y, command = list[tuple[float, float]](), 0.0, 0.0, ""
    start, numbers = (0.0, 0.0), list[float]()
    for letter, number in _COMMAND.findall(text):
        if letter:
            command, numbers = letter, []
            if command in "Zz":
                x, y = start
            continue
        numbers.append(float(number))
        if not command or len(numbers) < (_ARGUMENTS[command.upper()] or 1):
            continue
        kind, shift = command.upper(), (x, y) if command.islower() else (0.0, 0.0)
        if kind == "H":
            pairs = [(numbers[0] + shift[0], y)]
        elif kind == "V":
            pairs = [(x, numbers[0] + shift[1])]
        else:
            own = numbers[-2:] if kind == "A" else numbers
            pairs = [(a + shift[0], b + shift[1]) for a, b in zip(own[::2], own[1::2], strict=True)]
        if kind not in ("M", "Z"):
            points.append((x, y))
        points += pairs
        x, y = pairs[-1]
        if kind == "M":
            start, command = (x, y), "l" if command == "m" else "L"
        numbers = []
    return points


def _matrix(text: str) -> Matrix:
    """The matrix of the attribute `transform`."""
    matrix = _IDENTITY
    for name, inner in _TRANSFORM.findall(text):
        v = [float(one) for one in _NUMBER.findall(inner)]
        if not v:
            continue
        if name == "matrix" and len(v) == 6:
            own: Matrix = (v[0], v[1], v[2], v[3], v[4], v[5])
        elif name == "translate":
            own = (1.0, 0.0, 0.0, 1.0, v[0], v[1] if len(v) > 1 else 0.0)
        elif name == "scale":
            own = (v[0], 0.0, 0.0, v[1] if len(v) > 1 else v[0], 0.0, 0.0)
        elif name == "rotate":
            sine, cosine = math.sin(math.radians(v[0])), math.cos(math.radians(v[0]))
            own = (cosine, sine, -sine, cosine, 0.0, 0.0)
            if len(v) == 3:
                own = _times(
                    _times((1.0, 0.0, 0.0, 1.0, v[1], v[2]), own), (1.0, 0.0, 0.0, 1.0, -v[1], -v[2])
                )
        else:
            slope = math.tan(math.radians(v[0]))
            own = (1.0, 0.0, slope, 1.0, 0.0, 0.0) if name == "skewX" else (1.0, slope, 0.0, 1.0, 0.0, 0.0)
        matrix = _times(matrix, own)
    return matrix


def _times(one: Matrix, other: Matrix) -> Matrix:
    a, b, c, d, e, f = one
    g, h, i, j, k, m = other
    return (a * g + c * h, b * g + d * h, a * i + c * j, b * i + d * j, a * k + c * m + e, b * k + d * m + f)


def colour_of(text: str) -> str | None:
    """A colour of CSS as `#rrggbb`: a name, hexadecimal digits, `rgb(...)` or `hsl(...)`; None for anything else, such as `none`.

    >>> colour_of("Red"), colour_of("#f00"), colour_of("rgb(255, 0, 0)"), colour_of("none")
    ('#ff0000', '#ff0000', '#ff0000', None)
    """
    word = text.strip().lower()
    if re.fullmatch(r"#[0-9a-f]{3,4}", word):
        return "#" + "".join(2 * digit for digit in word[1:4])
    if re.fullmatch(r"#(?:[0-9a-f]{6}|[0-9a-f]{8})", word):
        return word[:7]
    if match := re.fullmatch(r"rgba?\(([^)]*)\)", word):
        values = re.findall(r"([\d.]+)(%?)", match[1])[:3]
        if len(values) == 3:
            levels = [float(v) * (2.55 if percent else 1.0) for v, percent in values if v.count(".") < 2]
            return (
                "#" + "".join(f"{min(255, round(level)):02x}" for level in levels)
                if len(levels) == 3
                else None
            )
    if match := re.fullmatch(r"hsla?\(\s*(-?[\d.]+)(?:deg)?[\s,]+([\d.]+)%[\s,]+([\d.]+)%[^)]*\)", word):
        hue, saturation, lightness = (float(v) if v.count(".") < 2 else 0.0 for v in match.groups())
        parts = hls_to_rgb(hue / 360 % 1, min(1.0, lightness / 100), min(1.0, saturation / 100))
        return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
    digits = NAMED_COLOURS.get(word)
    return None if digits is None else f"#{digits}"


_NAMED = """
aliceblue f0f8ff antiquewhite faebd7 aqua 00ffff aquamarine 7fffd4 azure f0ffff beige f5f5dc bisque ffe4c4 black 000000
blanchedalmond ffebcd blue 0000ff blueviolet 8a2be2 brown a52a2a burlywood deb887 cadetblue 5f9ea0 chartreuse 7fff00
chocolate d2691e coral ff7f50 cornflowerblue 6495ed cornsilk fff8dc crimson dc143c cyan 00ffff darkblue 00008b
darkcyan 008b8b darkgoldenrod b8860b darkgray a9a9a9 darkgreen 006400 darkgrey a9a9a9 darkkhaki bdb76b darkmagenta 8b008b
darkolivegreen 556b2f darkorange ff8c00 darkorchid 9932cc darkred 8b0000 darksalmon e9967a darkseagreen 8fbc8f
darkslateblue 483d8b darkslategray 2f4f4f darkslategrey 2f4f4f darkturquoise 00ced1 darkviolet 9400d3 deeppink ff1493
deepskyblue 00bfff dimgray 696969 dimgrey 696969 dodgerblue 1e90ff firebrick b22222 floralwhite fffaf0 forestgreen 228b22
fuchsia ff00ff gainsboro dcdcdc ghostwhite f8f8ff gold ffd700 goldenrod daa520 gray 808080 green 008000 greenyellow adff2f
grey 808080 honeydew f0fff0 hotpink ff69b4 indianred cd5c5c indigo 4b0082 ivory fffff0 khaki f0e68c lavender e6e6fa
lavenderblush fff0f5 lawngreen 7cfc00 lemonchiffon fffacd lightblue add8e6 lightcoral f08080 lightcyan e0ffff
lightgoldenrodyellow fafad2 lightgray d3d3d3 lightgreen 90ee90 lightgrey d3d3d3 lightpink ffb6c1 lightsalmon ffa07a
lightseagreen 20b2aa lightskyblue 87cefa lightslategray 778899 lightslategrey 778899 lightsteelblue b0c4de lightyellow ffffe0
lime 00ff00 limegreen 32cd32 linen faf0e6 magenta ff00ff maroon 800000 mediumaquamarine 66cdaa mediumblue 0000cd
mediumorchid ba55d3 mediumpurple 9370db mediumseagreen 3cb371 mediumslateblue 7b68ee mediumspringgreen 00fa9a
mediumturquoise 48d1cc mediumvioletred c71585 midnightblue 191970 mintcream f5fffa mistyrose ffe4e1 moccasin ffe4b5
navajowhite ffdead navy 000080 oldlace fdf5e6 olive 808000 olivedrab 6b8e23 orange ffa500 orangered ff4500 orchid da70d6
palegoldenrod eee8aa palegreen 98fb98 paleturquoise afeeee palevioletred db7093 papayawhip ffefd5 peachpuff ffdab9 peru cd853f
pink ffc0cb plum dda0dd powderblue b0e0e6 purple 800080 rebeccapurple 663399 red ff0000 rosybrown bc8f8f royalblue 4169e1
saddlebrown 8b4513 salmon fa8072 sandybrown f4a460 seagreen 2e8b57 seashell fff5ee sienna a0522d silver c0c0c0 skyblue 87ceeb
slateblue 6a5acd slategray 708090 slategrey 708090 snow fffafa springgreen 00ff7f steelblue 4682b4 tan d2b48c teal 008080
thistle d8bfd8 tomato ff6347 turquoise 40e0d0 violet ee82ee wheat f5deb3 white ffffff whitesmoke f5f5f5 yellow ffff00
yellowgreen 9acd32
"""
_WORDS = _NAMED.split()
NAMED_COLOURS: Mapping[str, str] = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
"""The named colours of CSS (CSS Color Module Level 4, section 6.1) with their hexadecimal digits."""
