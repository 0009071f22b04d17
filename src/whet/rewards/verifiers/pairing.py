"""The pairing of two lists with the largest sum of agreement, whatever the order of the lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping


def best_pairs(rows: int, columns: int, worth: Callable[[int, int], float | None]) -> Mapping[int, int]:
    """The column of each paired row, for the pairing with the largest sum of `worth` (0 or more; None: no pair); of equal sums,
    the pairing whose pairs come in the order of the lists.

    Kuhn and Munkres, with potentials: rows * rows * columns steps.

    >>> best_pairs(2, 2, lambda i, j: [[3.0, 3.0], [3.0, 1.0]][i][j])
    {0: 1, 1: 0}
    """
    size = max(rows, columns)
    values = [[worth(i, j) if i < rows and j < columns else None for j in range(size)] for i in range(size)]
    costs = [
        [0.0 if value is None else -1.0 - value - _nearness(i, j, size) for j, value in enumerate(line)]
        for i, line in enumerate(values)
    ]
    return {i: j for i, j in sorted(_assign(costs)) if i < rows and j < columns and values[i][j] is not None}


def _nearness(row: int, column: int, size: int) -> float:
    """A bonus that decides between equal sums only."""
    return (1 - abs(row - column) / (size + 1)) * 1e-6 / (size + 1)


def _assign(costs: list[list[float]]) -> list[tuple[int, int]]:
    """The assignment of least cost of a square table."""
    size = len(costs)
    of_row, of_column = [0.0] * (size + 1), [0.0] * (size + 1)
    rows = [0] * (size + 1)
    for row in range(1, size + 1):
        rows[0], column = row, 0
        least, back, done = [math.inf] * (size + 1), [0] * (size + 1), [False] * (size + 1)
        while rows[column]:
            done[column] = True
            here, gap, following = rows[column], math.inf, 0
            for j in range(1, size + 1):
                if done[j]:
                    continue
                cost = costs[here - 1][j - 1] - of_row[here] - of_column[j]
                if cost < least[j]:
                    least[j], back[j] = cost, column
                if least[j] < gap:
                    gap, following = least[j], j
            for j in range(size + 1):
                if done[j]:
                    of_row[rows[j]] += gap
                    of_column[j] -= gap
                else:
                    least[j] -= gap
            column = following
        while column:
            rows[column] = rows[back[column]]
            column = back[column]
    return [(rows[j] - 1, j - 1) for j in range(1, size + 1)]
