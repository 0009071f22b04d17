"""A judge that sees an SVG picture as pixels, in whole runs: what it gets, what the journal keeps, and what needs no call."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="pictures need Pillow: pip install 'whet[images]'")
pytest.importorskip("resvg_py", reason="SVG is painted by resvg-py: pip install 'whet[images]'")

from PIL import Image

import whet
from whet.errors import UsageError
from whet.rewards import build_reward
from whet.rewards.verifiers.svg_pixels import WIDTH, render_png
from whet.rewards.verifiers.svg_shapes import NoPicture

ROWS = [{"input": f"a {colour} square, number {i}"} for i in range(8) for colour in ("red", "blue")]
REWARD: Any = {"judge": {"rubric": "The square has the colour that was asked for.", "pixels": True}}


def square(inside: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10">{inside}</svg>'


def paint_red(messages: Any) -> str:
    """Red in every case. The source praises itself; one answer holds no picture."""
    text = messages[-1]["content"]
    if "number 7" in text:
        return f"Here is {text}."
    return f"Here:\n```svg\n{square(f'<desc>{text}</desc>' + RED)}\n```"


RED = '<rect width="10" height="10" fill="red"/>'


class Looking:
    """A judge that opens the file that it gets."""

    version = "1"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Any) -> str:
        self.calls += 1
        parts = messages[-1]["content"]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        assert "<svg" not in text and "desc" not in text
        (url,) = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
            assert image.size == (WIDTH, WIDTH)
            pixel: Any = image.convert("RGB").resize((1, 1)).getpixel((0, 0))
        seen = "red" if pixel[0] > pixel[2] else "blue"
        return json.dumps({"explanation": f"It is {seen}.", "score": 5 if f"a {seen} square" in text else 1})


def evaluate(run: Path, judge: Any) -> Any:
    return whet.evaluate(
        "{{input}}",
        data=ROWS,
        reward=REWARD,
        lm=paint_red,
        judge_lm=judge,
        split="train",
        run=run,
        progress=False,
    )


def test_the_judge_opens_the_painted_file_and_a_resumed_run_asks_it_nothing(tmp_path: Path) -> None:
    judge = Looking()
    result = evaluate(tmp_path / "run", judge)
    assert 0.0 < result.score.mean < 1.0 and judge.calls
    (tmp_path / "run" / "result.json").unlink()
    again = Looking()
    assert evaluate(tmp_path / "run", again).score.mean == result.score.mean and again.calls == 0
    assert len([*(tmp_path / "run" / "images").iterdir()]) == 1, "one picture, kept once"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("A red square.", "there is no <svg> with an end"),
        (
            '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="900000000"><rect/></svg>',
            "cannot be painted",
        ),
        ("<svg><!DOCTYPE x></svg>", "no XML"),
    ],
)
def test_what_cannot_be_painted_is_no_picture(answer: str, why: str) -> None:
    with pytest.raises(NoPicture, match=why):
        render_png(answer)


def test_no_file_of_the_machine_is_painted(tmp_path: Path) -> None:
    """A picture that names a file looks as if the file were not there."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (4, 4), "red").save(secret)
    named = square(f'<image href="{secret}" width="10" height="10"/>')
    with Image.open(io.BytesIO(render_png(named))) as image:
        assert image.convert("RGB").getextrema() == ((255, 255),) * 3


def test_without_the_package_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'whet\[images\]'"):
        build_reward(REWARD, Path(), "task.yaml")
