"""Assignment: the same for everybody, in the shares that were asked for, and steady when they change."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UsageError
from whet_client.assignment import assign, version_for

UNITS = [f"user-{n}" for n in range(20_000)]
arms_of = st.lists(st.floats(0.01, 10), min_size=1, max_size=6)


def shares(salt: str, arms: list[tuple[int, float]]) -> dict[int, float]:
    """The share of the units that each version gets."""
    got = [assign(salt, unit, arms) for unit in UNITS]
    return {version: got.count(version) / len(got) for version, _ in arms}


def test_assignment_is_the_same_in_every_process_and_release() -> None:
    """Fixed values: a change of the rule would move everybody who is in a running experiment."""
    arms = [(1, 0.5), (2, 0.3), (3, 0.2)]
    assert [assign("salt", f"u{n}", arms) for n in range(12)] == [2, 1, 2, 3, 2, 3, 1, 1, 1, 2, 1, 1]
    code = (
        "from whet_client.assignment import assign; print(assign('salt', 'u9', [(1, .5), (2, .3), (3, .2)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


@pytest.mark.parametrize("weights", [[1, 1], [9, 1], [0.2, 0.3, 0.5], [1, 0, 1]])
def test_shares_are_those_of_the_weights(weights: list[float]) -> None:
    """Five standard errors of 20,000 draws are 1.8% at most."""
    arms = list(enumerate(weights, 1))
    for version, share in shares("s", arms).items():
        assert share == pytest.approx(weights[version - 1] / sum(weights), abs=0.018)


def test_salts_are_independent() -> None:
    arms = [(1, 1.0), (2, 1.0)]
    both = sum(assign("a", unit, arms) == assign("b", unit, arms) for unit in UNITS) / len(UNITS)
    assert both == pytest.approx(0.5, abs=0.018)


@given(arms_of, st.text(min_size=1), st.floats(0.001, 1000))
def test_only_the_proportions_of_the_weights_and_not_the_order_of_the_arms_count(
    weights: list[float], unit: str, scale: float
) -> None:
    arms = list(enumerate(weights, 1))
    chosen = assign("salt", unit, arms)
    assert assign("salt", unit, [(v, w * scale) for v, w in reversed(arms)]) == chosen


@given(arms_of, st.integers(0, 5), st.floats(0, 10), st.text(min_size=1))
def test_a_change_of_one_weight_moves_units_only_to_or_from_its_arm(
    weights: list[float], which: int, new: float, unit: str
) -> None:
    arms = list(enumerate(weights, 1))
    changed = which % len(arms) + 1
    before = assign("salt", unit, arms)
    after_arms = [(v, new if v == changed else w) for v, w in arms]
    if not any(w for _, w in after_arms):
        return
    after = assign("salt", unit, after_arms)
    assert after == before or changed in (before, after)
    assert not (new >= weights[changed - 1] and before == changed and after != changed)


def test_a_change_of_weights_moves_no_more_units_than_it_may() -> None:
    def moved(old: list[tuple[int, float]], new: list[tuple[int, float]]) -> float:
        return sum(assign("s", u, old) != assign("s", u, new) for u in UNITS) / len(UNITS)

    two = moved([(1, 0.5), (2, 0.5)], [(1, 0.8), (2, 0.2)])
    assert two == pytest.approx(0.3, abs=0.018), "two arms: no more than must"
    three = moved([(1, 0.5), (2, 0.3), (3, 0.2)], [(1, 0.2), (2, 0.3), (3, 0.5)])
    assert three <= 2 * 0.3 / 1.3 + 0.018, "several arms: the bound of correlated sampling"


def test_a_definition_as_json_assigns_alike() -> None:
    definition = {"id": "x", "salt": "salt", "unit": "user", "revision": 1, "arms": [
        {"version": 1, "weight": 0.5}, {"version": 2, "weight": 0.3}, {"version": 3, "weight": 0.2}
    ]}  # fmt: skip
    read = json.loads(json.dumps(definition))
    assert [version_for(read, f"u{n}") for n in range(4)] == [2, 1, 2, 3]


@pytest.mark.parametrize(
    ("unit", "arms", "said"),
    [
        ("", [(1, 1.0)], "empty"),
        ("u", [], "positive"),
        ("u", [(1, 0.0)], "positive"),
        ("u", [(1, -1.0)], "version 1"),
        ("u", [(1, float("inf"))], "version 1"),
        ("u", [(1, float("nan"))], "version 1"),
    ],
)
def test_what_cannot_be_assigned_is_refused(unit: str, arms: list[tuple[int, float]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        assign("salt", unit, arms)


def test_a_broken_definition_is_refused() -> None:
    with pytest.raises(UsageError, match="fetch it again"):
        version_for({"salt": "s"}, "u")
    with pytest.raises(UsageError, match="fetch it again"):
        version_for({"salt": "s", "arms": [{"version": "x", "weight": 1}]}, "u")


def test_assignment_needs_no_package_but_the_standard_library() -> None:
    code = (
        "import sys; import whet_client.assignment;"
        "print([m for m in ('numpy', 'sqlalchemy', 'orjson') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
