"""The gate of several objectives: what must hold, what is enough, and how often it errs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whet.errors import UsageError
from whet.stats import Bound, Goal, decide_objectives
from whet.stats.joint import rows_for_margin

ACCURACY = Goal("accuracy", maximise=True, width=1.0)
LENGTH = Goal("length", maximise=False)


def judged(goals: list[Goal], before: dict[str, Any], after: dict[str, Any], **more: Any) -> Any:
    return decide_objectives(goals, before, after, draws=9_999, **more)


def rows(n: int, share: float) -> list[float]:
    return [1.0] * round(n * share) + [0.0] * (n - round(n * share))


def test_better_on_one_and_not_worse_on_the_other_is_promoted() -> None:
    lengths = [100.0 + i % 7 for i in range(200)]
    shorter = [0.8 * v for v in lengths]
    verdict = judged(
        [ACCURACY, LENGTH],
        {"accuracy": rows(200, 0.7), "length": lengths},
        {"accuracy": rows(200, 0.7), "length": shorter},
    )
    assert verdict.promoted
    assert {n: o.verdict for n, o in verdict.objectives.items()} == {
        "accuracy": "not worse",
        "length": "better",
    }
    length = verdict.objectives["length"]
    assert length.low <= length.difference <= length.high < 0 and length.bound == "at most 1.1x the baseline"
    assert "better in length" in verdict.reason and "not worse in accuracy" in verdict.reason


def test_a_gain_that_costs_another_objective_more_than_its_margin_is_not_promoted() -> None:
    lengths = [100.0 + i % 7 for i in range(200)]
    before = {"accuracy": rows(200, 0.7), "length": lengths}
    verdict = judged(
        [ACCURACY, LENGTH], before, {"accuracy": rows(200, 0.9), "length": [1.5 * v for v in lengths]}
    )
    assert not verdict.promoted and verdict.objectives["length"].verdict == "worse"
    assert verdict.objectives["accuracy"].verdict == "better"


def test_few_rows_do_not_show_that_nothing_is_lost() -> None:
    before = {"accuracy": rows(12, 0.5), "length": [100.0] * 12}
    verdict = judged([ACCURACY, LENGTH], before, {"accuracy": rows(12, 0.5), "length": [50.0] * 12})
    assert not verdict.promoted and verdict.objectives["accuracy"].verdict == "not shown"


@pytest.mark.parametrize(("level", "promoted"), [(120.0, True), (95.0, False)])
def test_an_absolute_bound_takes_the_place_of_the_margin(level: float, promoted: bool) -> None:
    goal = Goal("length", maximise=False, bounds=(Bound(True, level, False),))
    before = {"accuracy": rows(100, 0.3), "length": [80.0 + i % 5 for i in range(100)]}
    after = {"accuracy": rows(100, 0.9), "length": [100.0 + i % 5 for i in range(100)]}
    assert judged([ACCURACY, goal], before, after).promoted is promoted


def test_a_metric_of_the_prompt_is_known_and_not_estimated() -> None:
    goal = Goal("prompt", maximise=False, exact=True)
    shorter = judged([goal], {"prompt": [50.0] * 4}, {"prompt": [49.0] * 4})
    assert shorter.promoted and shorter.objectives["prompt"].low == shorter.objectives["prompt"].high == -1.0
    assert not judged([goal], {"prompt": [50.0] * 4}, {"prompt": [50.0] * 4}).promoted


def test_more_objectives_need_more_evidence_for_one_of_them() -> None:
    """Holm: 8 wins of 8 are enough alone (p = 0.004), and beside ten objectives that stay equal they are not."""
    names = [f"o{i}" for i in range(10)]
    others = [Goal(name, maximise=True, width=1.0, margin=0.99) for name in names]
    before = {name: [0.5] * 8 for name in names} | {"accuracy": [0.0] * 8}
    after = {**before, "accuracy": [1.0] * 8}
    assert judged([ACCURACY], before, after).promoted
    assert not judged([ACCURACY, *others], before, after).promoted


def test_the_rows_that_a_margin_needs_where_nothing_changes() -> None:
    needed = rows_for_margin(0.05, 1.0, 0.05)
    for n, shown in ((needed - 1, "not shown"), (needed, "not worse")):
        verdict = judged([ACCURACY], {"accuracy": rows(n, 0.5)}, {"accuracy": rows(n, 0.5)})
        assert verdict.objectives["accuracy"].verdict == shown


def test_wrong_input_is_refused() -> None:
    with pytest.raises(UsageError, match="length: the baseline has 2 values"):
        judged([LENGTH], {"length": [1.0, 2.0]}, {"length": [1.0]})
    with pytest.raises(UsageError, match="without an objective"):
        judged([], {}, {})


@pytest.mark.parametrize(("tests", "most"), [(30, 3), pytest.param(150, 10, marks=pytest.mark.long)])
def test_equal_prompts_and_prompts_at_the_margin_are_rarely_promoted(tests: int, most: int) -> None:
    """At alpha 0.05 at most 2.5%; `most` is within three standard errors of that."""
    rng, hits = np.random.default_rng(0), {"equal": 0, "at the margin": 0}
    for _ in range(tests):
        length = rng.lognormal(4, 0.4, 60)
        for name, worse in (("equal", 0.0), ("at the margin", 0.05)):
            change = rng.choice([-1.0, 0.0, 1.0], 60, p=[0.1 + worse / 2, 0.8, 0.1 - worse / 2])
            gain = 1.0 if name == "equal" else 0.5
            after = {"accuracy": 0.5 + change / 2, "length": gain * length * rng.lognormal(-0.02, 0.2, 60)}
            before = {"accuracy": np.full(60, 0.5), "length": length}
            verdict = decide_objectives(
                [Goal("accuracy", True, 1.0, margin=0.025), LENGTH], before, after, draws=999
            )
            hits[name] += verdict.promoted
    assert max(hits.values()) <= most, hits


def test_a_metric_that_every_row_shows_to_be_better_is_better_at_a_small_alpha() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(100, 200, 100)
    verdict = decide_objectives(
        [Goal("length", maximise=False)],
        {"length": before},
        {"length": before - rng.uniform(20, 60, 100)},
        alpha=1e-5,
    )
    assert verdict.promoted


def test_a_mean_at_the_bound_is_within_it_whatever_the_rounding() -> None:
    """1.15 times 100 is a little less than 115 as a float, so that a prompt of 115 tokens was thrown out."""
    tokens = Goal("tokens", maximise=False, bounds=(Bound(True, 1.15, True),), exact=True)
    assert tokens.holds(115, 100) and not tokens.holds(115.1, 100)
    quality = Goal("quality", maximise=True, margin=0.1, width=1.0)
    assert quality.holds(0.7, 0.8) and quality.holds(0.2, 0.3) and not quality.holds(0.69, 0.8)
    right = Goal("right", maximise=True, width=1.0)
    rows = 40
    verdict = decide_objectives(
        [tokens, right],
        {"tokens": [100.0] * rows, "right": [0.0] * rows},
        {"tokens": [115.0] * rows, "right": [1.0] * rows},
    )
    assert verdict.promoted, verdict.reason
