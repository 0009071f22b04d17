"""SVG pictures as a model that reads images sees them: painted into a PNG file, once for each answer of a run."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
from functools import lru_cache
from pathlib import Path

from whet._util.confined import Limits, OutOfBounds, run_confined
from whet._util.media import keep_painted
from whet.errors import UsageError
from whet.rewards.verifiers.reading import LONGEST_ANSWER, cut
from whet.rewards.verifiers.svg_scene import picture_in
from whet.rewards.verifiers.svg_shapes import NoPicture, read_shapes
from whet.run import Run, convert_record
from whet.types import JSON
from whet_client.media import MARK, lacks_image

WIDTH = 512
"""Pixels from the left to the right of a picture."""
_LIMITS = Limits(seconds=10.0, memory=1024, output=16 << 20)
_PROCESS = Path(__file__).with_name("svg_pixels_process.py")


def need_painting() -> None:
    """Raise UsageError where the package that paints is missing."""
    if importlib.util.find_spec("resvg_py") is None:
        raise UsageError("pixels: true needs the package resvg-py. Install it: pip install 'whet[images]'")


@lru_cache(256)
def render_png(answer: str) -> bytes:
    """The SVG picture of an answer as a PNG file of `WIDTH` pixels, on white. Raises NoPicture for an answer without a picture
    that can be painted, and for one that takes too long or too much memory."""
    if len(answer) > LONGEST_ANSWER:
        raise NoPicture(f"the answer has {len(answer):,} characters; {LONGEST_ANSWER:,} are read at most")
    svg = picture_in(answer)
    read_shapes(svg)
    try:
        outcome = run_confined(_PROCESS, {"svg": svg, "width": WIDTH}, _LIMITS)
    except OutOfBounds as error:
        raise NoPicture(f"it cannot be painted: {cut(str(error))}") from None
    if "fault" in outcome:
        raise NoPicture(f"it cannot be painted: {cut(outcome['fault'])}")
    return base64.b64decode(outcome["png"])


async def see_pixels(run: Run, example: str, answer: str) -> str:
    """An answer as a model sees it that reads images: with the mark of the painted picture in the place of the SVG source. An
    answer that is the mark of a picture stays as it is. Raises NoPicture."""
    if MARK.search(answer):
        return answer

    async def done() -> JSON:
        try:
            return {"mark": str(keep_painted(await asyncio.to_thread(render_png, answer))), "fault": ""}
        except NoPicture as error:
            return {"mark": "", "fault": str(error)}

    seen = convert_record(await run.effect("pixels", done, [example, answer]), dict[str, str])
    if seen["fault"]:
        raise NoPicture(seen["fault"])
    if lacks_image(seen["mark"]):
        keep_painted(await asyncio.to_thread(render_png, answer))
    return seen["mark"]
