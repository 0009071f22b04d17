"""The procedural painter: it obeys clear requests, misreads vague ones as its law says, and a better prompt loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import UsageError
from whet.models.scripted import load
from whet.models.scripted_painter import MOST, SHAPES
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rewards.verifiers.svg_shapes import Shape, colour_of, read_shapes
from whet.run import MemoryRun
from whet.types import Completion, Example, Message, Request

SURE = {"miscount": "1", "bleed": "1", "misplace": "1", "care": "1"}
"""A painter that misreads whatever can be misread, unless it is asked to take care."""


def painted(text: str, sample: int = 0, **options: str) -> list[Shape]:
    temperature = 1.0 if sample else 0.0
    request = Request((Message("user", text),), temperature=temperature, sample=sample)
    (answer,) = asyncio.run(load("painter", options).generate(request))
    return read_shapes(answer.text)


def kinds(shapes: list[Shape]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for shape in shapes:
        name = next(name for name in ("red", "blue") if colour_of(name) == shape.colour)
        counts[shape.element, name] = counts.get((shape.element, name), 0) + 1
    return counts


things = st.tuples(
    st.sampled_from(sorted(SHAPES)), st.sampled_from(["red", "blue", "green"]), st.integers(1, MOST)
)


@settings(max_examples=30)
@given(
    things=st.lists(things, min_size=2, max_size=4, unique_by=lambda one: (SHAPES[one[0]], one[1])),
    place=st.sampled_from(["left_of", "right_of", "above", "below"]),
)
def test_clear_statements_are_obeyed_to_the_letter(things: list[tuple[str, str, int]], place: str) -> None:
    statements = [f"{count} {colour} {shape}s." for shape, colour, count in things]
    (one, red, _), (other, blue, _) = things[:2]
    text = " ".join([*statements, f"The {red} {one} {place.replace('_', ' ')} the {blue} {other}."])
    scene: list[dict[str, Any]] = [
        {"shape": SHAPES[shape], "fill": colour, "count": count} for shape, colour, count in things
    ]
    scene[0][place] = {"shape": SHAPES[other], "fill": blue}
    request = Request((Message("user", text),))
    (answer,) = asyncio.run(load("painter", SURE).generate(request))
    example = Example("r", {}, row={"scene": scene})
    reward = asyncio.run(SvgScene().grade(MemoryRun(), example, Completion(answer.text)))
    assert reward.value == 1.0, (text, reward.critique)


def test_a_shape_inside_of_another() -> None:
    small, large = sorted(
        painted("1 red square. 1 blue circle. The red square inside the blue circle.", **SURE),
        key=lambda s: s.box,
    )[::-1]
    assert small.element == "rect" and small.inside(large)


@pytest.mark.parametrize(
    ("vague", "careful", "wrong"),
    [
        ("three red circles", "exactly three red circles", "miscount"),
        ("a red circle and a blue square", "a red circle and a blue square, each in its own colour", "bleed"),
    ],
)
def test_vague_requests_are_misread_and_care_helps(vague: str, careful: str, wrong: str) -> None:
    right = kinds(painted(vague, **dict.fromkeys(("miscount", "bleed", "misplace"), "0")))
    assert kinds(painted(vague, **SURE)) != right
    assert kinds(painted(vague, **{**SURE, wrong: "0"})) == right
    assert kinds(painted(careful, **SURE)) == right


def test_a_place_beside_new_shapes_is_turned_round_unless_care_is_asked_for() -> None:
    for text, above in (
        ("a red circle above a blue square", False),
        ("layout: a red circle above a blue square", True),
    ):
        places = {s.element: s.centre[1] for s in painted(text, **{**SURE, "bleed": "0"})}
        assert (places["circle"] < places["rect"]) is above


def test_what_comes_late_is_not_read_and_ornaments_add_shapes() -> None:
    assert kinds(painted("one two three four 1 red circle. 1 blue square", span="7")) == {
        ("circle", "red"): 1
    }
    assert kinds(painted("a beautiful red circle")) == {("circle", "red"): 2}
    assert kinds(painted("a beautiful red circle", ornament="")) == {("circle", "red"): 1}
    assert [s.element for s in painted("a lighthouse in the fog")] == ["ellipse"]


def test_some_is_any_number_of_the_picture_and_of_the_sample() -> None:
    counts = {len(painted("some red circles", sample)) for sample in range(1, 12)}
    assert counts <= {1, 2, 3, 4, 5} and len(counts) > 2
    assert len({len(painted("some red circles")) for _ in range(3)}) == 1


@settings(max_examples=25)
@given(text=st.text(max_size=40))
def test_any_text_gives_a_picture(text: str) -> None:
    assert painted(text or " ")


def test_a_wrong_option_is_refused() -> None:
    with pytest.raises(UsageError, match="between 0"):
        load("painter", {"bleed": "2"})
