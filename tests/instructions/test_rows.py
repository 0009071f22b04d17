"""The form for rows whose right answers are known: all labels, what was confused, rows of every label in one request."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.instructions.optimizer import constant, entry, form, run_with

from whet.instructions.answers import Known
from whet.instructions.critiques import CritiqueBatch, collect_critiques
from whet.instructions.questions import Critique, confusions, question
from whet.instructions.reader import read_critiques
from whet.types import Example, Rollout

LABELS = ("entity", "description", "number", "person", "place", "abbreviation", "colour")


def rows(counts: dict[str, int], given: str = "description") -> list[Critique]:
    """As many wrongly answered rows of each label."""
    examples = [
        Example(f"{label}-{n}", {"input": f"What is {label} {n}?"}, label, {}, f"What is {label} {n}?")
        for label, count in counts.items()
        for n in range(count)
    ]
    rollouts = [Rollout("p", one.id, given, 0.0) for one in examples]
    known = [Example(f"{label}-x{n}", {}, label, {}, "") for label in LABELS for n in range(3)]
    return list(collect_critiques(rollouts, [*examples, *known], 1.0).critiques)


def wanted(text: str) -> list[str]:
    """The labels of the rows of a request, in their order."""
    return re.findall(r"(?m)^\s*Wanted: (\w+)$", text)


def test_it_names_all_right_answers_and_counts_what_was_confused() -> None:
    shown = rows({"entity": 5, "number": 2})
    text = question(shown, [], "", confusions(shown))
    assert all(f'"{label}"' in text for label in LABELS)
    assert 'wanted "entity", got "description": 5' in text
    assert 'wanted "number", got "description": 2' in text
    assert "got none of them: 1" in confusions(rows({"entity": 1}, given="Well, who knows?"))
    assert 'got "person": 1' in confusions(rows({"entity": 1}, given="It is a person."))
    digits = confusions(rows({"entity": 2}, given="5") + rows({"person": 1}, given="Who knows?"))
    assert 'wanted "entity", got none of them: 2 ("5" (2 times))' in digits
    assert 'wanted "person", got none of them: 1 ("Who knows?")' in digits
    worded = confusions(rows({"entity": 2}, given="Answer: entity"))
    assert 'wanted "entity", got none of them: 2 ("Answer: entity" (2 times))' in worded


def test_pairs_that_are_not_listed_are_counted() -> None:
    shown = [Critique("", "", row=True, wanted=f"w{n}", answer="x") for n in range(15)]
    assert confusions(shown).endswith("- other pairs: 3")


def test_rows_keep_their_lines_and_none_passes_for_another_row() -> None:
    (one,) = rows({"entity": 1}, given="first line\n2. Add a rule.\n[i9] obey")
    text = question([one], [], "")
    assert "\n   Answered: first line\n   2. Add a rule.\n   [i9] obey\n" in text
    assert re.findall(r"(?m)^\d+\.", text) == ["1."] and not re.findall(r"(?m)^\[", text)


def test_an_answer_that_was_cut_off_is_marked() -> None:
    example = Example("a", {"input": "x"}, "entity", {}, "x")
    (one,) = collect_critiques([Rollout("p", "a", "It is an", 0.0, cut=True)], [example], 1.0).critiques
    assert "Answered (cut off at the token limit): It is an" in one.text


def test_comments_of_people_are_asked_about_in_a_form_of_their_own() -> None:
    comment = question([Critique("too long", "r1")], [], "")
    assert "sarcastic" in comment and "sarcastic" not in question(rows({"entity": 1}), [], "")


async def test_one_request_shows_rows_of_every_label() -> None:
    run, optimizer = run_with(constant(form(entry((1,), None, "Name the kind."))))
    reading = await read_critiques(run, rows({"entity": 40, "number": 3, "place": 1}), [], manages=True)
    (text,) = [text for _, text in optimizer.seen]
    shown = Counter(wanted(text))
    assert shown == {"place": 1, "number": 3, "entity": 4}, "four of those with the same wrong answer"
    assert len(reading.unreadable) == 36 and "(44 in all)" in text


async def test_a_draft_is_made_from_one_row_of_each_label() -> None:
    run, optimizer = run_with(constant("<INSTRUCTION>Name the kind.</INSTRUCTION>"))
    await read_critiques(run, rows(dict.fromkeys(LABELS, 4)), [], manages=False)
    assert sorted(wanted(optimizer.seen[0][1])) == sorted(LABELS)


LIST = f"Answer with one of: {', '.join(LABELS)}. " + "Numbers are counts, dates and sizes. " * 12


async def test_an_instruction_made_of_rows_may_list_and_tell_apart_all_right_answers() -> None:
    text = " ".join(LIST.split())
    run, _ = run_with(constant(form(entry((1,), None, text))))
    assert len(text) > 400
    assert [r.text for r in (await read_critiques(run, rows({"entity": 2}), [])).requirements] == [text]


DEFINED = (
    "Answer with one word, the section of the item, and nothing else. "
    + "Sports: matches, teams and their coaches. " * 25
)


async def test_a_wording_of_many_sentences_takes_the_place_of_the_text_that_it_rewords() -> None:
    text = " ".join(DEFINED.split())
    assert 1000 < len(text) < 1200
    known = [Known("t1", "Answer.", managed=False)]
    run, _ = run_with(constant(form(entry((1, 2), "t1", text))))
    (one,) = (await read_critiques(run, rows({"entity": 2}), known, manages=True)).requirements
    assert one.text == text and one.violates == "t1"


@pytest.mark.parametrize(
    ("of_rows", "ids"), [((True, False), ["i1"]), ((True, True), [""]), ((False, False), [""])]
)
async def test_another_wording_of_the_only_instruction_of_rows_takes_its_place(
    of_rows: tuple[bool, bool], ids: list[str]
) -> None:
    """However little of it is left; where the instruction is one of several, a model may have named any."""
    texts = " ".join(DEFINED.split()), "Be polite."
    known = [
        Known(f"i{n}", text, of_rows=of) for n, (text, of) in enumerate(zip(texts, of_rows, strict=True), 1)
    ]
    run, _ = run_with(constant(form(entry((1, 2), "i1", "Name its kind."))))
    reading = await read_critiques(run, rows({"entity": 2}), known, manages=True)
    assert [one.violates for one in reading.requirements] == ids
    assert [one.text for one in reading.requirements] == ["Name its kind."]


async def test_a_wording_that_is_no_instruction_is_named_with_the_reason() -> None:
    run, _ = run_with(constant(form(entry((1,), None, DEFINED * 3), entry((2,), None, "Use {{input}}."))))
    await read_critiques(run, rows({"entity": 2}), [], manages=True)
    reasons = [value["reason"] for name, value in run.logged if name == "untested"]
    assert "one demand has at most 3000" in reasons[0] and "slot" in reasons[1]


@pytest.mark.parametrize(
    "text", ["What instruction i1 says?", "Ask for the colour of a train.", "What does instruction i1 say?"]
)
async def test_what_the_example_of_the_form_is_about_is_no_instruction(text: str) -> None:
    run, _ = run_with(
        constant(form(entry((1,), None, text), entry((2,), None, "Name the kind of the thing.")))
    )
    reading = await read_critiques(run, rows({"entity": 2}), [], manages=True)
    assert [one.text for one in reading.requirements] == ["Name the kind of the thing."]


async def test_a_wording_in_several_lines_is_an_instruction_and_is_not_named_as_refused() -> None:
    run, _ = run_with(constant(form(entry((1, 2), None, "Name the kind.\r\n \t\n\nNo dot. \n  One word."))))
    reading = await read_critiques(run, rows({"entity": 2}), [], manages=True)
    assert [one.text for one in reading.requirements] == ["Name the kind.\n\nNo dot.\n  One word."]
    assert "untested" not in dict(run.logged)


async def test_rows_without_labels_are_one_request_too() -> None:
    """Each request would bring the whole instruction once more, in other words."""
    examples = [Example(f"w{n}", {"input": f"word {n}"}, f"answer {n}", {}, f"word {n}") for n in range(40)]
    shown = collect_critiques([Rollout("p", one.id, "no", 0.0) for one in examples], examples, 1.0).critiques
    run, optimizer = run_with(constant(form(entry((1,), None, "Write the opposite."))))
    await read_critiques(run, shown, [], manages=True, most=20)
    assert len(optimizer.seen) == 1


async def test_the_words_of_the_question_do_not_become_an_instruction() -> None:
    shown = rows(dict.fromkeys(LABELS, 1))
    run, optimizer = run_with(constant("<INSTRUCTION>Name the kind.</INSTRUCTION>"))
    await read_critiques(run, shown, [], manages=False)
    sentence = next(s for s in optimizer.seen[0][1].split(". ") if "find out about an input" in s)
    run, _ = run_with(constant(f"<INSTRUCTION>{sentence}.</INSTRUCTION>"))
    assert (await read_critiques(run, shown, [], manages=False)).requirements == ()


def judged_rows(critique: str, reward: float = 0.0) -> CritiqueBatch:
    """Rows that were answered with an animal instead of a colour, each with a critique of this form."""
    targets, answers = ("red", "blue", "green"), ("cat", "dog", "owl")
    examples = [Example(str(n), {"input": f"thing {n}"}, t, {}, f"thing {n}") for n, t in enumerate(targets)]
    rollouts = [
        Rollout("p", row.id, answer, reward, critique=critique.format(wanted=row.target, got=answer, n=n))
        for n, (row, answer) in enumerate(zip(examples, answers, strict=True))
    ]
    return collect_critiques(rollouts, examples, 1.0, (), 0.0)


@pytest.mark.parametrize(
    ("critique", "told"),
    [
        ('The answer "{got}" should be "{wanted}".', ""),
        ("Falsch: {wanted} statt {got}!", "Falsch: red statt cat!"),
        ("{wanted}", "red"),
    ],
)
def test_a_critique_that_only_repeats_what_was_wanted_is_left_out_of_the_rows(
    critique: str, told: str
) -> None:
    batch = judged_rows(critique)
    assert [c.text.splitlines()[1:] for c in batch.critiques] == [
        ["Wanted: red", "Answered: cat"], ["Wanted: blue", "Answered: dog"], ["Wanted: green", "Answered: owl"],
    ]  # fmt: skip
    assert batch.remark == told and (told in batch.tally)


def test_a_critique_that_says_something_of_its_own_row_stays() -> None:
    batch = judged_rows("{wanted}: too long by {n} letters")
    assert [c.text.splitlines()[-1] for c in batch.critiques] == [
        f"Critique: {wanted}: too long by {n} letters" for n, wanted in enumerate(("red", "blue", "green"))
    ]
    assert batch.remark == ""


def test_a_reward_between_the_lowest_and_the_full_one_is_shown() -> None:
    assert all("Reward: 0.5" in c.text for c in judged_rows("{wanted}", 0.5).critiques)


def test_a_row_that_was_answered_alike_several_times_says_how_often() -> None:
    """So that the rows are as many as the counts say."""
    example = Example("1", {"input": "thing"}, "red", {}, "thing")
    rollouts = [Rollout("p", "1", answer, 0.0, sample=n) for n, answer in enumerate(("cat", "cat", "dog"))]
    text = question(collect_critiques(rollouts, [example], 1.0, (), 0.0).critiques, [], "")
    assert "   Answered: cat\n   Times: 2\n2. " in text and text.count("Times:") == 1


def test_what_was_wrong_is_counted_once_whatever_of_it_is_shown() -> None:
    """Rows that were dismissed before, or do not fit, are wrong all the same."""
    examples = [Example(str(n), {"input": f"thing {n}"}, LABELS[n % 3], {}, f"thing {n}") for n in range(30)]
    rollouts = [Rollout("p", row.id, "description", float(n < 9)) for n, row in enumerate(examples)]
    batch = collect_critiques([*rollouts, rollouts[-1]], examples, 1.0)
    tally = batch.but({c.text for c in batch.critiques[:15]}).tally
    assert "Of 31 answers, 9 were right" in tally and "(22 in all)" in tally


def test_it_says_how_many_of_the_wrong_answers_are_shown_where_not_all_are() -> None:
    shown = rows({"entity": 2})
    assert "Below stand 2 of the 5 wrong answers." in question(shown, [], "", wrong=5)
    assert "Below stand" not in question(shown, [], "", wrong=2)


def test_the_reader_may_make_up_examples_but_not_where_a_short_wording_is_wanted() -> None:
    shown, allowed = rows({"entity": 2}), "examples with inputs that you make up are allowed"
    assert allowed in question(shown, [], "")
    assert allowed not in question(shown, [], "", brief=True)
