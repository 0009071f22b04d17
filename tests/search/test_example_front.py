"""The front per example: who is best somewhere, and who is superfluous."""

from __future__ import annotations

from whet.search.example_front import front


def test_a_candidate_counts_as_often_as_it_is_best() -> None:
    assert front({"a": [1, 0, 0, 1], "b": [0, 1, 1, 0], "c": [0.5, 0.5, 0.5, 0.5]}) == {"a": 2, "b": 2}


def test_a_candidate_that_is_nowhere_best_alone_is_superfluous_the_lowest_mean_first() -> None:
    assert front({"a": [1, 1, 0], "b": [1, 0, 0], "c": [0, 0, 1]}) == {"a": 2, "c": 1}
    assert front({"a": [1, 1, 1], "b": [1, 1, 1]}) == {"b": 3}


def test_a_specialist_stays_however_low_its_mean() -> None:
    assert front({"a": [0.9] * 9 + [0], "b": [0.0] * 9 + [1]}) == {"a": 9, "b": 1}
