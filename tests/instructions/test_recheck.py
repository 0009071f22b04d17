"""An instruction's own critique is read once more: what does not say what it demands leaves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.instructions.optimizer import critiques, entry, form, numbered, run_with

from whet.instructions.answers import Requirement
from whet.instructions.critiques import CritiqueBatch
from whet.instructions.manager import InstructionManager
from whet.instructions.recheck import MISREAD, Rechecks
from whet.prompt import Prompt

START = Prompt.parse("You build pages.\n<!-- whet:begin -->\n<!-- whet:end -->")
VAGUE, CLEAR = "Take more care over the image.", "Give every image an alt text."
FIRST, AGAIN = "image-1 lacks an alt text (found none)", "image-7 lacks an alt text (found x)"
OTHER, SIGN = "Who has written all this, please?", "Sign with a name."
CHAT = (
    "Lovely!", "We had rain on Monday.", "My cat likes it too.", "Greetings to Grandma.", "It is late now.",
    "Football was better this year.", "Thanks a lot, really.", "So many colours, wow.",
)  # fmt: skip


def judged(*texts: str) -> CritiqueBatch:
    return CritiqueBatch(tuple(critiques(*texts)), tuple((n,) for n in range(len(texts))), (0.4, 0.6) * 10)


def reader(text: str, first: bool) -> Any:
    """Garbles at first, and knows what each critique demands and which instruction says that."""
    lines, entries = numbered(text), []
    for part, clear in (("alt text", CLEAR), ("written", SIGN)):
        own = [n for n, line in lines.items() if part in line]
        known = next((line[1:3] for line in text.splitlines() if line.endswith(clear) and line[0] == "["), "")
        if own:
            new = VAGUE if first and clear == CLEAR else clear
            entries.append(entry(own, known or None, None if known else new))
    return form(*entries)


async def texts_after(*rounds: tuple[str, ...]) -> tuple[list[str], int]:
    manager, calls = InstructionManager(START), 0
    for number, texts in enumerate(rounds):
        run, optimizer = run_with(
            lambda stage, text, number=number: reader(text, not number) if stage == "read" else {}
        )
        await manager.step(run, judged(*texts), 3, "now")
        calls += optimizer.calls("read")
    run, optimizer = run_with(lambda stage, text: reader(text, False) if stage == "read" else {})
    await manager.finish(run, 2)
    return [one.text for one in manager.ledger.active], calls + optimizer.calls("read")


async def test_what_its_own_critique_does_not_demand_leaves_when_such_a_critique_comes_again() -> None:
    texts, calls = await texts_after((FIRST, OTHER), (AGAIN,))
    assert texts == [SIGN, CLEAR] and calls == 3, "no call more than one a round and one at the end"


async def test_what_came_last_is_read_again_at_the_end() -> None:
    assert (await texts_after((FIRST, OTHER)))[0] == [SIGN, CLEAR]


async def test_a_critique_behind_several_instructions_is_not_read_again_for_each() -> None:
    """It demands several things, so it tells nothing about one of them, and a long one would fill the request."""
    both = "The image lacks an alt text, and who has written all this?"
    manager = InstructionManager(START)
    run, _ = run_with(lambda stage, text: reader(text, True) if stage == "read" else {})
    await manager.step(run, judged(both), 3, "now")
    run, optimizer = run_with(lambda stage, text: reader(text, False) if stage == "read" else {})
    await manager.step(run, judged(f"{both} Hm."), 3, "now")
    assert numbered(optimizer.seen[0][1]) == {1: f"{both} Hm."}


@pytest.mark.parametrize(
    ("joined", "leaving"), [(False, ["i1"]), (True, [])], ids=["each demands the other", "they became one"]
)
def test_of_two_instructions_that_say_the_same_one_stays(joined: bool, leaving: list[str]) -> None:
    shown = critiques(FIRST, AGAIN)
    rechecks = Rechecks(quotes={FIRST: "i1", AGAIN: "i2"})
    if joined:
        rechecks.merge("i1", ("i2",))
    read = [Requirement("", (0,), violates="i2"), Requirement("", (1,), violates="i1")]
    assert rechecks.misread(read, shown, {"i1": 1, "i2": 2}) == leaving


@pytest.mark.parametrize("numbers", [[], [99]])
async def test_a_reader_without_numbers_takes_nothing_out(numbers: list[int]) -> None:
    def reply(stage: str, text: str) -> Any:
        return form(entry(numbers, None, VAGUE if FIRST in text else CLEAR)) if stage == "read" else {}

    manager = InstructionManager(START)
    for text in (FIRST, AGAIN):
        run, _ = run_with(reply)
        await manager.step(run, judged(text, *CHAT), 3, "now")
    assert VAGUE in [one.text for one in manager.ledger.active]


async def test_a_text_that_left_so_does_not_come_back() -> None:
    def reply(stage: str, text: str) -> Any:
        own = [n for n, line in numbered(text).items() if "alt text" in line]
        new = CLEAR if VAGUE in text else VAGUE
        stands = [entry(own, "i2")] if CLEAR in text else []
        return form(*stands, entry(own[:1], None, new)) if stage == "read" else {}

    manager = InstructionManager(START)
    for text in (FIRST, AGAIN, "image-9 lacks an alt text (found y)"):
        run, _ = run_with(reply)
        await manager.step(run, judged(text, *CHAT), 3, "now")
    assert [one.text for one in manager.ledger.active] == [CLEAR]
    assert manager.ledger["i1"].reason == MISREAD
