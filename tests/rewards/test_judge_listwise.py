"""The listwise judge: what it is asked, how its reply is read, what the value is, and that principles are followed."""

from __future__ import annotations

import json
import re
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.judging import FakeJudge, built

from whet.errors import UsageError
from whet.rewards.listwise import Listwise, draw_order, read_placement
from whet.rewards.program import RewardFailed
from whet.run import MemoryRun
from whet.types import Completion, Example, Request, Reward

PRINCIPLES = "Short answers are better."
OTHERS = ["a short one", "an answer with quite a few words more than that"]


def row(others: Any = OTHERS, **more: Any) -> Example:
    return Example("e", {"input": "Why?"}, None, {"input": "Why?", "answers": others, **more}, "Why?")


def shown(request: Request) -> dict[int, str]:
    """The answers as the judge sees them, by their numbers."""
    text = request.messages[1].content
    return {
        int(n): body
        for n, body in re.findall(r"Answer (\d+), between.*?\n\[\[\w+\]\]\n(.*?)\n\[\[/", text, re.S)
    }


def reply(scores: dict[int, float]) -> str:
    rows = [{"answer": n, "explanation": f"Number {n} must be short.", "score": s} for n, s in scores.items()]
    return json.dumps({"answers": rows})


def by_length(request: Request) -> str:
    """A judge that follows the principle: the shortest of the answers that it sees is the best one."""
    answers = shown(request)
    order = sorted(answers, key=lambda n: -len(answers[n]))
    return reply({n: 1 + 4 * place / (len(order) - 1) for place, n in enumerate(order)})


async def graded(output: str, judge: FakeJudge, example: Example | None = None, **options: Any) -> Reward:
    reward = built({"listwise": {"principles": PRINCIPLES, "against": "answers", **options}})
    return await reward.grade(MemoryRun({"judge": judge}), example or row(), Completion(output))


@pytest.mark.parametrize(
    ("output", "rank", "score"), [("Brief.", 1.0, 1.0), ("a middling answer", 0.5, 0.5), ("x" * 90, 0.0, 0.0)]
)
async def test_the_value_is_where_the_answer_stands(output: str, rank: float, score: float) -> None:
    judge = FakeJudge(by_length)
    assert (await graded(output, judge)).value == rank
    assert (await graded(output, FakeJudge(by_length), value="score")).value == score
    assert len(judge.asked) == 2, "two lists, the second in the reverse order of the first"
    first, second = (list(shown(request).values()) for request in judge.asked)
    assert first == second[::-1] and {*first} == {output, *OTHERS}
    assert PRINCIPLES in judge.asked[0].messages[0].content


async def test_a_liking_for_a_place_cancels() -> None:
    """A judge that prefers whatever stands first gives one half on average, whatever the texts are."""
    judge = FakeJudge(lambda request: reply({n: 6 - n for n in shown(request)}))
    assert (await graded("Brief.", judge)).value == 0.5


@pytest.mark.parametrize(("samples", "others"), [(1, ["OTHER"]), (3, ["OTHER"]), (1, ["OTHER", "A THIRD"])])
async def test_a_liking_for_a_place_cancels_over_rows_with_the_same_answers(
    samples: int, others: list[str]
) -> None:
    likes_first = FakeJudge(lambda request: reply({n: 5 if n == 1 else 1 for n in shown(request)}))
    rows = [Example(str(n), {"input": f"Question {n}"}, None, {"answers": others}) for n in range(120)]
    values = [(await graded("MINE", likes_first, one, samples=samples)).value for one in rows]
    assert 0.4 < fmean(values) < 0.6
    again = [(await graded("ANOTHER", likes_first, one, samples=samples)).value for one in rows]
    assert again == values, "the answers of every prompt stand in the same places"


async def test_answers_may_be_named_by_their_headings() -> None:
    named = json.dumps({"answers": [{"answer": f"Answer {n}", "score": n} for n in (1, 2, 3)]})
    placed = read_placement(named, [0, 1, 2])
    assert placed is not None and (placed.score, placed.others) == (1.0, (2.0, 3.0))


async def test_equal_scores_are_ties_and_the_critique_is_that_of_the_answer() -> None:
    got = await graded("Brief.", FakeJudge(lambda request: reply({n: 3 for n in shown(request)})), samples=1)
    place = draw_order(row().user_text, 1 + len(OTHERS), 0).index(0) + 1
    assert (got.value, got.critique) == (0.5, f"Number {place} must be short.")
    best = await graded("Brief.", FakeJudge(by_length))
    assert best.critique is None


@pytest.mark.parametrize(
    "text",
    [
        "Nothing.",
        reply({1: 5, 2: 4}),
        reply({1: 5, 2: 4, 4: 3}),
        reply({1: 5, 2: 4, 3: 9}),
        reply({1: 0, 2: 4, 3: 3}),
        json.dumps({"answers": [{"answer": 1, "score": 5}] * 3}),
        json.dumps({"answers": [{"answer": n, "score": n, "max_score": 10} for n in (1, 2, 3)]}),
        json.dumps({"answers": [{"answer": n, "score": n} for n in (1, 2, 3)], "scale": "1-10"}),
        json.dumps({"answers": "5, 4, 3"}),
    ],
)
async def test_a_reply_that_does_not_score_each_answer_once_is_asked_for_again(text: str) -> None:
    assert read_placement(text, [0, 1, 2]) is None
    assert (await graded("Brief.", FakeJudge([text, reply({1: 3, 2: 3, 3: 3})]), samples=1)).value == 0.5
    with pytest.raises(RewardFailed, match="could not be read, twice"):
        await graded("Brief.", FakeJudge([text, text]), samples=1)


@given(st.permutations(range(4)), st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_scores_belong_to_the_answers_in_whatever_order_they_were_shown(
    order: list[int], scores: list[int]
) -> None:
    text = reply({n: scores[place] for n, place in enumerate(order, 1)})
    got = read_placement(f"Well.\n{text}", order)
    assert got is not None
    assert (got.score, got.others) == (scores[0], tuple(map(float, scores[1:])))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (None, "it is None"),
        ([], "has 0"),
        (["a", 3], "a text or a list of texts"),
        ([str(i) for i in range(12)], "has 12"),
    ],
)
def test_a_row_without_others_is_refused_before_anything_is_paid(others: Any, words: str) -> None:
    reward = Listwise(PRINCIPLES, "answers")
    with pytest.raises(UsageError, match=words):
        reward.check(row(others))


def test_targets_are_the_others_by_default() -> None:
    example = Example("e", {"input": "Why?"}, "Because.", {"input": "Why?"}, "Why?")
    assert Listwise(PRINCIPLES).others(example) == ["Because."]
    with pytest.raises(UsageError, match=r"task.yaml:4.*the option `principles` is missing"):
        built({"listwise": {}})
    with pytest.raises(UsageError, match='there is no option "principle"'):
        built({"listwise": {"principle": "x", "principles": "y"}})


def test_two_lists_of_scores_that_differ_are_none() -> None:
    lists = [
        json.dumps({"answers": [{"answer": 1, "score": score}, {"answer": 2, "score": 3}]})
        for score in (5, 2)
    ]
    assert read_placement(" ".join(lists), [0, 1]) is None
    assert read_placement(f"```json\n{lists[0]}\n```\nNo: {lists[1]}", [0, 1]) is None
    quoted = read_placement(f"It holds `{lists[0]}`. {lists[1]}", [0, 1])
    assert quoted is not None and quoted.score == 2


def test_a_number_in_a_text_is_no_place() -> None:
    text = json.dumps({"answers": [{"answer": "1 source is named", "score": 5}, {"answer": "2", "score": 3}]})
    assert read_placement(text, [0, 1]) is None
