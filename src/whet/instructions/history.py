"""The history of a search: which rows earlier prompts answered right, and what each wording of an instruction earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from whet.instructions.critiques import CritiqueBatch, frequent_answers
from whet.search.minibatch import shorten
from whet.search.versions import differing_stretches

_TELLING = 5
"""Rows that were answered under both of two wordings from which on these alone are compared."""
_SHOWN = 3
"""Earlier wordings of an instruction that are compared at most: those that stood last, and so the one that others grew from."""
_WRONG_SHOWN = 3
"""Wrong answers under another wording that are shown, the most frequent ones."""
_OUTDONE_SHOWN = 400
"""Characters that are shown of a wording that did no better than the present one."""


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

    def mark_lost(self, judged: CritiqueBatch, tried: Mapping[str, Sequence[str]]) -> CritiqueBatch:
        """The last roll-out with a mark on each row that is wrong now and was right when it was answered before. The mark names
        the earlier wordings with which it was right, of those that `compare_wordings` shows; `tried` are the texts that each
        instruction has had, by id."""
        before: dict[str, bool] = {}
        for one in self.rounds[:-1]:
            before.update(one.right)
        lost = {row for row, right in self.rounds[-1].right.items() if not right and before.get(row)}
        named = dict.fromkeys(lost, "")
        for key, text in self.rounds[-1].standing.items():
            numbers = {row: list[str]() for row in lost}
            for number, old, _ in self._earlier(key, text, tried.get(key, ())):
                then = self._rows_under(key, old)
                for row in lost:
                    numbers[row] += [str(number)] if then.get(row) else []
            for row, own in numbers.items():
                named[row] = named[row] or (f"wording {', '.join(own)} of {key}" if own else "")
        marked = (
            replace(c, lost=True, right_with=named[c.example]) if c.row and c.example in lost else c
            for c in judged.critiques
        )
        return replace(judged, critiques=tuple(marked))

    def compare_wordings(self, key: str, text: str, tried: Sequence[str]) -> list[str]:
        """The rewards of the last earlier wordings of an instruction, each with its number: beside those of the present `text` on
        the rows that were answered under both, if these are not too few to compare. The last line is the wording before this. A
        long wording that did no better than the present one is shortened to what differs."""
        now = self._rows_under(key, text)
        lines = []
        earlier = self._earlier(key, text, tried)
        previous = max((at for *_, at in earlier), default=-1)
        for number, old, at in earlier:
            then = self._rows_under(key, old)
            same = [row for row in then if row in now]
            if len(same) >= _TELLING:
                beside = f", the present one {sum(now[row] for row in same)} of the same {len(same)}"
                counted = f"{sum(then[row] for row in same)} of {len(same)} right{beside}"
                then, present = {row: then[row] for row in same}, {row: now[row] for row in same}
            elif then:
                counted, present = f"{sum(then.values())} of {len(then)} right, on other rows", now
            else:
                continue
            wrong = [row for row, right in then.items() if not right]
            before = "the one before; " if at == previous else ""
            ahead = sum(then.values()) * len(present) > sum(present.values()) * len(then)
            whole = ahead or len(old) <= _OUTDONE_SHOWN
            shown = old if whole else shorten(differing_stretches(text, old), _OUTDONE_SHOWN)
            lines.append(
                f"Wording {number} ({before}{counted}{self._wrong_answers(key, old, wrong)}): {shown}"
            )
        return lines

    def _earlier(self, key: str, text: str, tried: Sequence[str]) -> list[tuple[int, str, int]]:
        """The last earlier wordings of an instruction in the order in which they stood last: the number of each, from 1 as they
        were tried, its text, and the roll-out in which it stood last (-1: none)."""
        stood = [one.standing.get(key, "") for one in self.rounds]
        wordings = [
            (number, old, max((n for n, other in enumerate(stood) if other == old), default=-1))
            for number, old in enumerate(dict.fromkeys(tried), 1)
            if old != text
        ]
        return sorted(wordings, key=lambda one: one[2])[-_SHOWN:]

    def describe(self, key: str, text: str, reason: str) -> str:
        """The reason why an instruction left, with what was right where it stood, and the most frequent wrong answers."""
        rows = self._rows_under(key, text)
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

    def _rows_under(self, key: str, text: str) -> dict[str, bool]:
        """Whether rows were answered rightly in the last roll-out that answered them while an instruction had this text."""
        rows: dict[str, bool] = {}
        for one in self.rounds:
            rows.update(one.right if one.standing.get(key) == text else {})
        return rows
