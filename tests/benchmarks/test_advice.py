"""`whet advise` on worlds whose right answer is known: mend, nothing, write by hand, learn, search, train a policy."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks import advice


@pytest.mark.parametrize("world", advice.WORLDS, ids=lambda world: world.__name__)
def test_the_right_answer_is_named_on_each_world(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    if world.__name__.startswith("labels"):
        pytest.importorskip("torch", reason="its model needs torch: pip install 'whet[embedded]'")
    decided, right = advice.advise_on(world, 0)
    assert decided == right


def test_every_answer_is_right_on_some_world() -> None:
    rights = {world(random.Random(0)).right for world in advice.WORLDS}
    assert rights == {"mend", "nothing", "write", "learn", "search", "train"}


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        ([("mend", "mend")] * 4, "1.00 [0.51, 1.00] | –"),
        (
            [("learn", "nothing")] * 2 + [("nothing", "nothing")] * 2,
            "0.50 [0.15, 0.85] | learn for nothing (2)",
        ),
    ],
)
def test_a_row_says_what_was_advised_instead(pairs: list[tuple[str, str]], line: str) -> None:
    assert advice.describe(pairs) == line
