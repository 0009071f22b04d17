"""Clusters of words: one of each group."""

from __future__ import annotations

import numpy as np

from whet.search.clusters import representatives


def test_one_row_stands_for_each_group_the_one_in_its_middle() -> None:
    angles = [0.0, 0.1, 0.2, 1.5, 1.6, 1.7, 3.0]
    vectors = np.array([[np.cos(a), np.sin(a)] for a in angles]) * np.arange(1, 8)[:, None]
    assert representatives(vectors, [0.0, 0.9, 0.5]) == [1, 4, 6]


def test_equal_rows_are_named_once() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert representatives(vectors, [0.0, 0.5, 0.9, 0.1]) == [0, 2]


def test_groups_that_lie_apart_have_a_word_each() -> None:
    rng = np.random.default_rng(0)
    vectors = np.repeat(np.eye(40), 5, axis=0) + 0.05 * rng.normal(size=(200, 40))
    groups = {row // 5 for row in representatives(vectors, list(rng.random(40)))}
    assert len(groups) >= 36


def test_a_centre_is_drawn_by_its_squared_distance_also_where_that_is_above_one() -> None:
    """Beside the first row the others are 1 and 4 away, squared: the shares are 1/5 and 4/5 (k-means++)."""
    vectors = np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)], [-1.0, 0.0]])
    drawn = [representatives(vectors, [0.0, draw]) for draw in np.linspace(0.0, 0.99, 100)]
    assert sum(rows == [0, 2] for rows in drawn) / len(drawn) == 0.8
