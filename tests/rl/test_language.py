"""One robust road from a model's reply to a text, and from a text to a prompt."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.rl.language import RETRY
from whet.run import MemoryRun
from whet.search.versions import OtherVersion, show_versions
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import REPLIES, Answers, garbage
from whet_client.prompt.length import LengthLimit

START = Prompt.parse("Head {{a}}.\n<!-- whet:begin -->\nSort {{b}} well.\n<!-- whet:end -->\nTail {{a}}.")


async def rewrite(answer: Any, n: int = 1) -> tuple[list[Prompt], Answers, MemoryRun]:
    model = Answers(answer)
    run = MemoryRun({"optimizer": model})
    return await LanguagePolicy().rewrite(run, START, "Improve it.", n), model, run


def counts(run: Any) -> dict[str, Any]:
    ((_, value),) = run.logged
    return {name: count for name, count in value.items() if name != "why"}


async def test_a_bare_text_counts_only_on_the_second_attempt() -> None:
    found, model, run = await rewrite(lambda question, sample: "Sort {{b}} gently.")
    assert [p.region_text() for p in found] == ["Sort {{b}} gently."]
    assert len(model.requests) == 2
    assert counts(run) == {
        "asked": 1,
        "kept": 1,
        "off_format": 1,
        "rejected": 0,
        "bare": [1, "Sort {{b}} gently."],
    }


async def test_an_unreadable_reply_is_asked_for_once_more_with_another_sample_number() -> None:
    found, model, run = await rewrite(lambda question, sample: "")
    assert found == []
    assert [request.sample for request in model.requests] == [0, RETRY]
    assert model.questions[1].startswith(model.questions[0])
    assert "could not be read" in model.questions[1]
    assert counts(run) == {"asked": 1, "kept": 0, "off_format": 2, "rejected": 0}
    assert run.logged[0][1]["why"] == [["it holds no text.", 2, ""]]


async def test_a_refused_edit_is_asked_for_once_more_with_the_reason() -> None:
    def answer(question: str, sample: int) -> str:
        return "<PROMPT>Sort it.</PROMPT>" if sample == 0 else "<PROMPT>Sort {{b}} now.</PROMPT>"

    found, model, run = await rewrite(answer)
    assert [p.region_text() for p in found] == ["Sort {{b}} now."]
    assert "lost {{b}}" in model.questions[1]
    assert counts(run) == {"asked": 1, "kept": 1, "off_format": 0, "rejected": 1}


@pytest.mark.parametrize("text", [text for text, _ in REPLIES])
async def test_no_reply_can_break_a_prompt(text: str) -> None:
    found, _, _ = await rewrite(lambda question, sample: text, n=2)
    for prompt in found:
        assert prompt.edit(START.region_text()) == START
        assert prompt.region_text().strip()


async def test_text_from_a_model_is_never_a_template() -> None:
    hostile = "{0.__class__} %(x)s ${HOME} {% raw %} {x!r} \\1 \\g<0> {{b}}"
    found, _, _ = await rewrite(lambda question, sample: f"<PROMPT>{hostile}</PROMPT>")
    assert [p.region_text() for p in found] == [hostile]


async def test_samples_are_numbered_and_keep_their_order() -> None:
    policy, model = (
        LanguagePolicy(temperature=0.7, max_tokens=99),
        Answers(lambda q, sample: f"<T>text {sample}</T>"),
    )
    run = MemoryRun({"optimizer": model})
    assert await policy.write(run, "Write.", "T", 3, sample=16) == ["text 16", "text 17", "text 18"]
    assert {(r.temperature, r.max_tokens) for r in model.requests} == {(0.7, 99)}
    assert model.questions[0].endswith("<T>...</T>")


async def test_a_long_text_may_be_answered_by_one_that_is_twice_as_long() -> None:
    text = " ".join(["Sort every letter by its date."] * 200)
    model = Answers(lambda question, sample: f"<PROMPT>{text}</PROMPT>")
    run = MemoryRun({"optimizer": model})
    policy = LanguagePolicy(max_tokens=99)
    await policy.rewrite(run, Prompt.parse(text), "Improve it.")
    await policy.rewrite(run, Prompt.parse("Sort it."), "Improve it.")
    assert [r.max_tokens for r in model.requests] == [len(text) // 2, 99]


async def test_many_texts_of_one_reply() -> None:
    run = MemoryRun({"optimizer": Answers(lambda question, sample: json.dumps(["a b", "", "c d"]))})
    assert await LanguagePolicy().write(run, "Write some.", "T", many=True) == ["a b", "c d"]


async def test_slots_are_explained() -> None:
    _, model, _ = await rewrite(lambda question, sample: "<PROMPT>Sort {{b}}.</PROMPT>")
    assert "({{b}})" in model.questions[0]
    policy, plain = LanguagePolicy(), Answers(lambda question, sample: "<PROMPT>Sort.</PROMPT>")
    await policy.rewrite(MemoryRun({"optimizer": plain}), Prompt.parse("Sort it."), "Improve it.")
    assert "Do not write placeholders" in plain.questions[0]


async def test_garbage_costs_two_calls_a_text_and_nothing_else() -> None:
    run = MeteredRun({"optimizer": garbage()})
    found = await LanguagePolicy().rewrite(run, START, "Improve it.", 20)
    assert len(found) < 20
    assert 20 <= run.spent["optimizer"] <= 40


def test_setting_shows_what_surrounds_the_text_without_markers() -> None:
    shown = setting("Sort letters.", START)
    assert "Sort letters." in shown
    assert "Head {{a}}.\n[INSTRUCTION]\nTail {{a}}." in shown
    assert "whet:" not in shown
    assert setting("", Prompt.parse("Sort it.")) == ""


async def test_rephrase_offers_wordings_of_a_part() -> None:
    model = Answers(lambda question, sample: "- sort the mail\n- put the post in order")
    found = await LanguagePolicy().rephrase(
        MemoryRun({"optimizer": model}), "Please sort letters.", "sort letters"
    )
    assert found == ["sort the mail", "put the post in order"]
    assert "Please sort letters." in model.questions[0]


REVIEW = Prompt.parse("<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\nReview: {{input}}")
TASK = setting("Sort the reviews of a cinema.", REVIEW)
ASKED = f"You improve instructions.\n\n{TASK}Tried so far, worst first:\n\nWrite a better one."


async def of_reply(*replies: str) -> tuple[list[str], int]:
    model = Answers(lambda question, sample: replies[min(sample // RETRY, len(replies) - 1)])
    found = await LanguagePolicy().rewrite(MemoryRun({"optimizer": model}), REVIEW, ASKED)
    return [prompt.region_text() for prompt in found], len(model.requests)


@pytest.mark.parametrize(("tag", "calls"), [("INSTRUCTION", 1), ("PROMPT", 1), ("TEXT", 1), ("prompt", 2)])
async def test_an_instruction_is_read_from_the_tags_that_a_weak_model_takes(tag: str, calls: int) -> None:
    reply = f"Certainly! Below is the new one.\n<{tag}>Say positive or negative.</{tag}>\nI hope this helps."
    assert await of_reply(reply) == (["Say positive or negative."], calls)


@pytest.mark.parametrize(
    "reply",
    [
        "<INSTRUCTION>Say positive or negative.\nReview: {{input}}</INSTRUCTION>",
        "<INSTRUCTION>Say positive or negative.\n\nInput:\n{{input}}</INSTRUCTION>".replace("Input:\n", ""),
        "<INSTRUCTION><text>{{input}}</text>\nSay positive or negative.</INSTRUCTION>",
        "<!-- whet:begin -->\nSay positive or negative.\n<!-- whet:end -->",
        "<!-- whet:begin -->\nSay positive or negative.\n<!-- whet:end -->\nReview: {{input}}",
        "<!-- whet:begin -->\nSay positive or negative.\n<!-- whet:end -->\n\n{{input}}\nAnswer with one of: a, b.",
        "```\n<!-- whet:begin -->\nSay positive or negative.\n<!-- whet:end -->\nReview: {{input}}\n```",
    ],
)
async def test_what_stands_outside_of_the_fence_already_is_taken_off(reply: str) -> None:
    assert await of_reply(reply) == (["Say positive or negative."], 1)


async def test_a_reply_that_is_of_no_use_is_told_why_and_counted_by_reason() -> None:
    model = Answers(lambda question, sample: "Sure! Here it is:\n\nSay positive.\n\nBetter, I think.")
    run = MemoryRun({"optimizer": model})
    assert await LanguagePolicy().rewrite(run, REVIEW, ASKED, 2) == []
    reason = "no text stands between the tags <INSTRUCTION> and </INSTRUCTION>."
    assert reason in model.questions[-1]
    assert run.logged[0][1]["why"] == [[reason, 4, "Sure! Here it is: Say positive. Better, I think."]]


async def test_the_length_is_told_and_growth_beyond_it_is_refused_with_the_reason() -> None:
    start = replace(REVIEW, limit=LengthLimit(30))
    model = Answers(
        lambda question, sample: f"<INSTRUCTION>{'Be kind. ' * (1 if sample else 40)}</INSTRUCTION>"
    )
    found = await LanguagePolicy().rewrite(MemoryRun({"optimizer": model}), start, ASKED)
    assert [prompt.region_text() for prompt in found] == ["Be kind."]
    assert "at most 30 tokens (about 120 characters); it has 7 now" in model.questions[0]
    assert "it may have at most 30. Write a shorter text." in model.questions[1]


async def test_the_length_that_is_told_is_that_of_the_text_in_the_question() -> None:
    start = replace(REVIEW, limit=LengthLimit(300))
    model = Answers(lambda question, sample: "<INSTRUCTION>Be kind.</INSTRUCTION>")
    await LanguagePolicy().rewrite(
        MemoryRun({"optimizer": model}), start, ASKED, text="Say what it is like. " * 20
    )
    (now,) = re.findall(r"it has (\d+) now", model.questions[0])
    assert int(now) > 100


async def test_what_stands_around_the_editable_text_is_left_out() -> None:
    reply = "<INSTRUCTION>Review: {{input}}\n\nSay positive or negative.</INSTRUCTION>"
    assert await of_reply(reply) == (["Say positive or negative."], 1)


async def test_a_slot_of_another_region_is_asked_away() -> None:
    replies = (
        "<INSTRUCTION>Judge {{input}} well.</INSTRUCTION>",
        "<INSTRUCTION>Judge it well.</INSTRUCTION>",
    )
    assert await of_reply(*replies) == (["Judge it well."], 2)
    assert await of_reply(replies[0]) == ([], 2)


async def test_a_question_that_is_copied_back_is_no_instruction() -> None:
    good = "<INSTRUCTION>Say positive or negative.</INSTRUCTION>"
    assert await of_reply(f"<INSTRUCTION>{ASKED}</INSTRUCTION>", good) == (["Say positive or negative."], 2)
    again = "<INSTRUCTION>Write nothing but the text, between the tags.</INSTRUCTION>"
    assert await of_reply("", again) == ([], 2)


@pytest.mark.parametrize(
    "leaked",
    [
        "Do not write placeholders in double braces.",
        "The whole prompt may have at most 30 tokens (about 120 characters).",
    ],
)
async def test_notes_for_the_optimizer_model_do_not_get_into_an_instruction(leaked: str) -> None:
    start = replace(REVIEW, limit=LengthLimit(30))
    model = Answers(
        lambda question, sample: f"<INSTRUCTION>Be kind.{'' if sample else f' {leaked}'}</INSTRUCTION>"
    )
    found = await LanguagePolicy().rewrite(MemoryRun({"optimizer": model}), start, ASKED)
    assert [prompt.region_text() for prompt in found] == ["Be kind."]
    assert "words of this message that are meant for you" in model.questions[1]
    own = replace(Prompt.parse(f"Be kind. {leaked}\nReview: {{{{input}}}}"), limit=None)
    kept = await LanguagePolicy().rewrite(MemoryRun({"optimizer": Answers(lambda q, s: (
        f"<INSTRUCTION>Be brief. {leaked}\nReview: {{{{input}}}}</INSTRUCTION>"
    ))}), own, ASKED)  # fmt: skip
    assert leaked in kept[0].text, "what the start prompt says itself is no leak"


async def test_an_instruction_may_repeat_the_task_and_a_line() -> None:
    for text in (
        "Sort the reviews of a cinema.\nSay positive or negative.",
        "You improve instructions.\nSay positive.",
    ):
        assert await of_reply(f"<INSTRUCTION>{text}</INSTRUCTION>") == ([text], 1)


# A model that copies what it is shown.

COPIES = [
    "<INSTRUCTION>...</INSTRUCTION>",
    "Put it between tags, like this: <INSTRUCTION>...</INSTRUCTION>",
    "<INSTRUCTION></INSTRUCTION>",
    f"<INSTRUCTION>{ASKED}</INSTRUCTION>",
]


async def test_an_instruction_may_take_lines_of_another_version_that_was_shown() -> None:
    """An optimizer is asked to take in what helped in other versions: that is no copy of the request."""
    lines = "Bad words about the film mean negative.\nA joy from start to finish means positive."
    version = OtherVersion(f"Sort the review.\n{lines}", "0.9, beside 0.5 on the same 8 inputs")
    question = f"Improve it.\n\n{show_versions('Answer.', [version])}\n\nRewrite it."
    answers = Answers(lambda question, sample: f"<INSTRUCTION>Read {{{{b}}}}.\n{lines}</INSTRUCTION>")
    run = MemoryRun({"optimizer": answers})
    (prompt,) = await LanguagePolicy().rewrite(run, START, question)
    assert prompt.region_text() == f"Read {{{{b}}}}.\n{lines}" and len(answers.requests) == 1


@pytest.mark.parametrize("copy", COPIES)
async def test_a_form_that_was_copied_is_not_asked_for_again_but_the_plain_text(copy: str) -> None:
    def answer(question: str, sample: int) -> str:
        return copy if "<INSTRUCTION>...</INSTRUCTION>" in question else "Say positive.\n\nOr negative."

    model = Answers(answer)
    run, policy = MemoryRun({"optimizer": model}), LanguagePolicy()
    first = await policy.rewrite(run, REVIEW, ASKED, 2)
    assert [p.region_text() for p in first] == ["Say positive.\n\nOr negative."] * 2
    assert ["<INSTRUCTION>...</INSTRUCTION>" in q for q in model.questions] == [True, False] * 2
    assert not any("could not be" in question for question in model.questions)
    model.requests.clear()
    assert len(await policy.adapt().rewrite(run, REVIEW, ASKED, 2, sample=2)) == 2
    assert len(model.requests) == 2, "the next round asks in plain text first"


async def test_a_single_copy_among_good_replies_changes_nothing_in_the_next_round() -> None:
    good = "<INSTRUCTION>Say positive.</INSTRUCTION>"
    model = Answers(lambda question, sample: COPIES[0] if sample == 1 else good)
    policy = LanguagePolicy()
    await policy.rewrite(MemoryRun({"optimizer": model}), REVIEW, ASKED, 3)
    assert policy.adapt() == policy


async def test_a_request_that_is_copied_as_a_reason_is_no_reason() -> None:
    request = "Why did the model fail here? Name one fault of the instruction."
    replies = [f"<REASON>{request}</REASON>", "It names no answers."]
    model = Answers(lambda question, sample: replies[sample // RETRY])
    run = MemoryRun({"optimizer": model})
    assert await LanguagePolicy().write(run, f"About it.\n\n{request}", "REASON") == [replies[1]]


async def test_texts_that_stood_in_the_question_are_counted_as_unchanged() -> None:
    shown = f"{ASKED}\n\n<INSTRUCTION>\nSay yes.\n</INSTRUCTION>\nScore: 0"
    run = MemoryRun(
        {
            "optimizer": Answers(
                lambda q, s: f"<INSTRUCTION>{('Answer.', 'Say yes.', 'New.')[s]}</INSTRUCTION>"
            )
        }
    )
    assert len(await LanguagePolicy().rewrite(run, REVIEW, shown, 3)) == 3
    assert run.logged[0][1]["unchanged"] == 2


@pytest.mark.parametrize(("useful", "asked"), [(False, 10), (True, 24)], ids=["never", "once"])
async def test_a_model_that_never_writes_a_text_of_use_is_asked_no_more(useful: bool, asked: int) -> None:
    def answer(question: str, sample: int) -> str:
        return "<PROMPT>Sort {{b}} now.</PROMPT>" if useful and sample == 3 else "No slot."

    model, policy = Answers(answer), LanguagePolicy()
    run = MemoryRun({"optimizer": model})
    for number in range(12):
        policy = policy.adapt()
        await policy.rewrite(run, START, "Improve it.", 2, sample=2 * number)
    assert sum(value["asked"] for _, value in run.logged) == asked
