"""Sealed rows that say the same as others: a test that takes them for independent is surer than its rows allow.

Equal inputs are one cluster of the gate already. This module finds inputs that differ only in case, blanks and punctuation at
their ends. Where the embedded encoder is installed, it also finds inputs that say the same in other words. Two inputs with
different numbers (amounts, dates, ids) do not say the same, however near an encoder puts them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._util.words import bare, count_words, fold
from whet.errors import UsageError
from whet.stats import clusters_of
from whet.task import Task
from whet.task.examples import input_hash, seen_text
from whet.types import Example

FEWEST = 20
"""Sealed rows from which on meanings are compared."""
MOST_CHARACTERS = 200_000
"""Of all inputs together, with which the encoder takes some seconds."""
LONGEST = 1_200
"""Characters of an input that the encoder reads at most (256 tokens, about)."""
CLOSE, ABOVE = 0.9, 0.8
"""The cosine from which on two inputs say the same, and how far on the way from the median of all pairs to 1 it must be: inputs
made by one template are all alike."""
SHARE = 0.05
"""Of the sealed rows, from which on other words are said: single pairs change nothing."""
_SHOWN = 60
_TOO_SURE = (
    "the test treats them as independent and is overconfident: if every row exists in 5 spellings, "
    "it promotes equal prompts in up to 18% of the cases; in 10 spellings, in up to 27%."
)
_REMEDY = "Name a column that such rows share as `group`"
_NUMBER = re.compile(r"\d+")
_ADDITION = 3


@dataclass(frozen=True)
class Likeness:
    """Rows that resemble earlier rows: their number, and two of them."""

    rows: int
    example: tuple[Example, Example]


def normalise_input(text: str) -> str:
    """An input without what tells two writings of it apart: case, blanks, forms of characters; of three words or more the
    punctuation at the ends too (-5 is not 5)."""
    plain = " ".join(fold(text).split())
    return (bare(plain) or plain) if count_words(plain) >= _ADDITION else plain


def writing_warnings(task: Task) -> list[str]:
    """Warnings about sealed rows that differ from other sealed rows, or from rows that the search sees, in their writing only."""
    test, seen = task.test, (*task.train, *task.validation)
    keys = [normalise_input(seen_text(example)) for example in test]
    warnings = []
    if alike := _alike(test, keys):
        warnings.append(_test_warning(alike, len(test), "apart from case, blanks or punctuation"))
    known = {normalise_input(seen_text(example)): example for example in reversed(seen)}
    again = [example for example, key in zip(test, keys, strict=True) if key in known]
    if again:
        pair = known[normalise_input(seen_text(again[0]))], again[0]
        warnings.append(_seen_warning(Likeness(len(again), pair), len(test), "apart from spelling"))
    return warnings


def _alike(rows: Sequence[Example], keys: Sequence[str]) -> Likeness | None:
    """The rows that join clusters of the gate when rows with the same key are one."""
    known = clusters_of([input_hash(row) for row in rows], [row.group for row in rows])
    joined = clusters_of([str(cluster) for cluster in known], list(keys))
    lost = len(set(known)) - len(set(joined))
    if not lost:
        return None
    first: dict[int, int] = {}
    for place, one in enumerate(joined):
        start = first.setdefault(one, place)
        if known[start] != known[place]:
            return Likeness(lost, (rows[start], rows[place]))
    return None


async def meaning_warnings(task: Task) -> list[str]:
    """Warnings about sealed rows that say in other words what other sealed rows say, or rows that the search sees.

    They are compared where the encoder is installed and has little to read, in a thread. No model is asked.
    """
    return [] if task.world is not None else await asyncio.to_thread(_meaning_warnings, task)


def _meaning_warnings(task: Task) -> list[str]:
    test, seen = task.test, (*task.train, *task.validation)
    texts = [seen_text(example)[:LONGEST] for example in (*test, *seen)]
    if len(test) < FEWEST or sum(map(len, texts)) > MOST_CHARACTERS:
        return []
    vectors = _embed(texts)
    if vectors is None:
        return []
    near = vectors @ vectors[: len(test)].T  # rows: all; columns: sealed
    among = near[: len(test)]
    typical = float(np.median(among[np.triu_indices(len(test), 1)]))
    numbers = _numbers(texts)
    near[numbers[:, None] != numbers[: len(test)]] = -1.0
    least = max(CLOSE, typical + ABOVE * (1.0 - typical))
    names = [normalise_input(seen_text(example)) for example in test]
    first = [int(np.argmax(among[place, : place + 1] >= least)) for place in range(len(test))]
    warnings = []
    alike = _alike(test, [names[place] for place in _roots(first)])
    written = _alike(test, names)
    rows = (alike.rows if alike else 0) - (written.rows if written else 0)
    if alike and rows >= SHARE * len(test):
        pair = _pair(test, names, first) or alike.example
        one, other = map(_short, pair)
        warnings.append(
            f"{rows} of the {len(test)} sealed rows may say the same as another sealed row in other "
            f"words: an encoder finds them close (a cosine of {CLOSE:g} or more), such as {one} and "
            f"{other}. The encoder can be wrong, so look at these rows. If they do say the same, "
            f"{_TOO_SURE} {_REMEDY}, or take them out."
        )
    best = near[len(test) :].max(0, initial=-1.0)
    known = {normalise_input(seen_text(example)) for example in seen}
    again = [i for i in range(len(test)) if best[i] >= least and names[i] not in known]
    if len(again) >= SHARE * len(test):
        pair = seen[int(near[len(test) :, again[0]].argmax())], test[again[0]]
        known_text, own = map(_short, pair)
        warnings.append(
            f"{len(again)} of the {len(test)} sealed rows may say the same as a row of train or "
            f"validation in other words: an encoder finds them close (a cosine of {CLOSE:g} or more), "
            f"such as {own}, which is {known_text} there. The encoder can be wrong, so look at these "
            "rows. If they do say the same, the search has seen them, and the prompt may do worse on "
            f"other inputs. {_REMEDY}, which keeps them in one split, or take them out."
        )
    return warnings


def _numbers(texts: Sequence[str]) -> NDArray[np.int64]:
    """For each text which numbers it has, whatever their order: equal where they are the same."""
    known: dict[tuple[str, ...], int] = {}
    numbers_of = (tuple(sorted(_NUMBER.findall(text))) for text in texts)
    return np.array([known.setdefault(numbers, len(known)) for numbers in numbers_of], dtype=np.int64)


def _roots(first: Sequence[int]) -> list[int]:
    """For each place the earliest one that it is joined with, over others too."""
    roots: list[int] = []
    for place, earlier in enumerate(first):
        roots.append(place if earlier == place else roots[earlier])
    return roots


def _pair(
    test: Sequence[Example], names: Sequence[str], first: Sequence[int]
) -> tuple[Example, Example] | None:
    """Two rows that say the same in other words."""
    return next((((test[a], test[b])) for b, a in enumerate(first) if names[a] != names[b]), None)


def _embed(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Unit vectors of texts by the encoder in this process; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    from whet.models.embedded import load

    try:
        vectors = load("encoder").embed(texts)  # type: ignore[attr-defined]
    except UsageError:
        return None
    return np.asarray(vectors, dtype=np.float64)


def _short(example: Example) -> str:
    """The beginning of a row's input, and where the row was read."""
    text = " ".join(seen_text(example).split())
    text = f'"{text}"' if len(text) <= _SHOWN else f'"{text[:_SHOWN]} ..."'
    return f"{text} at {example.where}" if example.where else text


def _test_warning(alike: Likeness, of: int, how: str) -> str:
    first, second = map(_short, alike.example)
    return (
        f"{alike.rows} of the {of} sealed rows say the same as another sealed row {how}, such as "
        f"{first} and {second}: {_TOO_SURE} {_REMEDY}, or take them out."
    )


def _seen_warning(alike: Likeness, of: int, how: str) -> str:
    first, second = map(_short, alike.example)
    return (
        f"{alike.rows} of the {of} sealed rows say the same as a row of train or validation {how}, "
        f"such as {second}, which is {first} there: the search sees them, and the prompt may do worse "
        f"on other inputs. {_REMEDY}, which keeps them in one split, or take them out."
    )
