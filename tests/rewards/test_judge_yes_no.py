"""The probability of yes: from the first token, from samples, and with the question turned around."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from tests.rewards.judging import FakeJudge, built, grade

from whet.errors import UsageError
from whet.rewards import RewardFailed
from whet.rewards.yes_no import probability_of_yes
from whet.types import Completion, Request, lacks_answer


def first(yes: float, no: float, text: str = "Yes") -> Completion:
    return Completion(text, first_token={"Yes": math.log(yes), "no": math.log(no)})


async def test_the_first_token_gives_the_probability_in_one_call() -> None:
    judge = FakeJudge([first(0.72, 0.08)])
    reward = await grade(built({"yes_no": {"question": "Is it polite?", "samples": 5}}), judge)
    assert reward.value == pytest.approx(0.9) and reward.critique is None
    assert judge.asked[0].top_logprobs > 0 and len(judge.asked) == 1


@pytest.mark.parametrize("liking", [1.0, 3.0, 10.0])
async def test_a_liking_for_yes_cancels_with_the_negated_question(liking: float) -> None:
    """A judge that multiplies the odds of yes by `liking`, whatever is asked, and believes p = 0.8."""

    def answer(request: Request) -> Completion:
        odds = 4.0 if "polite?" in request.messages[1].content else 0.25
        yes = liking * odds / (1 + liking * odds)
        return first(yes, 1 - yes)

    spec = {"question": "Is it polite?", "negated": "Is it rude?"}
    reward = await grade(built({"yes_no": spec}), FakeJudge(answer))
    alone = liking * 4 / (1 + liking * 4)
    other = liking / 4 / (1 + liking / 4)
    assert reward.value == pytest.approx((alone + 1 - other) / 2)
    assert abs(reward.value - 0.8) <= abs(alone - 0.8) + 1e-12 or liking > 1


async def test_the_mean_of_samples_where_no_probabilities_are_offered() -> None:
    judge = FakeJudge(["Yes.", "no", "**Yes**, it is.", '{"answer": "no"}'])
    reward = await grade(built({"yes_no": {"question": "q", "samples": 4}}), judge)
    assert reward.value == 0.5
    assert [r.sample for r in judge.asked] == [0, 1, 2, 3]


async def test_probabilities_of_other_words_do_not_count() -> None:
    blurred = Completion("Well, yes", first_token={"Well": -0.01, "Yes": -6.0})
    judge = FakeJudge([blurred, Completion("no", first_token={"The": -0.1})])
    reward = await grade(built({"yes_no": {"question": "q"}}), judge)
    assert reward.value == 0.0 and len(judge.asked) == 2


async def test_the_expected_answer_may_be_no_and_the_critique_may_be_given() -> None:
    spec = {"question": "Does it swear?", "expect": False, "critique": "Do not swear."}
    reward = await grade(built({"yes_no": spec}), FakeJudge([first(0.9, 0.1)]))
    assert reward.value == pytest.approx(0.1) and reward.critique == "Do not swear."
    default = await grade(built({"yes_no": {"question": "Is it short?"}}), FakeJudge(["no"]))
    assert default.critique == 'Is it short? The answer is "no"; it must be "yes".'


async def test_an_answer_that_is_neither_is_asked_for_once_more() -> None:
    judge = FakeJudge(["Perhaps.", "yes"])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == 1.0
    with pytest.raises(RewardFailed, match="neither yes nor no, twice"):
        await grade(built({"yes_no": {"question": "q"}}), FakeJudge(["Perhaps.", "Nobody knows."]))


@pytest.mark.parametrize(
    "reply",
    [
        "Yes/No",
        "Yes and no",
        "yes, but no.",
        "No, I would say yes",
        "yes\n\nno",
        "Yes and no, it depends.",
        '{"answer": "Yes/No"}',
    ],
)
async def test_an_answer_that_says_both_is_asked_for_once_more(reply: str) -> None:
    judge = FakeJudge([reply, "no"])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == 0.0 and len(judge.asked) == 2
    with pytest.raises(RewardFailed, match="neither yes nor no, twice"):
        await grade(built({"yes_no": {"question": "q"}}), FakeJudge([reply, reply]))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("Yes, no price is missing.", 1.0),
        ("Yes, no-one is insulted", 1.0),
        ("Yes - no doubt about it", 1.0),
        ("No, yes would be too kind", 0.0),
        ("No. No.", 0.0),
        ("**Yes**", 1.0),
    ],
)
async def test_the_other_word_inside_a_sentence_is_no_answer(reply: str, value: float) -> None:
    judge = FakeJudge([reply])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == value and len(judge.asked) == 1


@pytest.mark.parametrize(
    ("tokens", "p"),
    [
        (None, None),
        ({}, None),
        ({"Yes": 0.0}, 1.0),
        ({" yes": math.log(0.2), "YES": math.log(0.2), "No": math.log(0.1)}, 0.8),
        ({"▁no": math.log(0.5), "maybe": math.log(0.5)}, 0.0),
        ({"Yes": math.log(0.05), "I": math.log(0.9)}, None),
        ({"Yesterday": 0.0}, None),
        ({"Y": math.log(0.9), "No": math.log(0.1)}, None),
        ({'"': math.log(0.4), "No": math.log(0.3), "no": math.log(0.3)}, None),
        ({"Maybe": math.log(0.9), "Yes": math.log(0.06), "No": math.log(0.04)}, None),
        ({"ＹＥＳ": math.log(0.8), "No": math.log(0.2)}, 0.8),
        ({"Yes": math.log(0.9), "No": math.log(0.9)}, None),
    ],
)
def test_spellings_add_up(tokens: dict[str, float] | None, p: float | None) -> None:
    assert probability_of_yes(tokens) == (None if p is None else pytest.approx(p))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "`question` is missing"),
        ({"question": "q", "expect": "maybe"}, "yes, no"),
        ({"question": "q", "negate": "n"}, 'Did you mean "negated"'),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        built({"yes_no": options})


def test_calls_are_declared() -> None:
    reward: Any = built({"yes_no": {"question": "q", "negated": "n", "samples": 3}})
    assert reward.judge_calls == 6 and reward.needs == {"judge"}


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("Answer: Yes", 1.0),
        ("**Answer:** Yes", 1.0),
        ("Final answer: **No**", 0.0),
        ("<answer>no</answer>", 0.0),
        ("\\boxed{Yes}", 1.0),
        ("[[No]]", 0.0),
        ("Reasoning: it has no insults.\n\nYes", 1.0),
    ],
)
async def test_a_verdict_that_is_set_apart_is_read(reply: str, value: float) -> None:
    judge = FakeJudge([reply])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == value and len(judge.asked) == 1


@pytest.mark.parametrize(
    "reply", ["<answer>yes</answer> or <answer>no</answer>", "Answer: perhaps", "Yes and no"]
)
async def test_two_verdicts_that_are_set_apart_are_none(reply: str) -> None:
    with pytest.raises(RewardFailed, match="neither yes nor no, twice"):
        await grade(built({"yes_no": {"question": "q"}}), FakeJudge([reply, reply]))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('The text says "yes".\n\nNo', 0.0),
        ('Yes, it says "no".', 1.0),
        ("> yes\n\nNo.", 0.0),
        ('{"answer": "no"} The text itself says `{"answer": "yes"}`.', 0.0),
    ],
)
async def test_a_quoted_verdict_is_none(reply: str, value: float) -> None:
    judge = FakeJudge([reply])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == value


@pytest.mark.parametrize(
    "reply",
    ['The text says: "yes"', 'It holds {"answer": "yes"}.\n\nNo', '{"answer": "yes"} {"answer": "no"}'],
)
async def test_two_verdicts_or_a_quoted_one_alone_are_asked_for_again(reply: str) -> None:
    judge = FakeJudge([reply, "no"])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == 0.0
    assert len(judge.asked) == 2


async def test_a_reply_that_was_cut_may_be_longer_the_second_time() -> None:
    cut = Completion("Well, that depends on", finish="length")
    judge = FakeJudge([cut, "yes"])
    assert (await grade(built({"yes_no": {"question": "q"}}), judge)).value == 1.0
    first, second = (request.max_tokens or 0 for request in judge.asked)
    assert second > first
    with pytest.raises(RewardFailed, match="was cut off at its limit of tokens, twice") as caught:
        await grade(built({"yes_no": {"question": "q"}}), FakeJudge([cut, cut]))
    assert lacks_answer(caught.value.where)
