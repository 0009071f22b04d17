"""The fields of two JSON values side by side, with the items of their lists paired."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import regex

from whet._util.words import compose

MISSING = object()
"""The value of a field that is not there."""
_MOST_PAIRS = 4_000
"""Pairs of fields of lists that are compared at most to find which of their items belong together."""
_PLAIN_KEY = regex.compile(r"[^.\[\]\"]+")
_Pair = tuple[str, object, object]
"""A path, and the values of the answer and of the target there; one of them may be missing."""
_Places = tuple[int | None, int | None]


def fields(value: object, path: str = "") -> dict[str, object]:
    """The values of a JSON value by their paths; of an empty object or list, itself. A key that could be read as a path is
    quoted.

    >>> fields({"a": {"b": 1}, "c": [2, 3]})
    {'a.b': 1, 'c[0]': 2, 'c[1]': 3}
    >>> fields({"a.b": 1})
    {'["a.b"]': 1}
    """
    if isinstance(value, Mapping) and value:
        inner = ((_path_of(path, compose(str(key))), item) for key, item in value.items())
    elif isinstance(value, list) and value:
        inner = ((f"{path}[{n}]", item) for n, item in enumerate(value))
    else:
        return {path: value}
    return {name: leaf for at, item in inner for name, leaf in fields(item, at).items()}


def _path_of(path: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key) is None:
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


class Alignment:
    """Pairs the fields of an answer's value with those of a target. Items of lists are paired in their order so that as few
    fields as possible differ, as in an edit distance; those of long lists that differ at both ends stay in their places.

    `is_right` compares two fields. With `extra`, fields that the target does not have are left out, and so are items behind the
    last one of a list. One alignment serves one comparison, whose values it remembers.
    """

    def __init__(self, is_right: Callable[[object, object], bool], extra: bool = False) -> None:
        self._is_right, self._extra = is_right, extra
        self._left, self._depth = _MOST_PAIRS, 0
        self._faults = dict[tuple[int, int], int]()
        self._places = dict[tuple[int, int], list[_Places]]()

    def pairs(self, value: object, target: object, path: str = "") -> Iterator[_Pair]:
        """The fields of both by the paths of the target.

        >>> list(Alignment(lambda one, other: one == other).pairs([2, 3], [1, 2, 3]))[1:]
        [('[1]', 2, 2), ('[2]', 3, 3)]
        """
        if isinstance(value, Mapping) and isinstance(target, Mapping) and value and target:
            values, wanted = (
                {compose(str(key)): item for key, item in one.items()} for one in (value, target)
            )
            for key in dict.fromkeys((*wanted, *values)):
                pair = values.get(key, MISSING), wanted.get(key, MISSING)
                yield from self.pairs(*pair, _path_of(path, key))
        elif isinstance(value, list) and isinstance(target, list) and value and target:
            for n, place in self._item_places(value, target):
                if place is None:
                    yield from _pairs_of_one(value[n or 0], MISSING, f"{path}[{n}]")
                else:
                    yield from self.pairs(
                        MISSING if n is None else value[n], target[place], f"{path}[{place}]"
                    )
        elif _is_leaf(value) and _is_leaf(target):
            yield path, value, target
        else:
            yield from _pairs_of_one(MISSING if self._extra else value, target, path)

    def _count_faults(self, value: object, target: object) -> int:
        """Count the fields that differ or that only one side has."""
        key = id(value), id(target)
        if key not in self._faults:
            pairs = self.pairs(value, target)
            self._faults[key] = sum(
                MISSING in (one, other) or not self._is_right(one, other) for _, one, other in pairs
            )
        return self._faults[key]

    def _count_same(self, values: Iterator[object], targets: Iterator[object]) -> int:
        """Count the items that are the same, from the first item on."""
        pairs = zip(values, targets, strict=False)
        return sum(1 for _ in takewhile(lambda pair: not self._count_faults(*pair), pairs))

    def _item_places(self, values: list[object], targets: list[object]) -> list[_Places]:
        """The places of an answer's items beside those of the target's; None where there is no item."""
        key = id(values), id(targets)
        if key not in self._places:
            same = self._count_same(iter(values), iter(targets))
            rest, wanted = values[same:], targets[same:]
            ends = 0 if self._extra else self._count_same(reversed(rest), reversed(wanted))
            between = self._places_between(rest[: len(rest) - ends], wanted[: len(wanted) - ends])
            places: list[_Places] = [(n, n) for n in range(same)]
            places += [(None if n is None else n + same, None if j is None else j + same) for n, j in between]
            places += [(len(values) - n, len(targets) - n) for n in range(ends, 0, -1)]
            while self._extra and places[-1][1] is None:
                places.pop()
            self._places[key] = places
        return self._places[key]

    def _places_between(self, values: Sequence[object], targets: Sequence[object]) -> list[_Places]:
        """The places of items that are the same neither at the beginning nor at the end."""
        sizes, wanted = [len(fields(one)) for one in values], [len(fields(one)) for one in targets]
        amount = sum(sizes) * sum(wanted)
        if amount > (_MOST_PAIRS if self._depth else self._left):
            columns, rows = len(values), len(targets)
            return [(n if n < columns else None, n if n < rows else None) for n in range(max(columns, rows))]
        self._left -= 0 if self._depth else amount
        self._depth += 1
        faults = [[self._count_faults(value, target) for value in values] for target in targets]
        self._depth -= 1
        return _cheapest_places(faults, sizes, wanted, free_end=self._extra)


def _cheapest_places(
    faults: Sequence[Sequence[int]], sizes: Sequence[int], wanted: Sequence[int], *, free_end: bool
) -> list[_Places]:
    """The pairs with the least sum of `faults`, where an item without a partner counts by its size. `costs[j][n]` is the sum for
    the target's items from j on and the answer's from n on; with `free_end`, the last of the answer's items cost nothing."""
    rows, columns = len(wanted), len(sizes)
    costs = [[0] * (columns + 1) for _ in range(rows + 1)]
    for n in range(columns - 1, -1, -1):
        costs[rows][n] = 0 if free_end else costs[rows][n + 1] + sizes[n]
    for j in range(rows - 1, -1, -1):
        costs[j][columns] = costs[j + 1][columns] + wanted[j]
        for n in range(columns - 1, -1, -1):
            alone = min(costs[j + 1][n] + wanted[j], costs[j][n + 1] + sizes[n])
            costs[j][n] = min(costs[j + 1][n + 1] + faults[j][n], alone)
    places, j, n = list[_Places](), 0, 0
    while j < rows or n < columns:
        if j < rows and n < columns and costs[j][n] == costs[j + 1][n + 1] + faults[j][n]:
            places.append((n, j))
            j, n = j + 1, n + 1
        elif j < rows and costs[j][n] == costs[j + 1][n] + wanted[j]:
            places.append((None, j))
            j += 1
        else:
            places.append((n, None))
            n += 1
    return places


def _is_leaf(value: object) -> bool:
    return value is not MISSING and not (isinstance(value, Mapping | list) and value)


def _pairs_of_one(value: object, target: object, path: str) -> Iterator[_Pair]:
    """The fields of the target without a value, and those of the value without a target."""
    if target is not MISSING:
        yield from ((name, MISSING, leaf) for name, leaf in fields(target, path).items())
    if value is not MISSING:
        yield from ((name, leaf, MISSING) for name, leaf in fields(value, path).items())
