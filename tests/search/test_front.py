"""The front: what may be chance removes nobody, and a candidate that is shown to be better at no cost removes the other."""

from __future__ import annotations

from whet.prompt import Prompt
from whet.rewards import Objective
from whet.search import Candidate, Front
from whet.stats import Goal

OBJECTIVES = (
    Objective(Goal("accuracy", maximise=True, width=1.0), part=0),
    Objective(Goal("length", maximise=False), metric="output_tokens"),
)


def candidate(name: str) -> Candidate:
    return Candidate(Prompt.parse(f"Prompt {name}."))


def front(**values: tuple[list[float], list[float]]) -> tuple[Front, dict[str, str]]:
    made, names = Front(OBJECTIVES), {}
    for name, (accuracy, length) in values.items():
        one = candidate(name)
        names[one.id] = name
        pairs = enumerate(zip(accuracy, length, strict=True))
        made.add(one, {f"row-{i}": {"accuracy": a, "length": v} for i, (a, v) in pairs})
    return made, names


def on(made: Front, names: dict[str, str]) -> set[str]:
    return {names[c.id] for c in made.front()}


SHORT, LONG = [50.0 + i % 3 for i in range(20)], [90.0 + i % 3 for i in range(20)]


def test_one_that_is_shorter_at_no_cost_removes_the_longer_one() -> None:
    made, names = front(long=([1.0, 0.0] * 10, LONG), short=([1.0, 0.0] * 10, SHORT))
    assert on(made, names) == {"short"}


def test_a_trade_keeps_both() -> None:
    made, names = front(right=([1.0] * 20, LONG), short=([0.0] * 20, SHORT))
    assert on(made, names) == {"right", "short"}
    assert names[made.best("accuracy").id] == "right" and names[made.best("length").id] == "short"


def test_a_higher_mean_that_may_be_chance_removes_nobody() -> None:
    made, names = front(lucky=([1.0] * 11 + [0.0] * 9, LONG), other=([0.0] * 9 + [1.0] * 10 + [0.0], LONG))
    assert on(made, names) == {"lucky", "other"}


def test_two_rows_that_agree_prove_nothing() -> None:
    made, names = front(first=([1.0] * 2, LONG[:2]), second=([0.0] * 2, LONG[:2]))
    assert on(made, names) == {"first", "second"}


def test_an_interval_stays_within_what_an_objective_can_differ_by() -> None:
    made, names = front(right=([1.0, 1.0, 0.9], SHORT[:3]), wrong=([0.0, 0.0, 0.1], LONG[:3]))
    right, wrong = sorted(names, key=lambda one: names[one])
    gain = made.gains(right, wrong)["accuracy"]
    assert gain.low < gain.mean < gain.high == 1.0
    assert made.gains(wrong, right)["accuracy"].low == -1.0


def test_leaders_are_kept_for_each_row_and_objective() -> None:
    made, names = front(a=([1.0, 0.0] * 10, SHORT), b=([0.0, 1.0] * 10, SHORT), c=([0.0] * 20, LONG))
    leaders = {key: {names[one] for one in ids} for key, ids in made.leaders().items()}
    assert leaders["row-0", "accuracy"] == {"a"} and leaders["row-1", "accuracy"] == {"b"}
    assert leaders["row-0", "length"] == {"a", "b"}


def test_rows_are_compared_in_pairs_where_both_have_them() -> None:
    made, _ = front(a=([1.0] * 20, SHORT))
    other = candidate("b")
    made.add(other, {"row-0": {"accuracy": 0.0, "length": 50.0}})
    first = next(iter(made.members))
    assert made.gains(first, other.id)["accuracy"].mean == 1.0
    made.add(other, {"elsewhere": {"accuracy": 0.0, "length": 1.0}})
    assert made.gains(first, other.id)["length"].mean == 0.0
