"""SVG pictures: what is visible, in which colour, where; and scenes of rows."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whet
from whet.errors import UsageError
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rewards.verifiers.svg_shapes import NAMED_COLOURS, NoPicture, colour_of, read_shapes
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward


def svg(inner: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{inner}</svg>'


def graded(picture: str, *scene: dict[str, Any]) -> Reward:
    return asyncio.run(
        SvgScene().grade(MemoryRun(), Example("r", {}, row={"scene": list(scene)}), Completion(picture))
    )


RED, BLUE = {"shape": "circle", "fill": "red"}, {"shape": "rect", "fill": "blue"}
PICTURE = svg(
    '<circle cx="20" cy="20" r="5" fill="#F00"/><rect x="50" y="50" width="9" height="9" style="fill: rgb(0,0,255)"/>'
)


@pytest.mark.parametrize(
    ("scene", "value"),
    [
        ([RED, BLUE], 1.0),
        ([{**RED, "count": 1}], 1.0),
        ([{**RED, "count": 2}], 0.0),
        ([{**RED, "count": 0}], 0.0),
        ([{"fill": ["green", "red"]}], 1.0),
        ([{"shape": "circle", "count": 1}, {"count": 2}], 1.0),
        ([{**RED, "left_of": BLUE, "above": BLUE}], 1.0),
        ([{**RED, "right_of": BLUE}], 0.5),
        ([{**BLUE, "below": RED, "right_of": RED, "inside": RED}], 0.75),
        ([{**RED, "left_of": {"shape": "ellipse"}}], 0.5),
        ([{"shape": "ellipse"}], 0.0),
    ],
)
def test_scenes(scene: list[dict[str, Any]], value: float) -> None:
    reward = graded(f"Here it is:\n```svg\n{PICTURE}\n```\nDone.", *scene)
    assert reward.value == pytest.approx(value)
    assert (reward.critique is None) == (value == 1.0)


def test_the_critique_names_what_is_missing() -> None:
    critique = graded(PICTURE, {**RED, "count": 3, "below": BLUE}).critique
    assert (
        critique == "The picture must have 3 of: red circle. It has 1.\nred circle must be below blue rect."
    )


@pytest.mark.parametrize(
    ("inner", "shapes"),
    [
        (
            '<g fill="red" transform="translate(10 20) scale(2)"><circle cx="1" cy="1" r="1"/></g>',
            [("circle", "#ff0000", (10, 20, 14, 24))],
        ),
        ('<rect width="4" height="2" transform="rotate(90)"/>', [("rect", "#000000", (-2, 0, 0, 4))]),
        ('<rect width="2" height="2" transform="rotate(180, 5, 5)"/>', [("rect", "#000000", (8, 8, 10, 10))]),
        ('<line x1="1" y1="2" x2="3" y2="4" stroke="green"/>', [("line", "#008000", (1, 2, 3, 4))]),
        ('<polygon points="0,0 4,0 2,-3" fill="none" stroke="blue"/>', [("polygon", "#0000ff", (0, -3, 4, 0))]),
        ('<path d="M1 1 h4 v2 l-1-1 z m0 5 L 9 9" fill="lime"/>', [("path", "#00ff00", (1, 1, 9, 9))]),
        ('<path d="M0 0C1 2 3 4 5 6S7 8 9 10Q1 1 2 2T3 3A1 1 0 0 1 6 6" fill="lime"/>', [("path", "#00ff00", (0, 0, 9, 10))]),
        ('<text x="1" y="2" fill="tan">hello</text>', [("text", "#d2b48c", (1, 2, 1, 2))]),
        ('<defs><circle r="1"/></defs><g display="none"><circle r="1"/></g><circle r="0"/>', []),
        ('<rect width="1" height="1" opacity="0"/><rect width="1" height="1" visibility="hidden"/>', []),
        ('<rect width="1" height="1" fill="none"/><circle r="1" style="display:none"/>', []),
        ('<circle r="1e999" fill="red"/>', []),
        ('<circle cx="900" r="1" fill="red"/>', []),  # outside of the view
        ('<style>.a, #b {fill: #f00} * {fill: blue}</style><circle class="a" r="1"/>', [("circle", "#ff0000", (-1, -1, 1, 1))]),
        ('<defs><circle id="g" r="1"/></defs><use href="#g" x="3" y="4" fill="lime"/>', [("circle", "#00ff00", (2, 3, 4, 5))]),
        ('<symbol id="s"><circle r="1"/></symbol><use href="#s"/><use href="#no"/>', [("circle", "#000000", (-1, -1, 1, 1))]),
        ('<rect width="100%" height="50%" fill="hsl(120, 100%, 50%)"/>', [("rect", "#00ff00", (0, 0, 100, 50))]),
        ('<linearGradient id="g"/><circle r="1" fill="url(#g)"/>', [("circle", "", (-1, -1, 1, 1))]),
    ],
)  # fmt: skip
def test_what_is_visible_and_where(inner: str, shapes: list[Any]) -> None:
    seen = [(s.element, s.colour, tuple(round(v, 6) for v in s.box)) for s in read_shapes(svg(inner))]
    assert seen == shapes


@given(st.integers(0, 100), st.integers(1, 5), st.floats(0, 2 * math.pi))
def test_a_turned_circle_stays_where_its_centre_is(x: int, r: int, angle: float) -> None:
    turn = f"rotate({math.degrees(angle):.6f} {x} {x})"
    [shape] = read_shapes(svg(f'<circle cx="{x}" cy="{x}" r="{r}" transform="{turn}"/>'))
    assert shape.centre == pytest.approx((x, x), abs=1e-4)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_colours_in_every_form(levels: tuple[int, int, int]) -> None:
    digits = "".join(f"{level:02x}" for level in levels)
    forms = (
        f"#{digits}",
        f"#{digits.upper()}ff",
        f"rgb({levels[0]},{levels[1]},{levels[2]})",
        f"rgba({levels[0]} {levels[1]} {levels[2]} / 1)",
    )
    assert {colour_of(form) for form in forms} == {f"#{digits}"}


def test_named_colours() -> None:
    assert len(NAMED_COLOURS) == 148 and all(len(digits) == 6 for digits in NAMED_COLOURS.values())
    assert colour_of("rgb(100%, 0%, 0%)") == colour_of("RED") and colour_of("url(#a)") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I cannot draw.", "no <svg>"),
        ('<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg>&a;</svg>', "XML"),
        ("<svg><circle></svg>", "mismatched tag"),
        ("<svg>" + "<g>" * 200 + "</g>" * 200 + "</svg>", "inside of each other"),
        ("<svg>" + "<g/>" * 6000 + "</svg>", "more than 5,000 elements"),
        ("<svg>&lol;</svg>", "XML"),
        ("<svg><style>g circle {fill: red}</style></svg>", "selector 'g circle'"),
        ('<svg><g id="a"><use href="#a"/></g></svg>', "inside of each other"),
    ],
)
def test_what_is_no_picture_earns_nothing_and_says_why(text: str, expected: str) -> None:
    reward = graded(text, RED)
    assert reward.value == 0.0 and expected in str(reward.critique)


def test_entities_are_never_expanded() -> None:
    bomb = '<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><svg>&b;</svg>'
    with pytest.raises(NoPicture, match="document type"):
        read_shapes(bomb)
    with pytest.raises(NoPicture, match="document type"):
        read_shapes('<!DOCTYPE s SYSTEM "file:///etc/passwd"><svg/>')


@given(st.text(alphabet="<>svg/ =\"'crile0123 &;#x", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert 0.0 <= graded(f"<svg>{text}</svg>", RED, {"count": 0}).value <= 1.0


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (None, "holds no scene"),
        ([], "holds no scene"),
        ("red circle", "holds no scene"),
        ([{"shape": "circel"}], 'Did you mean "circle"?'),
        ([{"colour": "red"}], 'no key "colour"'),
        ([{"fill": "reddish"}], "is no colour of CSS"),
        ([{"count": -1}], "0 or more"),
        ([{"above": "blue"}], "must be an object"),
    ],
)
def test_a_scene_that_cannot_be_read_is_refused_with_its_row(scene: Any, expected: str) -> None:
    rows = [{"input": f"draw {n}", "scene": [RED] if n != 4 else scene} for n in range(9)]
    with pytest.raises(UsageError, match=r"data\[4\]") as caught:
        whet.Task.of("Draw.", data=rows, reward="svg_scene")
    assert expected in str(caught.value)


def test_a_search_teaches_a_painter(tmp_path: Path) -> None:
    rows = [{"input": f"{n} red circles", "scene": [{**RED, "count": n % 5 + 1}]} for n in range(60)]
    task = whet.Task.of("Draw an SVG picture.", data=rows, reward="svg_scene")

    def painter(messages: Any) -> str:
        count = int(messages[-1]["content"].split()[0]) % 5 + 1
        colour = "red" if "colour" in messages[0]["content"] else "black"
        return svg(f'<circle r="3" fill="{colour}"/>' * count)

    def writer(messages: Any) -> str:
        return "<INSTRUCTION>Draw an SVG picture in the colour that is asked for.</INSTRUCTION>"

    result = whet.optimize(
        task, lm=painter, optimizer_lm=writer, method="opro", settings={"steps": "1"}, budget=whet.Budget(calls=600),
        run=tmp_path / "r", progress=False,
    )  # fmt: skip
    assert (
        result.promoted
        and json.loads((tmp_path / "r" / "result.json").read_text())["best"]["test"]["mean"] == 1.0
    )
