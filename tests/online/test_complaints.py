"""From feedback to complaints, and from complaints to what people mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.online.complaints import MOST_UNITS, differences, hear
from whet.online.feedback import read_feedback
from whet.online.wishes import plainly, wish
from whet.prompt.instructions import refusal


def heard(**row: Any) -> list[str]:
    return [c.text for c in hear(read_feedback([row])[0]).complaints]


def test_a_comment_is_a_complaint_and_its_demands_are_single() -> None:
    assert heard(comment="Too long.\n- Use metres.\n- Name the source.") == [
        "Too long.",
        "Use metres.",
        "Name the source.",
    ]


@pytest.mark.parametrize(
    "comment",
    [
        "Thanks!",
        "Great answer, thank you",
        "ok",
        "Perfect.",
        "👍",
        "works well",
        "This is exactly what I needed, love it",
    ],
)
def test_praise_is_none(comment: str) -> None:
    assert heard(comment=comment) == []
    assert hear(read_feedback([{"comment": comment}])[0]).skipped == "it is content with the answer"


def test_a_good_rating_without_words_is_content() -> None:
    assert hear(read_feedback([{"rating": "Good"}])[0]).skipped == "it is content with the answer"


@pytest.mark.parametrize(
    "comment",
    ["Great, but too long", "Nice, please add the date", "Not great", "Thanks, however it lacks a source"],
)
def test_praise_with_a_wish_is_a_complaint(comment: str) -> None:
    assert heard(comment=comment) == [comment]


def test_praise_beside_a_bad_rating_is_irony() -> None:
    assert heard(comment="Great job!", rating=0) == ["Great job!"]


def test_an_explanation_counts_unless_the_verdict_is_good() -> None:
    assert heard(label="incorrect", explanation="The sum is wrong.") == ["The sum is wrong."]
    assert heard(label="refusal", explanation="The answer refuses.") == ["The answer refuses."]
    assert heard(label="correct", explanation="The sum is right, no detail is missing.") == []


@pytest.mark.parametrize(
    "row", [{"rating": 0}, {"label": "bad"}, {"rating": "Bad"}, {"score": 1, "label": "wrong"}]
)
def test_a_bare_verdict_gives_none(row: dict[str, Any]) -> None:
    assert heard(**row) == []
    assert "does not say what to change" in hear(read_feedback([row])[0]).skipped


@pytest.mark.parametrize(
    ("output", "corrected", "demands"),
    [
        ("The total is 5 USD.", "The total is 5 EUR.", ['Write "EUR" instead of "USD".']),
        ("Hello Ann, it is here", "Dear Ann, it is here", ['Write "Dear" instead of "Hello".']),
        ("the sum is 3", "The sum is 3", ['Mind upper and lower case: write "The" instead of "the".']),
        ("Sorry, it opens at nine.", "It opens at nine.", ['Leave out "Sorry,".', None]),
        (
            "It opens at nine.",
            "It opens at nine. Have a nice day.",
            ['The answer must also have "Have a nice day."', None],
        ),
        (
            "one two three",
            "four five six seven",
            ['The answer should be "four five six seven" instead of "one two three".'],
        ),
        ("same", "same", []),
        ("same  text", "same text", []),
    ],
)
def test_a_correction_says_what_should_be(output: str, corrected: str, demands: list[str | None]) -> None:
    found = differences(output, corrected)
    assert bool(found) == bool(demands)
    for demand in demands:
        assert demand is None or any(demand.rstrip(".") in text for text in found), found


def test_a_correction_needs_the_answer() -> None:
    assert heard(corrected="a") == []
    assert "`output`" in hear(read_feedback([{"corrected": "a"}])[0]).skipped
    assert heard(output="a b", corrected="a c") == ['Write "c" instead of "b".']


@given(st.text(max_size=200), st.text(max_size=200))
def test_differences_are_few_single_lines(output: str, corrected: str) -> None:
    found = differences(output, corrected)
    assert len(found) <= 4 and all("\n" not in text and len(text) < 400 for text in found)


def test_one_row_cannot_flood() -> None:
    assert len(heard(comment="\n".join(f"- Add item number {n}." for n in range(500)))) == MOST_UNITS


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Way too chatty.", "Keep the answer short and to the point."),
        ("the answer is way too long!!", "Keep the answer short and to the point."),
        ("Shorter please", "Keep the answer short and to the point."),
        ("Hmm. too formal for our customers", "Use a less formal tone."),
        ("it's rude", "Be polite."),
        ("too many emojis", "Use fewer emojis."),
        ("Not specific enough", "Be more specific."),
        ("More examples, please!", "Give more examples."),
        ("no emojis", "Do not use emojis."),
        (
            "Just give the hours in 24h format, e.g. 09:00-18:00.",
            "Give the hours in 24h format, e.g. 09:00-18:00.",
        ),
        ("please never use exclamation marks!!", "Never use exclamation marks."),
        ("Could you please answer in German?", "Answer in German."),
        ("I want you to cite the page number", "Cite the page number."),
        ("You forgot to mention that the receipt is needed", "Mention that the receipt is needed."),
        ("You should have mentioned the delivery date.", "Mention the delivery date."),
        ("you shouldn't have used slang", "Do not use slang."),
        ("You didn't answer my question.", "Answer my question."),
        ("It doesn't mention the price", "Mention the price."),
        ("Great, but please add the date.", "Add the date."),
        ("It says 5 USD instead of 5 EUR.", "Write 5 EUR instead of 5 USD."),
        ("it hallucinated a phone number", "Do not invent a phone number."),
        ("You always say 'I hope this helps' - stop that", "Do not say 'I hope this helps'"),
        ("Where is the source?", "Include the source."),
        ("Why did you apologise three times?", "Do not apologise three times."),
        ("`order_id` is missing", None),
        ("The price must be in EUR.", None),
        ("The date format is American, we use ISO dates.", None),
        ("No", None),
        ("", None),
    ],
)
def test_idioms(said: str, meant: str | None) -> None:
    assert wish(said) == meant


def test_what_is_only_reported_is_quoted_without_turning_it_around() -> None:
    assert plainly("Avoid this fault: customers were angry.", ["customers were angry"]) == (
        'Give no cause for this complaint: "customers were angry".'
    )
    assert (
        plainly("The steps must be numbered.", ["the steps are not numbered"])
        == "The steps must be numbered."
    )
    assert plainly("Avoid this fault: it's rude.", ["what a tone", "it's rude"]) == "Be polite."


@given(st.text(max_size=200))
def test_what_is_meant_is_a_usable_instruction(text: str) -> None:
    found = wish(text)
    assert found is None or ("\n" not in found and found == found.strip() and found)
    if found is not None and refusal(" ".join(text.split())) is None:
        assert refusal(found) is None
