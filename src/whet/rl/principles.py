"""A population of principle lists with skill ratings: what E-SPL evolves beside the weights.

Evolutionary System Prompt Learning, arXiv:2602.14697; sizes and rules as in the published code (LunjunZhang/E-SPL).
Ratings are TrueSkill's (Herbrich, Minka, Graepel 2006, NIPS 19), computed by the library `trueskill`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.errors import UsageError
from whet.replies import json_values, list_items
from whet.types import JSON

MU, SIGMA = 25.0, 25.0 / 3
BETA, TAU, DRAW = 25.0 / 6, 25.0 / 300, 0.10
TIE = 0.01
INFLATION = 1.0
LONGEST = 32  # words of a principle
Operation = dict[str, Any]


@dataclass(frozen=True)
class PrincipleList:
    """A list of short principles with its skill `mu` +- `sigma`, the step it was born in and its parents."""

    principles: tuple[str, ...] = ()
    mu: float = MU
    sigma: float = SIGMA
    born: int = 0
    parents: tuple[int, ...] = ()
    key: int = 0

    @property
    def low(self) -> float:
        """mu - 2 sigma: skill that it has almost surely."""
        return self.mu - 2 * self.sigma

    @property
    def high(self) -> float:
        """mu + 2 sigma: skill that it may have."""
        return self.mu + 2 * self.sigma

    @property
    def text(self) -> str:
        """The principles as a model reads them, one a line: `G0: ...`."""
        return "\n".join(f"G{i}: {principle}" for i, principle in enumerate(self.principles))

    def to_json(self) -> dict[str, JSON]:
        """The program as JSON."""
        return {
            "principles": list(self.principles),
            "mu": self.mu,
            "sigma": self.sigma,
            "born": self.born,
            "parents": list(self.parents),
            "key": self.key,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PrincipleList:
        """The program that `to_json` wrote."""
        lists = {"principles": tuple(value["principles"]), "parents": tuple(value["parents"])}
        return cls(**{**value, **lists})


def select_programs(pool: Sequence[PrincipleList], k: int, recent: int) -> list[PrincipleList]:
    """`k` programs of the newest `recent`, the newest always among them; fewer when there are fewer.

    LUCB: the champion by mu - 2 sigma and challengers by mu + 2 sigma.
    """
    window = sorted(pool, key=lambda p: p.key)[-recent:]
    champion = max(window, key=lambda p: (p.low, p.key))
    challengers = sorted((p for p in window if p != champion), key=lambda p: (-p.high, -p.key))
    chosen = [champion, *challengers][:k]
    return chosen if window[-1] in chosen else [*chosen[: k - 1], window[-1]]


def ranks(scores: Sequence[float]) -> list[int]:
    """Rank of each score, 0 the best; neighbours in order that lie within `TIE` share a rank. Scores of 0 to 1.

    >>> ranks([0.5, 0.9, 0.895])
    [1, 0, 0]
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    ranking = [0] * len(scores)
    for before, i in itertools.pairwise(order):
        ranking[i] = ranking[before] + (scores[before] - scores[i] > TIE)
    return ranking


def update_ratings(programs: Sequence[PrincipleList], scores: Sequence[float]) -> list[PrincipleList]:
    """The programs with their ratings after a contest in which they reached these scores (0 to 1). One alone stays as it is.

    Raises UsageError when the library `trueskill` is missing.
    """
    if len(programs) < 2:
        return list(programs)
    try:
        import trueskill
    except ModuleNotFoundError as error:
        raise UsageError("espl needs trueskill. Install it with: pip install 'whet[train]'") from error
    rules = trueskill.TrueSkill(mu=MU, sigma=SIGMA, beta=BETA, tau=TAU, draw_probability=DRAW)
    teams = [(rules.create_rating(p.mu, p.sigma),) for p in programs]
    after = rules.rate(teams, ranks=ranks(scores))
    return [replace(p, mu=r.mu, sigma=r.sigma) for p, (r,) in zip(programs, after, strict=True)]


def mutated_rating(parent: PrincipleList) -> tuple[float, float]:
    """Rating of a mutation: the parent's mean, its deviation inflated: sqrt(sigma^2 + 1)."""
    return parent.mu, math.sqrt(parent.sigma**2 + INFLATION**2)


def crossed_rating(parents: Sequence[PrincipleList]) -> tuple[float, float]:
    """Rating of a crossover: the precision-weighted mean of its parents; sqrt(1 / sum of precisions + 1)."""
    precisions = [1 / p.sigma**2 for p in parents]
    whole = sum(precisions)
    mean = sum(w * p.mu for w, p in zip(precisions, parents, strict=True)) / whole
    return mean, math.sqrt(1 / whole + INFLATION**2)


def evict(pool: Sequence[PrincipleList], most: int) -> list[PrincipleList]:
    """The pool cut to `most` programs: the oldest go, but never the best rated (by mu - 2 sigma) nor the newest."""
    kept = sorted(pool, key=lambda p: p.key)
    best = max(kept, key=lambda p: (p.low, p.key))
    while len(kept) > max(most, 2):
        oldest = next((p for p in kept[:-1] if p != best), None)
        if oldest is None:
            break
        kept.remove(oldest)
    return kept


def operations_in(reply: str, *, whole: bool = True) -> list[Operation]:
    """The operations in a reply: the objects of a JSON list, or of a list in a JSON object, of the last one that holds any.
    An empty list when nothing can be read. `whole` says that the reply was not cut off.
    """
    for value in json_values(reply, whole=whole):
        for members in value.values() if isinstance(value, dict) else [value]:
            if isinstance(members, list) and (
                operations := [member for member in members if isinstance(member, dict)]
            ):
                return operations
    return []


def operations_or_lines(reply: str, op: str) -> list[Operation]:
    """The operations in a reply. In one without any JSON each list item, or else the whole text, is the text of an operation.

    A small model often writes what it was asked for, and not in the form.

    >>> operations_or_lines("- Look twice.\\n- Be brief.", "add")
    [{'op': 'add', 'text': 'Look twice.'}, {'op': 'add', 'text': 'Be brief.'}]
    """
    if json_values(reply):
        return operations_in(reply)
    return [{"op": op, "text": text} for text in list_items(reply) or [reply]]


def apply_operations(
    principles: Sequence[str], operations: Sequence[Operation], most: int
) -> tuple[str, ...]:
    """Principles after typed operations; an operation that makes no sense is left out.

    {"op": "add", "text"}; {"op": "modify", "id": "G1", "text"}; {"op": "merge", "ids": ["G0", "G2"], "text"} (all
    must exist; the merged one stands in the place of the first); {"op": "remove", "id"}. A text has at most 32 words
    and is on one line; equal principles stand once; beyond `most` nothing is added. Ids are those before the
    operations.
    """
    kept: dict[str, str] = {f"G{i}": p for i, p in enumerate(principles)}
    added = 0
    for operation in operations:
        kind, text = operation.get("op"), _principle(operation.get("text"))
        listed = operation.get("ids", [operation.get("id")])
        ids = [str(i) for i in listed] if isinstance(listed, list) else []
        if kind == "add" and text and len(kept) < most:
            added += 1
            kept[f"new {added}"] = text
        elif kind == "modify" and text and ids[:1] and ids[0] in kept:
            kept[ids[0]] = text
        elif kind == "remove" and ids[:1] and ids[0] in kept:
            del kept[ids[0]]
        elif kind == "merge" and text and len(set(ids)) > 1 and all(i in kept for i in ids):
            for i in ids[1:]:
                kept.pop(i, None)
            kept[ids[0]] = text
    return tuple(dict.fromkeys(kept.values()))


def _principle(text: object) -> str:
    """One line of at most 32 words; empty for anything else."""
    if not isinstance(text, str):
        return ""
    words = text.split()
    return " ".join(words) if 0 < len(words) <= LONGEST else ""
