"""What the reader is shown of what was tried: other wordings with what they earned, and rows that a change made wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.instructions.optimizer import entry, form, run_with

from whet.instructions.critiques import CritiqueBatch, collect_critiques
from whet.instructions.effects import Effects, Round
from whet.instructions.history import History
from whet.instructions.manager import InstructionManager
from whet.instructions.unmanaged import block_of
from whet.prompt import Prompt
from whet.types import Example, Rollout

START = Prompt.parse("Sort the letter.\n<!-- whet:begin -->\n<!-- whet:end -->\n{{letter}}")
ROWS = [
    Example(f"l{n}", {"letter": f"Letter {n}"}, "sales" if n % 2 else "help", {}, f"Letter {n}")
    for n in range(8)
]
FIRST = "Answer with the desk for the letter: sales or help, and nothing else at all."
SECOND = "Answer with the desk for the letter: sales for orders, else help, and nothing else at all."


def answered(right: Callable[[int], bool], rows: list[Example] = ROWS) -> CritiqueBatch:
    """A roll-out in which some rows were answered rightly."""
    rollouts = [
        Rollout("p", row.id, str(row.target), 1.0) if right(n) else Rollout("p", row.id, "no", 0.0)
        for n, row in enumerate(rows)
    ]
    return collect_critiques(rollouts, rows, 1.0, (), 0.0)


async def requests(*rounds: tuple[CritiqueBatch, Any]) -> list[str]:
    """What the reader is shown in one round after the other, whose answers are these."""
    manager, seen = InstructionManager(START), []
    for batch, answer in rounds:
        run, optimizer = run_with(lambda stage, text, answer=answer: answer if stage == "read" else {})
        await manager.step(run, batch, 1, "now")
        seen += [text for stage, text in optimizer.seen if stage == "read"]
    return seen


async def test_a_row_that_was_right_before_is_marked_and_the_reader_is_told_what_that_means() -> None:
    first, second = await requests(
        (answered(lambda n: n < 4), form(entry((1, 2, 3, 4), None, FIRST))),
        (answered(lambda n: n in (0, 1, 4, 5)), form(no_demand=[1])),
    )
    assert "Before: right" not in first
    marked = re.findall(r"Input: Letter (\d)\n   Wanted: \w+\n   Answered: no\n   Before: right\n", second)
    assert sorted(marked) == ["2", "3"] and second.count("Answered: no\n") == 4
    assert 'A row with the line "Before: right" was answered rightly with an earlier wording' in second


async def test_another_wording_stands_below_its_instruction_with_the_score_on_the_same_rows() -> None:
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, FIRST))),
        (answered(lambda n: n < 2), form(entry((1, 2, 3, 4), "i1", SECOND))),
        (answered(lambda n: n < 5, ROWS[:6]), form(no_demand=[1])),
    )
    counted = "the one before; 2 of 6 right, the present one 5 of the same 6"
    line = f'Wording 1 ({counted}; wrong answers: "no" (4 times)): {FIRST}'
    assert f"[i1] {SECOND}\n   {line}\n" in last
    assert "Wordings that were tried before stand below their instruction" in last


async def test_a_mark_names_the_wording_with_which_a_row_was_right() -> None:
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, FIRST))),
        (answered(lambda n: n < 4), form(entry((1, 2, 3, 4), "i1", SECOND))),
        (answered(lambda n: n in (0, 1, 4, 5)), form(no_demand=[1])),
    )
    marked = re.findall(r"Input: Letter (\d)\n.*\n.*\n   Before: right with wording 1 of i1\n", last)
    assert sorted(marked) == ["2", "3"] and "\n   Wording 1 (" in last


async def test_a_wording_that_did_no_better_is_shortened_to_what_differs() -> None:
    worse, better = (f"{LONG} {end}" for end in ("Shout.", "Whisper."))
    shown = {}
    for right in (2, 6):
        *_, shown[right] = await requests(
            (answered(lambda n: False), form(entry((1, 2, 3), None, worse))),
            (answered(lambda n: n < 4), form(entry((1, 2, 3, 4), "i1", better))),
            (answered(range(right).__contains__), form(no_demand=[1])),
        )
    assert f": {worse}\n" in shown[2], "four right against two: it may be the better beginning"
    assert ": [...] " in shown[6] and "Shout." in shown[6] and worse not in shown[6]


async def test_a_row_that_an_example_of_the_prompt_shows_is_marked() -> None:
    shown = "Letter 3\nAnswer: sales"
    start = Prompt.parse(
        f"Sort the letter.\n<!-- whet:begin -->\n{block_of([shown])}\n<!-- whet:end -->\n{{{{letter}}}}"
    )
    manager = InstructionManager(start, examples=(shown,), demonstrated={shown: "l3"})
    run, optimizer = run_with(lambda stage, text: form(no_demand=[1]) if stage == "read" else {})
    await manager.step(run, answered(lambda n: False), 1, "now")
    (text,) = [text for stage, text in optimizer.seen if stage == "read"]
    assert re.findall(r"Input: (.*)\n.*\n.*\n   Shown in the prompt as example (t1\.1)\n", text) == [
        ("Letter 3", "t1.1")
    ]
    assert text.count("and the model answered it wrongly all the same") == 1


def test_a_label_that_is_answered_much_too_often_is_named() -> None:
    rows = [
        Example(f"r{n}", {"letter": f"L{n}"}, "sales" if n < 4 else "help", {}, f"L{n}") for n in range(12)
    ]
    always = [Rollout("p", row.id, "sales", float(row.target == "sales")) for row in rows]
    fair = [Rollout("p", row.id, str(row.target), 1.0) for row in rows]
    named = 'The model answered "sales" 12 times, and it was wanted 4 times.'
    assert named in collect_critiques(always, rows, 1.0, (), 0.0).tally
    assert "The model answered" not in collect_critiques(fair, rows, 1.0, (), 0.0).tally


async def test_a_wording_of_several_sentences_is_shown_to_its_end() -> None:
    long = f"{'Read the letter to its end before you choose a desk. ' * 20}Orders go to sales."
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, long))),
        (answered(lambda n: n < 4), form(entry((1, 2, 3, 4), "i1", SECOND))),
        (answered(lambda n: n < 2), form(no_demand=[1])),
    )
    assert "Orders go to sales." in last


async def test_a_wording_with_examples_is_shown_in_its_own_lines() -> None:
    lines = "Answer with the desk for the letter.\nAn order -> sales\nA question -> help"
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, lines))),
        (answered(lambda n: n < 2), form(entry((1, 2, 3, 4), "i1", SECOND))),
        (answered(lambda n: n < 5), form(no_demand=[1])),
    )
    inner = "\n      "
    assert f"): {inner.join(lines.splitlines())}\n" in last, "indented below the line that counts its answers"


SHORT_TEXT = "The model may follow a short text better"
LONG = f"{FIRST} {'Read the letter to its end before you choose a desk, and mind who wrote it. ' * 5}".strip()


async def test_after_a_long_first_wording_a_short_one_is_asked_for_once() -> None:
    first, second, third = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, LONG))),
        (answered(lambda n: n < 4), form(entry((1, 2, 3, 4), "i1", FIRST))),
        (answered(lambda n: n < 5), form(no_demand=[1])),
    )
    assert [SHORT_TEXT in text for text in (first, second, third)] == [False, True, False]
    assert ["keeps what is right in the old one" in text for text in (first, second, third)] == [
        True,
        False,
        True,
    ]
    assert ["200 words at most" in text for text in (first, second, third)] == [True, False, True]


async def test_no_short_wording_is_asked_for_where_the_first_is_short_or_several_instructions_stand() -> None:
    *_, short = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, FIRST))),
        (answered(lambda n: n < 4), form(no_demand=[1])),
    )
    both = form(
        entry((1, 2, 3), None, LONG), entry((4, 5, 6), None, "Write the name of the desk in lower case.")
    )
    *_, several = await requests(
        (answered(lambda n: False), both),
        (answered(lambda n: n < 4), form(no_demand=[1])),
    )
    assert SHORT_TEXT not in short + several


async def test_nothing_is_said_of_wordings_where_there_was_one() -> None:
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, FIRST))),
        (answered(lambda n: False), form(no_demand=[1])),
    )
    assert "ther wording" not in last


def wordings(*rounds: tuple[str, Mapping[str, bool]]) -> list[str]:
    """How the wordings of i1 did over roll-outs with these texts and rows."""
    past = History()
    for text, right in rounds:
        batch = CritiqueBatch((), (), (), rows=tuple(right), full=tuple(right.values()))
        past.add({"i1": text}, batch)
    return past.compare_wordings("i1", rounds[-1][0], [text for text, _ in rounds])


def test_without_common_rows_nothing_is_compared() -> None:
    rounds = ("old", {"a": True, "b": False}), ("new", {"c": True, "d": True, "e": False})
    assert wordings(*rounds) == ["Wording 1 (the one before; 1 of 2 right, on other rows): old"]


def test_the_three_wordings_that_stood_last_are_shown_and_of_a_row_its_last_answer_counts() -> None:
    def rows(right: int) -> dict[str, bool]:
        return {letter: n < right for n, letter in enumerate("abcde")}

    rounds = [(f"w{n}", rows(n)) for n in range(4)] + [("w2", rows(5)), ("w4", rows(4))]
    assert wordings(*rounds) == [
        "Wording 2 (1 of 5 right, the present one 4 of the same 5): w1",
        "Wording 4 (3 of 5 right, the present one 4 of the same 5): w3",
        "Wording 3 (the one before; 5 of 5 right, the present one 4 of the same 5): w2",
    ]


def test_of_comments_it_is_counted_how_often_a_wording_was_violated() -> None:
    effects = Effects([Round(10, {"i1": "old"}, {"i1": 6}), Round(12, {"i1": "new"}, {"i1": 1})], {"i1": 0})
    lines = effects.compare_wordings("i1", "new", ["old", "new", "never stood"])
    assert lines == ["Another wording (violated in 6 of 10 answers, the present one in 1 of 12): old"]


async def test_where_nearly_all_answers_are_right_little_is_to_change() -> None:
    nearly = "Nearly all answers were right: keep the wording"
    *_, half, most = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, FIRST))),
        (answered(lambda n: n < 4), form(no_demand=[1])),
        (answered(lambda n: n < 7), form(no_demand=[1])),
    )
    assert nearly not in half and nearly in most
    assert "try another way" not in most, "that would contradict it"


async def test_a_long_wording_with_which_nearly_all_is_right_is_not_to_become_short() -> None:
    *_, last = await requests(
        (answered(lambda n: False), form(entry((1, 2, 3), None, LONG))),
        (answered(lambda n: n < 7), form(no_demand=[1])),
    )
    assert "Nearly all answers were right" in last and SHORT_TEXT not in last


async def test_of_rows_with_the_same_wrong_answer_a_few_are_shown_and_all_count() -> None:
    rows = [Example(f"r{n}", {"letter": f"Letter {n}"}, "help", {}, f"Letter {n}") for n in range(30)]
    run, optimizer = run_with(lambda stage, text: form(entry((1, 2, 3, 4), None, FIRST)))
    manager = InstructionManager(START)
    await manager.step(run, answered(lambda n: n < 10, rows), 1, "now")
    (shown,) = [text for stage, text in optimizer.seen if stage == "read"]
    assert (
        len(re.findall(r"(?m)^\d+\. Input", shown)) == 4 and "Below stand 4 of the 20 wrong answers." in shown
    )
    (added,) = manager.ledger.active
    assert added.sources == 20


def test_of_a_long_row_that_was_right_the_input_is_cut_and_never_the_answer() -> None:
    row = Example("r", {"letter": "word " * 200}, "sales", {}, "word " * 200)
    batch = collect_critiques([Rollout("p", "r", "sales", 1.0)], [row], 1.0, (), 0.0)
    (shown,) = batch.right
    assert len(shown) < 300 and shown.endswith("[...] Wanted: sales Answered: sales")


def test_what_was_taken_out_comes_with_its_number_and_what_was_answered() -> None:
    past = History()
    past.add({"i1": "old"}, answered(lambda n: n < 2))
    assert past.describe("i1", "old", "worse") == 'worse: 2 of 8 right with it; wrong answers: "no" (6 times)'
    assert past.describe("i2", "never stood", "worse") == "worse"
