"""Selectors of rows: what each chooses after what it was told, what a step pays for, and that a resume chooses the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from scipy import stats

from whet.rl.row_selection import (
    ERPO,
    PCL,
    DynamicSampling,
    EasyFirst,
    MoPPS,
    Rolled,
    RowSelector,
    RowSource,
    make_selector,
)
from whet.run import MemoryRun
from whet.types import Example


@dataclass
class Learner:
    notes: dict[str, Any] = field(default_factory=dict)


def rows(n: int, **columns: Sequence[Any]) -> list[Example]:
    return [
        Example(str(i), {"input": str(i)}, None, {name: values[i] for name, values in columns.items()})
        for i in range(n)
    ]


def ids(found: Sequence[Example]) -> list[str]:
    return [row.id for row in found]


ALL = ("uniform", "dynamic", "mopps", "pcl", "erpo", "easy-first")


def made(name: Any, learner: Learner, among: Sequence[Example]) -> RowSelector:
    def features(some: Sequence[Example]) -> list[list[float]]:
        return [[float(row.id) / 10, 1.0] for row in some]

    return make_selector(name, learner, among, horizon=20, features=features)


@pytest.mark.parametrize("name", ALL)
async def test_a_resumed_selector_chooses_what_it_would_have_chosen(name: str) -> None:
    among, learner = rows(30), Learner()
    selector = made(name, learner, among)

    async def go(selector: RowSelector, first: int, last: int) -> list[list[str]]:
        chosen = []
        for step in range(first, last):
            batch = await selector.choose(MemoryRun(seed=step), 4)
            chosen.append(ids(batch))
            for row in batch:
                selector.update(row, [float(int(row.id) > 10), 1.0])
        return chosen

    await go(selector, 0, 5)
    saved = json.dumps(learner.notes)
    straight = await go(selector, 5, 10)
    fresh = Learner()
    resumed = made(name, fresh, among)
    fresh.notes = json.loads(saved)
    assert await go(resumed, 5, 10) == straight
    assert all(len(set(one)) == 4 for one in straight)


@pytest.mark.parametrize("name", ALL)
async def test_no_row_comes_twice_and_none_that_is_ruled_out(name: str) -> None:
    selector = made(name, Learner(), rows(6))
    assert sorted(ids(await selector.choose(MemoryRun(), 99))) == list("012345")
    assert set(ids(await selector.choose(MemoryRun(), 99, {"1", "3"}))) <= set("0245")


async def test_mopps_prefers_rows_that_succeed_half_of_the_time() -> None:
    selector = MoPPS(Learner(), rows(30))
    for row in selector.rows:
        rate = (0.0, 0.5, 1.0)[int(row.id) % 3]
        selector.update(row, [1.0] * int(40 * rate) + [0.0] * int(40 * (1 - rate)))
    chosen = [int(i) for i in ids(await selector.choose(MemoryRun(), 10))]
    assert {i % 3 for i in chosen} == {1}


def test_the_counts_of_mopps_are_the_posterior_of_its_prior() -> None:
    """Beta(1, 1) after 3 successes in 4 has the mean and variance that scipy gives for Beta(4, 2); decay forgets half of it."""
    (row,) = rows(1)
    selector = MoPPS(Learner(), [row])
    selector.update(row, [1.0, 1.0, 0.0, 1.0])
    assert selector.state[row.id] == [4.0, 2.0]
    assert stats.beta(*selector.state[row.id]).mean() == pytest.approx(2 / 3)
    forgetful = MoPPS(Learner(), [row], decay=0.5)
    forgetful.learner.notes["rows"] = {row.id: [4.0, 2.0]}
    forgetful.update(row, [0.0])
    assert forgetful.state[row.id] == [0.5 * 4 + 0.5, 0.5 * 2 + 0.5 + 1]  # one text counts as one


async def test_pcl_learns_rates_from_features_and_chooses_rows_nobody_tried() -> None:
    """The rate of success is the feature; rows 0 to 49 are tried, and among those from 50 on the ones near 1/2 are taken."""
    among = rows(100)

    def features(some: Sequence[Example]) -> list[list[float]]:
        return [[(int(row.id) % 50) / 50] for row in some]

    selector = PCL(Learner(), among, features)
    for _ in range(40):
        for row in among[:50]:
            selector.update(row, [(int(row.id) % 50) / 50])
    assert selector.predict([0.1]) == pytest.approx(0.1, abs=0.05)
    chosen = await selector.choose(MemoryRun(), 10, {str(i) for i in range(50)})
    assert all(15 <= int(i) - 50 <= 35 for i in ids(chosen))


def test_erpo_heats_rows_that_are_always_right_and_no_others() -> None:
    first, second = rows(2)
    selector = ERPO(Learner(), [first, second])
    for _ in range(3):
        selector.update(first, [1.0, 1.0])
        selector.update(second, [1.0, 0.0])
    assert selector.temperature(first, 0.7) == pytest.approx(1.0)
    assert selector.temperature(second, 0.7) == 0.7
    for _ in range(20):
        selector.update(first, [1.0])
    assert selector.temperature(first, 0.7) == 1.5 and selector.temperature(first, 2.0) == 2.0
    selector.update(first, [1.0, 0.0])
    assert selector.temperature(first, 0.7) == 0.7


async def test_easy_rows_come_first_and_all_rows_in_the_end() -> None:
    selector = EasyFirst(
        Learner(), rows(20, difficulty=[(7 * i) % 20 for i in range(20)]), horizon=40, first=0.25
    )

    async def hardest() -> int:
        found = [await selector.choose(MemoryRun(seed=seed), 4) for seed in range(30)]
        return max((7 * int(i)) % 20 for one in found for i in ids(one))

    assert await hardest() == 4
    for row in selector.rows:
        selector.update(row, [0.0])
    assert selector.share == pytest.approx(0.25 + 0.75 / 2)
    assert await hardest() == 12
    for row in selector.rows:
        selector.update(row, [0.0])
    assert await hardest() == 19


async def test_without_a_column_what_succeeds_is_easy() -> None:
    selector = EasyFirst(Learner(), rows(8), horizon=1000)
    for row in selector.rows:
        selector.update(row, [float(int(row.id) >= 6)] * 4)
    assert sorted(ids(await selector.choose(MemoryRun(), 2))) == ["6", "7"]


def roll_by_number(asked: list[list[str]]) -> Any:
    """Groups of two: rewards differ for rows with an odd number."""

    async def roll(some: Sequence[Example], heat: float) -> list[Rolled[float]]:
        asked.append(ids(some))
        groups = [[1.0, 0.0] if int(row.id) % 2 else [1.0, 1.0] for row in some]
        return [Rolled(row, group, group, heat) for row, group in zip(some, groups, strict=True)]

    return roll


async def test_dynamic_sampling_replaces_groups_of_equal_rewards_within_its_rounds() -> None:
    asked: list[list[str]] = []
    source = RowSource(DynamicSampling(Learner(), rows(40)), resamples=20)
    found = await source.collect(MemoryRun(), 8, 1.0, roll_by_number(asked))
    assert len(found) == 8 and all(int(one.row.id) % 2 for one in found)
    flat = [i for one in asked for i in one]
    assert len(flat) == len(set(flat)) == source.rows_asked
    assert [len(one) for one in asked[1:]] == [
        8 - sum(int(i) % 2 for one in asked[:n] for i in one) for n in range(1, len(asked))
    ]
    few: list[list[str]] = []
    found = await RowSource(DynamicSampling(Learner(), rows(40)), resamples=1).collect(
        MemoryRun(), 8, 1.0, roll_by_number(few)
    )
    assert len(few) == 2 and len(found) < 8


async def test_what_is_replaced_counts_under_the_limit() -> None:
    asked: list[list[str]] = []
    source = RowSource(DynamicSampling(Learner(), rows(40)), resamples=20, most=11)
    for seed in range(5):
        await source.collect(MemoryRun(seed=seed), 4, 1.0, roll_by_number(asked))
    assert sum(map(len, asked)) == 11 and source.is_used_up
    assert await source.collect(MemoryRun(), 4, 1.0, roll_by_number(asked)) == []


async def test_where_nothing_differs_the_last_rows_are_returned() -> None:
    async def roll(some: Sequence[Example], heat: float) -> list[Rolled[None]]:
        return [Rolled(row, [0.0, 0.0], [0.0, 0.0], None) for row in some]

    source = RowSource(DynamicSampling(Learner(), rows(40)), resamples=2)
    found = await source.collect(MemoryRun(), 4, 1.0, roll)
    assert len(found) == 4 and source.rows_asked == 12


async def test_rows_of_one_temperature_are_asked_together_and_come_back_in_their_order() -> None:
    asked: list[list[str]] = []
    selector = ERPO(Learner(), rows(6))
    for row in selector.rows[:3]:
        selector.update(row, [1.0])
    before = copy.deepcopy(selector.state)
    source = RowSource(selector)
    found = await source.collect(MemoryRun(), 6, 1.0, roll_by_number(asked))
    assert len(asked) == 2 and {len(one) for one in asked} == {3}
    assert {one.row.id: one.made for one in found} == {str(i): 1.1 if i < 3 else 1.0 for i in range(6)}
    assert ids([one.row for one in found]) == ids(
        await RowSelector(Learner(), selector.rows).choose(MemoryRun(), 6)
    )
    assert selector.state != before
