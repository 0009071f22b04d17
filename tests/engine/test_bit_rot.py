"""A journal whose bytes changed on the disk: one clear error, or the right answer; never another one."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import right
from whet.errors import ProviderError, WhetError

ROWS = [
    {"input": f"Dish {i} was {word}.", "target": target}
    for i in range(12)
    for word, target in (("bad", "negative"), ("good", "positive"))
]


class Half:
    """Answers so many calls, then is gone; knows half of the rows."""

    simulated = False
    version = 1

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, messages: list[Any]) -> str:
        self.most -= 1
        if self.most < 0:
            raise ProviderError("gone", fatal=True)
        text = messages[-1].content
        return "negative" if "bad" in text and "1" in text else "positive"


def evaluate(root: Path, most: int) -> Any:
    return whet.evaluate(
        "Sort: {{input}}",
        data=ROWS,
        split="train",
        reward=right,
        lm=Half(most),
        root=root,
        progress=False,
        concurrency=1,
    )


def _half_a_run(folder: Path) -> Path:
    with pytest.raises(ProviderError):
        evaluate(folder, 6)
    (journal,) = folder.glob("*/journal.sqlite")
    (folder / "cache.sqlite").unlink(missing_ok=True)
    for end in ("result.json", "report.html"):
        (journal.parent / end).unlink(missing_ok=True)
    return journal


@pytest.mark.parametrize("kind", ["flip", "many", "cut", "zeros"])
def test_changed_bytes_are_an_error_or_change_nothing(tmp_path: Path, kind: str) -> None:
    whole = evaluate(tmp_path / "whole", 1000).score
    journal = _half_a_run(tmp_path / "half")
    rng, refused, data = random.Random(kind), 0, journal.read_bytes()
    for number in range(40):
        root = tmp_path / f"{kind}-{number}"
        shutil.copytree(tmp_path / "half", root)
        found = bytearray(data)
        if kind == "cut":
            found = found[: rng.randrange(16, len(data))]
        else:
            for _ in range({"flip": 1, "many": 30, "zeros": 1}[kind]):
                place = rng.randrange(16, len(data))
                if kind == "zeros":
                    found[place : place + 512] = bytes(len(found[place : place + 512]))
                else:
                    found[place] ^= 1 << rng.randrange(8)
        (root / journal.parent.name / journal.name).write_bytes(bytes(found))
        try:
            assert evaluate(root, 1000).score == whole, number
        except WhetError as error:
            refused += 1
            assert "\n" not in str(error) and journal.name in str(error), number
        shutil.rmtree(root)
    assert refused > 0


def test_a_letter_of_an_answer_that_changed_is_found(tmp_path: Path) -> None:
    journal = _half_a_run(tmp_path / "half")
    data = journal.read_bytes()
    assert b'"positive"' in data
    journal.write_bytes(data.replace(b'"positive"', b'"negative"'))
    with pytest.raises(WhetError, match="is damaged"):
        evaluate(tmp_path / "half", 1000)
