"""Drafts: a model that fills in no form writes from whole rows one whole instruction, and not one for each demand.

Several such texts under each other say the same in more words. So the next draft takes the place of the one that stands for a
roll-out, and the one that earns more stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from whet.instructions.effects import Round

EARNED_LESS, UNTRIED = "another draft earned more", "a draft that no roll-out tried"


@dataclass
class Drafts:
    """The ids of the drafts that stand, and of those that wait to be tried in their place."""

    standing: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def add(self, ids: Sequence[str]) -> frozenset[str]:
        """Take in new drafts; the first ones stand at once. Returns those that wait."""
        if not self.standing:
            self.standing = tuple(ids)
        else:
            self.waiting = tuple(ids)
        return frozenset(self.waiting)

    def judge(self, rounds: Sequence[Round]) -> tuple[tuple[str, ...], str]:
        """Choose the drafts that leave after the last of the `rounds`, and say why: those that earned less (of equals the older
        ones), or those that wait if that round did not try them."""
        last = rounds[-1]
        older = [r.rewards for r in rounds[:-1] if set(self.standing) <= r.shown.keys()]
        before = list(chain.from_iterable(older))
        if not (last.rewards and set(self.waiting) <= last.shown.keys()):
            leaving, reason = self.waiting, UNTRIED
        elif not before or fmean(last.rewards) >= fmean(before):
            leaving, reason, self.standing = self.standing, EARNED_LESS, self.waiting
        else:
            leaving, reason = self.waiting, EARNED_LESS
        self.waiting = ()
        return leaving, reason
