"""Two-level factorial designs: which combinations of parts to try, and what can be told apart afterwards.

A full design of k factors has 2^k combinations. A fraction has 2^p: p basic factors take all combinations, and each further
factor is the product of some of them (Box and Hunter 1961, The 2^(k-p) fractional factorial designs, Technometrics 3:311-351).
A product of factors that is always +1 is a word of the defining relation; the length of the shortest word is the
resolution (R). Effects whose product is a word are aliases: one estimate holds their sum. With R = V, no main effect and no
interaction of two is an alias of another one; with R = IV, interactions of two may be aliases of one another; with R = III, of
main effects too.

A factor is a column, a non-zero vector of p bits, and words are sums of columns that vanish (Bose 1947, Sankhya 8:107-166): any
R - 1 columns must be linearly independent. Columns are taken greedily in the order of their numbers, which makes the
lexicographic codes of Conway and Sloane (1986, IEEE Transactions on Information Theory 32:337-348). For 5 to 8 factors the
sizes and resolutions are those of the table of Box, Hunter and Hunter (Statistics for Experimenters, table 6.22).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from operator import xor

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError, parameter

RESOLUTIONS = (3, 4, 5)
MOST_FACTORS = 24
ROMAN = {3: "III", 4: "IV", 5: "V", 6: "VI", 7: "VII", 8: "VIII"}
Word = tuple[int, ...]
"""The numbers of the factors whose product is meant, from 0, in order."""


@dataclass(frozen=True)
class Design:
    """A two-level design: of each factor its column, a number whose bits say of which basic factors it is the product."""

    columns: tuple[int, ...]
    basic: int

    @property
    def factors(self) -> int:
        """Number of factors."""
        return len(self.columns)

    @property
    def runs(self) -> int:
        """Number of combinations."""
        return 1 << self.basic

    @property
    def full(self) -> bool:
        """Whether all combinations are there."""
        return self.basic == self.factors

    @cached_property
    def levels(self) -> NDArray[np.int8]:
        """The level of each factor in each combination, +1 or -1: `runs` rows, `factors` columns. The first row is all at -1 in
        the basic factors."""
        bits = (np.arange(self.runs)[:, None] >> np.arange(self.basic)) & 1
        signs = 2 * bits - 1
        each = [
            np.prod(signs[:, [b for b in range(self.basic) if column >> b & 1]], axis=1)
            for column in self.columns
        ]
        return np.asarray(np.stack(each, axis=1), dtype=np.int8)

    def contrast(self, word: Word) -> NDArray[np.int8]:
        """The sign of a product of factors in each combination."""
        return np.asarray(np.prod(self.levels[:, list(word)], axis=1), dtype=np.int8)

    @cached_property
    def resolution(self) -> int | None:
        """Length of the shortest word of the defining relation; None for a full design."""
        if self.full:
            return None
        words = np.zeros(1, dtype=np.int64)
        for number, column in enumerate(self.columns):
            if column & (column - 1):  # a generator: the factor, and the basic ones that it is the product of
                basics = sum(1 << self._basic_factor(b) for b in range(self.basic) if column >> b & 1)
                words = np.concatenate([words, words ^ (basics | 1 << number)])
        return int(np.bitwise_count(words[1:]).min())

    def _basic_factor(self, bit: int) -> int:
        """The number of the factor whose column is this bit alone."""
        return self.columns.index(1 << bit)

    @property
    def generators(self) -> tuple[str, ...]:
        """The generators of the further factors, such as `E = ABCD`."""
        made = []
        for number, column in enumerate(self.columns):
            if column & (column - 1):
                basics = [self._basic_factor(b) for b in range(self.basic) if column >> b & 1]
                made.append(f"{letters((number,))} = {letters(sorted(basics))}")
        return tuple(made)

    @property
    def name(self) -> str:
        """Such as `2^(8-2), resolution V` or `2^3, full`."""
        if self.resolution is None:
            return f"2^{self.factors}, full"
        roman = ROMAN.get(self.resolution, str(self.resolution))
        return f"2^({self.factors}-{self.factors - self.basic}), resolution {roman}"

    def estimates(self) -> tuple[list[tuple[Word, ...]], list[tuple[Word, ...]]]:
        """The effects of one and of two factors, aliases together: first those that hold a main effect, then the others.

        Of aliases the main effect stands first; interactions of three and more factors are taken to be nothing and not listed.
        """
        numbers = range(self.factors)
        words: list[Word] = [(number,) for number in numbers] + list(combinations(numbers, 2))
        groups: dict[int, list[Word]] = {}
        for word in words:
            groups.setdefault(reduce(xor, (self.columns[i] for i in word)), []).append(word)
        every = [tuple(group) for group in groups.values()]
        return [g for g in every if len(g[0]) == 1], [g for g in every if len(g[0]) == 2]


def letters(word: Iterable[int]) -> str:
    """Factors by their letters, as textbooks have them: A to Z without I, which stands for the identity.

    >>> letters((0, 7, 8))
    'AHJ'
    """
    return "".join("ABCDEFGHJKLMNOPQRSTUVWXYZ"[number] for number in word)


def full_design(factors: int) -> Design:
    """All combinations of so many factors, 1 to `MOST_FACTORS`. Raises UsageError outside of that."""
    _check(factors)
    return Design(tuple(1 << i for i in range(factors)), factors)


def fractional_design(factors: int, resolution: int) -> Design:
    """The smallest design of this construction with at least the resolution 3, 4 or 5; the full one where no fraction has it.

    Raises UsageError for another resolution, and for fewer than 1 or more than `MOST_FACTORS` factors.
    """
    _check(factors)
    if resolution not in RESOLUTIONS:
        raise UsageError(
            f"{parameter('resolution', resolution)}: a resolution is 3, 4 or 5; `full` takes all combinations."
        )
    for basic in range(1, factors):
        columns = _independent_columns(basic, factors, resolution)
        if (
            basic == factors - 1 >= resolution - 1
        ):  # the best half: the last factor is the product of all others
            columns = [*(1 << i for i in range(basic)), (1 << basic) - 1]
        if len(columns) == factors:
            return Design(_basics_first(columns), basic)
    return full_design(factors)


def _check(factors: int) -> None:
    if not 1 <= factors <= MOST_FACTORS:
        raise UsageError(f"A factorial design has 1 to {MOST_FACTORS} factors; these are {factors}.")


def _independent_columns(basic: int, most: int, resolution: int) -> list[int]:
    """The first columns, in the order of their numbers, any `resolution` - 1 of which are linearly independent."""
    columns: list[int] = []
    sums = {1: {0}, 2: {0}, 3: {0}}  # sums of at most so many of the columns
    for column in range(1, 1 << basic):
        if len(columns) == most:
            break
        if column in sums[resolution - 2]:
            continue
        columns.append(column)
        for number in (3, 2, 1):
            sums[number] |= {column ^ s for s in sums.get(number - 1, {0})}
    return columns


def _basics_first(columns: Sequence[int]) -> tuple[int, ...]:
    """The basic factors have the first letters, as in textbooks."""
    return tuple(sorted(columns, key=lambda column: (column & (column - 1) != 0, column)))
