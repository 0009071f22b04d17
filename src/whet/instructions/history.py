"""What was tried: which rows earlier prompts answered rightly, and what each wording of an instruction earned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.instructions.critiques import CritiqueBatch
from whet.instructions.effects import SHOWN

_TELLING = 5
"""Rows that were answered under both of two wordings from which on these alone are compared."""


@dataclass(frozen=True)
class Answered:
    """A roll-out: the texts that stood, by id, and whether each row was answered rightly."""

    standing: Mapping[str, str]
    right: Mapping[str, bool]


@dataclass
class History:
    """All roll-outs so far, the oldest first."""

    rounds: list[Answered] = field(default_factory=list)

    def add(self, standing: Mapping[str, str], judged: CritiqueBatch) -> None:
        """Take a roll-out in. A row that was answered several times is right where every answer was."""
        right: dict[str, bool] = {}
        for row, full in zip(judged.rows, judged.full, strict=True):
            right[row] = full and right.get(row, True)
        self.rounds.append(Answered(dict(standing), right))

    def mark_lost(self, judged: CritiqueBatch) -> CritiqueBatch:
        """The last roll-out with a mark on each row that is wrong now and was right when it was answered before."""
        before: dict[str, bool] = {}
        for one in self.rounds[:-1]:
            before.update(one.right)
        lost = {row for row, right in self.rounds[-1].right.items() if not right and before.get(row)}
        marked = (replace(c, lost=c.row and c.example in lost) for c in judged.critiques)
        return replace(judged, critiques=tuple(marked))

    def compare_wordings(self, key: str, text: str, tried: Sequence[str]) -> list[str]:
        """What the last earlier wordings of an instruction earned beside the present `text`, a line each: on the rows that were
        answered under both, or else, where these are few, on the rows of each."""
        now = self._rows(lambda one: one.standing.get(key) == text)
        lines = []
        for old in [one for one in dict.fromkeys(tried) if one != text][-SHOWN:]:
            then = self._rows(lambda one, old=old: one.standing.get(key) == old)  # type: ignore[misc]
            same = [row for row in then if row in now]
            if len(same) >= _TELLING:
                beside = f", the present one {sum(now[row] for row in same)} of the same {len(same)}"
                lines.append(f"({sum(then[row] for row in same)} of {len(same)} right{beside}): {old}")
            elif then:
                beside = f", the present one {sum(now.values())} of {len(now)}, on other rows" if now else ""
                lines.append(f"({sum(then.values())} of {len(then)} right{beside}): {old}")
        return lines

    def _rows(self, stood: Callable[[Answered], bool]) -> dict[str, bool]:
        """Whether rows were answered rightly in the last of those roll-outs that answered them."""
        rows: dict[str, bool] = {}
        for one in self.rounds:
            rows.update(one.right if stood(one) else {})
        return rows
