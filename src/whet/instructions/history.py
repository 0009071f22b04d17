"""The history of a search: which rows earlier prompts answered right, and what each wording of an instruction earned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from whet.instructions.critiques import CritiqueBatch, frequent_answers

_TELLING = 5
"""Rows that were answered under both of two wordings from which on these alone are compared."""
_SHOWN = 3
"""Earlier wordings of an instruction that are compared at most: those that stood last, and so the one that others grew from."""
_WRONG_SHOWN = 3
"""Wrong answers under another wording that are shown, the most frequent ones."""


@dataclass(frozen=True)
class Answered:
    """A roll-out: the texts that stood, by id, whether each row was answered rightly, and how wrong answers begin."""

    standing: Mapping[str, str]
    right: Mapping[str, bool]
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass
class History:
    """All roll-outs so far, the oldest first."""

    rounds: list[Answered] = field(default_factory=list)

    def add(self, standing: Mapping[str, str], judged: CritiqueBatch) -> None:
        """Take a roll-out in. A row that was answered several times is right where every answer was."""
        right: dict[str, bool] = {}
        for row, full in zip(judged.rows, judged.full, strict=True):
            right[row] = full and right.get(row, True)
        outputs = zip(judged.rows, judged.full, judged.outputs, strict=False)
        wrong = {row: output for row, full, output in outputs if not full}
        self.rounds.append(Answered(dict(standing), right, wrong))

    def mark_lost(self, judged: CritiqueBatch) -> CritiqueBatch:
        """The last roll-out with a mark on each row that is wrong now and was right when it was answered before."""
        before: dict[str, bool] = {}
        for one in self.rounds[:-1]:
            before.update(one.right)
        lost = {row for row, right in self.rounds[-1].right.items() if not right and before.get(row)}
        marked = (replace(c, lost=c.row and c.example in lost) for c in judged.critiques)
        return replace(judged, critiques=tuple(marked))

    def compare_wordings(self, key: str, text: str, tried: Sequence[str]) -> list[str]:
        """The rewards of the last earlier wordings of an instruction, one line each: beside those of the present `text` on the
        rows that were answered under both, if these are not too few to compare. The last line is the wording before this."""
        now = self._rows(lambda one: one.standing.get(key) == text)
        lines = []
        stood = [one.standing.get(key, "") for one in self.rounds]
        last = {one: max((n for n, other in enumerate(stood) if other == one), default=-1) for one in tried}
        previous = max((n for one, n in last.items() if one != text), default=-1)
        for old in sorted((one for one in last if one != text), key=lambda one: last[one])[-_SHOWN:]:
            then = self._rows(lambda one, old=old: one.standing.get(key) == old)  # type: ignore[misc]
            same = [row for row in then if row in now]
            if len(same) >= _TELLING:
                beside = f", the present one {sum(now[row] for row in same)} of the same {len(same)}"
                counted = f"{sum(then[row] for row in same)} of {len(same)} right{beside}"
                then = {row: then[row] for row in same}
            elif then:
                counted = f"{sum(then.values())} of {len(then)} right, on other rows"
            else:
                continue
            wrong = [row for row, right in then.items() if not right]
            before = "the one before; " if last[old] == previous else ""
            lines.append(f"({before}{counted}{self._wrong_answers(key, old, wrong)}): {old}")
        return lines

    def describe(self, key: str, text: str, reason: str) -> str:
        """The reason why an instruction left, with what was right where it stood, and the most frequent wrong answers."""
        rows = self._rows(lambda one: one.standing.get(key) == text)
        if not rows:
            return reason
        wrong = [row for row, right in rows.items() if not right]
        counted = f"{sum(rows.values())} of {len(rows)} right with it"
        return f"{reason}: {counted}{self._wrong_answers(key, text, wrong)}"

    def _wrong_answers(self, key: str, text: str, rows: Sequence[str]) -> str:
        """The most frequent answers to `rows`, which were wrong under a wording; empty if none is known."""
        known = (one.wrong for one in self.rounds if one.standing.get(key) == text)
        wrong = dict(chain.from_iterable(answers.items() for answers in known))
        often = frequent_answers((wrong[row] for row in rows if row in wrong), most=_WRONG_SHOWN)
        return f"; wrong answers: {', '.join(often)}" if often else ""

    def _rows(self, stood: Callable[[Answered], bool]) -> dict[str, bool]:
        """Whether rows were answered rightly in the last of those roll-outs that answered them."""
        rows: dict[str, bool] = {}
        for one in self.rounds:
            rows.update(one.right if stood(one) else {})
        return rows
