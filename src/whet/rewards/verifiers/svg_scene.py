"""The reward that looks at an SVG picture: are the shapes of the row's scene there, in their colours, numbers and places?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whet.errors import UsageError, did_you_mean
from whet.rewards.asking import RewardOptions
from whet.rewards.verifiers.reading import LONGEST_ANSWER, code_in, flag_option
from whet.rewards.verifiers.svg_shapes import SHAPES, NoPicture, Shape, colour_of, read_shapes
from whet.run import Run
from whet.types import Completion, Example, Reward

RELATIONS: Mapping[str, Callable[[Shape, Shape], bool]] = {
    "left_of": lambda one, other: one.centre[0] < other.centre[0],
    "right_of": lambda one, other: one.centre[0] > other.centre[0],
    "above": lambda one, other: one.centre[1] < other.centre[1],
    "below": lambda one, other: one.centre[1] > other.centre[1],
    "inside": lambda one, other: one is not other and one.inside(other),
}
"""The relations of two shapes, by their centres; `inside` by their boxes."""
_KEYS = ("shape", "fill", "count", *RELATIONS)
_EXAMPLE = '[{"shape": "circle", "fill": "red", "count": 2, "above": {"shape": "rect", "fill": "blue"}}]'


@dataclass(frozen=True)
class Item:
    """One requirement of a scene: shapes of an element (None: any), in one of some colours (none: any), so many (None: one
    or more), and how each of them lies to every shape of another item."""

    shape: str | None
    colours: tuple[str, ...]
    words: str
    count: int | None = None
    relations: tuple[tuple[str, Item], ...] = ()

    def among(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes that fit."""
        return [
            s
            for s in shapes
            if self.shape in (None, s.element) and (not self.colours or s.colour in self.colours)
        ]

    def demands(self, shapes: Sequence[Shape]) -> list[tuple[bool, str]]:
        """Each demand: whether it is met, and what is wrong if it is not."""
        own = self.among(shapes)
        right = len(own) == self.count if self.count is not None else bool(own)
        wanted = "at least 1" if self.count is None else str(self.count)
        checks = [(right, f"The picture must have {wanted} of: {self.words}. It has {len(own)}.")]
        for name, item in self.relations:
            others = item.among(shapes)
            if name == "inside":
                holds = bool(own) and all(any(RELATIONS[name](one, other) for other in others) for one in own)
            else:
                holds = bool(own and others) and all(RELATIONS[name](a, b) for a in own for b in others)
            checks.append((holds, f"{self.words} must be {name.replace('_', ' ')} {item.words}."))
        return checks


@dataclass(frozen=True)
class SvgScene:
    """The share of a scene's demands that the SVG picture of an answer meets, 0 to 1; the others are the critique.
    With `whole`, 1 where it meets all of them, else 0. The part `met` is the share in both cases.

    The column `scene` of a row lists what must be there. Nothing is drawn: the elements are counted and compared.
    """

    scene: str = "scene"
    whole: bool = False
    name: str = "svg_scene"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()
    own_column: ClassVar[str] = "scene"
    part_names: ClassVar[frozenset[str]] = frozenset({"picture", "shapes", "met"})

    def check(self, example: Example) -> None:
        """Raise UsageError for a row whose scene cannot be read."""
        self._items(example)

    def _items(self, example: Example) -> list[Item]:
        value: Any = example.row.get(self.scene)
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            value = None
        if not isinstance(value, list) or not value:
            raise UsageError(
                f"the column {self.scene!r} of {example.place} holds no scene. Write a list such as {_EXAMPLE}, or name the "
                "column: reward: {svg_scene: {scene: COLUMN}}."
            )
        return [_item(one, example.place) for one in value]

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        items, text = self._items(example), completion.text
        if len(text) > LONGEST_ANSWER:
            return Reward(
                0.0,
                {"picture": 0.0, "met": 0.0},
                f"The answer has {len(text):,} characters; {LONGEST_ANSWER:,} are read at most.",
            )
        try:
            shapes = read_shapes(picture_in(text))
        except NoPicture as error:
            return Reward(0.0, {"picture": 0.0, "met": 0.0}, f"The answer holds no SVG picture: {error}.")
        demands = [demand for item in items for demand in item.demands(shapes)]
        faults = [text for met, text in demands if not met]
        share = 1.0 - len(faults) / len(demands)
        parts = {"picture": 1.0, "shapes": float(len(shapes)), "met": share}
        return Reward(float(not faults) if self.whole else share, parts, "\n".join(faults) or None)


def picture_in(text: str) -> str:
    """The SVG in an answer: from the first `<svg` to the last `</svg>` of its code block, or of its text."""
    code = code_in(text, ("svg", "xml", "html"))
    for source in (code, text):
        start, end = source.find("<svg"), source.rfind("</svg>")
        if 0 <= start < end:
            return source[start : end + len("</svg>")]
    raise NoPicture("there is no <svg> with an end")


def _item(value: Any, place: str) -> Item:
    """An entry of a scene. Raises UsageError for one that cannot be read."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{place}: an entry of the scene must be an object such as {_EXAMPLE[1:-1]}.")
    for key in value:
        if key not in _KEYS:
            raise UsageError(
                f'{place}: an entry of the scene has no key "{key}".{did_you_mean(str(key), _KEYS)}'
            )
    shape, fills, count = value.get("shape"), value.get("fill", []), value.get("count")
    if shape is not None and shape not in SHAPES:
        raise UsageError(f'{place}: there is no shape "{shape}".{did_you_mean(str(shape), SHAPES)}')
    names = [fills] if isinstance(fills, str) else list(fills)
    colours = [colour_of(name) if isinstance(name, str) else None for name in names]
    if None in colours:
        raise UsageError(
            f"{place}: {names[colours.index(None)]!r} is no colour of CSS. Write red, #ff0000 or rgb(255, 0, 0)."
        )
    if count is not None and (type(count) is not int or count < 0):
        raise UsageError(f"{place}: count must be a whole number, 0 or more; this is {count!r}.")
    words = " ".join([*(["/".join(names)] if names else []), shape or "shape"])
    relations = tuple((name, _item(value[name], place)) for name in RELATIONS if name in value)
    return Item(shape, tuple(c for c in colours if c is not None), words, count, relations)


def build_svg_scene(options: RewardOptions) -> SvgScene:
    """`reward: {svg_scene: {scene: COLUMN, all: true}}`. Raises UsageError with the place."""
    options.only("scene", "all")
    return SvgScene(options.text("scene", SvgScene.own_column), flag_option(options, "all", False))
