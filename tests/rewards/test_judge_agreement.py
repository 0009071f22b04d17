"""Agreement with people: against scipy, against worked examples, and the warning."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from tests.rewards.judging import FakeJudge, built

from whet.errors import UsageError
from whet.rewards.agreement import (
    Labelled,
    agreement,
    compare_raters,
    human_scores,
    kappa,
    measure,
    parts_with_humans,
    select_labelled,
    spearman,
)
from whet.run import MemoryRun
from whet.types import Example, Request

SCORES = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=3, max_size=40)


@given(SCORES)
def test_spearman_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)


def test_kappa_is_that_of_the_textbook() -> None:
    """Cohen's kappa of 20, 5, 10, 15 is 0.4: agreement 0.7, 0.5 expected by chance."""
    value, error = kappa(np.array([[20.0, 5.0], [10.0, 15.0]]))
    assert value == pytest.approx(0.4)
    assert error == pytest.approx(0.127, abs=0.01)


@pytest.mark.parametrize("kind", ["spearman", "kappa"])
def test_the_interval_covers_the_truth(kind: str) -> None:
    """The 95% interval holds the value of a very long sample in at least 88 of 100 short ones."""
    rng = random.Random(7)

    def pair() -> tuple[float, float]:
        truth = rng.gauss(0, 1)
        judge, human = truth + rng.gauss(0, 1), truth + rng.gauss(0, 1)
        return (judge, human) if kind == "spearman" else (float(judge > 0), float(human > 0))

    truth = agreement([pair() for _ in range(20000)])
    found = [agreement([pair() for _ in range(40)]) for _ in range(100)]
    assert truth.kind == kind and all(f.kind == kind for f in found)
    assert sum(f.low <= truth.value <= f.high for f in found) >= 88


def test_good_and_poor_judges() -> None:
    good = agreement([(i / 20, float(i // 5)) for i in range(20)])
    poor = agreement([(((i * 7) % 20) / 20, float(i)) for i in range(20)])
    assert not good.poor and good.warning("judge") is None
    assert poor.poor and "agrees poorly" in str(poor.warning("judge"))
    assert good.low < good.value <= good.high and good.kind == "spearman"


@pytest.mark.parametrize(("n", "poor"), [(4, False), (5, True)])
def test_few_answers_do_not_condemn(n: int, poor: bool) -> None:
    assert agreement([(0.1, float(i)) for i in range(n)]).poor is poor


@pytest.mark.parametrize("pairs", [[], [(0.5, 1.0)], [(0.1, 1.0), (0.9, 1.0), (0.3, 1.0)]])
def test_without_differences_nothing_can_be_said(pairs: list[tuple[float, float]]) -> None:
    found = agreement(pairs)
    assert (found.kind, found.poor, found.low, found.high) == ("undefined", False, -1.0, 1.0)


def test_full_agreement_of_few_is_not_certain() -> None:
    for found in (
        agreement([(i / 6, i / 6) for i in range(7)]),
        agreement([(i % 2, i % 2) for i in range(7)]),
    ):
        assert found.value == pytest.approx(1.0) and found.low < 0.9 <= found.high


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0.0, 1.0])), max_size=30
    )
)
def test_an_agreement_is_always_a_number_in_its_interval(pairs: list[tuple[float, float]]) -> None:
    found = agreement(pairs)
    assert -1 <= found.low <= found.value <= found.high <= 1 or found.kind == "kappa"
    assert -1.001 <= found.value <= 1.001 and found.n == len(pairs)


ON_4_AND_5 = [(0.75, 0.75), (1.0, 1.0)] * 10
ON_1_AND_2 = [(0.0, 0.0), (0.25, 0.25)] * 10


@pytest.mark.parametrize(
    ("pairs", "kind", "value"),
    [
        (ON_4_AND_5, "spearman", 1.0),
        (ON_1_AND_2, "spearman", 1.0),
        ([(0.75, 4), (1.0, 5)] * 10, "spearman", 1.0),
        ([(1.75 - judge, human) for judge, human in ON_4_AND_5], "spearman", -1.0),
        ([(1.0, human) for _, human in ON_4_AND_5], "spearman", 0.0),
        ([(0.25, 0.0), (0.5, 0.5)] * 10, "kappa", 1.0),
        ([(0.25, 0.25), (1.0, 1.0)] * 10, "kappa", 1.0),
        ([(0.0, 0), (1.0, 1)] * 10, "kappa", 1.0),
        ([(0.9, 0.75)] * 20, "undefined", 0.0),
    ],
)
def test_two_levels_are_good_and_bad_where_the_middle_lies_between_them(
    pairs: list[tuple[float, float]], kind: str, value: float
) -> None:
    """A judge that gave each answer the person's score, 4 or 5 of 5, had a kappa of 0."""
    found = agreement(pairs)
    assert (found.kind, found.value) == (kind, pytest.approx(value))
    assert found.poor == (value < 0.4 and kind != "undefined")


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0.1, 0.75), (0.9, 0.75)] * 5, "cannot be told: people gave the same score to all 10 answers."),
        ([(0.1, 0.75)], "cannot be told: one answer with a person's score is too few."),
        ([], "cannot be told: no answer has a person's score that is read."),
    ],
)
def test_what_cannot_be_told_is_said(pairs: list[tuple[float, float]], said: str) -> None:
    assert said in str(agreement(pairs).warning("judge"))


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ([4, 2.5, "3"], [4, 2.5, 3]),
        (["Good", "bad", "thumbs up", "incorrect", True, False], [5, 1, 5, 1, 5, 1]),
        (["yes", 1, 0, "no"], [5, 5, 1, 1]),
        ([1, 0, 1], [5, 1, 5]),
        (["good", 3, "bad"], [5, 3, 1]),
        (["4/5", "5/5", "2/5"], [4, 5, 2]),
        (["8/10", "4/5", " 5 / 10 "], [4, 4, 2.5]),
        (["8/10", 6, "1/10"], [4, 3, 0.5]),
        (["8/10", "4/5", 4], [4, 4, None]),
        (["good", "4/5"], [5, 4]),
        (["-1", "+1", 1], [1, 5, 5]),
        (["very good", "splendid", "perhaps", "inf", "4/0", "4/5/2024", "4/", [1], float("nan")], [None] * 9),
    ],
)
def test_scores_of_people_are_read_as_one_column(values: list[Any], scores: list[float | None]) -> None:
    """Of the judge's scale from 1 to 5. `8/10` was read as 8 beside `4/5` as 4."""
    assert human_scores(values, 1.0, 5.0) == [None if s is None else pytest.approx(s) for s in scores]


@pytest.mark.parametrize(
    ("values", "end"), [(["-1", "0", "1"], 1.0), (["+2", "+1", "0", "-1", "-2"], 2.0), (["-1", "+1"], 2.0)]
)
def test_signed_scores_of_people_are_numbers_where_the_scale_holds_them(
    values: list[str], end: float
) -> None:
    """`-1` and `+1` were read as words for bad and good, so that each -1 became the score 0, and +1 the best one."""
    assert human_scores(values, -end, end) == [float(value) for value in values]


def _select(values: list[Any], **options: str) -> list[float]:
    reward = built({"judge": {"rubric": "r", "human": "score", **options}})
    rows = [{"output": "an answer", "score": value} for value in values]
    examples = [Example(str(n), {}, None, row, "q") for n, row in enumerate(rows)]
    return [score for _, _, score in select_labelled(reward, examples).rows]


def test_two_words_are_ordered_by_human_good_or_refused() -> None:
    assert _select(["top", "flop", "Top"], human_good="top") == [5, 1, 5]
    assert _select(["no", "yes"], human_good="no") == [5, 1]
    with pytest.raises(
        UsageError, match=r"are 'top' and 'flop', and nothing says which one is good. Write `human_good: top`"
    ):
        _select(["top", "flop", "top"])
    with pytest.raises(
        UsageError, match=r"human_good: 'tip' is no value of the column 'score'. It holds 'top', 'flop'"
    ):
        _select(["top", "flop"], human_good="tip")


def test_scores_that_cannot_be_read_are_counted() -> None:
    reward = built({"judge": {"rubric": "r", "human": "score"}})
    given = ["4/5", "very good", 3, "splendid", "", None]
    rows: list[dict[str, Any]] = [{"output": "an answer", "score": value} for value in given]
    rows += [{"score": "unread, but of no answer"}, {"output": "an answer that nobody scored"}]
    found = select_labelled(reward, [Example(str(n), {}, None, row, "q") for n, row in enumerate(rows)])
    assert [score for _, _, score in found.rows] == [4, 3]
    warning = str(found.warning(reward))
    assert "2 of 4 human scores in the column 'score' cannot be read, such as 'very good'" in warning
    assert Labelled(found.rows, []).warning(reward) is None


async def test_the_judge_is_measured_on_the_answers_that_people_scored() -> None:
    """The judge scores by the answer's last digit, people by the same digit, upside down for the poor
    judge.
    """

    def answer(request: Request) -> str:
        digit = int(request.messages[1].content.rpartition("answer ")[2][0])
        return json.dumps({"score": digit, "explanation": "e"})

    rows: list[dict[str, Any]] = [
        {"input": "q", "output": f"answer {1 + n % 5}", "score": 1 + n % 5} for n in range(12)
    ]
    rows += [
        {"input": "q", "output": "answer 1"},
        {"input": "q", "score": 3},
        {"input": "q", "output": 5, "score": 3},
    ]
    examples = [Example(str(n), {"input": "q"}, None, row, "q") for n, row in enumerate(rows)]
    reward = built([{"judge": {"rubric": "r", "human": "score"}}, {"yes_no": {"question": "q"}}])
    judged = parts_with_humans(reward)
    assert [r.name for r in judged] == ["judge"]
    judge = FakeJudge(answer)
    found = await measure(MemoryRun({"judge": judge}), judged[0], select_labelled(judged[0], examples).rows)
    assert (found.n, found.kind, found.value, found.poor) == (12, "spearman", pytest.approx(1.0), False)
    flipped = [
        Example(e.id, e.values, None, {**e.row, "score": 6 - e.row.get("score", 3)}, "q")
        for e in examples[:12]
    ]
    poor = await measure(
        MemoryRun({"judge": judge}), judged[0], select_labelled(judged[0], flipped).rows, most=10
    )
    assert (poor.n, poor.poor) == (10, True) and poor.value < 0


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        (["8,5", "7", "2.5"], [8.5, 7.0, 2.5]),
        (["4 von 5", "2 out of 5", "5点中3点", "1/5"], [8.0, 4.0, 6.0, 2.0]),
        (["8 Punkte", "**7**", "[[6]]", "\u0665"], [8.0, 7.0, 6.0, 5.0]),
        (["8", "not at all bad", "7-8"], [8.0, None, None]),
    ],
)
def test_scores_of_people_are_read_as_those_of_judges_are(
    values: list[str], scores: list[float | None]
) -> None:
    assert human_scores(values, 0.0, 10.0) == pytest.approx(scores)


def test_raters_of_opposite_tastes_are_found_among_those_who_scored_the_same_answers() -> None:
    scored = [("ann", str(n), float(n % 5)) for n in range(20)] + [
        ("bob", str(n), 4.0 - n % 5) for n in range(20)
    ]
    scored += [("cem", str(n), float(n % 5)) for n in range(10)] + [("dan", "far", 1.0)]
    pairs = {(one.first, one.second): one for one in compare_raters(scored)}
    assert {names: one.opposed for names, one in pairs.items()} == {
        ("ann", "bob"): True,
        ("ann", "cem"): False,
        ("bob", "cem"): True,
    }
    assert pairs["ann", "bob"].agreement.n == 20 and pairs["ann", "bob"].agreement.value == pytest.approx(-1)
    rng = random.Random(3)
    noise = [(name, str(n), rng.random()) for name in ("eve", "fay") for n in range(30)]
    assert not compare_raters(noise)[0].opposed
