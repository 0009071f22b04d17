"""The hundred hidden rules in their fixed order: the first N are the rules of the benchmark at N.

The order takes one rule from every part of a page in turn, so that each prefix is varied and the sets
for N = 10, 25, 50 and 100 lie in one another. All rules can be obeyed at once, and each can be broken
alone: the tests prove it page by page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from benchmarks.simulated.language import Stance, sentences
from benchmarks.simulated.page import obedient_page
from benchmarks.simulated.rule import Page, Rule
from benchmarks.simulated.rulebook import (
    contact,
    document,
    gallery,
    hero,
    links,
    meta,
    navigation,
    offers,
    sections,
    wording,
)

from whet.errors import UsageError

_PARTS = (hero, meta, sections, offers, wording, navigation, gallery, contact, document, links)

RULES: tuple[Rule, ...] = tuple(
    rule for row in zip(*(part.RULES for part in _PARTS), strict=True) for rule in row
)
BY_ID = {rule.id: rule for rule in RULES}
SIZES = (10, 25, 50, 100)


def first(count: int) -> tuple[Rule, ...]:
    """The first `count` rules. Raises UsageError outside 1 to 100."""
    if not 1 <= count <= len(RULES):
        raise UsageError(f"There are rules 1 to {len(RULES)}; {count} is not among these numbers.")
    return RULES[:count]


def page_breaking(request: str, broken: Iterable[str]) -> Page:
    """The page for a request on which exactly the rules with the given ids are broken."""
    page: Page = json.loads(
        json.dumps(obedient_page(request))
    )  # a copy, ten times as fast as `copy` makes it
    wanted = set(broken)
    for rule in RULES:
        if rule.id in wanted:
            rule.breaks(page)
    return page


@lru_cache(maxsize=50_000)
def stances(sentence: str) -> tuple[tuple[str, Stance], ...]:
    """The rules that a sentence concerns, with what it does to each."""
    pairs = ((rule.id, rule.stance(sentence)) for rule in RULES)
    return tuple((name, stance) for name, stance in pairs if stance is not Stance.NONE)


@lru_cache(maxsize=20_000)
def read(sentence: str) -> str | None:
    """The one rule that a sentence is about, if any: the most definite of those that it concerns."""
    ranked = sorted(stances(sentence), key=lambda pair: -pair[1].value)
    return ranked[0][0] if ranked else None


__all__ = ["BY_ID", "RULES", "SIZES", "first", "page_breaking", "read", "sentences", "stances"]
