"""The law of the known front: its points, its hypervolume, and that answers follow it."""

from __future__ import annotations

import pytest
from benchmarks.known_front import measure
from benchmarks.simulated.front import LONGEST, WORDS, FrontLaw, hypervolume, not_dominated


def test_hypervolume_is_the_area_that_points_dominate() -> None:
    assert hypervolume([(0.5, 0.0)]) == pytest.approx(0.5)
    assert hypervolume([(0.5, LONGEST / 2)]) == pytest.approx(0.25)
    assert hypervolume([(0.5, LONGEST / 2), (0.4, LONGEST * 0.9)]) == pytest.approx(0.25)
    assert hypervolume([(0.5, LONGEST / 2), (1.0, LONGEST)]) == pytest.approx(0.25)
    assert not_dominated([(0.1, 5.0), (0.2, 5.0), (0.3, 9.0)]) == [2, 1]


def test_answers_follow_the_law() -> None:
    law = FrontLaw(3)
    for words in (frozenset(), frozenset(WORDS[:4]), frozenset(WORDS[5:9])):
        accuracy, length = measure(3, words)
        assert (accuracy, length) == pytest.approx(law.truth(words), rel=0.35)


def test_the_front_of_all_prompts_is_worth_more_than_the_start() -> None:
    law = FrontLaw(0)
    points = law.points()
    assert len(points) == 2 ** len(WORDS) and len(not_dominated(points)) > 10
    assert hypervolume(points) > 1.5 * hypervolume([law.truth([])])
