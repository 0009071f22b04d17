"""Upkeep: which instructions are to be tried without, what a trial says, and what a bound on tokens leaves out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pvariance

import numpy as np

from whet.instructions.changes import of_models
from whet.instructions.effects import Effects, Round
from whet.instructions.neighbours import trigrams
from whet.prompt.instructions import Instruction, Ledger

SHARE = 0.2
"""The share of all instructions that a trial leaves out at most."""
_CAME_BACK = 0.5
_TELLING = 0.1
_WORSE = 1.64
_ENOUGH = 24


@dataclass
class Trials:
    """Groups of instructions that a roll-out does without. A group that turns out to matter is halved until the instruction
    that matters is known; `settled` ids are not tried again, `silent` ones were missed by nobody while others were, `missed` ones
    were missed once."""

    queue: list[tuple[str, ...]] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)

    def propose(self, ids: Sequence[str], *, first: bool = False) -> None:
        """Try to do without these, unless that was tried before; `first`, before what waits."""
        known = self.settled.union(*self.queue)
        fresh = tuple(key for key in dict.fromkeys(ids) if key not in known)
        if fresh:
            self.queue.insert(0 if first else len(self.queue), fresh)

    def next(
        self, ledger: Ledger, doubted: Sequence[str] = (), spared: Collection[str] = ()
    ) -> frozenset[str]:
        """The next group that still stands, without those that are to be `spared`, or nothing. Those that are `doubted` are the
        next one, together with silent ones."""
        active = of_models(ledger).keys() - set(spared)
        while self.queue:
            group = [key for key in self.queue.pop(0) if key in active]
            if not self.silent.issuperset(group):
                return frozenset(group)
            doubted = list(dict.fromkeys([*group, *doubted]))
        return frozenset([key for key in doubted if key in active][: most_of(ledger)])

    def judge(self, left_out: Collection[str], effects: Effects, numbered: bool) -> list[str]:
        """The instructions that nobody missed while the last round was measured without them, by id.

        One that critiques demanded stays (for good, if several did, or twice), and the others are tried once more without it;
        those that nobody misses again leave. When the reward fell and no critique says why, the group is tried again in halves.
        Otherwise an instruction is not missed in three cases. Critiques were so frequent before, or are of others that are left
        out, that their absence over all roll-outs without it has a probability below 10%. No number of the reader can be used
        (`numbered` false), and the reward held. The reward rose by more than chance, and nothing else was different. What is
        undecided may be tried again.
        """
        last, before = effects.rounds[-1], [r for r in effects.rounds[:-1] if set(left_out) <= r.shown.keys()]
        missed = {key for key in left_out if last.violated.get(key)}
        rest = sorted(set(left_out) - missed)
        self.settled |= {key for key in missed if last.violated[key] > 1 or key in self.missed}
        self.missed |= missed
        if not missed and before and worse(last, before[-1]):
            half = len(rest) // 2
            if half:
                self.queue[:0] = [tuple(rest[:half]), tuple(rest[half:])]
            else:
                self.settled |= set(rest)
            return []
        alone = bool(before) and before[-1].shown.keys() == last.shown.keys() | set(left_out)
        harmful = not missed and alone and worse(before[-1], last)
        doubted = [key for key in rest if key in self.silent] if missed else rest
        unneeded = [key for key in doubted if harmful or self._tells(key, effects, numbered)]
        self.settled |= set(unneeded)
        if missed:
            self.silent |= set(rest)
            self.queue.insert(0, tuple(key for key in rest if key not in unneeded))
        return unneeded

    @staticmethod
    def _tells(key: str, effects: Effects, numbered: bool) -> bool:
        """Whether the silence of all roll-outs without an instruction says that it is not needed."""
        later = [r for r in effects.rounds[effects.since[key] + 1 :] if key not in r.shown]
        without = sum(r.answers if r.read is None else r.read for r in later)
        expected = max(effects.first_rate(key), effects.missed_rate())
        if not numbered or not expected:
            return without >= _ENOUGH
        return math.pow(1 - min(1.0, expected), without) < _TELLING


def worse(one: Round, other: Round) -> bool:
    """Whether the mean reward fell from `other` to `one` by more than chance allows (one-sided z-test at 5%). The variance is
    that of both together: a few rewards that are all equal say little about their own."""
    if min(len(one.rewards), len(other.rewards)) < 2:
        return False
    fall = fmean(other.rewards) - fmean(one.rewards)
    variance = pvariance([*one.rewards, *other.rewards])
    error = math.sqrt(variance * sum(1 / len(r.rewards) for r in (one, other)))
    return fall > max(1e-9, _WORSE * error)


def suspects(ledger: Ledger, effects: Effects, settled: Collection[str] = ()) -> list[str]:
    """Instructions that may do nothing: those of one source or none, first those that came late, and those made of critiques
    much like the ones behind another instruction that came with them or later; where no critiques are known, those much like a
    later one. A fifth of all at most, the most suspicious first, of these those of the fewest sources, and then the newest."""
    own = list(of_models(ledger).values())
    quotes = [(i, text) for i in own for text in i.critiques or (i.text,)]
    vectors = trigrams([text for _, text in quotes])
    score = {i.id: 1.0 if effects.overdue(i.id) else _CAME_BACK for i in own if i.sources <= 1}
    near = vectors @ vectors.T
    for a, b in np.argwhere(near >= _CAME_BACK):
        (first, _), (second, _) = quotes[a], quotes[b]
        later = effects.since.get(second.id, 0) >= effects.since.get(first.id, 0)
        later = later if first.critiques and second.critiques else a < b
        if first.id != second.id and later:
            score[first.id] = max(score.get(first.id, 0.0), float(near[a, b]))
    places = {i.id: (i.sources, -effects.since.get(i.id, 0), -n) for n, i in enumerate(own)}
    keys = sorted(score.keys() - set(settled), key=lambda key: (-score[key], *places[key]))
    return keys[: most_of(ledger)]


def most_of(ledger: Ledger) -> int:
    """The largest number of instructions that a trial of doubted instructions leaves out."""
    return max(1, int(SHARE * len(of_models(ledger))))


def over_budget(ledger: Ledger, effects: Effects, tokens: int | None) -> list[Instruction]:
    """Instructions of models to leave out until the rest has at most `tokens` tokens: those that answered the fewest
    violations per token first."""
    rates = {i: effects.before(i.id) for i in of_models(ledger).values()}
    worth = {i: (hits + 0.5) / (n + 1) / max(1, i.tokens) for i, (hits, n) in rates.items()}
    left, out = ledger.tokens, list[Instruction]()
    for one in sorted(worth, key=lambda i: worth[i]):
        if tokens is None or left <= tokens:
            break
        out.append(one)
        left -= one.tokens
    return out
