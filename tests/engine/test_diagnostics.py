"""What a result says about its search: what prompt learning leaves to a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.world import Model, close, open_core, run_of
from whet.engine.diagnostics import optimizer_warnings
from whet.prompt import Prompt

BEST = Prompt.parse(
    "Answer.\n<!-- whet:begin -->\n- Use miles.\n- Name the price.\n- Hide the price.\n<!-- whet:end -->"
)


def conflict(first: str, second: str, settled: str = "") -> tuple[str, dict[str, str]]:
    return "conflict", {"first": first, "second": second, "settled": settled}


async def warnings_of(folder: Path, *logged: tuple[str, dict[str, Any]]) -> list[str]:
    core = open_core(folder / "run", Model())
    for name, value in logged:
        run_of(core).branch(value.get("text", value.get("first", ""))).log(name, value)
    await close(core)
    return optimizer_warnings(core, BEST)


async def test_contradictions_that_are_not_settled_say_what_stands(tmp_path: Path) -> None:
    assert await warnings_of(
        tmp_path,
        conflict("Use kilometres.", "Use miles."),
        conflict("Name the price.", "Hide the price."),
        conflict("Sing.", "Answer."),
        conflict("Use feet.", "Use miles.", settled="Use miles."),
    ) == [
        'Some critiques demand the opposite of "Use miles.": "Use kilometres.".',
        'Two instructions contradict each other, and a person has to decide: "Name the price." and "Hide the price.".',
        'Some critiques demand the opposite of "Answer.": "Sing.".',
    ]


async def test_what_could_not_be_tried_is_named_and_of_much_only_the_first(tmp_path: Path) -> None:
    untested = [("untested", {"text": f"Do {n}.", "reason": "demanded once"}) for n in range(7)]
    named = await warnings_of(tmp_path, *untested)
    assert named[0] == 'Left out until a person decides: "Do 0." (demanded once).'
    assert len(named) == 6 and named[-1].startswith("2 more demands ")
