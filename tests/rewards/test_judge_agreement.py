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

from whet.rewards.agreement import (
    agreement,
    human_score,
    kappa,
    measure,
    parts_with_humans,
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


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (4, 4.0), ("4/5", 4.0), ("Good", 1.0), ("thumbs up", 1.0), ("incorrect", 0.0), (True, 1.0),
        (None, None), ("", None), ("perhaps", None), (float("nan"), None), ([1], None), ("inf", None),
    ],
)  # fmt: skip
def test_scores_of_people(value: Any, score: float | None) -> None:
    assert human_score(value) == score


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
    found = await measure(MemoryRun({"judge": judge}), judged[0], examples)
    assert (found.n, found.kind, found.value, found.poor) == (12, "spearman", pytest.approx(1.0), False)
    flipped = [
        Example(e.id, e.values, None, {**e.row, "score": 6 - e.row.get("score", 3)}, "q")
        for e in examples[:12]
    ]
    poor = await measure(MemoryRun({"judge": judge}), judged[0], flipped, most=10)
    assert (poor.n, poor.poor) == (10, True) and poor.value < 0
