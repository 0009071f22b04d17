"""IPO with a classifier of rendered images: what the finer figure adds where few rows say little by right and wrong.

    python benchmarks/image_classifier.py --seeds 10

Rows are PNG files of 16 by 16 pixels: one of four shapes, in a colour, at a place, on a noisy ground. The classifier is
simulated: it reads the pixels and matches them against the four shapes, and the wording decides how noisily it compares. Each of
twelve phrases sharpens or blurs its sight, by amounts that are drawn for each seed. Its answer holds the probability of each
shape, as that of CLIP does; the reward is 1 for the right shape, its part `likelihood` the logarithm of the right shape's
probability. The optimizer is simulated too: it changes one phrase of the best text that it is shown. Prints the accuracy of the
result on 400 fresh images, and the difference paired by seed with Student's interval.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import re
import struct
import tempfile
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import whet

SIZE, SIDE = 16, 7
SHAPES = ("square", "circle", "triangle", "cross")
PHRASES = (
    "Look at the outline.", "Count the corners.", "Ignore the colour.", "Mind the background.", "Take your time.",
    "Name the shape.", "Think of a painting.", "Look at the whole.", "Look at the middle.", "Be creative.",
    "Compare the edges.", "It is a photo.",
)  # fmt: skip
START = "<!-- whet:begin -->\nWhat is it?\n<!-- whet:end -->\n{{photo}}"
SETTINGS = {"steps": "8", "samples": "4", "examples": "8", "memory": "10", "threshold": "0", "exemplars": "0"}


def mask_of(shape: str) -> NDArray[np.bool_]:
    """The pixels of a shape, (SIDE, SIDE)."""
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE // 2
    inside = {
        "square": (abs(x) <= 3) & (abs(y) <= 3),
        "circle": x**2 + y**2 <= 10,
        "triangle": 2 * abs(x) <= y + SIDE // 2,
        "cross": (abs(x) <= 1) | (abs(y) <= 1),
    }
    mask: NDArray[np.bool_] = inside[shape]
    return mask


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture, (height, width, 3), as a PNG file."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def read_png(file: bytes) -> NDArray[np.uint8]:
    """The picture that `to_png` wrote."""
    at = file.index(b"IDAT")
    (length,) = struct.unpack(">I", file[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(file[at + 4 : at + 4 + length]), np.uint8)
    return rows.reshape(SIZE, 1 + 3 * SIZE)[:, 1:].reshape(SIZE, SIZE, 3)


def draw(rng: np.random.Generator) -> tuple[bytes, str]:
    """A picture of a shape as a file, and the name of the shape."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    pixels = rng.integers(0, 60, (SIZE, SIZE, 3)).astype(np.uint8)
    top, left = rng.integers(0, SIZE - SIDE, 2)
    pixels[top : top + SIDE, left : left + SIDE][mask_of(shape)] = rng.integers(120, 255, 3)
    return to_png(pixels), shape


def match(file: bytes) -> NDArray[np.float64]:
    """How well the bright pixels of a picture fit each shape: the highest overlap (intersection over union) over all places."""
    bright = read_png(file).max(2) > 100
    best = []
    for shape in SHAPES:
        mask = mask_of(shape)
        overlaps = []
        for top in range(SIZE - SIDE):
            for left in range(SIZE - SIDE):
                placed = np.zeros((SIZE, SIZE), bool)
                placed[top : top + SIDE, left : left + SIDE] = mask
                overlaps.append((bright & placed).sum() / (bright | placed).sum())
        best.append(max(overlaps))
    return np.array(best)


class Classifier:
    """The simulated classifier: exact sight, blurred by as much as the wording does."""

    version = "1"

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.worth = dict(zip(PHRASES, rng.normal(0.0, 0.5, len(PHRASES)), strict=True))
        self._seen: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def chances(self, text: str, file: bytes) -> dict[str, float]:
        """The probability of each shape."""
        if file not in self._seen:
            noise = np.random.default_rng(list(hashlib.sha256(file).digest()[:16])).normal(0.0, 1.0, 4)
            self._seen[file] = match(file), noise
        fits, noise = self._seen[file]
        blur = math.exp(-sum(worth for phrase, worth in self.worth.items() if phrase in text))
        scores = 8.0 * (fits + 0.5 * blur * noise)
        weights = np.exp(scores - scores.max())
        return dict(zip(SHAPES, (weights / weights.sum()).round(4).tolist(), strict=True))

    def __call__(self, messages: Any) -> str:
        parts = messages[-1]["content"]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        url = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
        return json.dumps(self.chances(text, base64.b64decode(url.partition(",")[2])))


class Writer:
    """The simulated optimizer: it adds, leaves out or exchanges a phrase of the last text, which is the best one."""

    version = "1"

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 2])

    def __call__(self, messages: Any) -> str:
        shown = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", messages[-1]["content"], re.DOTALL)
        held = [phrase for phrase in PHRASES if phrase in shown[-1]]
        absent = [phrase for phrase in PHRASES if phrase not in held]
        if held and self._rng.random() < 0.5:
            held.pop(int(self._rng.integers(len(held))))
        if len(held) < 5 and self._rng.random() < 0.8:
            held.append(absent[int(self._rng.integers(len(absent)))])
        return f"<INSTRUCTION>\n{' '.join(['What is it?', *held])}\n</INSTRUCTION>"


def grade(example: dict[str, Any], output: str) -> dict[str, float]:
    """1 for the right shape; `likelihood` is the logarithm of its probability."""
    chances: dict[str, float] = json.loads(output)
    right = max(chances, key=lambda shape: chances[shape]) == example["target"]
    return {"reward": float(right), "likelihood": math.log(max(1e-4, chances[example["target"]]))}


def rows_of(seed: int, n: int) -> list[dict[str, Any]]:
    """Rows of a task: a picture as a data URL, and the name of its shape."""
    rng = np.random.default_rng([seed, 3])
    drawn = [draw(rng) for _ in range(n)]
    return [
        {
            "input": {"photo": {"image": f"data:image/png;base64,{base64.b64encode(file).decode()}"}},
            "target": shape,
        }
        for file, shape in drawn
    ]


def accuracy(classifier: Classifier, text: str, seed: int, n: int = 400) -> float:
    """The share of fresh pictures that are classified rightly under a text."""
    rng = np.random.default_rng([seed, 4])
    chances = [(classifier.chances(text, file), shape) for file, shape in (draw(rng) for _ in range(n))]
    return float(np.mean([max(c, key=lambda one: c[one]) == shape for c, shape in chances]))


def arm(signal: str, seed: int) -> float:
    """The accuracy of the result of `ipo` with a signal."""
    classifier = Classifier(seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = whet.optimize(
            START,
            data=rows_of(seed, 90),
            reward=grade,
            lm=classifier,
            optimizer_lm=Writer(seed),
            method="ipo",
            settings={**SETTINGS, "signal": signal},
            seed=seed,
            budget=whet.Budget(calls=3000),
            run=Path(folder) / "run",
            progress=False,
        )
    return accuracy(classifier, result.best.prompt.text, seed)


def compare_arms(seeds: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """The accuracies of both arms, and those of the start prompt, by seed."""
    figures = {signal: np.array([arm(signal, seed) for seed in seeds]) for signal in ("likelihood", "none")}
    return figures | {"start": np.array([accuracy(Classifier(s), "What is it?", s) for s in seeds])}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    figures = compare_arms(range(options.seeds))
    for name, values in figures.items():
        gap = figures["likelihood"] - values
        half = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5
        low, high = gap.mean() - half, gap.mean() + half
        print(f"{name:12} {values.mean():.3f}   likelihood - it: {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
